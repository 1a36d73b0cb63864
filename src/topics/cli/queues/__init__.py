"""Commands about queues and their jobs."""
