"""HTTP handlers of consumer groups."""
