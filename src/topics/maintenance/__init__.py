"""Offline work on a data directory: check it, and repair it."""
