"""One connection: bytes in, requests handed over one at a time and in order, answers out.

A request that arrives whole, alone, and with a head the connection remembers takes the short way through
`data_received`; everything else goes through `proceed`, which is the only place where bytes are parsed and
requests are handed over:

    unparsed bytes -> (assembler) -> waiting messages -> current request -> answer -> `answered` -> proceed

Bytes are parsed only when nothing waits, so a client that pipelines without end fills `_unparsed` up to
`hold_bytes` and is then no longer read from. A client that does not read its answers stops us in the same way:
above the write mark nothing is handed over.

`idle` is true exactly when the short way may be taken: nothing current, waiting, unparsed or half parsed, and the
client reads what we write. `last` is true when the next answer ends the connection (also when there is none to
end any more): the short way of `Request.respond` needs no other question.

The end of a connection has three forms. `close` sends what is left and closes. After a refusal the client may
still be sending, and closing then would destroy the answer on its way: `_linger` says goodbye and goes on
reading for a while. Whoever does not go by himself is cut off by `sweep`.

Speed (2 cores, CPython 3.11, loopback, wrk -t1 -c16, POST of 125 bytes decoded by msgspec: `bench/echo.py`), against
a bare protocol of three httptools callbacks that checks nothing: one round in the same minute, and without the
socket the best of many:

    bare                        112,100 requests/s    1.0 us a request
    this, equal heads           108,500               1.4
    this, lengths change                              2.0
    this, nothing remembered     46,000               8.3

An idle connection takes 1.6 KB of memory, one that has asked something 2.8 KB.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .assembler import Assembler
from .body import INLINE_BYTES, Inflation
from .channel import Channel
from .duplex import Duplex
from .head import NO_HEAD, RequestHead
from .limits import HttpLimits
from .memory import FORGET_SECONDS, HeadMemory
from .refusal import INTERNAL, OVERLOADED, REQUEST_TIMEOUT, SHUTTING_DOWN, Refusal, Refused
from .request import Request
from .response import CONTINUE, render_head

if TYPE_CHECKING:
    from .listener import Listener

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

# So many pieces are parsed or requests handed over for one connection before the others get their turn again.
STEPS_A_TURN = 128
# So many answers to pipelined requests are written at once.
ANSWERS_A_WRITE = 16

# A read of at most so many bytes is parsed in one go. From bigger ones heads are cut out exactly, so that
# thousands of tiny requests do not become objects at once.
PIECE_BYTES = 4 << 10
HEAD_PIECE_BYTES = 16 << 10
CHUNKED_PIECE_BYTES = 16 << 10

# The last request, if it was taken in at a door, with how it began, how long it was and where that ended and its body began. The next
# one that begins in the same way and is as long is taken in as the same object. (0.3 us; 0.9 as a new one.)
Again = tuple[Request, bytes, int, slice, slice, list[Request], list[bytes]]
NO_AGAIN: Again = (cast(Request, None), b"", -1, slice(0), slice(0), [], [])

_NOTHING_REMEMBERED: dict[bytes, RequestHead] = {}


class Connection(asyncio.Protocol):
    __slots__ = (
        "_again",
        "_assembler",
        "_channel",
        "_closing",
        "_duplex",
        "_gathered",
        "_handle",
        "_heads",
        "_in_body",
        "_linger_left",
        "_listener",
        "_memory",
        "_position",
        "_proceeding",
        "_progress",
        "_progress_at",
        "_reading",
        "_scheduled",
        "_stuck_bytes",
        "_stuck_since",
        "_transport",
        "_unparsed",
        "_unread",
        "_waiting",
        "_writable",
        "busy",
        "clock",
        "closed",
        "current",
        "draining",
        "ended",
        "idle",
        "last",
        "limits",
        "since",
        "slow_seconds",
        "write",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._handle = listener.handle
        self.clock = listener.limits.clock
        self.limits: HttpLimits = listener.limits
        self.slow_seconds = listener.slow_seconds
        """A request that took so long is told to the application."""

        # The connection as a whole.
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.write: Callable[[bytes], None] = _write_nowhere
        """The transport's own `write`, or the list that gathers answers to pipelined requests."""
        self.closed = False
        self.draining = False
        self.last = False
        self._closing = False
        self.ended = False
        """The client sends no more."""
        self._reading = True
        self._writable = True
        self._linger_left = -1
        """While lingering, the bytes we are still willing to drop."""

        # Where the work stands.
        self.idle = True
        self.busy = False
        """There is more to do once the current request is answered."""
        self.current: Request | None = None
        self._channel: Channel | None = None
        self._duplex: Duplex | None = None
        self._waiting: deque[tuple[RequestHead, bytes | Refusal | None]] | None = None
        self._unparsed = b""
        self._position = 0
        self._unread = False
        """The client may be sending what nobody will read."""
        self._assembler: Assembler | None = None
        self._gathered: list[bytes] | None = None
        self._proceeding = False
        self._scheduled = False

        self._memory: HeadMemory | None = None
        self._heads = _NOTHING_REMEMBERED
        self._again = NO_AGAIN

        # What the sweep compares with.
        self.since = self.clock()
        """When the last request, or the message under way, began; or when we began to close."""
        self._in_body = False
        self._progress = 0
        self._progress_at = 0.0
        self._stuck_bytes = 0
        self._stuck_since = 0.0

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write
        # uvloop's own low mark is 16 bytes, not KiB.
        self._transport.set_write_buffer_limits(self.limits.write_high_bytes, self.limits.write_low_bytes)
        if not self._listener.opened(self):
            self.idle = False
            self.last = True
            self._unread = True
            self.write(
                render_head(
                    503, len(OVERLOADED.body), OVERLOADED.headers + b"Connection: close\r\n", b"application/json"
                )
                + OVERLOADED.body
            )
            self._finish()

    def data_received(self, data: bytes) -> None:
        if self.idle:
            again, begin, length, beginning, body, requests, bodies = self._again
            # A comparison of slices: 70 ns, `startswith` 120.
            if len(data) == length and data[beginning] == begin:
                self.idle = False
                self.current = again
                if requests:
                    requests.append(again)
                    bodies.append(data[body])
                else:
                    self._come_first(again, data[body])
                return
            start, blank_line, content = data.partition(b"\r\n\r\n")
            head = self._heads.get(start)
            if head is None:
                if self._memory is not None:
                    head = self._memory.recall(start, content)
            elif head.content_length != len(content):
                head = None
            # Without its blank line a head may still get more lines.
            if head is not None and blank_line:
                self.idle = False
                self.since = now = self.clock()
                self.current = request = Request(self, head, content, now)
                door = head.door
                if door is not None and door.take(request):
                    begin = start + blank_line
                    self._again = (
                        request,
                        begin,
                        len(data),
                        slice(len(begin)),
                        slice(len(begin), None),
                        door.requests,
                        door.bodies,
                    )
                    return
                try:
                    self._handle(request)
                except Exception as error:  # noqa: BLE001 - whatever it is becomes a 500, and the server goes on
                    self._failed(request, error)
                return
        self._received(data)

    def eof_received(self) -> bool:
        """Whether to stay open: yes, while somebody who only closed his sending side has an answer to come."""
        self.ended = True
        request = self.current
        if self._closing or self._linger_left >= 0 or self._channel is not None:
            return False
        if request is not None and request.client_gone():
            return False
        if request is None and not self._waiting and not self._unparsed:
            return False
        self.busy = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.last = True
        self.idle = False
        self._listener.lost(self)
        self.write = _write_nowhere
        self._gathered = None
        self._waiting = None
        self._unparsed = b""
        self._forget_heads()
        if self._assembler is not None:
            self._assembler.dispose()
            self._assembler = None
        request, self.current = self.current, None
        channel, self._channel = self._channel, None
        self._duplex = None
        if channel is not None:
            channel.gone()
        elif request is not None:
            request.gone()

    def pause_writing(self) -> None:
        self._writable = False
        self._stuck_since = 0.0
        self.idle = False
        self.busy = True
        self._listener.unsent.add(self)

    def resume_writing(self) -> None:
        self._writable = True
        self._listener.unsent.remove(self)
        if self._channel is not None:
            self._channel.drained()
        self.proceed()

    # What requests and channels call.

    def peer(self) -> Any:
        return None if self.closed else self._transport.get_extra_info("peername")

    def buffered(self) -> int:
        return 0 if self.closed else self._transport.get_write_buffer_size()

    def write_parts(self, start: bytes, body: bytes) -> None:
        """Both, in this order, without copying `body`."""
        self._flush()
        self._transport.writelines((start, body))

    def hold(self, change: int) -> bool:
        """So many more bytes are kept for this connection, or less. False when that is more than all together may keep."""
        held = self._listener.held
        held.total += change
        return change <= 0 or held.total <= self.limits.max_held_bytes

    def open_channel(self, channel: Channel) -> None:
        """The answer to the current request goes on until the channel is closed."""
        self._channel = channel
        self._stuck_since = 0.0

    def open_duplex(self, duplex: Duplex) -> None:
        """What is received from here on is the duplex's, and what was received and not parsed."""
        self._duplex = duplex
        early = self._unparsed[self._position :]
        self._unparsed = b""
        self._position = 0
        if early:
            duplex.received(early)

    def answered(self) -> None:
        """The current request has its whole answer."""
        self.current = None
        self._channel = None
        if self.last:
            self._finish()
        elif self.busy:
            self.proceed()
        else:
            self.idle = True

    def call(self, request: Request) -> None:
        # Whoever handles it may keep it: the next one is another object.
        self._again = NO_AGAIN
        try:
            self._handle(request)
        except Exception as error:  # noqa: BLE001 - as in `data_received`
            self._failed(request, error)

    def aside(self, work: Callable[[], Result], then: Callable[[Result], None], held_bytes: int = 0) -> None:
        """Run `work` in a thread and `then` with what it returns here. Nobody waits but the current request.

        `held_bytes` is what is given back when the work is done.
        """
        request = self.current
        assert request is not None

        def done(future: asyncio.Future[Result]) -> None:
            self._listener.held.total -= held_bytes
            if self.closed or future.cancelled():
                return
            try:
                then(future.result())
            except Refused as refused:
                self._refuse(request, refused.refusal or INTERNAL)
            except Exception as error:  # noqa: BLE001 - as in `data_received`
                self._failed(request, error)

        self._listener.run_aside(work).add_done_callback(done)

    def tell_slow(self, request: Request, status: int, body: bytes) -> None:
        self._listener.slow(request, status, body)

    def pause_reading(self) -> None:
        if self._reading and not self.closed:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._transport.resume_reading()

    def close(self) -> None:
        """Send what is left and close. The sweep cuts off whoever does not take it."""
        self.idle = False
        self.last = True
        self._closing = True
        self.since = self.clock()
        self._stuck_since = 0.0
        self._flush()
        self._transport.close()

    # What the listener calls.

    def abort(self) -> None:
        """Close now, whatever is left to send."""
        self._closing = True
        self.idle = False
        self.last = True
        self._transport.abort()

    def drain(self) -> None:
        """Finish what was begun and close: an idle connection at once, a busy one with its next answer.

        A request that is not here whole has `part_timeout` to become so, or gets 503 `shutting_down`.
        """
        self.draining = True
        if self.closed or self._closing:
            return
        if self._linger_left >= 0:
            self._part(self._leave)
            return
        self.last = True
        if self._channel is not None:
            self._channel.shut_down()
        elif self.current is None and not self._waiting:
            if self._assembler is None and not self._unparsed:
                self.close()
            else:
                self._part(self._refuse_unfinished)

    def sweep(self, now: float) -> None:
        """Look at the clock: close who is idle, refuse who is too slow, cut off who does not take what we send."""
        limits = self.limits
        if self.idle:
            if now - self.since > limits.keep_alive_timeout:
                self.close()
            elif now - self.since > FORGET_SECONDS:
                self._forget_heads()
            return
        if self._is_stuck(now):
            self.abort()
        elif self._closing or self._linger_left >= 0:
            if self._transport.get_write_buffer_size():
                self.since = now
            elif now - self.since > limits.linger_timeout:
                self.abort()
        elif self._assembler is None or not self._reading or not self._writable or self.current is not None:
            # His time does not run while he waits for us, or we for him to read.
            self.since = now
            self._in_body = False
        elif self._is_too_slow(self._assembler, now):
            self._give_up(self._assembler, REQUEST_TIMEOUT)

    # The long way.

    def proceed(self) -> None:
        """Parse and hand over as much as may be handed over now. Harmless at any time."""
        if self._proceeding or self.closed:
            return
        self._proceeding = True
        self._scheduled = False
        turns = STEPS_A_TURN
        try:
            while self.current is None and self._writable and not self._closing and self._linger_left < 0:
                if self._waiting:
                    head, body = self._waiting.popleft()
                    self._hand_over(head, body)
                elif self._unparsed:
                    self._parse_some()
                elif self.ended:
                    self._finish()
                else:
                    if self._assembler is not None and self._assembler.wants_continue:
                        self._assembler.wants_continue = False
                        self._flush()
                        self.write(CONTINUE)
                    break
                turns -= 1
                if not turns:
                    self._proceed_later()
                    break
        except Exception:
            # Called by whoever has just answered a request, and has others to answer: what comes behind it is not theirs.
            logger.exception("a connection cannot go on")
            self.abort()
        finally:
            self._proceeding = False
        self._settle()

    def _come_first(self, request: Request, body: bytes) -> None:
        """Nobody waits behind the door of this request yet, or each must ask."""
        request.body = body
        request.received_at = now = self.clock()
        request.answered = False
        door = request.head.door
        if door is None or not door.take(request):
            self.since = now
            self.call(request)

    def _received(self, data: bytes) -> None:
        if self._duplex is not None:
            self._duplex.received(data)
            return
        if self._linger_left >= 0:
            self._linger_left -= len(data)
            if self._linger_left < 0:
                self._linger_left = 0
                self.abort()
            return
        if self._closing:
            return
        if self._unparsed:
            self._unparsed = self._unparsed[self._position :] + data
            self._position = 0
        else:
            self._unparsed = data
        if self.current is None:
            self.proceed()
            return
        self.busy = True
        if len(self._unparsed) > self.limits.hold_bytes:
            if self._channel is not None:
                # With reading stopped we would not notice that the client of a stream has gone.
                self.abort()
            else:
                self.pause_reading()

    def _parse_some(self) -> None:
        """Parse a part of what is unparsed: at most one message of a big read, all messages of a small one."""
        data = self._unparsed
        begin = self._position
        assembler = self._assembler
        head_end = -1
        if assembler is None:
            assembler = self._listener.borrow_assembler()
            head_end = data.find(b"\r\n\r\n", begin)
        messages_begun = assembler.messages_begun
        piece: bytes | memoryview = data
        if begin or len(data) > PIECE_BYTES:
            piece = memoryview(data)[begin : begin + _piece_bytes(assembler, data, begin, head_end)]
        try:
            taken = assembler.feed(piece)
        except Refused as refused:
            self._assembler = assembler
            for head, body in assembler.messages:
                self._queue(head, body)
            self._queue(NO_HEAD, refused.refusal)
            self._drop_input()
            return
        if head_end >= 0:
            self._learn(data[begin:head_end], assembler)
        self._position = begin + taken
        if self._position == len(data):
            self._unparsed = b""
            self._position = 0
        if assembler.finished:
            self._assembler = assembler
            self._drop_input()
        elif not assembler.in_message:
            self._assembler = None
            self._listener.return_assembler(assembler)
        else:
            self._assembler = assembler
            if assembler.messages_begun != messages_begun:
                # The time of the message under way begins with it.
                self.since = self.clock()
                self._in_body = False
        messages = assembler.messages
        if messages:
            if len(messages) == 1:
                head, body = messages.pop()
                self._hand_over(head, body)
            else:
                for head, body in messages:
                    self._queue(head, body)
                messages.clear()

    def _hand_over(self, head: RequestHead, body: bytes | Refusal | None) -> None:
        if body is None:
            self._finish()
            return
        if self._gathered is None:
            if self._waiting or self._unparsed:
                self._gathered = []
                self.write = self._gathered.append
        elif len(self._gathered) >= ANSWERS_A_WRITE:
            self._flush()
        self.since = now = self.clock()
        request = Request(self, head, b"", now)
        self.current = request
        if not head.keep_alive:
            self.last = True
        if isinstance(body, Refusal):
            self._refuse(request, body)
            return
        request.body = body
        if head.coding and body:
            self._inflate(request)
        else:
            self.call(request)

    def _inflate(self, request: Request) -> None:
        inflation = Inflation(request.body, self.limits.max_body_bytes)
        try:
            body = inflation.run(INLINE_BYTES)
        except Refused as refused:
            self._refuse(request, refused.refusal or INTERNAL)
            return
        if body is not None:
            request.body = body
            self.call(request)
            return

        def then(body: bytes) -> None:
            request.body = body
            self.call(request)

        held = self._listener.held
        if held.total + len(request.body) > self.limits.max_held_bytes:
            self._refuse(request, OVERLOADED)
            return
        held.total += len(request.body)
        self.aside(inflation.finish, then, held_bytes=len(request.body))
        request.body = b""

    def _refuse(self, request: Request, refusal: Refusal) -> None:
        request.respond(refusal.status, refusal.body, refusal.headers, compressible=False)

    def _failed(self, request: Request, error: Exception) -> None:
        body = self._listener.explain(request, error)
        if not request.answered:
            request.respond(500, body, compressible=False)
        elif self._channel is not None and self.current is request:
            # Half an answer is out; cutting it off is the only way left to say that it is not whole.
            self.abort()

    def _queue(self, head: RequestHead, body: bytes | Refusal | None) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((head, body))

    def _learn(self, start: bytes, assembler: Assembler) -> None:
        head, body = assembler.messages[0] if assembler.messages else (assembler.head, b"")
        if head is not None and isinstance(body, bytes):
            if self._memory is None:
                self._memory = HeadMemory(self.limits.max_body_bytes)
                self._heads = self._memory.heads
            self._memory.learn(start, head)

    def _forget_heads(self) -> None:
        self._memory = None
        self._heads = _NOTHING_REMEMBERED
        self._again = NO_AGAIN

    def _part(self, how: Callable[[], None]) -> None:
        self._listener.loop.call_later(self.limits.part_timeout, how)

    def _refuse_unfinished(self) -> None:
        """Nothing of the request was done, so its sender may try again elsewhere or later."""
        assembler = self._assembler
        if assembler is not None and self.current is None and not self._waiting and self._writable:
            self._give_up(assembler, SHUTTING_DOWN)

    def _leave(self) -> None:
        """Read no longer from who was refused. Only what he has not taken yet is worth more waiting."""
        if self.closed or self._closing:
            return
        if self._transport.get_write_buffer_size():
            self._part(self._leave)
        else:
            self.abort()

    def _give_up(self, assembler: Assembler, refusal: Refusal) -> None:
        """Wait no longer for the rest of the message under way."""
        self._queue(NO_HEAD, None if assembler.discarding else refusal)
        self._drop_input()
        self.proceed()

    def _drop_input(self) -> None:
        """Nothing that the client sends from here on is read any more."""
        if self._unparsed or self._assembler is None or not self._assembler.finished:
            self._unread = True
        self._unparsed = b""
        self._position = 0
        if self._assembler is not None:
            self._assembler.dispose()
            self._assembler = None

    def _settle(self) -> None:
        """Put down where the work stands, now that `proceed` can do no more."""
        if self.closed or self._closing or self._linger_left >= 0:
            return
        self._flush()
        waiting_bytes = len(self._unparsed) - self._position
        self.busy = bool(
            self._waiting or waiting_bytes or self._assembler is not None or not self._writable or self.ended
        )
        self.idle = not self.busy and self.current is None
        if waiting_bytes > self.limits.hold_bytes:
            self.pause_reading()
        elif self._duplex is None:
            self.resume_reading()

    def _proceed_later(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._listener.loop.call_soon(self.proceed)

    def _flush(self) -> None:
        gathered = self._gathered
        if gathered is not None:
            self._gathered = None
            self.write = self._transport.write
            if gathered:
                self._transport.write(b"".join(gathered))

    def _finish(self) -> None:
        """The last answer is written."""
        if not self._unread and not self._unparsed and self._assembler is None:
            self.close()
        else:
            self._linger()

    def _linger(self) -> None:
        self.idle = False
        self.last = True
        self._flush()
        self._drop_input()
        self._linger_left = self.limits.linger_bytes
        self.since = self.clock()
        self._stuck_since = 0.0
        if self.ended:
            self.close()
            return
        self._transport.write_eof()
        self.resume_reading()
        if self.draining:
            self._part(self._leave)

    def _is_too_slow(self, assembler: Assembler, now: float) -> bool:
        limits = self.limits
        if assembler.head is None:
            return now - self.since > limits.head_timeout
        if not self._in_body:
            self._in_body = True
            self.since = self._progress_at = now
            self._progress = assembler.body_bytes
            return False
        if assembler.body_bytes != self._progress:
            self._progress = assembler.body_bytes
            self._progress_at = now
        elif now - self._progress_at > limits.body_timeout:
            return True
        return now - self.since > limits.body_timeout + assembler.body_bytes / limits.min_body_rate

    def _is_stuck(self, now: float) -> bool:
        """Whether the client has taken nothing of what we have for it for too long."""
        channel = self._channel
        if self._writable and channel is None and not self._closing and self._linger_left < 0:
            # Answers go out as they are made; what is left of them says nothing.
            return False
        buffered_bytes = self._transport.get_write_buffer_size()
        # In all other cases only a channel adds to it, and that does not count as taken.
        left_bytes = buffered_bytes - (channel.written_bytes if channel is not None else 0)
        if not buffered_bytes or not self._stuck_since or left_bytes < self._stuck_bytes:
            self._stuck_bytes = left_bytes
            self._stuck_since = now
            return False
        return now - self._stuck_since > self.limits.write_timeout


def _piece_bytes(assembler: Assembler, data: bytes, begin: int, head_end: int) -> int:
    """How much of a big read to parse next."""
    if assembler.head is not None:
        return assembler.remaining() or CHUNKED_PIECE_BYTES
    if head_end < 0:
        head_end = data.find(b"\r\n\r\n", begin)
    return min(head_end + 4 - begin, HEAD_PIECE_BYTES) if head_end >= 0 else HEAD_PIECE_BYTES


def _write_nowhere(data: bytes) -> None:
    """The connection is gone."""
