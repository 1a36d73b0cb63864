"""Jobs whose segment is damaged on disk: whoever asks is told, and nobody else waits for it."""

from typing import Any

from tests.broker.house import House
from topics.model.errors import CorruptStorage, TopicsError


def damage(house: House) -> None:
    """Change a byte of every sealed record."""
    for path, content in house.disk.snapshot_tree().items():
        if path.endswith(".arrow"):
            file = house.disk.open(path)
            at = content.index(b"needle")
            file.write_at(at, [b"NEEDLE"])
            file.close()


def test_an_ack_of_a_job_that_cannot_be_read_is_refused_and_others_of_its_turn_are_not() -> None:
    house = House()
    house.configure("q", type="queue", leases_durable=True, lease_ms=60_000)
    house.append("q", *["needle"] * 5)
    house.append("other", 0)
    topic = house.broker.topic("q")
    house.broker.keeper.seal(topic, topic.partitions[0])
    house.runtime.run()
    house.append("q", "hot")
    claimed: list[Any] = []
    house.broker.queues.claim("q", 0, "node", 10, None, 0, claimed.append)
    house.runtime.run()
    assert len(claimed[0].grant.seqs) == 6
    house.checkpoint()
    damage(house)
    house = house.after_kill()
    outcomes: list[Any] = []

    def ack(seqs: list[int]) -> None:
        try:
            house.broker.queues.ack("q", 0, "node", seqs, None, outcomes.append)
        except TopicsError as error:
            outcomes.append(error)

    ack([6])
    ack([1, 2])
    house.append("other", 1)
    assert len(outcomes) == 2
    assert sorted([type(outcome) is CorruptStorage for outcome in outcomes]) == [False, True]
    assert house.datas("other") == [0, 1]
    assert house.broker.topic("q").partitions[0].count == 5
    assert house.broker.queues.counters(house.broker.topic("q")).in_flight == 5
    again = house.after_kill()
    assert again.broker.topic("q").partitions[0].count == 5
