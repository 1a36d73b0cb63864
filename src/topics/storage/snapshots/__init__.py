"""Snapshots, their content, and the files that recovery needs."""
