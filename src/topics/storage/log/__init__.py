"""The write-ahead log and its frames."""
