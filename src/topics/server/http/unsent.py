"""A limit on the unsent output of all connections together.

Only connections above the high-water mark are counted: the others have less than that. Their unsent bytes are measured
when the sum might exceed the limit, and with every sweep; in between they only decrease, except for what streams write.

Above the limit, connections are aborted in the order of unsent bytes × stalled seconds, largest first. A client that
reads has read something between two measurements, so its stalled time is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection.connection import Connection
    from .listener import Listener


class Unsent:
    """The connections of a listener whose unsent output is above the high-water mark."""

    __slots__ = ("_counted", "_listener", "_scheduled", "_total_bytes")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        # Unsent bytes at the last measurement, and the time since which they have not decreased.
        self._counted: dict[Connection, tuple[int, float]] = {}
        self._total_bytes = 0
        self._scheduled = False

    def add(self, connection: Connection) -> None:
        """Count a connection that is above the mark now."""
        self.remove(connection)
        unsent_bytes = connection.buffered()
        self._counted[connection] = (unsent_bytes, self._listener.limits.clock())
        self._total_bytes += unsent_bytes
        if self._total_bytes > self._listener.limits.max_unsent_bytes and not self._scheduled:
            # Later, when the kernel has accepted its part, and not while a response is being written.
            self._scheduled = True
            self._listener.loop.call_soon(self.check)

    def remove(self, connection: Connection) -> None:
        """Stop counting a connection that is below the mark or gone. Does nothing if it is not counted."""
        counted = self._counted.pop(connection, None)
        if counted is not None:
            self._total_bytes -= counted[0]

    def check(self) -> None:
        """Measure the unsent bytes, and abort connections until the sum is within the limit."""
        self._scheduled = False
        if not self._counted:
            return
        now = self._listener.limits.clock()
        for connection, (before_bytes, since) in self._counted.items():
            unsent_bytes = connection.buffered()
            if unsent_bytes != before_bytes:
                self._total_bytes += unsent_bytes - before_bytes
                self._counted[connection] = (unsent_bytes, now if unsent_bytes < before_bytes else since)
        if self._total_bytes <= self._listener.limits.max_unsent_bytes:
            return

        def burden(connection: Connection) -> tuple[float, int]:
            unsent_bytes, since = self._counted[connection]
            return unsent_bytes * (now - since), unsent_bytes

        for connection in sorted(self._counted, key=burden, reverse=True):
            self.remove(connection)
            connection.abort()
            if self._total_bytes <= self._listener.limits.max_unsent_bytes:
                return
