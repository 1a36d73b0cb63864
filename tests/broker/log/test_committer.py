"""Writes that fail together release their seqs before the first reply: a write inside a reply gets the right seqs."""

import errno
from typing import Any

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.errors import TopicsError
from topics.model.records.batch import decode_batch


def test_write_repeated_inside_a_failure_reply_gets_the_seqs_of_its_records() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    outcomes: dict[str, Any] = {}

    def write(what: str, then: str = "", key: str = "") -> None:
        body = f'{{"records":[{{"data":"{what}"}}]' + (f',"idempotency_key":"{key}"}}' if key else "}")

        def reply(outcome: Any) -> None:
            outcomes[what] = outcome
            if then:
                write(then)

        under_test.broker.append("t", decode_batch(body.encode(), under_test.limits), reply)

    failing = [errno.ENOSPC]
    under_test.disk.fault = lambda _step, op, _path: failing.pop() if op == "write_at" and failing else None
    # Two groups of one turn, the later of which is answered first; each answers with another write.
    write("a", then="d", key="k")
    write("b", then="c")
    under_test.runtime.run()
    assert isinstance(outcomes["a"], TopicsError)
    assert isinstance(outcomes["b"], TopicsError)
    acked = {what: outcomes[what].first_seq for what in ("c", "d")}
    stored = {record["data"]: record["$seq"] for record in under_test.read("t") if record["data"] != 0}
    assert acked == stored
    assert sorted(stored.values()) == [2, 3]


def test_writes_submitted_during_a_failing_sync_fail_and_are_not_written() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", durability="fsync")
    under_test.append("t", 0)
    outcomes: list[Any] = []
    batch = decode_batch(b'{"records":[{"data":1}]}', under_test.limits)
    under_test.disk.fault = lambda _step, op, _path: errno.EIO if op == "sync_data" else None
    under_test.broker.append("t", batch, outcomes.append)
    under_test.runtime.turn()
    assert under_test.runtime.waiting_aside == 1, "the sync is under way"
    under_test.broker.append("t", batch, outcomes.append)
    under_test.runtime.run()
    assert [outcome.code for outcome in outcomes] == ["read_only", "read_only"]
    assert under_test.datas("t") == [0]


def test_writes_that_come_during_a_sync_are_one_write_behind_it() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", durability="fsync")
    under_test.append("t", 0)
    committer = under_test.broker.committer
    outcomes: list[Any] = []
    writes, syncs = committer.batches_total, committer.syncs_total
    for _ in range(5):
        # Each comes in a turn of its own; the first starts a sync, which the others meet.
        under_test.broker.append("t", decode_batch(b'{"records":[{"data":1}]}', under_test.limits), outcomes.append)
        under_test.runtime.turn()
    assert committer.batches_total == writes + 1
    under_test.runtime.run()
    assert [outcome.first_seq for outcome in outcomes] == [2, 3, 4, 5, 6]
    assert (committer.batches_total - writes, committer.syncs_total - syncs) == (2, 2)


def test_a_write_that_need_not_be_synced_does_not_wait_for_a_sync() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("safe", durability="fsync")
    under_test.append("safe", 0)
    under_test.append("quick", 0)
    outcomes: list[Any] = []
    batch = decode_batch(b'{"records":[{"data":1}]}', under_test.limits)
    for name in ("safe", "safe", "quick"):
        under_test.broker.append(name, batch, outcomes.append)
        under_test.runtime.turn()
    assert [outcome.topic.name for outcome in outcomes] == ["quick"]
    under_test.runtime.run()
    assert [outcome.topic.name for outcome in outcomes] == ["quick", "safe", "safe"]
    assert under_test.datas("safe") == [0, 1, 1]
