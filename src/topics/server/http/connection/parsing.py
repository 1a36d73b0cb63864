"""The input of a connection that the fast path did not take: unparsed bytes to messages.

Parsing is done in steps, and only when the messages of the step before are handed over. So a client that pipelines
without end fills `_unparsed` up to `hold_bytes` and is then no longer read from.

An assembler is borrowed from the listener while a message is incomplete, and returned between two messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.server.http.limits import HttpLimits
from topics.server.http.messages.assembler import Assembler, Message
from topics.server.http.messages.head import NO_HEAD, RequestHead
from topics.server.http.messages.head_memory import MAX_HEAD_BYTES, HeadMemory
from topics.server.http.messages.refusal import Refused

if TYPE_CHECKING:
    from topics.server.http.listener import Listener

# Input of at most this size is parsed in one step. From larger input heads are cut out exactly, so that thousands of
# tiny requests do not become objects at once.
MAX_WHOLE_BYTES = 4 << 10
MAX_HEAD_STEP_BYTES = 16 << 10
MAX_CHUNKED_STEP_BYTES = 16 << 10


class Parsing:
    __slots__ = (
        "_assembler",
        "_body_begun",
        "_body_bytes",
        "_body_bytes_at",
        "_listener",
        "_message_since",
        "_position",
        "_unparsed",
        "unread",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._unparsed = b""
        self._position = 0
        self._assembler: Assembler | None = None
        self.unread = False
        """Input was dropped: the client may be sending bytes that will not be read."""

        # For `is_too_slow`.
        self._message_since = 0.0
        self._body_begun = False
        self._body_bytes = 0
        self._body_bytes_at = 0.0

    @property
    def unparsed_bytes(self) -> int:
        return len(self._unparsed) - self._position

    @property
    def in_message(self) -> bool:
        """A message has begun and is incomplete."""
        return self._assembler is not None

    @property
    def in_body(self) -> bool:
        return self._assembler is not None and self._assembler.head is not None

    @property
    def message_bytes(self) -> int:
        return self._assembler.message_bytes if self._assembler is not None else 0

    def add(self, data: bytes) -> None:
        if self._unparsed:
            self._unparsed = self._unparsed[self._position :] + data
            self._position = 0
        else:
            self._unparsed = data

    def take_unparsed(self) -> bytes:
        """Remove and return the bytes that are not parsed yet: they belong to another protocol."""
        unparsed = self._unparsed[self._position :]
        self._unparsed = b""
        self._position = 0
        return unparsed

    def take_known(self, memory: HeadMemory) -> Message | None:
        """Remove and return the next message, if it is complete and `memory` has its head; otherwise None.

        Pipelined requests with equal heads: 2 us for each instead of 30, with what the application derives from a new head.
        """
        if self._assembler is not None:
            return None
        data = self._unparsed
        begin = self._position
        head_end = data.find(b"\r\n\r\n", begin, begin + MAX_HEAD_BYTES)
        found = memory.find(data[begin:head_end]) if head_end >= 0 else None
        if found is None:
            return None
        head, length = found
        body_begin = head_end + 4
        body = data[body_begin : body_begin + length]
        if len(body) < length:
            return None
        self._position = body_begin + length
        if self._position == len(data):
            self._unparsed = b""
            self._position = 0
        return head, body

    def step(self, learn: Callable[[bytes, RequestHead], None]) -> list[Message]:
        """Parse a part of the input and return the messages that became complete or were refused.

        At most one message of large input, all messages of small input. `learn` is called with a head that was parsed
        and the bytes before its blank line. Bytes that cannot be parsed give a refusal as the last message; the rest of
        the input is dropped.
        """
        data = self._unparsed
        begin = self._position
        assembler = self._assembler
        head_end = -1
        if assembler is None:
            assembler = self._listener.borrow_assembler()
            head_end = data.find(b"\r\n\r\n", begin)
        messages_begun = assembler.messages_begun
        piece: bytes | memoryview = data
        if begin or len(data) > MAX_WHOLE_BYTES:
            piece = memoryview(data)[begin : begin + _step_bytes(assembler, data, begin, head_end)]
        try:
            taken = assembler.feed(piece)
        except Refused as refused:
            self._assembler = assembler
            messages: list[Message] = [*assembler.messages, (NO_HEAD, refused.refusal)]
            self.drop()
            return messages
        if head_end >= 0:
            head, body = assembler.messages[0] if assembler.messages else (assembler.head, b"")
            if head is not None and isinstance(body, bytes):
                learn(data[begin:head_end], head)
        self._position = begin + taken
        if self._position == len(data):
            self._unparsed = b""
            self._position = 0
        messages = assembler.take_messages()
        if assembler.finished:
            self._assembler = assembler
            self.drop()
        elif not assembler.in_message:
            self._assembler = None
            self._listener.return_assembler(assembler)
        else:
            self._assembler = assembler
            if assembler.messages_begun != messages_begun:
                self.restart_clock(self._listener.limits.clock())
        return messages

    def take_continue(self) -> bool:
        """Whether the client waits for 100 Continue; true once for each message."""
        assembler = self._assembler
        if assembler is None or not assembler.wants_continue:
            return False
        assembler.wants_continue = False
        return True

    @property
    def is_refused(self) -> bool:
        """The incomplete message has its response already, and the rest of it is being dropped."""
        return self._assembler is not None and self._assembler.discarding

    def drop(self) -> None:
        """Drop all input, now and later: nothing that the client sends from here on is parsed."""
        if self._unparsed or self._assembler is None or not self._assembler.finished:
            self.unread = True
        self._unparsed = b""
        self._position = 0
        self.dispose()

    def dispose(self) -> None:
        if self._assembler is not None:
            self._assembler.dispose()
            self._assembler = None

    def restart_clock(self, now: float) -> None:
        """Measure the time of the incomplete message from `now`."""
        self._message_since = now
        self._body_begun = False

    def is_too_slow(self, now: float, limits: HttpLimits) -> bool:
        """Whether the incomplete message takes longer than the limits for heads and bodies allow."""
        assembler = self._assembler
        assert assembler is not None
        if assembler.head is None:
            return now - self._message_since > limits.head_timeout
        if not self._body_begun:
            self._body_begun = True
            self._message_since = self._body_bytes_at = now
            self._body_bytes = assembler.body_bytes
            return False
        if assembler.body_bytes != self._body_bytes:
            self._body_bytes = assembler.body_bytes
            self._body_bytes_at = now
        elif now - self._body_bytes_at > limits.body_timeout:
            return True
        return now - self._message_since > limits.body_timeout + assembler.body_bytes / limits.min_body_rate


def _step_bytes(assembler: Assembler, data: bytes, begin: int, head_end: int) -> int:
    """How many bytes of large input to parse next."""
    if assembler.head is not None:
        return assembler.remaining() or MAX_CHUNKED_STEP_BYTES
    if head_end < 0:
        head_end = data.find(b"\r\n\r\n", begin)
    return min(head_end + 4 - begin, MAX_HEAD_STEP_BYTES) if head_end >= 0 else MAX_HEAD_STEP_BYTES
