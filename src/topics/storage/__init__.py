"""Files of a data directory: the log and its frames, sealed segments, packs, snapshots.

The disk is reached only through `fs.py`, so a test can cut the power or fail any call. This package knows bytes, offsets
and seqs; the engine decides what a topic does.
"""
