"""While the commits of a turn become true, no sync is done on the spot: a later commit would become true before an earlier one."""

from typing import Any

from tests.broker.house import House
from topics.broker.checkpoint import StorageSettings
from topics.broker.committer import QUICK_LEAST
from topics.broker.stages import CommitRequest, Write, commit
from topics.model.batch import decode_batch
from topics.model.config import ConfigChange


def test_a_commit_that_comes_with_an_answer_and_must_wait_does_not_reorder_its_turn() -> None:
    house = House(settings=StorageSettings())
    broker = house.broker
    house.configure("loose", durability="disk")
    house.configure("busy", durability="disk")
    house.append("loose", 0)
    house.configure("t", durability="fsync")
    for _ in range(QUICK_LEAST):
        house.append("t", 0)
    before = len(house.datas("t"))
    outcomes: list[Any] = []

    def batch(data: int) -> Any:
        return decode_batch(b'{"records":[{"data":%d}]}' % data, house.limits)

    # One turn: a topic is changed, and whoever changed it writes to `t`; somebody writes to `loose` and then commits to
    # the topic that is being changed; somebody writes to `t`.
    broker.configure("busy", ConfigChange(ttl_ms=10**9), lambda _: broker.append("t", batch(2), outcomes.append))
    request = CommitRequest([], [Write("busy", batch(7))])
    broker.append("loose", batch(1), lambda _: commit(broker, request, outcomes.append))
    broker.append("t", batch(1), outcomes.append)
    house.runtime.run()
    house.wait(100)
    assert len(outcomes) == 3
    assert house.datas("t")[before:] == [1, 2]
