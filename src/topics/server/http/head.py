"""The head of a request: its target and header lines, judged once.

llhttp refuses most of what is wrong with a head (bare LF, folded lines, both lengths, repeated lengths, NUL).
`read_head` refuses what llhttp lets pass and two servers might read differently.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from .refusal import EXPECTATION_FAILED, TRANSFER_UNSUPPORTED, VERSION_UNSUPPORTED, Refused, malformed

if TYPE_CHECKING:
    from .request import Request

# A second line of one of these leaves open which one counts. Others are lists, and are joined.
SINGLE = frozenset(
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


class Door(Protocol):
    """Takes requests in, to be answered later and together."""

    @property
    def requests(self) -> list[Request]:
        """Always the same list. While somebody waits in it, others may be added without asking, and their bodies to `bodies`.

        Nothing else is told of those: not their bodies, not when they came, not that they are unanswered. See `Request.renew`.
        """

    @property
    def bodies(self) -> list[bytes]: ...

    def take(self, request: Request) -> bool:
        """Whether it is taken. If not, `handle` is called for it."""


class RequestHead:
    """What came before the body. Shared by all requests of a connection that begin with the same bytes."""

    __slots__ = (
        "accepts_gzip",
        "answer_line",
        "coding",
        "content_length",
        "door",
        "echo",
        "expects_continue",
        "headers",
        "http_1_0",
        "keep_alive",
        "memo",
        "method",
        "offers_websocket",
        "path",
        "plain",
        "query",
    )

    def __init__(self, method: bytes, path: bytes, query: bytes, headers: dict[bytes, bytes], keep_alive: bool) -> None:
        self.method = method
        self.path = path
        """As sent: still percent-encoded, without the query."""
        self.query = query
        self.headers = headers
        """By lower-case name. The body's length is not among them: it is the length of the body."""
        self.keep_alive = keep_alive
        self.http_1_0 = False
        self.content_length = 0
        """As declared; CHUNKED when it is not known beforehand. For requests with equal heads it may differ."""
        self.coding = b""
        """The Content-Encoding of the body, empty when it has none."""
        self.expects_continue = False
        self.offers_websocket = False
        self.accepts_gzip = False
        self.answer_line = b""
        """The Connection line that an answer needs, if it needs one."""
        self.plain = True
        """The usual case: an answer needs no Connection line and has its body."""
        self.echo = b""
        """Header lines the application wants in every answer to this head. Only looked at when it is not `plain`."""
        self.memo: object = None
        """The application's own: what it concluded from this head and need not work out again."""
        self.door: Door | None = None
        """The application's own: where requests with this head go before `handle` is called."""

    def header(self, name: bytes) -> bytes | None:
        """The value of a header by its lower-case name; several lines of it are joined by commas."""
        return self.headers.get(name)


NO_HEAD = RequestHead(b"", b"", b"", {}, keep_alive=False)
"""Stands in when a request was refused before its head could be read."""
NO_HEAD.plain = False
NO_HEAD.answer_line = b"Connection: close\r\n"


def read_head(method: bytes, target: bytes, version: str, keep_alive: bool, headers: dict[bytes, bytes]) -> RequestHead:
    """The head, checked. The headers become its own. Raises Refused for every shape that is not plain HTTP/1.1 or HTTP/1.0."""
    if version != "1.1" and version != "1.0":
        raise Refused(VERSION_UNSUPPORTED)
    path, query = _split_target(method, target)
    head = RequestHead(method, path, query, headers, keep_alive)
    head.http_1_0 = version == "1.0"

    host = headers.get(b"host")
    if host is None:
        if not head.http_1_0:
            raise malformed("no Host")
    elif not _HOST.fullmatch(host):
        raise malformed("bad Host")

    length = headers.pop(b"content-length", None)
    if length is not None:
        if not length.isdigit():
            raise malformed("bad Content-Length")
        head.content_length = int(length)
    transfer = headers.get(b"transfer-encoding")
    if transfer is not None:
        # A reader of HTTP/1.0 does not know chunks and would take them for something else.
        if head.http_1_0 or length is not None:
            raise malformed("unexpected Transfer-Encoding")
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
    """Put a header line where `read_head` expects it. Raises Refused for a second one that leaves open which counts."""
    name = name.lower()
    # llhttp strips white space before a value, not after it.
    value = value.rstrip(b" \t")
    if name in headers:
        if name in SINGLE:
            raise malformed(f"repeated {name.decode('latin-1')}")
        value = headers[name] + b", " + value
    headers[name] = value


def accepts_gzip(value: bytes) -> bool:
    """Whether an Accept-Encoding allows gzip and does not prefer the body as it is."""
    qualities: dict[bytes, float] = {}
    for item in value.lower().split(b","):
        coding, *parameters = (part.strip() for part in item.split(b";"))
        quality = 1.0
        for parameter in parameters:
            name, _, number = parameter.partition(b"=")
            if name.strip() == b"q":
                quality = _quality(number.strip())
        qualities[coding] = quality
    gzip = qualities.get(b"gzip", qualities.get(b"x-gzip", qualities.get(b"*", 0.0)))
    return gzip > 0 and gzip >= qualities.get(b"identity", 0.0)


def _quality(number: bytes) -> float:
    """A weight from 0 to 1; what is none counts as 0, so that a doubtful client gets plain bytes."""
    return float(number) if re.fullmatch(rb"0(\.[0-9]{0,3})?|1(\.0{0,3})?", number) else 0.0


def _split_target(method: bytes, target: bytes) -> tuple[bytes, bytes]:
    if b"#" in target:
        raise malformed("fragment in the request target")
    if not target.startswith(b"/"):
        absolute = _ABSOLUTE.match(target)
        if absolute:
            target = target[absolute.end() :]
            if not target.startswith(b"/"):
                target = b"/" + target
        elif target != b"*" or method != b"OPTIONS":
            raise malformed("bad request target")
    path, _, query = target.partition(b"?")
    return path, query
