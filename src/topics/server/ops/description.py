"""GET /openapi.json and GET /docs: the API described by its declarations.

Both are made once, in a thread: it takes longer than a step on the event loop may take.
"""

from collections.abc import Callable
from functools import cache

from topics.api.ops import HTML
from topics.model.errors import TopicsError
from topics.server.operations import Call, handles
from topics.server.responses import encode, send_error

JSON_TYPE = b"application/json"


@handles("get_openapi")
def get_openapi(call: Call[None, None]) -> None:
    _send(call, _openapi, JSON_TYPE)


@handles("get_docs")
def get_docs(call: Call[None, None]) -> None:
    _send(call, _docs, HTML.encode())


def _send(call: Call[None, None], make: Callable[[], bytes], content_type: bytes) -> None:
    def respond(text: bytes | None, _error: BaseException | None) -> None:
        if text is None:
            send_error(call.request, TopicsError("the description of the API cannot be made"))
        else:
            call.request.respond(200, text, content_type=content_type)

    # Also when it has been made: `functools.cache` answers at once, and the first requests share the one thread.
    call.broker.runtime.run_in_thread("bulk", make, respond)


# Imported when they are first needed: a server starts without them.
@cache
def _openapi() -> bytes:
    from topics.api.documents.openapi import document

    return encode(document())


@cache
def _docs() -> bytes:
    from topics.api.documents.reference import html

    return html().encode()
