"""The archive job, and reading a topic's history from its archive."""
