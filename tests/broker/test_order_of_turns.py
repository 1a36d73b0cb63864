"""What is written in one turn becomes true in the order of the log, whatever its becoming true sets off."""

from typing import Any

import pytest

from tests.broker.house import House
from topics.model.batch import decode_batch


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_snapshot_that_begins_between_two_writes_of_a_turn_loses_neither(durability: str) -> None:
    house = House()
    broker, runtime = house.broker, house.runtime
    house.configure("t", durability="disk")
    house.configure("u", durability=durability)
    house.append("t", 0)
    house.append("u", 0)
    outcomes: list[Any] = []

    def write(topic: str, data: int, told: Any = None) -> None:
        batch = decode_batch(b'{"records":[{"data":%d}]}' % data, house.limits)
        broker.append(topic, batch, told or outcomes.append)

    topic = broker.topic("t")
    broker.keeper.seal(topic, topic.partitions[0])
    # It begins when the segment is sealed.
    broker.keeper.checkpoint()
    assert runtime.waiting_aside == 1
    runtime.finish_one()
    # In one turn: a write whose answer brings another one to `u`, the end of the sealing, and a write to `u`.
    runtime.call_soon(lambda: write("u", 1))
    write("t", 1, lambda _: write("u", 2))
    runtime.run()
    house.wait(100)
    assert [outcome.first_seq for outcome in outcomes] == [2, 3]
    assert house.datas("u") == [0, 1, 2]
    assert house.after_kill().datas("u") == [0, 1, 2]
