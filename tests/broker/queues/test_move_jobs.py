"""A move of jobs happens as a whole or not at all."""

from tests.broker.queue_bench import QueueBench
from topics.broker.queues.move_jobs import MAX_MOVE_RECORDS, first_commit, move_jobs


def test_one_commit_moves_a_limited_number_of_jobs() -> None:
    bench = QueueBench()
    bench.configure()
    seqs = bench.append(*range(MAX_MOVE_RECORDS + 10))
    partition = bench.broker.topic("q").partitions[0]
    assert first_commit(partition, seqs) == seqs[:MAX_MOVE_RECORDS]
    assert first_commit(partition, seqs[:3]) == seqs[:3]


def test_moved_jobs_are_in_one_topic_before_and_after_a_power_cut() -> None:
    bench = QueueBench()
    bench.configure()
    bench.configure("target", type="log")
    seqs = bench.append("x", "y")
    broker = bench.broker
    queue = broker.topic("q")
    outcomes: list[object] = []
    move_jobs(
        broker,
        queue,
        seqs,
        broker.topic("target"),
        lambda _, meta: meta,
        outcomes.append,
        partition=queue.partitions[0],
    )
    bench.runtime.run()
    assert outcomes == [None]
    for found in (bench, bench.after_power_cut()):
        assert found.records() == []
        assert [record["data"] for record in found.records("target")] == ["x", "y"]
