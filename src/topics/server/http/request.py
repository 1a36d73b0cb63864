"""One request, and the ways to respond to it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .connection.channel import Channel
from .connection.duplex import Duplex
from .connection.state import HANDLING, IDLE
from .connection.stream import Stream
from .messages.body import INLINE_BYTES, MIN_GZIP_BYTES, deflate
from .messages.head import RequestHead
from .messages.response import JSON, JSON_STARTS, LENGTHS, MAX_JOIN_BYTES, has_body, render_head, render_stream_head

if TYPE_CHECKING:
    from .connection.connection import Connection

logger = logging.getLogger(__name__)


class Request(Struct, eq=False):
    """A complete request with its body inflated. Answered exactly once: by `respond`, `stream` or `upgrade`.

    A Struct, because one is created for every request: 0.07 us, with an `__init__` in Python 0.2.
    """

    _connection: Connection
    head: RequestHead
    body: bytes
    received_at: float
    """When the request was handed over, on the clock of the limits."""
    answered: bool = False
    ended: Callable[[Request], None] | None = None
    """Called once when the request ends: it is answered, its response becomes a channel, or its client disconnects.

    For code that counts requests; handlers use `on_disconnect`.
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
        """The client has disconnected; a response is discarded."""
        return self._connection.closed

    @property
    def peer(self) -> Any:
        """The client's address as the socket module returns it, None after a disconnect."""
        return self._connection.peer()

    def renew(self, body: bytes, received_at: float) -> None:
        """Set what the fast path does not: the object may have served an earlier request. See `PendingRequests`."""
        self.body = body
        self.received_at = received_at
        self.answered = False

    def handle(self) -> None:
        """Have the application handle a request that was added to a batch and does not belong there."""
        self._connection.handle_repeated(self)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call `callback` once if the client disconnects before the response; at once if it has disconnected.

        For requests that set this, a client that closed only its sending side counts as disconnected; otherwise it
        gets its response. A second call replaces the callback.
        """
        connection = self._connection
        if not connection.closed and not connection.input_ended:
            self._disconnected = callback
            return
        callback()
        if not self.answered and not connection.closed:
            connection.close()

    @property
    def waits(self) -> bool:
        """Whether the handler waits for an event, and has set `on_disconnect`."""
        return self._disconnected is not None

    def respond(
        self,
        status: int,
        body: bytes = b"",
        headers: bytes = b"",
        content_type: bytes = JSON,
        compressible: bool = True,
    ) -> None:
        """Respond with a complete body. `headers` are complete lines, each with its CRLF.

        The body is compressed if the client accepts gzip, it is at least MIN_GZIP_BYTES long, and it is `compressible`.
        """
        if self.answered:
            raise RuntimeError("the request has been answered already")
        self.answered = True
        connection = self._connection
        if self.ended is not None or connection.clock() - self.received_at >= connection.slow_seconds:
            self._end(status, body)
        length = len(body)
        if (
            content_type is JSON
            and (length < MIN_GZIP_BYTES or (length <= MAX_JOIN_BYTES and not self.head.accepts_gzip))
            and self.head.plain
            and not connection.close_after_response
        ):
            start = JSON_STARTS.get(status)
            if start is not None:
                size = LENGTHS[length] if length < MIN_GZIP_BYTES else b"%d\r\n" % length
                connection.write(b"".join((start, size, headers, b"\r\n", body)))
                # `Connection.response_sent` for the usual state, inlined.
                if connection.state is HANDLING:
                    connection.current = None
                    connection.state = IDLE
                else:
                    connection.response_sent()
                return
        if not connection.is_closing:
            self._respond_in_full(status, body, headers, content_type, compressible)

    def respond_stream_head(self, headers: bytes, content_type: bytes) -> None:
        """Respond to HEAD for a path whose GET responds with a stream: only the head of that response."""
        self._answer_as_channel()
        connection = self._connection
        if not connection.is_closing:
            if self.head.http_1_0:
                connection.close_after_response = True
            elif connection.close_after_response:
                headers += b"Connection: close\r\n"
            chunked = not self.head.http_1_0
            connection.write(render_stream_head(200, headers + self.head.echo, content_type, chunked))
            connection.response_sent()

    def stream(self, headers: bytes = b"", content_type: bytes = b"text/event-stream", status: int = 200) -> Stream:
        """Respond with a body that is written piece by piece. Not for HEAD: see `respond_stream_head`."""
        if self.method == b"HEAD":
            raise RuntimeError("a response to HEAD has no body to stream")
        self._answer_as_channel()
        connection = self._connection
        chunked = not self.head.http_1_0
        stream = Stream(connection, chunked)
        if self._is_reachable(stream):
            if not chunked:
                connection.close_after_response = True
            elif connection.close_after_response:
                headers += b"Connection: close\r\n"
            connection.open_channel(stream)
            connection.write(render_stream_head(status, headers + self.head.echo, content_type, chunked))
        return stream

    def upgrade(self) -> Duplex:
        """Leave HTTP: all further input goes to the duplex, beginning with what has arrived already.

        Only for a request with `head.offers_websocket`. Nothing is written: the other protocol sends the 101.
        """
        if not self.head.offers_websocket:
            raise RuntimeError("the request offers no upgrade")
        self._answer_as_channel()
        connection = self._connection
        duplex = Duplex(connection)
        if self._is_reachable(duplex):
            connection.open_duplex(duplex)
        return duplex

    def gone(self) -> None:
        """The connection is lost while this request is current."""
        self.client_gone()
        if not self.answered:
            self._end(0, b"")

    def client_gone(self) -> bool:
        """Call the `on_disconnect` callback. Return False if there is none."""
        callback = self._disconnected
        self._disconnected = None
        if callback is None or self.answered:
            return False
        # It waited on purpose: it is never reported as slow.
        self.received_at = math.inf
        callback()
        return True

    def _answer_as_channel(self) -> None:
        if self.answered:
            raise RuntimeError("the request has been answered already")
        self.answered = True
        self._end(200, b"")

    def _end(self, status: int, body: bytes) -> None:
        """Call the `ended` callback, and report the request if it was slow."""
        ended = self.ended
        if ended is not None:
            self.ended = None
            ended(self)
        connection = self._connection
        if connection.clock() - self.received_at >= connection.slow_seconds:
            connection.report_slow(self, status, body)

    def _is_reachable(self, channel: Channel) -> bool:
        """Whether the channel can be opened. A client that closed its sending side does not keep a channel open."""
        connection = self._connection
        if connection.input_ended and not connection.closed:
            channel.closed = True
            connection.close()
        return not channel.closed

    def _respond_in_full(
        self, status: int, body: bytes, headers: bytes, content_type: bytes, compressible: bool
    ) -> None:
        connection = self._connection
        head = self.head
        if compressible and head.accepts_gzip and len(body) >= MIN_GZIP_BYTES and has_body(status):
            headers += b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
            if len(body) > INLINE_BYTES:
                # This request stays current meanwhile, so the order of responses holds.
                connection.run_in_thread(
                    lambda: deflate(body), lambda deflated: self._send(status, deflated, headers, content_type)
                )
                return
            body = deflate(body)
        self._send(status, body, headers, content_type)

    def _send(self, status: int, body: bytes, headers: bytes, content_type: bytes) -> None:
        connection = self._connection
        if connection.is_closing:
            return
        head = self.head
        headers += head.echo + (b"Connection: close\r\n" if connection.close_after_response else head.answer_line)
        start = render_head(status, len(body), headers, content_type)
        if head.method == b"HEAD" or not has_body(status):
            connection.write(start)
        elif len(body) <= MAX_JOIN_BYTES:
            connection.write(start + body)
        else:
            connection.write_parts(start, body)
        connection.response_sent()


def respond_together(requests: Sequence[Request], messages: Iterable[bytes], now: float, oldest: float) -> None:
    """Do what `respond(200, body)` does, for many requests at the time `now`. Their heads must be `plain`.

    A message is a complete response: `JSON_STARTS[200]`, an entry of `LENGTHS`, an empty line and the body. The caller
    renders each in one piece, so that nothing is copied twice. `oldest` is when the first request was received.
    """
    slow = bool(requests) and now - oldest >= requests[0]._connection.slow_seconds
    for request, message in zip(requests, messages, strict=True):
        connection = request._connection
        try:
            if slow or connection.close_after_response:
                request.answered = False
                if not slow:
                    # The object may have served an earlier request.
                    request.received_at = oldest
                request.respond(200, message.partition(b"\r\n\r\n")[2])
                continue
            if not request.answered:
                # Otherwise the object served an earlier request before, and is not counted.
                request.answered = True
                if request.ended is not None:
                    request.ended(request)
                    request.ended = None
            connection.write(message)
            connection.since = now
            if connection.state is HANDLING:
                connection.current = None
                connection.state = IDLE
            else:
                connection.response_sent()
        except Exception:
            logger.exception("exception while answering a request; its connection is closed, the others are answered")
            connection.abort()


def drop_together(requests: Sequence[Request]) -> None:
    """Abort the connections of requests that cannot be answered: the clients must not wait, nor get two responses."""
    for request in requests:
        request._connection.abort()
