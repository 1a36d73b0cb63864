"""The stream of a worker, with a clock that the test moves: heartbeats, the end of a connection, the end of its queue."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.broker.queue_bench import QueueBench, jobs_of, seqs_of
from topics.server.queues.work import HEARTBEAT_MS, WorkStream
from topics.testing.events import Event, EventParser


class FakeStream:
    """What the stream writes, as a browser reads it; the connection goes when the test says so."""

    def __init__(self) -> None:
        self.closed = False
        self.buffered = 0
        self.events: list[Event] = []
        self._parser = EventParser()
        self._on_close: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.events += self._parser.feed(data)

    def close(self) -> None:
        self.closed = True

    def on_close(self, callback: Callable[[], None]) -> None:
        self._on_close = callback

    def on_shutdown(self, callback: Callable[[], None]) -> None:
        pass

    def on_drain(self, callback: Callable[[], None]) -> None:
        pass

    def drop(self) -> None:
        """The peer is gone: a clean end, a reset or a time-out look the same from here."""
        self.closed = True
        self._on_close()

    @property
    def jobs(self) -> list[int]:
        return [event.data["$seq"] for event in self.events if event.name == "job"]

    @property
    def beats(self) -> list[int]:
        return [int(event.text.removeprefix("hb ")) for event in self.events if event.name == ""]


def open_stream(bench: QueueBench, node: str = "s", most: int = 1) -> FakeStream:
    stream = FakeStream()
    queues = bench.broker.queues
    topic, partition, _ = queues.find("q", 0)
    WorkStream(bench.broker, queues.waiters(topic, partition), stream, node, most, None)  # type: ignore[arg-type]
    bench.runtime.run()
    return stream


def bench_with(**fields: Any) -> QueueBench:
    bench = QueueBench()
    bench.configure(**fields)
    return bench


def test_a_silent_stream_beats_every_15_seconds_and_not_in_between() -> None:
    assert HEARTBEAT_MS == 15_000
    bench = bench_with()
    start = bench.clock.now_ms()
    stream = open_stream(bench)
    assert stream.beats == [start]
    bench.pass_time(14_999)
    assert stream.beats == [start]
    bench.pass_time(1)
    bench.pass_time(15_000)
    assert stream.beats == [start, start + 15_000, start + 30_000]


def test_no_beat_after_a_job_in_the_same_window() -> None:
    bench = bench_with(lease_ms=3_600_000)
    start = bench.clock.now_ms()
    stream = open_stream(bench, most=5)
    bench.pass_time(10_000)
    bench.append("job")
    assert stream.jobs == [1]
    bench.pass_time(5000)
    assert stream.beats == [start], "the job was life enough"
    bench.pass_time(15_000)
    assert stream.beats == [start, start + 30_000]


def test_a_closed_stream_beats_no_more() -> None:
    bench = bench_with()
    stream = open_stream(bench)
    stream.drop()
    bench.pass_time(60_000)
    assert len(stream.beats) == 1


@pytest.mark.parametrize("leases_durable", [False, True])
def test_a_dropped_stream_releases_its_own_jobs_at_once_and_no_others(leases_durable: bool) -> None:
    bench = bench_with(leases_durable=leases_durable, lease_ms=3_600_000)
    bench.append(*range(6))
    assert seqs_of(bench.claim(1, node="s")) == [1]
    first, second = open_stream(bench, most=2), open_stream(bench, most=2)
    assert (first.jobs, second.jobs) == ([2, 3], [4, 5])
    bench.ack(2, node="s")
    bench.runtime.run()
    assert first.jobs == [2, 3, 6]
    first.drop()
    bench.runtime.run()
    assert bench.counters() == (2, 3, 0), "without a moment passing"
    assert [(job["$seq"], job["deliveries"]) for job in bench.claim(9, node="v")] == [(3, 2), (6, 2)]
    assert bench.ack(1, 4, 5, node="s").count == 3


def test_what_was_claimed_again_elsewhere_is_not_released_by_the_old_connection() -> None:
    bench = bench_with(lease_ms=1000)
    bench.append("job")
    stream = open_stream(bench)
    stream.buffered = 1 << 30
    bench.pass_time(1001)
    assert seqs_of(bench.claim(1, node="s")) == [1], "the same worker has it again, by a claim"
    stream.drop()
    bench.runtime.run()
    assert bench.counters() == (0, 1, 0)


@pytest.mark.parametrize("again", [None, "log", "queue"])
def test_a_stream_ends_with_an_error_when_its_queue_is_gone(again: str | None) -> None:
    bench = bench_with()
    stream = open_stream(bench)
    bench.broker.delete_topic("q", if_empty=False, reply=lambda _: None)
    if again is not None:
        bench.configure(type=again)
        bench.append("not for the old stream")
    bench.runtime.run()
    last = stream.events[-1]
    assert last.name == "error"
    assert last.data["code"] == 409
    assert stream.closed
    assert stream.jobs == []
    bench.pass_time(60_000)
    assert stream.events[-1] is last
    assert msgspec.json.decode(last.text)["topic"] == "q"


@pytest.mark.parametrize("jobs", [100, 103, 7])
def test_ten_streams_and_claims_of_one_window_share_evenly(jobs: int) -> None:
    """Five of each, all with room for fifty: no stream gets more than one job more than another."""
    bench = bench_with(claim_jitter_ms=100)
    streams = [open_stream(bench, f"s{number}", most=50) for number in range(5)]
    bench.append(*range(jobs))
    claims = [bench.start_claim(50, f"c{number}")[0] for number in range(5)]
    assert not any(stream.jobs for stream in streams)
    assert not any(claims)
    bench.pass_time(100)
    got = [stream.jobs for stream in streams] + [seqs_of(jobs_of(answers)) for answers in claims]
    assert sorted(seq for hand in got for seq in hand) == list(range(1, jobs + 1))
    counts = [len(hand) for hand in got]
    assert max(counts) - min(counts) <= 1, counts
    assert counts.count(jobs // 10) == 10 - jobs % 10


def test_shares_stay_even_over_many_windows() -> None:
    """Ten workers, polling and pushed to, a hundred windows: who lacks one today gets it tomorrow, more or less."""
    bench = bench_with(claim_jitter_ms=10, lease_ms=3_600_000)
    streams = [open_stream(bench, f"s{number}", most=3) for number in range(5)]
    polled = [0] * 5
    for _ in range(100):
        bench.append(*range(20))
        claims = [bench.start_claim(3, f"c{number}")[0] for number in range(5)]
        bench.pass_time(10)
        for number, answers in enumerate(claims):
            seqs = seqs_of(jobs_of(answers))
            polled[number] += len(seqs)
            if seqs:
                bench.ack(*seqs, node=f"c{number}")
        for number, stream in enumerate(streams):
            bench.ack(*stream.jobs[-3:], node=f"s{number}")
    counts = [len(stream.jobs) for stream in streams] + polled
    assert sum(counts) == 2000
    assert max(counts) - min(counts) <= 20, counts
