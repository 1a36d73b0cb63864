"""Claims that wait are served when jobs become ready."""

from tests.broker.queue_bench import QueueBench


def test_every_waiting_claim_gets_one_of_the_jobs() -> None:
    bench = QueueBench()
    bench.configure()
    waiting = [bench.start_claim(5, node, wait_ms=1000)[0] for node in "abc"]
    bench.runtime.run()
    bench.append(*range(3))
    bench.pass_time(50)
    assert [[answer.count for answer in answers] for answers in waiting] == [[1], [1], [1]]  # type: ignore[union-attr]


def test_a_waiting_claim_is_served_when_a_delay_ends_and_when_a_lease_expires() -> None:
    bench = QueueBench()
    bench.configure(lease_ms=300)
    bench.append("x", delay_ms=200)
    first, _ = bench.start_claim(1, "a", wait_ms=1000)
    bench.pass_time(100)
    assert first == []
    bench.pass_time(150)
    assert [answer.count for answer in first] == [1]  # type: ignore[union-attr]
    second, _ = bench.start_claim(1, "b", wait_ms=1000)
    for _ in range(5):
        bench.pass_time(100)
    assert [answer.count for answer in second] == [1]  # type: ignore[union-attr]


def test_waiting_claims_fail_when_the_topic_is_deleted() -> None:
    bench = QueueBench()
    bench.configure()
    answers, _ = bench.start_claim(1, wait_ms=10_000)
    bench.runtime.run()
    bench.broker.delete_topic("q", if_empty=False, reply=lambda _: None)
    bench.runtime.run()
    bench.pass_time(1)
    assert len(answers) == 1
