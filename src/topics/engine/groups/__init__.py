"""Consumer groups: positions, members and generations."""
