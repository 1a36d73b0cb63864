"""HTTP/1.1 on `asyncio.Protocol` and httptools: bytes to requests, responses to bytes, and nothing about topics.

    listener = Listener(application, HttpLimits())
    host, port = await listener.start("127.0.0.1", 0)
    await listener.stop(grace=10)

An `Application` has one method, `handle(request)`, which calls one of

    request.respond(status, body, headers, content_type)    a complete response, now or later
    request.stream(headers) -> Stream                       a response in pieces: SSE
    request.upgrade() -> Duplex                             the bare connection: WebSocket

and optionally `admit(head)`, to refuse a request before its large body is read, `error_body(request, error)`, to render
a 500, and `slow(request, status, body)`, to log slow requests. See `application.py`.

    listener.py              the listening port, all connections, shutdown
    limits.py                every limit and the outcome of reaching it
    connection/connection.py one connection: transport callbacks, deadlines, closing
    connection/state.py      its states and transitions
    connection/fast_path.py  why most heads are not parsed
    messages/assembler.py    bytes to messages
    messages/head.py         which heads are refused
"""

from .application import Admitting, Application, Explaining, Observing
from .connection.channel import Channel
from .connection.duplex import Duplex
from .connection.stream import Stream
from .limits import HttpLimits
from .listener import Listener
from .messages.head import PendingRequests, RequestHead
from .messages.refusal import Refusal, error_body, refusal
from .messages.response import JSON, JSON_STARTS, LENGTHS
from .request import Request, drop_together, respond_together

__all__ = [
    "JSON",
    "JSON_STARTS",
    "LENGTHS",
    "Admitting",
    "Application",
    "Channel",
    "Duplex",
    "Explaining",
    "HttpLimits",
    "Listener",
    "Observing",
    "PendingRequests",
    "Refusal",
    "Request",
    "RequestHead",
    "Stream",
    "drop_together",
    "error_body",
    "refusal",
    "respond_together",
]
