"""SQL statements and the interactive prompt."""
