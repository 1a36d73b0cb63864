"""A connection that has left HTTP: bytes in, bytes out. What they mean is up to whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .channel import Channel

if TYPE_CHECKING:
    from .protocol import Connection


class Duplex(Channel):
    __slots__ = ("_early", "_held_bytes", "_on_data")

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._on_data: Callable[[bytes], None] | None = None
        self._early = b""
        self._held_bytes = 0

    def on_data(self, callback: Callable[[bytes], None]) -> None:
        """Called with every piece the client sends; at once with what it has sent so far."""
        self._on_data = callback
        early = self._early
        self._early = b""
        if early:
            callback(early)
        self.resume()

    def write(self, data: bytes) -> None:
        """Send `data` as it is. Never waits: watch `buffered`. Nothing happens once the duplex is closed."""
        if not self.closed:
            self.written_bytes += len(data)
            self._connection.write(data)

    def pause(self) -> None:
        """Stop reading. While paused, a client that goes away is noticed only by writing to it."""
        self._connection.pause_reading()

    def resume(self) -> None:
        if not self.closed:
            self._connection.resume_reading()

    def hold(self, size: int) -> bool:
        """Say how much is kept of what is not whole yet. False when all connections together keep more than they may."""
        if not self.closed:
            change = size - self._held_bytes
            self._held_bytes = size
            return self._connection.hold(change)
        return True

    def close(self) -> None:
        """Close the connection once what was written has been sent."""
        if not self.closed:
            self.closed = True
            self._forget()
            self._connection.close()

    def received(self, data: bytes) -> None:
        if self._on_data is not None:
            self._on_data(data)
        else:
            self._early += data
            # Whoever asked for the upgrade has not said where to: no more until then.
            self._connection.pause_reading()

    def _forget(self) -> None:
        self._connection.hold(-self._held_bytes)
        super()._forget()
        self._on_data = None
