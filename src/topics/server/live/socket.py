"""GET /v0/ws: the handler, apart from the rest because the WebSocket library takes a tenth of the time of a start."""

from topics.server.operations import Call, handles


@handles("get_socket")
def get_socket(call: Call[None, None]) -> None:
    from topics.server.live.websocket import open_socket

    open_socket(call)
