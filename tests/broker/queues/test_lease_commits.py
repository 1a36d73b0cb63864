"""Acks of one turn are one commit; an ack that cannot be logged leaves the job leased."""

import errno
from typing import Any

from tests.broker.queue_bench import QueueBench
from topics.broker.log.sync_policy import MIN_BATCH_WRITERS
from topics.model.errors import Unavailable


def claimed_queue() -> QueueBench:
    bench = QueueBench()
    bench.configure(durable=True, lease_ms=1000)
    bench.append(*range(4))
    assert len(bench.claim(4)) == 4
    return bench


def test_acks_of_one_turn_share_a_frame_and_each_is_answered() -> None:
    bench = claimed_queue()
    frames = bench.broker.committer.frames_total
    outcomes: list[Any] = []
    for seq in (1, 2, 3):
        bench.broker.queues.ack("q", 0, "w", [seq], None, outcomes.append)
    bench.runtime.run()
    assert [outcome.count for outcome in outcomes] == [1, 1, 1]
    assert bench.broker.committer.frames_total - frames == 1
    assert [record["$seq"] for record in bench.after_power_cut().records()] == [4]


def test_acks_of_many_workers_share_a_write_with_those_of_the_next_turn() -> None:
    bench = QueueBench()
    bench.configure()
    bench.append(*range(MIN_BATCH_WRITERS + 2))
    bench.claim(MIN_BATCH_WRITERS + 2)
    outcomes: list[Any] = []

    def ack(seq: int) -> None:
        bench.broker.queues.ack("q", 0, "w", [seq], None, outcomes.append)

    for seq in range(1, MIN_BATCH_WRITERS + 1):
        ack(seq)
    bench.runtime.run()
    writes = bench.broker.committer.batches_total
    ack(MIN_BATCH_WRITERS + 1)
    bench.runtime.call_soon(lambda: ack(MIN_BATCH_WRITERS + 2))
    bench.runtime.run()
    assert [outcome.count for outcome in outcomes] == [1] * (MIN_BATCH_WRITERS + 2)
    assert bench.broker.committer.batches_total - writes == 1


def test_an_ack_that_cannot_be_written_fails_and_the_job_stays_leased() -> None:
    bench = claimed_queue()
    bench.disk.fault = lambda _step, op, path: errno.EIO if op == "write_at" and path.endswith(".wal") else None
    outcomes: list[Any] = []
    bench.broker.queues.ack("q", 0, "w", [1], None, outcomes.append)
    bench.runtime.run()
    assert isinstance(outcomes[0], Unavailable)
    bench.disk.fault = None
    assert bench.ack(1).count == 1
