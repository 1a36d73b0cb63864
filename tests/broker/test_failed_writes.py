"""Writes that fail together give back their seqs before anybody is told: whoever writes again at once gets right ones."""

import errno
from typing import Any

from tests.broker.house import House
from topics.model.batch import decode_batch
from topics.model.errors import TopicsError


def test_whoever_writes_again_when_told_of_a_failure_gets_the_seqs_his_records_have() -> None:
    house = House()
    house.append("t", 0)
    outcomes: dict[str, Any] = {}

    def write(what: str, then: str = "", key: str = "") -> None:
        body = f'{{"records":[{{"data":"{what}"}}]' + (f',"idempotency_key":"{key}"}}' if key else "}")

        def reply(outcome: Any) -> None:
            outcomes[what] = outcome
            if then:
                write(then)

        house.broker.append("t", decode_batch(body.encode(), house.limits), reply)

    failing = [errno.ENOSPC]
    house.disk.fault = lambda _step, op, _path: failing.pop() if op == "write_at" and failing else None
    # Two groups of one turn, the later of which is told first; each answers with another write.
    write("a", then="d", key="k")
    write("b", then="c")
    house.runtime.run()
    assert isinstance(outcomes["a"], TopicsError)
    assert isinstance(outcomes["b"], TopicsError)
    told = {what: outcomes[what].first_seq for what in ("c", "d")}
    stored = {record["data"]: record["$seq"] for record in house.read("t") if record["data"] != 0}
    assert told == stored
    assert sorted(stored.values()) == [2, 3]


def test_what_came_during_a_sync_that_fails_is_told_so_and_not_written() -> None:
    house = House()
    house.configure("t", durability="fsync")
    house.append("t", 0)
    outcomes: list[Any] = []
    batch = decode_batch(b'{"records":[{"data":1}]}', house.limits)
    house.disk.fault = lambda _step, op, _path: errno.EIO if op == "sync_data" else None
    house.broker.append("t", batch, outcomes.append)
    house.runtime.turn()
    assert house.runtime.waiting_aside == 1, "the sync is under way"
    house.broker.append("t", batch, outcomes.append)
    house.runtime.run()
    assert [outcome.code for outcome in outcomes] == ["read_only", "read_only"]
    assert house.datas("t") == [0]


def test_writes_that_come_during_a_sync_are_one_write_behind_it() -> None:
    house = House()
    house.configure("t", durability="fsync")
    house.append("t", 0)
    committer = house.broker.committer
    outcomes: list[Any] = []
    writes, syncs = committer.batches_total, committer.syncs_total
    for _ in range(5):
        # Each comes in a turn of its own; the first starts a sync, which the others meet.
        house.broker.append("t", decode_batch(b'{"records":[{"data":1}]}', house.limits), outcomes.append)
        house.runtime.turn()
    assert committer.batches_total == writes + 1
    house.runtime.run()
    assert [outcome.first_seq for outcome in outcomes] == [2, 3, 4, 5, 6]
    assert (committer.batches_total - writes, committer.syncs_total - syncs) == (2, 2)


def test_a_write_that_need_not_be_synced_does_not_wait_for_a_sync() -> None:
    house = House()
    house.configure("safe", durability="fsync")
    house.append("safe", 0)
    house.append("quick", 0)
    outcomes: list[Any] = []
    batch = decode_batch(b'{"records":[{"data":1}]}', house.limits)
    for name in ("safe", "safe", "quick"):
        house.broker.append(name, batch, outcomes.append)
        house.runtime.turn()
    assert [outcome.topic.name for outcome in outcomes] == ["quick"]
    house.runtime.run()
    assert [outcome.topic.name for outcome in outcomes] == ["quick", "safe", "safe"]
    assert house.datas("safe") == [0, 1, 1]
