"""Jobs whose segment is damaged on disk: the claim gets the error, and other claims do not wait."""

from typing import Any

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.errors import CorruptStorage, TopicsError


def damage(under_test: BrokerUnderTest) -> None:
    """Change a byte of every sealed record."""
    for path, content in under_test.disk.snapshot_tree().items():
        if path.endswith(".arrow"):
            file = under_test.disk.open(path)
            at = content.index(b"needle")
            file.write_at(at, [b"NEEDLE"])
            file.close()


def test_an_ack_of_a_job_that_cannot_be_read_is_refused_and_others_of_its_turn_are_not() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("q", type="queue", leases_durable=True, lease_ms=60_000)
    under_test.append("q", *["needle"] * 5)
    under_test.append("other", 0)
    topic = under_test.broker.topic("q")
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    under_test.runtime.run()
    under_test.append("q", "hot")
    claimed: list[Any] = []
    under_test.broker.queues.claim("q", 0, "node", 10, None, 0, claimed.append)
    under_test.runtime.run()
    assert len(claimed[0].delivery.seqs) == 6
    under_test.checkpoint()
    damage(under_test)
    under_test = under_test.after_kill()
    outcomes: list[Any] = []

    def ack(seqs: list[int]) -> None:
        try:
            under_test.broker.queues.ack("q", 0, "node", seqs, None, outcomes.append)
        except TopicsError as error:
            outcomes.append(error)

    ack([6])
    ack([1, 2])
    under_test.append("other", 1)
    assert len(outcomes) == 2
    assert sorted([type(outcome) is CorruptStorage for outcome in outcomes]) == [False, True]
    assert under_test.datas("other") == [0, 1]
    assert under_test.broker.topic("q").partitions[0].count == 5
    assert under_test.broker.queues.stats(under_test.broker.topic("q")).in_flight == 5
    again = under_test.after_kill()
    assert again.broker.topic("q").partitions[0].count == 5
