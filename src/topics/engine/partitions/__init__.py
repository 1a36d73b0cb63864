"""Partitions: one log each, with its segments, tags, reservations and deletes."""
