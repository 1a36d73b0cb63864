"""The HTTP server: decodes requests, checks permissions, calls the broker, encodes responses.

All input from clients is bounded.
"""
