"""Declarations of tables, archives and pipelines."""
