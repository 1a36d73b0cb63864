"""Dead letters become jobs of their queue again."""

from typing import Any

from tests.broker.queue_bench import QueueBench
from topics.broker.queues.redrive import RedriveResult, redrive
from topics.engine.queues.redrive import WantedLetters


def queue_with_dead_letters() -> QueueBench:
    bench = QueueBench()
    bench.configure("dead", type="log")
    bench.configure(max_deliveries=1, dead_letter="dead", lease_ms=1000)
    bench.append("x", "y")
    for job in bench.claim(2):
        bench.nack(job["$seq"])
    bench.claim(2)
    bench.pass_time(10)
    assert [record["data"] for record in bench.records("dead")] == ["x", "y"]
    return bench


def run(bench: QueueBench, wanted: WantedLetters, *, dry_run: bool = False) -> RedriveResult:
    results: list[Any] = []
    redrive(bench.broker, "dead", wanted, lambda _: True, results.append, dry_run=dry_run)
    for _ in range(20):
        bench.pass_time(10)
    (result,) = results
    assert isinstance(result, RedriveResult)
    return result


def test_moved_letters_are_jobs_again_and_leave_the_dead_letter_topic() -> None:
    bench = queue_with_dead_letters()
    assert run(bench, WantedLetters()).moved == {"q": 2}
    assert bench.records("dead") == []
    assert [job["data"] for job in bench.claim(5)] == ["x", "y"]


def test_a_dry_run_counts_and_changes_nothing() -> None:
    bench = queue_with_dead_letters()
    assert run(bench, WantedLetters(), dry_run=True).moved == {"q": 2}
    assert len(bench.records("dead")) == 2


def test_only_wanted_letters_are_moved() -> None:
    bench = queue_with_dead_letters()
    seq = bench.records("dead")[1]["$seq"]
    assert run(bench, WantedLetters(seqs=frozenset([seq]))).moved == {"q": 1}
    assert [record["data"] for record in bench.records("dead")] == ["x"]
