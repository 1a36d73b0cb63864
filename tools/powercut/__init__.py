"""Cut the power of a disk under a running server, many times, and check what is promised."""
