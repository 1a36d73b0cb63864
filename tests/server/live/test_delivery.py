"""Slow clients: what they cost, which error they get, when they are disconnected."""

import re

import pytest

from topics.broker.topics.feed import Feed
from topics.engine.topics.live_frames import LiveFrame, Records, Subscription
from topics.server.live.delivery import Delivery, Pace
from topics.server.live.sse import frame_event
from topics.testing.broker import BrokerBench

HIGH_BYTES = 64 << 10
LOW_BYTES = 16 << 10
PACE = Pace(buffer_grace_ms=5_000, slow_consumer_timeout_ms=30_000)


class SlowChannel:
    """A channel whose client takes what the test says."""

    def __init__(self) -> None:
        self.queue = bytearray()
        self.taken = bytearray()
        self.written_bytes = 0
        self.writable = True
        self.closed = False
        self.most_buffered = 0
        self._drain = lambda: None

    @property
    def buffered(self) -> int:
        return len(self.queue)

    def on_drain(self, callback) -> None:  # type: ignore[no-untyped-def]
        self._drain = callback

    def write(self, data: bytes) -> None:
        self.queue += data
        self.written_bytes += len(data)
        self.most_buffered = max(self.most_buffered, len(self.queue))
        if len(self.queue) > HIGH_BYTES:
            self.writable = False

    def take(self, count: int | None = None) -> None:
        """The client reads this number of bytes, or all there are."""
        count = len(self.queue) if count is None else count
        self.taken += self.queue[:count]
        del self.queue[:count]
        if not self.writable and len(self.queue) < LOW_BYTES:
            self.writable = True
            self._drain()


class Scene:
    def __init__(self, **config: int) -> None:
        self.bench = BrokerBench()
        self.bench.configure("a", **config)
        self.channel = SlowChannel()
        self.frames: list[LiveFrame] = []
        self.stuck = 0
        self.quiet = 0
        self.feed = Feed(self.bench.broker)
        self.feed.add(self.bench.broker.topic("a"), 0, Subscription())
        self.delivery = Delivery(
            self.bench.runtime,
            self.channel,  # type: ignore[arg-type]
            self.feed,
            self._encode,
            PACE,
            on_stuck=self._stuck,
            quiet_ms=15_000,
            on_quiet=self._quiet,
        )
        self.delivery.start()
        self.channel.take()

    def write(self, count: int, size: int = 1000) -> None:
        for _ in range(count):
            self.bench.append("a", b'"%b"' % (b"x" * size))

    def run(self) -> None:
        self.bench.runtime.run()

    def seqs(self) -> list[int]:
        return [int(seq) for seq in re.findall(rb'"\$seq":(\d+)', bytes(self.channel.taken))]

    def _encode(self, frame: LiveFrame) -> bytes:
        self.frames.append(frame)
        return frame_event(frame)

    def _stuck(self) -> None:
        self.stuck += 1
        self.delivery.stop()

    def _quiet(self) -> None:
        self.quiet += 1
        self.delivery.send(b": hb\n\n")


def test_a_client_that_reads_gets_everything_in_order() -> None:
    scene = Scene()
    for _ in range(50):
        scene.write(1)
        scene.channel.take()
    assert scene.seqs() == list(range(1, 51))
    assert not scene.delivery.blocked


def test_what_waits_for_a_stuck_client_stays_bounded_however_much_is_written() -> None:
    scene = Scene()
    scene.write(5000)
    assert scene.delivery.blocked
    assert scene.channel.most_buffered < HIGH_BYTES + Subscription().budget + 1000


def test_a_client_that_comes_back_gets_the_rest_in_few_large_frames() -> None:
    scene = Scene()
    scene.write(2000)
    before = len([frame for frame in scene.frames if isinstance(frame, Records)])
    for _ in range(1000):
        scene.channel.take()
        scene.run()
        if not scene.channel.queue:
            break
    assert scene.seqs() == list(range(1, 2001))
    assert len([frame for frame in scene.frames if isinstance(frame, Records)]) - before < 20


@pytest.mark.parametrize(("stalled_ms", "reason"), [(4_999, "cap"), (5_000, "from_seq_too_old")])
def test_after_the_grace_a_slow_reader_of_a_small_topic_gets_an_error(stalled_ms: int, reason: str) -> None:
    scene = Scene(cap_records=10)
    scene.write(200)
    assert scene.delivery.blocked
    scene.bench.clock.advance(stalled_ms)
    scene.channel.take()
    scene.run()
    scene.channel.take()
    assert b'event: tombstone\ndata: {"topic":"a","reason":"%b"' % reason.encode() in scene.channel.taken
    assert scene.seqs()[-1] == 200


def test_a_client_that_takes_nothing_for_the_time_out_is_let_go_and_its_place_kept() -> None:
    scene = Scene()
    scene.write(200)
    scene.bench.clock.advance(29_999)
    assert scene.stuck == 0
    scene.bench.clock.advance(1)
    assert scene.stuck == 1
    assert not scene.bench.broker.watchers
    assert 0 < scene.feed.places["a"].cursor < 200


def test_a_client_that_takes_a_little_all_the_time_is_never_let_go() -> None:
    scene = Scene()
    scene.write(200)
    for _ in range(20):
        scene.bench.clock.advance(29_000)
        scene.channel.take(100)
    assert scene.delivery.blocked
    assert scene.stuck == 0


def test_silence_is_broken_after_its_time_and_only_then() -> None:
    scene = Scene()
    scene.bench.clock.advance(14_999)
    assert scene.quiet == 0
    scene.bench.clock.advance(1)
    assert scene.quiet == 1
    scene.bench.clock.advance(10_000)
    scene.write(1)
    scene.bench.clock.advance(14_000)
    assert scene.quiet == 1
    scene.bench.clock.advance(1_000)
    assert scene.quiet == 2


def test_nothing_is_added_to_what_a_stuck_client_does_not_take() -> None:
    scene = Scene()
    scene.write(200)
    scene.bench.clock.advance(29_000)
    assert scene.quiet == 0


def test_nothing_is_sent_after_the_stop() -> None:
    scene = Scene()
    scene.delivery.stop()
    scene.delivery.stop()
    written = scene.channel.written_bytes
    scene.write(10)
    scene.bench.clock.advance(60_000)
    assert scene.channel.written_bytes == written
    assert (scene.quiet, scene.stuck) == (0, 0)


def test_other_connections_get_their_turn_during_a_long_backlog() -> None:
    bench = BrokerBench()
    bench.append("a", *[b'"%b"' % (b"x" * 1000)] * 1000)
    turns: list[str] = []
    for name in ("one", "two"):
        feed = Feed(bench.broker)
        feed.add(bench.broker.topic("a"), 0, Subscription(limit=100))
        channel = SlowChannel()

        def encode(frame: LiveFrame, name: str = name, channel: SlowChannel = channel) -> bytes:
            turns.append(name)
            channel.queue.clear()
            return frame_event(frame)

        Delivery(
            bench.runtime,
            channel,  # type: ignore[arg-type]
            feed,
            encode,
            PACE,
            on_stuck=lambda: None,
            quiet_ms=15_000,
            on_quiet=lambda: None,
        ).start()
    for _ in range(30):
        bench.runtime.run()
    assert turns.index("two") < 10
