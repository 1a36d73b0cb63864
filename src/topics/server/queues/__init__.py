"""HTTP handlers of queues."""
