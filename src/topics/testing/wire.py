"""A connection without a network: a request handed to a handler, and a client that reads as fast as the test says."""

from typing import Any, cast

from topics.server.http import Request, RequestHead, Stream
from topics.server.http.connection.connection import Connection


class Wire:
    """The part of a connection that a stream uses."""

    def __init__(self, high_bytes: int) -> None:
        self.is_closing = False
        self.draining = False
        self.ended = False
        self.writable = True
        self._high_bytes = high_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self.stream: Stream | None = None

    def write(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self._high_bytes:
            self.writable = False

    def buffered(self) -> int:
        return self._size

    def response_sent(self) -> None:
        self.ended = True

    def take(self) -> bytes:
        """The client reads all there is."""
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if not self.writable:
            self.writable = True
            if self.stream is not None and not self.stream.closed:
                self.stream.drained()
        return data

    def cut(self) -> None:
        """The client is gone; what it has not read is lost."""
        self.is_closing = True
        self._pieces.clear()
        if self.stream is not None:
            self.stream.gone()


class DirectRequest:
    """A request without a connection. Answered with `status` and `body`, or with a stream into `wire`."""

    def __init__(
        self, method: bytes, path: bytes, body: bytes = b"", headers: dict[bytes, bytes] | None = None, high: int = 0
    ) -> None:
        path, _, query = path.partition(b"?")
        self.head = RequestHead(method, path, query, headers or {}, True)
        self.method = method
        self.path = path
        self.query = query
        self.body = body
        self.received_at = 0.0
        self.peer = None
        self.status = 0
        self.answer = b""
        self.wire = Wire(high)

    def header(self, name: bytes) -> bytes | None:
        return self.head.headers.get(name)

    def respond(self, status: int, body: bytes = b"", headers: bytes = b"", **_: Any) -> None:
        self.status = status
        self.answer = body

    def stream(self, headers: bytes = b"", content_type: bytes = b"", status: int = 200) -> Stream:
        self.status = status
        stream = Stream(cast(Connection, self.wire), chunked=False)
        self.wire.stream = stream
        return stream

    @property
    def request(self) -> Request:
        return cast(Request, self)
