"""Encodings without I/O: bytes to values and values to bytes."""
