"""Topics: configuration and partitions; idempotency keys, priority, and what is sealed or packed first."""
