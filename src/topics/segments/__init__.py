"""Segments on disk, behind the engine's segment interface: sealed, packed, and the cache of what was read."""
