"""HTTP handlers of tables, changes, routes, archives and pipelines."""
