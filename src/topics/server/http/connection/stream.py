"""A response written piece by piece, such as an SSE stream.

HTTP/1.1 clients get chunks: they can distinguish the end of the response from a lost connection, and the connection can
be used again. A chunk costs a copy and about 0.2 us. HTTP/1.0 has no chunks; there the end of the connection ends the
response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .channel import Channel

if TYPE_CHECKING:
    from .connection import Connection


class Stream(Channel):
    __slots__ = ("_chunked",)

    def __init__(self, connection: Connection, chunked: bool) -> None:
        super().__init__(connection)
        self._chunked = chunked

    def write(self, data: bytes) -> None:
        """Send `data` as one chunk without waiting; check `buffered`. Does nothing when the stream is closed."""
        if data and not self.closed:
            if self._chunked:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            self.written_bytes += len(data)
            self._connection.write(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._release()
            if self._chunked:
                self._connection.write(b"0\r\n\r\n")
            self._connection.response_sent()
