"""A connection that has left HTTP: raw bytes in both directions, for another protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .channel import Channel

if TYPE_CHECKING:
    from .connection import Connection


class Duplex(Channel):
    __slots__ = ("_held_bytes", "_on_data", "early")

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._on_data: Callable[[bytes], None] | None = None
        self.early = b""
        self._held_bytes = 0

    def on_data(self, callback: Callable[[bytes], None]) -> None:
        """Call `callback` with every piece of input; at once with what has arrived so far."""
        self._on_data = callback
        early = self.early
        self.early = b""
        if early:
            callback(early)
        self.resume()

    def write(self, data: bytes) -> None:
        """Send `data` unchanged and without waiting; check `buffered`. Does nothing when the duplex is closed."""
        if not self.closed:
            self.written_bytes += len(data)
            self._connection.write(data)

    def pause(self) -> None:
        """Stop reading. While paused, a disconnect is noticed only by writing."""
        self._connection.pause_reading()

    def resume(self) -> None:
        if not self.closed:
            self._connection.resume_reading()

    def hold(self, size: int) -> bool:
        """Set the bytes held of an incomplete message. False if all connections together exceed `max_held_bytes`."""
        if not self.closed:
            change = size - self._held_bytes
            self._held_bytes = size
            return self._connection.hold(change)
        return True

    def close(self) -> None:
        """End the connection after everything written is sent. Input that still arrives is dropped, so that a client
        that is sending can read what was written last."""
        if not self.closed:
            self.closed = True
            self._release()
            self._connection.duplex_closed()

    def received(self, data: bytes) -> None:
        if self._on_data is not None:
            self._on_data(data)
        else:
            self.early += data
            # Read no more until `on_data` is set.
            self._connection.pause_reading()

    def _release(self) -> None:
        self._connection.hold(-self._held_bytes)
        super()._release()
        self._on_data = None
