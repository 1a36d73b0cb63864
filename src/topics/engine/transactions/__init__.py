"""Commits over several topics, stages and the fences of producers."""
