"""Deliveries: write the frames of a feed to a connection as fast as its client reads them.

A connection buffers what its transport has not sent: at most the high-water mark and one frame. While the buffer is full no frame is
made; the feed keeps the cursors of its reader. A client that does not read costs a bounded number of bytes.

    flowing --full--> blocked --drained--> flowing             frames are larger after a wait
                      blocked --drained after the grace-->     records lost meanwhile count as lost by the reader
                      blocked, nothing taken for the time-out-->  error event, closed; the session keeps its cursors

A client that reads slowly but continuously is not closed.
"""

from collections.abc import Callable

from msgspec import Struct

from topics.broker.topics.feed import Feed
from topics.engine.topics.live_frames import LiveFrame
from topics.runtime.interface import Runtime, Timer
from topics.server.http import Channel

# Frames are joined up to about this size, and one connection gets no more than that in one turn of the loop.
PIECE_BYTES = 64 << 10


class Pace(Struct, frozen=True):
    """How long a client may not read."""

    buffer_grace_ms: int = 5_000
    slow_consumer_timeout_ms: int = 30_000


class Delivery:
    """One connection's share of a feed, from `start` until `stop`."""

    __slots__ = (
        "_blocked_at", "_channel", "_continues", "_encode", "_feed", "_on_quiet", "_on_room", "_on_stuck", "_pace", "_quiet_ms",
        "_quiet_timer", "_runtime", "_sent_at", "_stopped", "_stuck_timer", "_taken_bytes",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        channel: Channel,
        feed: Feed,
        encode: Callable[[LiveFrame], bytes],
        pace: Pace,
        *,
        on_stuck: Callable[[], None],
        quiet_ms: int,
        on_quiet: Callable[[], None],
        on_room: Callable[[], None] | None = None,
    ) -> None:
        """`on_stuck`: the client took nothing for too long. `on_quiet`: nothing was sent for `quiet_ms`, again and again.

        `on_room`: it was `blocked` and no longer is.
        """
        self._runtime = runtime
        self._channel = channel
        self._feed = feed
        self._encode = encode
        self._pace = pace
        self._on_stuck = on_stuck
        self._on_quiet = on_quiet
        self._on_room = on_room
        self._quiet_ms = quiet_ms
        self._sent_at = runtime.perf()
        self._blocked_at: float | None = None
        self._taken_bytes = 0
        self._continues = False
        self._stopped = False
        self._stuck_timer: Timer | None = None
        self._quiet_timer: Timer | None = None

    def start(self) -> None:
        self._channel.on_drain(self._drained)
        self._feed.open(self.pump)
        self._quiet_timer = self._runtime.call_later(self._quiet_ms, self._check_quiet)
        self.pump()

    def stop(self) -> None:
        """Stop sending; the feed keeps its cursors. A second call has no effect."""
        if not self._stopped:
            self._stopped = True
            self._feed.close()
            for timer in (self._stuck_timer, self._quiet_timer):
                if timer is not None:
                    timer.cancel()

    @property
    def blocked(self) -> bool:
        return self._blocked_at is not None

    def send(self, data: bytes) -> None:
        """Write a small message that is not from the feed, such as a heartbeat, at once."""
        self._channel.write(data)
        self._sent_at = self._runtime.perf()
        if not self._channel.writable:
            self._block()

    def pump(self) -> None:
        """Send pending frames until the output buffer is full."""
        if self._blocked_at is not None or self._stopped or self._continues:
            return
        feed = self._feed
        frame = feed.next()
        if frame is None:
            return
        data = self._encode(frame)
        more = True
        if len(data) < PIECE_BYTES:
            frame = feed.next()
            if frame is None:
                more = False
            else:
                data, more = self._gather(data, frame)
        self.send(data)
        if more and self._blocked_at is None:
            # Other connections are served before this one continues.
            self._continues = True
            self._runtime.call_soon(self._continue)

    def _gather(self, data: bytes, frame: LiveFrame | None) -> tuple[bytes, bool]:
        pieces = [data]
        size = len(data)
        while frame is not None:
            data = self._encode(frame)
            pieces.append(data)
            size += len(data)
            if size >= PIECE_BYTES:
                return b"".join(pieces), True
            frame = self._feed.next()
        return b"".join(pieces), False

    def _continue(self) -> None:
        self._continues = False
        self.pump()

    def _block(self) -> None:
        if self._blocked_at is None:
            self._blocked_at = self._runtime.perf()
            self._taken_bytes = self._channel.written_bytes - self._channel.buffered
            self._wait_for_progress()

    def _drained(self) -> None:
        blocked_at = self._blocked_at
        if blocked_at is None or self._stopped:
            return
        self._blocked_at = None
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
        if (self._runtime.perf() - blocked_at) * 1000 >= self._pace.buffer_grace_ms:
            self._feed.stalled()
        if self._on_room is not None:
            self._on_room()
        self.pump()

    def _wait_for_progress(self) -> None:
        self._stuck_timer = self._runtime.call_later(self._pace.slow_consumer_timeout_ms, self._check_progress)

    def _check_progress(self) -> None:
        taken_bytes = self._channel.written_bytes - self._channel.buffered
        if taken_bytes > self._taken_bytes:
            self._taken_bytes = taken_bytes
            self._wait_for_progress()
        else:
            self._on_stuck()

    def _check_quiet(self) -> None:
        left_ms = self._quiet_ms - (self._runtime.perf() - self._sent_at) * 1000
        if left_ms < 1:
            left_ms = self._quiet_ms
            # A client that does not read needs no heartbeat.
            if self._blocked_at is None:
                self._on_quiet()
        if not self._stopped:
            self._quiet_timer = self._runtime.call_later(left_ms, self._check_quiet)
