"""HTTP/1.1 on `asyncio.Protocol` and httptools: bytes to requests, answers to bytes, and nothing about topics.

    listener = Listener(application, HttpLimits())
    host, port = await listener.start("127.0.0.1", 0)
    await listener.stop(grace=10)

An `Application` has one method, `handle(request)`, which answers with one of

    request.respond(status, body, headers, content_type)    a whole answer, now or later
    request.stream(headers) -> Stream                       an answer in pieces: SSE
    request.upgrade() -> Duplex                             the bare connection: WebSocket

and optionally `admit(head)`, to refuse before a large body is read, `error_body(request, error)`, to explain an
exception, and `slow(request, status, body)`, to hear of slow ones. See `application.py`.

Where to read on: `protocol.py` one connection; `assembler.py` from bytes to messages; `head.py` which heads are
refused; `memory.py` why most heads are not parsed; `listener.py` all connections together; `limits.py` every bound
and what happens at it.
"""

from .application import Admitting, Application, Explaining, Observing
from .channel import Channel
from .duplex import Duplex
from .head import Door, RequestHead
from .limits import HttpLimits
from .listener import Listener
from .refusal import Refusal, error_body, refusal
from .request import Request, respond_together
from .response import JSON, JSON_STARTS, LENGTHS
from .stream import Stream

__all__ = [
    "JSON",
    "JSON_STARTS",
    "LENGTHS",
    "Admitting",
    "Application",
    "Channel",
    "Door",
    "Duplex",
    "Explaining",
    "HttpLimits",
    "Listener",
    "Observing",
    "Refusal",
    "Request",
    "RequestHead",
    "Stream",
    "error_body",
    "refusal",
    "respond_together",
]
