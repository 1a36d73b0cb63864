"""Responses as bytes: a status line, as few headers as possible, the body."""

from http import HTTPStatus

from .body import MIN_GZIP_BYTES

JSON = b"application/json"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# Joining head and body of a small response is cheaper than giving the kernel two pieces; copying a large one is not.
MAX_JOIN_BYTES = 32 << 10

_REASONS = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
_BODILESS = frozenset({204, 304})


def status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b"Unknown"))


JSON_STARTS = {
    status: status_line(status) + b"Content-Type: application/json\r\nContent-Length: "
    for status in _REASONS
    if status not in _BODILESS
}
"""Everything before the digits of the length, by status, for content type JSON."""

LENGTHS = [b"%d\r\n" % length for length in range(MIN_GZIP_BYTES)]
"""The length and the end of its line, for bodies that are too short to be compressed."""


def render_head(status: int, length: int, headers: bytes, content_type: bytes) -> bytes:
    """Return the head of a response with a body of `length` bytes; `headers` are complete lines."""
    if status in _BODILESS:
        return status_line(status) + headers + b"\r\n"
    start = JSON_STARTS.get(status) if content_type is JSON else None
    if start is None:
        start = b"%bContent-Type: %b\r\nContent-Length: " % (status_line(status), content_type)
    return b"%b%d\r\n%b\r\n" % (start, length, headers)


def render_stream_head(status: int, headers: bytes, content_type: bytes, chunked: bool) -> bytes:
    """Return the head of a response whose length is not known."""
    framing = b"Transfer-Encoding: chunked\r\n" if chunked else b"Connection: close\r\n"
    return b"%bContent-Type: %b\r\n%b%b\r\n" % (status_line(status), content_type, framing, headers)


def has_body(status: int) -> bool:
    return status not in _BODILESS
