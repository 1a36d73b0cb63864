"""What clients have not taken of their answers, so that many who do not read cannot make the server hold ever more.

Only connections above the write mark are looked at: the others have less than that. What they have left is asked for when
the sum might be too large, and with every sweep; in between it only gets smaller, but for what streams write.

Who reads has taken something between two looks. So it is those who do not that are cut off: first who holds most for
longest, bytes times seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .listener import Listener
    from .protocol import Connection


class Unsent:
    """The connections of a listener that have more to take than they should."""

    __slots__ = ("_counted", "_listener", "_scheduled", "_total_bytes")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        # How much was left when it was last looked at, and since when it has not become less.
        self._counted: dict[Connection, tuple[int, float]] = {}
        self._total_bytes = 0
        self._scheduled = False

    def add(self, connection: Connection) -> None:
        """It is above the mark now."""
        self.remove(connection)
        left_bytes = connection.buffered()
        self._counted[connection] = (left_bytes, self._listener.limits.clock())
        self._total_bytes += left_bytes
        if self._total_bytes > self._listener.limits.max_unsent_bytes and not self._scheduled:
            # When the kernel has had its share of it; and not while an answer is being written.
            self._scheduled = True
            self._listener.loop.call_soon(self.check)

    def remove(self, connection: Connection) -> None:
        """It is below the mark, or gone. Harmless when it was not above."""
        counted = self._counted.pop(connection, None)
        if counted is not None:
            self._total_bytes -= counted[0]

    def check(self) -> None:
        """Look at what is left, and cut off as many as it takes."""
        self._scheduled = False
        if not self._counted:
            return
        now = self._listener.limits.clock()
        for connection, (before_bytes, since) in self._counted.items():
            left_bytes = connection.buffered()
            if left_bytes != before_bytes:
                self._total_bytes += left_bytes - before_bytes
                self._counted[connection] = (left_bytes, now if left_bytes < before_bytes else since)
        if self._total_bytes <= self._listener.limits.max_unsent_bytes:
            return

        def burden(connection: Connection) -> tuple[float, int]:
            left_bytes, since = self._counted[connection]
            return left_bytes * (now - since), left_bytes

        for connection in sorted(self._counted, key=burden, reverse=True):
            self.remove(connection)
            connection.abort()
            if self._total_bytes <= self._listener.limits.max_unsent_bytes:
                return
