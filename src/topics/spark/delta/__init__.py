"""Delta tables as a source of changes: their change data feed becomes records of a change topic."""
