"""The head of a request: its target and header lines, checked once.

llhttp refuses most malformed heads (bare LF, folded lines, both lengths, repeated lengths, NUL). `read_head` refuses
what llhttp accepts although two servers could read it differently.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from topics.server.http.media_types import accepts_gzip

from .refusal import EXPECTATION_FAILED, TRANSFER_UNSUPPORTED, VERSION_UNSUPPORTED, Refused, malformed

if TYPE_CHECKING:
    from topics.server.http.request import Request

# A second line of one of these is refused: it is ambiguous which counts. Other headers are lists, and are joined.
SINGLE_HEADERS = frozenset(
    {
        b"authorization",
        b"content-length",
        b"content-type",
        b"expect",
        b"host",
        b"origin",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"transfer-encoding",
    }
)

CHUNKED = -1

_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=:%\[\]-]*")
_ABSOLUTE = re.compile(rb"https?://([^/?]+)", re.IGNORECASE)


class PendingRequests(Protocol):
    """A batch of requests with equal heads that the application decodes and answers together, later."""

    @property
    def requests(self) -> list[Request]:
        """Always the same list object.

        While it is not empty, the connection appends further requests to it and their bodies to `bodies`, without calling
        `add`. The `body`, `received_at` and `answered` of such a request are those of an earlier one until
        `Request.renew` sets them.
        """

    @property
    def bodies(self) -> list[bytes]: ...

    def add(self, request: Request) -> bool:
        """Add the request to the batch, or return False; then the application's `handle` is called for it."""


class RequestHead:
    """What precedes the body. Shared by all requests of a connection that begin with the same bytes."""

    __slots__ = (
        "accepts_gzip",
        "answer_line",
        "coding",
        "content_length",
        "echo",
        "expects_continue",
        "headers",
        "http_1_0",
        "keep_alive",
        "max_body_bytes",
        "memo",
        "method",
        "offers_websocket",
        "path",
        "pending_requests",
        "plain",
        "query",
    )

    def __init__(self, method: bytes, path: bytes, query: bytes, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        self.method = method
        self.path = path
        """As sent: percent-encoded, without the query."""
        self.query = query
        self.headers = headers
        """By lower-case name, without Content-Length: requests that share a head may differ in length."""
        self.keep_alive = keep_alive
        self.http_1_0 = False
        self.content_length = 0
        """As declared by the first request with this head; CHUNKED if not declared."""
        self.coding = b""
        """The Content-Encoding of the body, empty if there is none."""
        self.expects_continue = False
        self.max_body_bytes = 0
        """Set by the application's `admit`: the maximum size of the body, also after inflating. 0: only the listener's."""
        self.offers_websocket = False
        self.accepts_gzip = False
        self.answer_line = b""
        """The Connection line that a response needs, if any."""
        self.plain = True
        """The usual case: a response needs no Connection line and has its body."""
        self.echo = b""
        """Header lines that the application adds to every response to this head. Used only if the head is not `plain`."""
        self.memo: object = None
        """Set by the application: what it derived from this head, to be reused for the next request with it."""
        self.pending_requests: PendingRequests | None = None
        """Set by the application: the batch to which requests with this head are offered before `handle` is called."""

    def header(self, name: bytes) -> bytes | None:
        """The value of a header by its lower-case name; several lines of it are joined by commas."""
        return self.headers.get(name)


NO_HEAD = RequestHead(b"", b"", b"", {}, keep_alive=False)
"""The head of a request that is refused before its own head could be parsed."""
NO_HEAD.plain = False
NO_HEAD.answer_line = b"Connection: close\r\n"


def read_head(method: bytes, target: bytes, version: str, keep_alive: bool, headers: dict[bytes, bytes]) -> RequestHead:
    """Return the checked head, which takes over `headers`. Raises Refused for what is not plain HTTP/1.1 or HTTP/1.0."""
    if version != "1.1" and version != "1.0":
        raise Refused(VERSION_UNSUPPORTED)
    path, query = _split_target(method, target)
    head = RequestHead(method, path, query, headers, keep_alive)
    head.http_1_0 = version == "1.0"

    host = headers.get(b"host")
    if host is None:
        if not head.http_1_0:
            raise malformed("the Host header is missing")
    elif not _HOST.fullmatch(host):
        raise malformed("the Host header is invalid")

    length = headers.pop(b"content-length", None)
    if length is not None:
        if not length.isdigit():
            raise malformed("the Content-Length is not a number")
        head.content_length = int(length)
    transfer = headers.get(b"transfer-encoding")
    if transfer is not None:
        # An HTTP/1.0 proxy does not know chunks and would read them as the body.
        if head.http_1_0 or length is not None:
            raise malformed("Transfer-Encoding is not allowed here")
        if transfer.lower() != b"chunked":
            raise Refused(TRANSFER_UNSUPPORTED)
        head.content_length = CHUNKED

    if b"expect" in headers and not head.http_1_0:
        if headers[b"expect"].lower() != b"100-continue":
            raise Refused(EXPECTATION_FAILED)
        head.expects_continue = head.content_length != 0
    if b"content-encoding" in headers:
        coding = headers[b"content-encoding"].lower()
        head.coding = b"" if coding == b"identity" else coding
    if b"accept-encoding" in headers:
        head.accepts_gzip = accepts_gzip(headers[b"accept-encoding"])
    if b"upgrade" in headers and method == b"GET" and head.content_length == 0 and keep_alive and not head.http_1_0:
        offers = {offer.strip().lower() for offer in headers[b"upgrade"].split(b",")}
        head.offers_websocket = b"websocket" in offers

    if not keep_alive:
        head.answer_line = b"Connection: close\r\n"
    elif head.http_1_0:
        head.answer_line = b"Connection: keep-alive\r\n"
    head.plain = not head.answer_line and method != b"HEAD"
    return head


def add_header(headers: dict[bytes, bytes], name: bytes, value: bytes) -> None:
    """Add a header line for `read_head`. Raises Refused for a repeated header that must not be repeated."""
    name = name.lower()
    # llhttp strips white space before a value, not after it.
    value = value.rstrip(b" \t")
    if name in headers:
        if name in SINGLE_HEADERS:
            raise malformed(f"repeated header {name.decode('latin-1')}")
        value = headers[name] + b", " + value
    headers[name] = value


def _split_target(method: bytes, target: bytes) -> tuple[bytes, bytes]:
    if b"#" in target:
        raise malformed("the request target has a fragment")
    if not target.startswith(b"/"):
        absolute = _ABSOLUTE.match(target)
        if absolute:
            target = target[absolute.end() :]
            if not target.startswith(b"/"):
                target = b"/" + target
        elif target != b"*" or method != b"OPTIONS":
            raise malformed("the request target is invalid")
    path, _, query = target.partition(b"?")
    return path, query
