"""How facts and records are kept on disk: frames, the log, sealed segments, snapshots, recovery and check.

The disk is reached only through the seam in `fs.py`, so that a test can cut the power or fail a call anywhere.
This room knows bytes, offsets and seqs; what a topic decides is the engine's business.
"""
