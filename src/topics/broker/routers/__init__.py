"""Routers: their definitions, and the forwarding of records."""
