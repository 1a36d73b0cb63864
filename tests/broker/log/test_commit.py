"""What is written in one turn becomes true in the order of the log, whatever its becoming true sets off."""

from typing import Any

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.records.batch import decode_batch


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_a_snapshot_that_begins_between_two_writes_of_a_turn_loses_neither(durability: str) -> None:
    under_test = BrokerUnderTest()
    broker, runtime = under_test.broker, under_test.runtime
    under_test.configure("t", durability="disk")
    under_test.configure("u", durability=durability)
    under_test.append("t", 0)
    under_test.append("u", 0)
    outcomes: list[Any] = []

    def write(topic: str, data: int, reply: Any = None) -> None:
        batch = decode_batch(b'{"records":[{"data":%d}]}' % data, under_test.limits)
        broker.append(topic, batch, reply or outcomes.append)

    topic = broker.topic("t")
    broker.sealer.seal(topic, topic.partitions[0])
    # It begins when the segment is sealed.
    broker.checkpointer.checkpoint()
    assert runtime.waiting_aside == 1
    runtime.finish_one()
    # In one turn: a write whose answer brings another one to `u`, the end of the sealing, and a write to `u`.
    runtime.call_soon(lambda: write("u", 1))
    write("t", 1, lambda _: write("u", 2))
    runtime.run()
    under_test.wait(100)
    assert [outcome.first_seq for outcome in outcomes] == [2, 3]
    assert under_test.datas("u") == [0, 1, 2]
    assert under_test.after_kill().datas("u") == [0, 1, 2]
