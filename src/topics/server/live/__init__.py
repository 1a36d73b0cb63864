"""Live streams: server-sent events and WebSocket."""
