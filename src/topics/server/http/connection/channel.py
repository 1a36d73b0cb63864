"""The base of streams and duplexes: a response that stays open until one side ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import Connection

Callback = Callable[[], None]


class Channel:
    """Open until the client disconnects or `close`. Each `on_...` has one callback; setting another replaces it."""

    __slots__ = ("_connection", "_on_close", "_on_drain", "_on_end", "_on_shutdown", "closed", "written_bytes")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._on_drain: Callback | None = None
        self._on_close: Callback | None = None
        self._on_shutdown: Callback | None = None
        self._on_end: Callback | None = None
        self.closed = connection.is_closing
        self.written_bytes = 0

    @property
    def buffered(self) -> int:
        """Written bytes that the kernel has not accepted yet."""
        return 0 if self.closed else self._connection.buffered()

    @property
    def writable(self) -> bool:
        """Whether more may be written: false from exceeding the high-water mark until `on_drain`, and when closed."""
        return not self.closed and self._connection.writable

    def on_drain(self, callback: Callback) -> None:
        """Call `callback` when `buffered` has fallen from above the high-water mark to below the low one."""
        self._on_drain = callback

    def on_close(self, callback: Callback) -> None:
        """Call `callback` once when the client disconnects, even while nothing is sent; at once if it already has.

        Not called after our own `close`.
        """
        if self.closed:
            callback()
        else:
            self._on_close = callback

    def on_shutdown(self, callback: Callback) -> None:
        """Call `callback` when the listener begins to stop; it should `close`. Without a callback the channel is closed."""
        if self._connection.draining and not self.closed:
            callback()
        else:
            self._on_shutdown = callback

    def on_end(self, callback: Callback) -> None:
        """Call `callback` once when the channel ends, by either side; at once if it has ended.

        For code that counts channels; `on_close` is for the code that writes to this one.
        """
        if self.closed:
            callback()
        else:
            self._on_end = callback

    def write(self, data: bytes) -> None:
        """Send `data` without waiting; check `writable` first. Does nothing when the channel is closed."""
        raise NotImplementedError

    def close(self) -> None:
        """End the channel after everything written is sent. A second call does nothing."""
        raise NotImplementedError

    # Called by the connection.

    def drained(self) -> None:
        if self._on_drain is not None:
            self._on_drain()

    def gone(self) -> None:
        if not self.closed:
            self.closed = True
            callback = self._on_close
            self._release()
            if callback is not None:
                callback()

    def shut_down(self) -> None:
        if self._on_shutdown is not None:
            self._on_shutdown()
        else:
            self.close()

    def _release(self) -> None:
        # Callbacks are usually methods of an object that references this channel: break the reference cycle.
        self._on_drain = self._on_close = self._on_shutdown = None
        ended, self._on_end = self._on_end, None
        if ended is not None:
            ended()
