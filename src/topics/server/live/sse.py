"""Server-sent events: frames of a feed as `text/event-stream`.

    id: <resume token>          on every event, so that a client can always go on from the last one it has seen
    event: record | tombstone | caught-up | topic-deleted | error
    data: <one JSON object>

A session may ask for the names of WebSocket messages (`"event_names": "websocket"`): `caught_up` and `topic_deleted`.

A line of the stream ends at LF, CR or CRLF, and the client's own JSON may hold those between its tokens. An LF is sent
as the end of one `data:` line and the beginning of the next, which clients join with an LF again: nothing changes. A CR
has no such way back and becomes a space; both are white space that means nothing, and the value stays the same.
"""

from topics.api.errors import STATUS_OF
from topics.api.live import EventNames
from topics.engine.topics.live_frames import Broken, LiveFrame
from topics.server.live.events import FRAME_NAMES, frame_fields
from topics.server.responses import encode

# How the events of a session are spelled: as the contract spells them over SSE, or as over WebSocket.
HEADERS = b"Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"
CONTENT_TYPE = b"text/event-stream; charset=utf-8"
RETRY = b"retry: 2000\n\n"


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms


def event(name: bytes, data: bytes, event_id: bytes = b"") -> bytes:
    """One event. `data` is JSON."""
    if b"\r" in data:
        data = data.replace(b"\r", b" ")
    if b"\n" in data:
        data = data.replace(b"\n", b"\ndata: ")
    start = b"id: %b\n" % event_id if event_id else b""
    return b"%bevent: %b\ndata: %b\n\n" % (start, name, data)


def frame_event(frame: LiveFrame, names: EventNames = "sse") -> bytes:
    """The event of a frame without its id; rendered once for all streams with the same names."""
    text = frame.texts.get(names)
    if text is None:
        text = frame.texts[names] = _rendered(frame, names)
    return text


def error_event(code: int, message: str, **fields: object) -> bytes:
    return event(b"error", encode({"code": code, "error": message, **fields}))


def _rendered(frame: LiveFrame, names: EventNames) -> bytes:
    if isinstance(frame, Broken):
        return error_event(
            STATUS_OF[frame.error.code], frame.error.message, topic=frame.topic.name, detail=frame.error.detail
        )
    name = FRAME_NAMES[type(frame)]
    return event(name.replace(b"_", b"-") if names == "sse" else name, b"{%b}" % frame_fields(frame))
