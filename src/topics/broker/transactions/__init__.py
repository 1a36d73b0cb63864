"""Stages and commits: records written ahead and made readable together."""
