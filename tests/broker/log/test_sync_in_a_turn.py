"""While the commits of a turn become true, no sync is done on the spot: a later commit would become true before an earlier one."""

from typing import Any

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.log.sync_policy import MIN_FAST_SYNCS
from topics.broker.transactions.stages import commit
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.config import ConfigChange
from topics.model.records.batch import decode_batch
from topics.model.storage_settings import StorageSettings


def test_a_commit_that_comes_with_an_answer_and_must_wait_does_not_reorder_its_turn() -> None:
    under_test = BrokerUnderTest(settings=StorageSettings())
    broker = under_test.broker
    under_test.configure("loose", durability="disk")
    under_test.configure("busy", durability="disk")
    under_test.append("loose", 0)
    under_test.configure("t", durability="fsync")
    for _ in range(MIN_FAST_SYNCS):
        under_test.append("t", 0)
    before = len(under_test.datas("t"))
    outcomes: list[Any] = []

    def batch(data: int) -> Any:
        return decode_batch(b'{"records":[{"data":%d}]}' % data, under_test.limits)

    # One turn: a topic is changed, and its reply writes to `t`; a client writes to `loose` and then commits to the topic
    # that is being changed; another client writes to `t`.
    broker.configure("busy", ConfigChange(ttl_ms=10**9), lambda _: broker.append("t", batch(2), outcomes.append))
    request = CommitRequest([], [Write("busy", batch(7))])
    broker.append("loose", batch(1), lambda _: commit(broker, request, outcomes.append))
    broker.append("t", batch(1), outcomes.append)
    under_test.runtime.run()
    under_test.wait(100)
    assert len(outcomes) == 3
    assert under_test.datas("t")[before:] == [1, 2]
