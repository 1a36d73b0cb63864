"""What the broker runs on: the event loop, threads, the clock, and work in slices."""
