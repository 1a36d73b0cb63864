"""A claim is answered once, or cancelled."""

from typing import Any

from tests.broker.queue_bench import QueueBench
from topics.broker.queues.claims import ClaimState


def test_a_claim_that_waits_is_answered_when_a_job_arrives() -> None:
    bench = QueueBench()
    bench.configure()
    answers, claim = bench.start_claim(2, wait_ms=1000)
    bench.runtime.run()
    assert claim is not None
    assert (answers, claim.state) == ([], ClaimState.WAITING)
    bench.append("x")
    bench.pass_time(50)
    assert [answer.count for answer in answers] == [1]  # type: ignore[union-attr]
    assert claim.state is ClaimState.ENDED


def test_a_claim_is_answered_without_jobs_when_its_time_is_over() -> None:
    bench = QueueBench()
    bench.configure()
    answers, _ = bench.start_claim(1, wait_ms=1000)
    bench.runtime.run()
    bench.pass_time(999)
    assert answers == []
    bench.pass_time(2)
    assert [answer.count for answer in answers] == [0]  # type: ignore[union-attr]


def test_a_cancelled_claim_gets_no_reply_and_no_job() -> None:
    bench = QueueBench()
    bench.configure()
    answers, claim = bench.start_claim(1, wait_ms=1000)
    bench.runtime.run()
    assert claim is not None
    claim.cancel()
    bench.append("x")
    bench.pass_time(2000)
    assert answers == []
    jobs: list[Any] = bench.claim()
    assert jobs[0]["deliveries"] == 1
