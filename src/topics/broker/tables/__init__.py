"""Tables, their changes, routes, archives, and the versions of each."""
