"""A disk in memory that can lose power, and a server on a slow disk."""
