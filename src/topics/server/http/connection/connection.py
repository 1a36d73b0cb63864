"""One connection: bytes in, requests handed to the application one at a time and in order, responses out.

`state` says what the connection is doing; see `state.py` for the table. The work is divided:

    fast_path.py     a whole request whose head is known: no parsing
    parsing.py       unparsed bytes to messages
    pipelining.py    messages to requests, in order, one at a time
    connection.py    the transport's callbacks, flow control, deadlines, and the three ways to end

A connection ends in one of three ways. `close` sends what is left and closes. After a refusal the client may still be
sending, and closing then would destroy the response on its way: `_linger` closes the sending side only and goes on
reading for a while. `abort` closes at once; the sweep uses it for clients that do not close or do not read.

Speed (2 cores, CPython 3.11, loopback, wrk -t1 -c16, POST of 125 bytes decoded by msgspec: `bench/echo.py`), compared
with a bare protocol of three httptools callbacks that checks nothing:

    bare                          112,100 requests/s    1.0 us a request without the socket
    this, equal heads             108,500               1.4
    this, only the length differs                       2.0
    this, heads not remembered     46,000               8.3

An idle connection takes 1.6 KB of memory, one that has sent a request 2.8 KB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from topics.server.http.limits import HttpLimits
from topics.server.http.messages.head import RequestHead
from topics.server.http.messages.head_memory import FORGET_SECONDS
from topics.server.http.messages.refusal import (
    INTERNAL,
    OVERLOADED,
    REQUEST_TIMEOUT,
    SHUTTING_DOWN,
    Refusal,
    Refused,
)
from topics.server.http.messages.response import render_head
from topics.server.http.request import Request

from .channel import Channel
from .duplex import Duplex
from .fast_path import NOT_REPEATED, FastPath
from .pipelining import Pipeline
from .state import (
    CLOSED,
    CLOSING,
    IDLE,
    LINGERING,
    RECEIVING,
    STREAMING,
    TRANSITIONS,
    UPGRADED,
    Event,
    State,
)

if TYPE_CHECKING:
    from topics.server.http.listener import Listener

Result = TypeVar("Result")

# A connection that has received this much in large reads is not read again in the same turn of the loop.
LARGE_READ_BYTES = 32 << 10
MAX_TURN_READ_BYTES = 1 << 20


class Connection(asyncio.Protocol):
    __slots__ = (
        "_channel",
        "_duplex",
        "_handle",
        "_linger_left",
        "_listener",
        "_pipeline",
        "_stalled_since",
        "_transport",
        "_turn_bytes",
        "_unsent_bytes",
        "_yielding",
        "clock",
        "close_after_response",
        "current",
        "draining",
        "fast_path",
        "input_ended",
        "limits",
        "reading",
        "since",
        "slow_seconds",
        "state",
        "writable",
        "write",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._handle = listener.handle
        self.clock = listener.limits.clock
        self.limits: HttpLimits = listener.limits
        self.slow_seconds = listener.slow_seconds
        """Requests that take at least this long are reported to the application."""

        self.state: State = IDLE
        self.close_after_response = False
        """The next response ends the connection; also true once there is no connection to end."""
        self.draining = False
        """The listener is stopping."""
        self.input_ended = False
        """The client has closed its sending side."""
        self.reading = True
        self._yielding = False
        """It has received MAX_TURN_READ_BYTES in this turn, and is not read before the next."""
        self._turn_bytes = 0
        self.writable = True
        """Unsent output is below the high-water mark."""

        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.write: Callable[[bytes], None] = _discard
        """The transport's own `write`, or the list in which the pipeline gathers responses."""
        self.current: Request | None = None
        self._channel: Channel | None = None
        self._duplex: Duplex | None = None
        self.fast_path: FastPath | None = None
        self._pipeline: Pipeline | None = None

        # For the sweep.
        self.since = self.clock()
        """When the last request was handed over, or when the connection began to linger or close."""
        self._linger_left = 0
        """The number of bytes that are still read and dropped while LINGERING."""
        self._unsent_bytes = 0
        self._stalled_since = 0.0

    def transition(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state][event]

    @property
    def closed(self) -> bool:
        return self.state is CLOSED

    @property
    def is_closing(self) -> bool:
        """Nothing more is sent: the transport is closing or gone."""
        return self.state is CLOSING or self.state is CLOSED

    @property
    def is_ending(self) -> bool:
        """No further request is handed over: lingering, closing or gone."""
        return self.state is LINGERING or self.state is CLOSING or self.state is CLOSED

    @property
    def is_upgraded(self) -> bool:
        return self.state is UPGRADED

    @property
    def in_message(self) -> bool:
        """A message has begun and is incomplete."""
        return self._pipeline is not None and self._pipeline.parsing.in_message

    @property
    def in_body(self) -> bool:
        """The head of the incomplete message is parsed."""
        return self._pipeline is not None and self._pipeline.parsing.in_body

    @property
    def message_bytes(self) -> int:
        """The size of the incomplete message so far."""
        return self._pipeline.parsing.message_bytes if self._pipeline is not None else 0

    @property
    def unparsed_bytes(self) -> int:
        return self._pipeline.parsing.unparsed_bytes if self._pipeline is not None else 0

    @property
    def remembered_heads(self) -> int:
        return self.fast_path.remembered_heads if self.fast_path is not None else 0

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write
        # uvloop's default low-water mark is 16 bytes, not KiB.
        self._transport.set_write_buffer_limits(self.limits.write_high_bytes, self.limits.write_low_bytes)
        if not self._listener.opened(self):
            self.write(
                render_head(
                    503, len(OVERLOADED.body), OVERLOADED.headers + b"Connection: close\r\n", b"application/json"
                )
                + OVERLOADED.body
            )
            self._linger()

    def data_received(self, data: bytes) -> None:
        if self.state is IDLE:
            fast_path = self.fast_path
            if fast_path is not None and fast_path.receive(data):
                return
        self._receive(data)

    def eof_received(self) -> bool:
        """Return whether to stay open: a client that closed only its sending side still gets its responses."""
        self.input_ended = True
        if self.is_ending or self.state is STREAMING or self.state is UPGRADED:
            return False
        request = self.current
        if request is not None:
            if request.client_gone():
                return False
        elif self._pipeline is None or not self._pipeline.has_input:
            return False
        self.transition(Event.PENDING)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.transition(Event.LOST)
        self.close_after_response = True
        self._listener.lost(self)
        self.write = _discard
        self.fast_path = None
        if self._pipeline is not None:
            self._pipeline.dispose()
            self._pipeline = None
        request, self.current = self.current, None
        channel, self._channel = self._channel, None
        self._duplex = None
        if channel is not None:
            channel.gone()
        elif request is not None:
            request.gone()

    def pause_writing(self) -> None:
        self.writable = False
        self._stalled_since = 0.0
        self.transition(Event.PENDING)
        self._listener.unsent.add(self)

    def resume_writing(self) -> None:
        self.writable = True
        self._listener.unsent.remove(self)
        if self._channel is not None:
            self._channel.drained()
        self._proceed()

    # Called by requests, channels and the pipeline.

    def peer(self) -> Any:
        return None if self.state is CLOSED else self._transport.get_extra_info("peername")

    def buffered(self) -> int:
        return 0 if self.state is CLOSED else self._transport.get_write_buffer_size()

    def write_parts(self, start: bytes, body: bytes) -> None:
        """Write both without copying `body`."""
        self._flush()
        self._transport.writelines((start, body))

    def write_gathered(self, responses: list[bytes]) -> None:
        self.write = self._transport.write
        if responses:
            self._transport.write(b"".join(responses))

    def hold(self, change: int) -> bool:
        """Count `change` more bytes (or fewer) held for this connection. False if all connections exceed the limit."""
        held = self._listener.held
        held.total += change
        return change <= 0 or held.total <= self.limits.max_held_bytes

    def open_channel(self, channel: Channel) -> None:
        """The response to the current request goes on until the channel is closed."""
        self._channel = channel
        self._stalled_since = 0.0
        self.transition(Event.UPGRADE if isinstance(channel, Duplex) else Event.STREAM)

    def open_duplex(self, duplex: Duplex) -> None:
        """Give all further input to the duplex, beginning with what is received and not parsed."""
        self.open_channel(duplex)
        self._duplex = duplex
        unparsed = self._pipeline.parsing.take_unparsed() if self._pipeline is not None else b""
        if unparsed:
            duplex.received(unparsed)

    def response_sent(self) -> None:
        """The response to the current request is written completely."""
        self.current = None
        self._channel = None
        if self.close_after_response:
            if not self.is_closing:
                self.finish()
            return
        self.state = TRANSITIONS[self.state][Event.RESPONSE]
        if self.state is RECEIVING and self._pipeline is not None:
            self._pipeline.proceed()

    def duplex_closed(self) -> None:
        """The duplex has written its last bytes: the client may still be sending."""
        self.current = None
        self._channel = None
        self._duplex = None
        if not self.is_closing:
            self._linger()

    def handle(self, request: Request) -> None:
        """Have the application handle the request. An exception becomes a 500."""
        try:
            self._handle(request)
        except Exception as error:  # noqa: BLE001 - any error of a handler becomes a 500, and the server goes on
            self._handler_failed(request, error)

    def handle_repeated(self, request: Request) -> None:
        """Like `handle`, for an object that the fast path would use again: the application may keep it."""
        if self.fast_path is not None:
            self.fast_path.repeated = NOT_REPEATED
        self.handle(request)

    def refuse(self, request: Request, refusal: Refusal) -> None:
        request.respond(refusal.status, refusal.body, refusal.headers, compressible=False)

    def run_in_thread(self, work: Callable[[], Result], then: Callable[[Result], None], held_bytes: int = 0) -> None:
        """Run `work` in a thread, then `then` with its result on the loop. Only the current request waits for it.

        `held_bytes` are released when the work is done.
        """
        request = self.current
        assert request is not None

        def done(future: asyncio.Future[Result]) -> None:
            self._listener.held.total -= held_bytes
            if self.state is CLOSED or future.cancelled():
                return
            try:
                then(future.result())
            except Refused as refused:
                self.refuse(request, refused.refusal or INTERNAL)
            except Exception as error:  # noqa: BLE001 - as in `handle`
                self._handler_failed(request, error)

        self._listener.run_in_thread(work).add_done_callback(done)

    def report_slow(self, request: Request, status: int, body: bytes) -> None:
        self._listener.slow(request, status, body)

    def learn_head(self, start: bytes, head: RequestHead) -> None:
        if self.fast_path is None:
            self.fast_path = FastPath(self)
        self.fast_path.learn(start, head)

    def pause_reading(self) -> None:
        if self.reading and self.state is not CLOSED:
            self.reading = False
            if not self._yielding:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.reading and self.state is not CLOSED:
            self.reading = True
            if not self._yielding:
                self._transport.resume_reading()

    def _yield_after(self, size: int) -> None:
        """Count a large read, and pause reading until the next turn after MAX_TURN_READ_BYTES.

        The loop reads up to 32 times from a client that sends without a pause: 8 MiB, which take 30 ms.
        """
        self._turn_bytes += size
        if self._turn_bytes >= MAX_TURN_READ_BYTES and not self._yielding and self.state is not CLOSED:
            self._yielding = True
            if self.reading:
                self._transport.pause_reading()
            self._listener.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        self._yielding = False
        self._turn_bytes = 0
        if self.reading and self.state is not CLOSED:
            self._transport.resume_reading()

    def finish(self) -> None:
        """The last response is written: close, or linger if the client may still be sending."""
        pipeline = self._pipeline
        if pipeline is None:
            self.close()
            return
        parsing = pipeline.parsing
        if parsing.unread or parsing.unparsed_bytes or parsing.in_message:
            self._linger()
        else:
            self.close()

    def close(self) -> None:
        """Send what is left and close. The sweep aborts a client that does not read it."""
        if self.is_closing:
            return
        self.close_after_response = True
        self.since = self.clock()
        self._stalled_since = 0.0
        self._flush()
        self.transition(Event.CLOSE)
        self._transport.close()

    # Called by the listener.

    def forget_heads(self) -> None:
        """Drop what is remembered about request heads: who sent them and what they may do is decided again."""
        self.fast_path = None

    def abort(self) -> None:
        """Close now and drop unsent output."""
        if self.state is CLOSED:
            return
        self.transition(Event.CLOSE)
        self.close_after_response = True
        self._transport.abort()

    def drain(self) -> None:
        """Finish what has begun and close: an idle connection at once, others with their next response.

        A request that is not complete after `part_timeout` gets 503 `shutting_down`.
        """
        self.draining = True
        if self.is_closing:
            return
        if self.state is LINGERING:
            self._after_part_timeout(self._stop_lingering)
            return
        self.close_after_response = True
        if self._channel is not None:
            self._channel.shut_down()
        elif self.state is IDLE:
            self.close()
        elif self.state is RECEIVING:
            pipeline = self._pipeline
            if pipeline is None or not (pipeline.has_input or pipeline.parsing.in_message):
                self.close()
            elif not pipeline.has_waiting:
                self._after_part_timeout(self._refuse_incomplete)

    def sweep(self, now: float) -> None:
        """Apply the deadlines: close idle connections, refuse slow requests, abort clients that do not read."""
        limits = self.limits
        if self.state is IDLE:
            if now - self.since > limits.keep_alive_timeout:
                self.close()
            elif now - self.since > FORGET_SECONDS:
                self.fast_path = None
            return
        if self._is_stalled(now):
            self.abort()
        elif self.state is CLOSING or self.state is LINGERING:
            if self._transport.get_write_buffer_size():
                self.since = now
            elif now - self.since > limits.linger_timeout:
                self.abort()
        elif self.state is RECEIVING and self.in_message and self.reading and self.writable:
            pipeline = self._pipeline
            if pipeline is not None and pipeline.parsing.is_too_slow(now, limits):
                pipeline.give_up(REQUEST_TIMEOUT)
        else:
            # The client waits for us, or we wait for it to read: the time of its next message has not begun.
            self.since = now
            if self._pipeline is not None:
                self._pipeline.parsing.restart_clock(now)

    def _receive(self, data: bytes) -> None:
        if len(data) >= LARGE_READ_BYTES:
            self._yield_after(len(data))
        if self._duplex is not None:
            self._duplex.received(data)
            return
        if self.state is LINGERING:
            self._linger_left -= len(data)
            if self._linger_left < 0:
                self.abort()
            return
        if self.state is CLOSING:
            return
        pipeline = self._pipeline
        if pipeline is None:
            pipeline = self._pipeline = Pipeline(self, self._listener)
        pipeline.parsing.add(data)
        self.transition(Event.PENDING)
        if self.state is RECEIVING:
            pipeline.proceed()
        elif pipeline.parsing.unparsed_bytes > self.limits.hold_bytes:
            if self.state is STREAMING:
                # With reading stopped we would not notice that the client of a stream has gone.
                self.abort()
            else:
                self.pause_reading()

    def _proceed(self) -> None:
        if self._pipeline is not None:
            self._pipeline.proceed()

    def _flush(self) -> None:
        if self._pipeline is not None:
            self._pipeline.flush()

    def _handler_failed(self, request: Request, error: Exception) -> None:
        body = self._listener.explain(request, error)
        if not request.answered:
            request.respond(500, body, compressible=False)
        elif self._channel is not None and self.current is request:
            # Part of the response has been sent; only an abort shows the client that it is incomplete.
            self.abort()

    def _linger(self) -> None:
        """Close the sending side, and read and drop input until the client closes or a limit is reached."""
        self.close_after_response = True
        self._flush()
        self.since = self.clock()
        self._stalled_since = 0.0
        if self._pipeline is not None:
            self._pipeline.parsing.drop()
        if self.input_ended:
            self.close()
            return
        self.transition(Event.LINGER)
        self._linger_left = self.limits.linger_bytes
        self._transport.write_eof()
        self.resume_reading()
        if self.draining:
            self._after_part_timeout(self._stop_lingering)

    def _after_part_timeout(self, callback: Callable[[], None]) -> None:
        self._listener.loop.call_later(self.limits.part_timeout, callback)

    def _refuse_incomplete(self) -> None:
        """Refuse a request that is not complete in time for the shutdown. Nothing was done, so it may be retried."""
        pipeline = self._pipeline
        if pipeline is None or self.state is not RECEIVING or not self.writable:
            return
        if pipeline.parsing.in_message and not pipeline.has_waiting:
            pipeline.give_up(SHUTTING_DOWN)

    def _stop_lingering(self) -> None:
        """Stop reading, during a shutdown. The client has longer only while it has not read the response."""
        if self.state is LINGERING:
            if self._transport.get_write_buffer_size():
                self._after_part_timeout(self._stop_lingering)
            else:
                self.abort()

    def _is_stalled(self, now: float) -> bool:
        """Whether the client has read none of our output for longer than `write_timeout`."""
        channel = self._channel
        if self.writable and channel is None and not self.is_ending:
            # Output below the high-water mark, added to with every response, says nothing about the client.
            return False
        buffered_bytes = self._transport.get_write_buffer_size()
        # Only a channel adds output now, and what it adds must not count against what the client reads.
        unsent_bytes = buffered_bytes - (channel.written_bytes if channel is not None else 0)
        if not buffered_bytes or not self._stalled_since or unsent_bytes < self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._stalled_since = now
            return False
        return now - self._stalled_since > self.limits.write_timeout


def _discard(data: bytes) -> None:
    """`write` of a connection that is gone."""
