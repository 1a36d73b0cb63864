"""Capture: reads the changes of a table where they are made and sends them to the server, each once."""
