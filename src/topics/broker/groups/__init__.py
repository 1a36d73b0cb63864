"""Consumer groups: members, partitions and positions."""
