"""A claim of a queue with durable leases is answered after the log has its leases."""

import errno
from typing import Any

from tests.broker.queue_bench import QueueBench
from topics.model.errors import Unavailable


def durable_queue() -> QueueBench:
    bench = QueueBench()
    bench.configure(durable=True, leases_durable=True)
    bench.append("x")
    return bench


def test_the_reply_waits_for_the_sync_and_the_lease_survives_a_power_cut() -> None:
    bench = durable_queue()
    answers, _ = bench.start_claim(1)
    bench.runtime.turn()
    if bench.runtime.waiting_aside:
        assert answers == []
    bench.runtime.run()
    assert [answer.count for answer in answers] == [1]  # type: ignore[union-attr]
    again = bench.after_power_cut()
    assert again.claim() == []


def test_a_claim_whose_leases_cannot_be_written_fails_and_its_job_is_ready_again() -> None:
    bench = durable_queue()
    bench.disk.fault = lambda _step, op, path: errno.EIO if op == "write_at" and path.endswith(".wal") else None
    answers, _ = bench.start_claim(1)
    bench.runtime.run()
    assert isinstance(answers[0], Unavailable)
    bench.disk.fault = None
    jobs: list[Any] = bench.claim()
    assert jobs[0]["deliveries"] == 1
