"""What a stream and a duplex share: an answer that stays open, watched from both ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .protocol import Connection

Callback = Callable[[], None]


class Channel:
    """Open until the client goes, or until `close`. Each `on_...` holds one callback; setting another replaces it."""

    __slots__ = ("_connection", "_on_close", "_on_drain", "_on_end", "_on_shutdown", "closed", "written_bytes")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._on_drain: Callback | None = None
        self._on_close: Callback | None = None
        self._on_shutdown: Callback | None = None
        self._on_end: Callback | None = None
        self.closed = connection.closed
        self.written_bytes = 0

    @property
    def buffered(self) -> int:
        """Bytes written here that the kernel has not taken yet."""
        return 0 if self.closed else self._connection.buffered()

    @property
    def writable(self) -> bool:
        """Whether there is room for more: false from passing the high mark until `on_drain`, and once it is closed."""
        return not self.closed and self._connection._writable

    def on_drain(self, callback: Callback) -> None:
        """Called when `buffered` was above the high mark and has fallen below the low one."""
        self._on_drain = callback

    def on_close(self, callback: Callback) -> None:
        """Called once when the client is gone, even while nothing is sent; at once if it has gone already.

        Not called for a `close` of our own.
        """
        if self.closed:
            callback()
        else:
            self._on_close = callback

    def on_shutdown(self, callback: Callback) -> None:
        """Called when the listener begins to stop: say goodbye and `close`. Without one the channel is just closed."""
        if self._connection.draining and not self.closed:
            callback()
        else:
            self._on_shutdown = callback

    def on_end(self, callback: Callback) -> None:
        """Called once when the channel is over, whoever ended it; at once if it is over already.

        For whoever counts channels; `on_close` is for whoever writes to this one.
        """
        if self.closed:
            callback()
        else:
            self._on_end = callback

    def write(self, data: bytes) -> None:
        """Send `data`. Never waits: watch `writable`. Nothing happens once the channel is closed."""
        raise NotImplementedError

    def close(self) -> None:
        """End it once what was written has been sent. Doing so twice is harmless."""
        raise NotImplementedError

    # What the connection tells.

    def drained(self) -> None:
        if self._on_drain is not None:
            self._on_drain()

    def gone(self) -> None:
        if not self.closed:
            self.closed = True
            callback = self._on_close
            self._forget()
            if callback is not None:
                callback()

    def shut_down(self) -> None:
        if self._on_shutdown is not None:
            self._on_shutdown()
        else:
            self.close()

    def _forget(self) -> None:
        # Callbacks are usually methods of something that holds this channel: break the circle.
        self._on_drain = self._on_close = self._on_shutdown = None
        ended, self._on_end = self._on_end, None
        if ended is not None:
            ended()
