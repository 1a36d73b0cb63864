"""What the server and the broker run on: the event loop, threads, the clock, work in slices, replies and health."""
