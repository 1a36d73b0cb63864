"""Tables, positions of their sources, and the versions of routes, tables and archives."""
