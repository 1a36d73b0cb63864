"""Materialised tables: a Delta table that a change topic keeps equal to its source table, or to the history of its rows."""
