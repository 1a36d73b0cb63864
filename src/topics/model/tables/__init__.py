"""Tables: locations, schemas, changes, routes and archives."""
