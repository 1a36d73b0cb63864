"""Values, names, configuration and errors that all packages share. Imports no other package and does no I/O."""
