"""POST /api/sql, the SELECT workers and the system tables."""
