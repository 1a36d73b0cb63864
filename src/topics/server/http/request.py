"""One request, and the ways to answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .body import GZIP_BYTES_MIN, INLINE_BYTES, deflate
from .channel import Channel
from .duplex import Duplex
from .head import RequestHead
from .response import JOIN_BYTES_MAX, JSON, JSON_STARTS, LENGTHS, has_body, render_head, render_stream_head
from .stream import Stream

if TYPE_CHECKING:
    from .protocol import Connection


class Request(Struct, eq=False):
    """Complete, with its body inflated. Answered exactly once: by `respond`, `stream` or `upgrade`.

    (A Struct, because one is made for every request: 0.07 us, with an `__init__` of its own 0.2.)
    """

    _connection: Connection
    head: RequestHead
    body: bytes
    received_at: float
    """On the limits' clock: when the request was complete and its turn had come."""
    answered: bool = False
    ended: Callable[[Request], None] | None = None
    """Called once when the request is over: when it is answered, when its answer becomes a channel, or when its client is gone.

    For whoever counts requests; not for whoever answers this one.
    """
    _disconnected: Callable[[], None] | None = None

    @property
    def method(self) -> bytes:
        return self.head.method

    @property
    def path(self) -> bytes:
        return self.head.path

    @property
    def query(self) -> bytes:
        return self.head.query

    def header(self, name: bytes) -> bytes | None:
        """The value of a header by its lower-case name; several lines of it are joined by commas."""
        return self.head.headers.get(name)

    @property
    def closed(self) -> bool:
        """The client is gone; an answer goes nowhere and does no harm."""
        return self._connection.closed

    @property
    def peer(self) -> Any:
        """The client's address as the socket module gives it, None when it is gone."""
        return self._connection.peer()

    def renew(self, body: bytes, received_at: float) -> None:
        """Make it true that this one is unanswered: it may be the object of an earlier request."""
        self.body = body
        self.received_at = received_at
        self.answered = False

    def handle(self) -> None:
        """Have the application handle it: for whoever has taken it and finds that it is not his."""
        self._connection.call(self)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` once if the client goes away before the answer; at once if it has gone.

        A client that only closed its sending side counts as gone for requests that set this, and gets its answer
        otherwise. A second call replaces the first.
        """
        connection = self._connection
        if not connection.closed and not connection.ended:
            self._disconnected = callback
            return
        callback()
        if not self.answered and not connection.closed:
            connection.close()

    @property
    def waits(self) -> bool:
        """Whoever handles it keeps it open on purpose, and asked to be told when its client goes."""
        return self._disconnected is not None

    def respond(
        self,
        status: int,
        body: bytes = b"",
        headers: bytes = b"",
        content_type: bytes = JSON,
        compressible: bool = True,
    ) -> None:
        """Answer with a whole body. `headers` are complete lines, each with its CRLF.

        The body is compressed if the client accepts that, it is worth it, and it is `compressible`.
        """
        if self.answered:
            raise RuntimeError("the request has been answered already")
        self.answered = True
        connection = self._connection
        if self.ended is not None or connection.clock() - self.received_at >= connection.slow_seconds:
            self._over(status, body)
        length = len(body)
        if (
            content_type is JSON
            and (length < GZIP_BYTES_MIN or (length <= JOIN_BYTES_MAX and not self.head.accepts_gzip))
            and self.head.plain
            and not connection.last
        ):
            start = JSON_STARTS.get(status)
            if start is not None:
                size = LENGTHS[length] if length < GZIP_BYTES_MIN else b"%d\r\n" % length
                connection.write(b"".join((start, size, headers, b"\r\n", body)))
                # `Connection.answered` in short: nothing waits, so the next request may come the fast way.
                connection.current = None
                if connection.busy:
                    connection.proceed()
                else:
                    connection.idle = True
                return
        if not connection.closed:
            self._respond_in_full(status, body, headers, content_type, compressible)

    def stream(self, headers: bytes = b"", content_type: bytes = b"text/event-stream", status: int = 200) -> Stream:
        """Answer with a body that is written piece by piece. Not for HEAD, whose answer has no body."""
        if self.method == b"HEAD":
            raise RuntimeError("the answer to HEAD has no body to stream")
        self._answer_as_channel()
        connection = self._connection
        chunked = not self.head.http_1_0
        stream = Stream(connection, chunked)
        if self._is_reachable(stream):
            if not chunked:
                connection.last = True
            elif connection.last:
                headers += b"Connection: close\r\n"
            connection.open_channel(stream)
            connection.write(render_stream_head(status, headers, content_type, chunked))
        return stream

    def upgrade(self) -> Duplex:
        """Leave HTTP: what the client sends from here on goes to the duplex, beginning with what it sent already.

        Only for a request with `head.offers_websocket`. Nothing is written: the 101 is the other protocol's.
        """
        if not self.head.offers_websocket:
            raise RuntimeError("the request offers no upgrade")
        self._answer_as_channel()
        connection = self._connection
        duplex = Duplex(connection)
        if self._is_reachable(duplex):
            connection.open_channel(duplex)
            connection.open_duplex(duplex)
        return duplex

    def gone(self) -> None:
        """The connection is lost while the request is the current one."""
        self.client_gone()
        if not self.answered:
            self._over(0, b"")

    def client_gone(self) -> bool:
        """Tell whoever asked, once. False when nobody did."""
        callback = self._disconnected
        self._disconnected = None
        if callback is None or self.answered:
            return False
        callback()
        return True

    def _answer_as_channel(self) -> None:
        if self.answered:
            raise RuntimeError("the request has been answered already")
        self.answered = True
        self._over(200, b"")

    def _over(self, status: int, body: bytes) -> None:
        """Tell those who count requests, and those who look for slow ones if this is one."""
        ended = self.ended
        if ended is not None:
            self.ended = None
            ended(self)
        connection = self._connection
        if connection.clock() - self.received_at >= connection.slow_seconds:
            connection.tell_slow(self, status, body)

    def _is_reachable(self, channel: Channel) -> bool:
        """Whether anybody is left at the other end. Nobody keeps a channel open who has closed his sending side."""
        connection = self._connection
        if connection.ended and not connection.closed:
            channel.closed = True
            connection.close()
        return not channel.closed

    def _respond_in_full(
        self, status: int, body: bytes, headers: bytes, content_type: bytes, compressible: bool
    ) -> None:
        connection = self._connection
        head = self.head
        if (
            compressible
            and head.accepts_gzip
            and len(body) >= GZIP_BYTES_MIN
            and head.method != b"HEAD"
            and has_body(status)
        ):
            headers += b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
            if len(body) > INLINE_BYTES:
                # The connection stays with this request meanwhile, so the order of answers holds.
                connection.aside(
                    lambda: deflate(body), lambda deflated: self._send(status, deflated, headers, content_type)
                )
                return
            body = deflate(body)
        self._send(status, body, headers, content_type)

    def _send(self, status: int, body: bytes, headers: bytes, content_type: bytes) -> None:
        connection = self._connection
        if connection.closed:
            return
        head = self.head
        headers += head.echo + (b"Connection: close\r\n" if connection.last else head.answer_line)
        start = render_head(status, len(body), headers, content_type)
        if head.method == b"HEAD" or not has_body(status):
            connection.write(start)
        elif len(body) <= JOIN_BYTES_MAX:
            connection.write(start + body)
        else:
            connection.write_parts(start, body)
        connection.answered()


def respond_together(requests: Sequence[Request], messages: Iterable[bytes], now: float, oldest: float) -> None:
    """What `respond(200, body)` does for one request, for many at the time `now`. Their heads must be `plain`.

    Each gets a whole message, made of `JSON_STARTS[200]`, an entry of `LENGTHS`, an empty line and the body: who renders
    many small answers has them in one piece that way, and nothing is copied twice. `oldest` is when the first of them was
    received.
    """
    if requests and now - oldest >= requests[0]._connection.slow_seconds:
        for request, message in zip(requests, messages, strict=True):
            request.answered = False
            request.respond(200, message.partition(b"\r\n\r\n")[2])
        return
    for request, message in zip(requests, messages, strict=True):
        connection = request._connection
        if connection.last:
            request.answered = False
            # The object may have been received for an earlier request.
            request.received_at = oldest
            request.respond(200, message.partition(b"\r\n\r\n")[2])
            continue
        if not request.answered:
            # Otherwise it is an object that was answered before, and nobody counts it.
            request.answered = True
            if request.ended is not None:
                request.ended(request)
                request.ended = None
        write = connection.write
        write(message)
        connection.current = None
        connection.since = now
        if connection.busy:
            connection.proceed()
        else:
            connection.idle = True
