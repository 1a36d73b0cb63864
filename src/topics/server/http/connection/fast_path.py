"""The fast path: requests that arrive whole, alone, and with a head that the connection has parsed before.

A client sends the same head again and again. For such a request the connection skips llhttp, the pipeline and most
objects. Two cases, the faster first:

    the same bytes up to the body and the same length as the previous request, which was added to a batch of pending
    requests: its Request object is used again and only the body is appended to the batch (0.3 us)

    a head in the memory of the connection (see `head_memory`), followed by exactly its body (0.9 us)

Anything else is left to the pipeline, which uses the same memory for requests that arrive together. The fast path parses nothing itself, so it accepts nothing that the parser would
refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from topics.server.http.messages.head import RequestHead
from topics.server.http.messages.head_memory import HeadMemory
from topics.server.http.request import Request

from .state import HANDLING

if TYPE_CHECKING:
    from .connection import Connection


# The previous request, if it was added to a batch of pending requests, and how to recognise the next one like it:
#   request, bytes before the body, length of the whole, slice of those bytes, slice of the body, the batch's requests and bodies
# A plain tuple: unpacking a NamedTuple takes 0.1 us more.
RepeatedRequest = tuple[Request, bytes, int, slice, slice, list[Request], list[bytes]]
NOT_REPEATED: RepeatedRequest = (cast(Request, None), b"", -1, slice(0), slice(0), [], [])


class FastPath:
    """What one connection remembers of its requests. Dropped when the connection has been idle for a while."""

    __slots__ = ("_connection", "_heads", "memory", "repeated")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.memory = HeadMemory(connection.limits.max_body_bytes)
        self._heads = self.memory.heads
        self.repeated = NOT_REPEATED

    @property
    def remembered_heads(self) -> int:
        return len(self._heads)

    def learn(self, start: bytes, head: RequestHead) -> None:
        """Remember that `start`, the bytes up to the blank line, was parsed as `head`."""
        self.memory.learn(start, head)

    def receive(self, data: bytes) -> bool:
        """Handle `data` if it is one whole request of the kinds above. The connection must be IDLE."""
        request, begin, length, start_slice, body_slice, requests, bodies = self.repeated
        # Comparing slices takes 70 ns, `startswith` 120.
        if len(data) == length and data[start_slice] == begin:
            connection = self._connection
            connection.state = HANDLING
            connection.current = request
            if requests:
                requests.append(request)
                bodies.append(data[body_slice])
            else:
                self._start_batch(request, data[body_slice])
            return True
        start, blank_line, body = data.partition(b"\r\n\r\n")
        head = self._heads.get(start)
        if head is None:
            found = self.memory.recall(start)
            if found is None or found[1] != len(body):
                return False
            head = found[0]
        elif head.content_length != len(body):
            return False
        # Without its blank line a head may still get more lines.
        if not blank_line:
            return False
        connection = self._connection
        connection.state = HANDLING
        connection.since = now = connection.clock()
        connection.current = request = Request(connection, head, body, now)
        pending = head.pending_requests
        if pending is None or not pending.add(request):
            connection.handle(request)
            return True
        begin = start + blank_line
        self.repeated = (
            request,
            begin,
            len(data),
            slice(len(begin)),
            slice(len(begin), None),
            pending.requests,
            pending.bodies,
        )
        return True

    def _start_batch(self, request: Request, body: bytes) -> None:
        """Offer a repeated request to its batch, which is empty, so `add` decides; else have it handled."""
        connection = self._connection
        now = connection.clock()
        request.renew(body, now)
        pending = request.head.pending_requests
        if pending is None or not pending.add(request):
            connection.since = now
            connection.handle_repeated(request)
