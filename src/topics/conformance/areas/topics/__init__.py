"""Topics and their records."""
