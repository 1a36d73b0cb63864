"""Values, names, configuration and errors that every room shares. Imports nothing of ours and touches nothing outside."""
