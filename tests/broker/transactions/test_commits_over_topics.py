"""Commits over several topics: a power cut takes the newest records of a log, never some from its middle."""

import errno
from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.transactions.stages import commit
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import View
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.config import ConfigChange
from topics.model.records.batch import decode_batch


def broker_of_two() -> BrokerUnderTest:
    """With the topics `one` and `two`, and a durable record in both."""
    under_test = BrokerUnderTest()
    for name in ("one", "two"):
        under_test.configure(name, durability="disk")
        under_test.append(name, 0)
    under_test.wait(2000)
    return under_test


def commit_to_both(under_test: BrokerUnderTest, data: int, producer: str | None = None) -> list[Any]:
    outcomes: list[Any] = []
    writes = [
        Write(name, decode_batch(b'{"records":[{"data":%d}]}' % data, under_test.limits)) for name in ("one", "two")
    ]
    commit(under_test.broker, CommitRequest([], writes, producer, 1), outcomes.append)
    under_test.runtime.run()
    assert len(outcomes) == 1
    return outcomes


def seen(under_test: BrokerUnderTest, name: str) -> list[Any]:
    """The data of a log, and "lost" where readers get a tombstone."""
    partition = under_test.broker.topic(name).partitions[0]
    found: list[Any] = []
    from_seq = 0
    while True:
        read = read_records(partition, from_seq, 1000, 1 << 20, View())
        if read.tombstone is not None:
            found.append("lost")
        found += [record["data"] for record in msgspec.json.decode(b"[" + bytes(read.records) + b"]")]
        if read.next_from_seq >= partition.head_seq:
            return found
        from_seq = read.next_from_seq


@pytest.mark.parametrize("name", ["one", "two"])
def test_what_was_written_before_a_commit_that_survives_a_power_cut_survives_too(name: str) -> None:
    under_test = broker_of_two()
    under_test.append(name, 1)
    commit_to_both(under_test, 2, producer="p")
    assert seen(under_test.after_power_cut(), name)[:3] == [0, 1, 2]


@pytest.mark.parametrize("name", ["one", "two"])
def test_what_follows_a_commit_survives_no_power_cut_that_the_commit_does_not(name: str) -> None:
    under_test = broker_of_two()
    commit_to_both(under_test, 1)
    under_test.append(name, 2)
    under_test.broker.committer.wal.sync()
    assert seen(under_test.after_power_cut(), name)[:3] == [0, 1, 2]


def test_dead_letters_survive_no_power_cut_that_takes_what_stood_before_them() -> None:
    under_test = broker_of_two()
    under_test.configure("q", type="queue", durability="disk", max_deliveries=1, dead_letter="one")
    under_test.append("q", "job")
    under_test.wait(2000)
    under_test.append("one", 1)
    for _ in range(2):
        under_test.broker.queues.claim("q", 0, "node", 1, 100, 0, lambda _: None)
        under_test.runtime.run()
        under_test.runtime.clock.advance(200)
        under_test.runtime.run()
    assert under_test.datas("one") == [0, 1, "job"]
    after = under_test.after_power_cut()
    assert seen(after, "one")[:3] == [0, 1, "job"]
    assert after.datas("q") == []


def test_a_commit_to_a_topic_that_is_being_changed_runs_as_soon_as_that_is_decided() -> None:
    """Without a timer: under load a poll for a quiet moment may never find one."""
    under_test = broker_of_two()
    events: list[Any] = []
    under_test.broker.configure("two", ConfigChange(cap_records=10), lambda _: events.append("configured"))
    writes = [Write(name, decode_batch(b'{"records":[{"data":1}]}', under_test.limits)) for name in ("one", "two")]
    commit(under_test.broker, CommitRequest([], writes), lambda _: events.append("committed"))
    under_test.broker.configure("two", ConfigChange(cap_records=20), lambda _: events.append("configured again"))
    under_test.runtime.run()
    assert events == ["configured", "committed", "configured again"]
    assert (seen(under_test, "one"), seen(under_test, "two")) == ([0, 1], [0, 1])


def test_a_later_batch_does_not_overtake_one_that_waits_for_a_topic_under_change() -> None:
    """It would raise the fence, and the waiting batch would be taken for a repeat."""
    under_test = broker_of_two()
    outcomes: list[Any] = []
    under_test.broker.configure("one", ConfigChange(cap_records=10), lambda _: None)
    for batch, name in ((1, "one"), (2, "two")):
        write = Write(name, decode_batch(b'{"records":[{"data":%d}]}' % batch, under_test.limits))
        commit(under_test.broker, CommitRequest([], [write], "p", batch), outcomes.append)
    under_test.runtime.run()
    assert [(each.batch, each.deduped) for each in outcomes] == [(1, False), (2, False)]
    assert (seen(under_test, "one"), seen(under_test, "two")) == ([0, 1], [0, 2])


def test_dead_letters_for_a_topic_that_is_being_changed_move_as_soon_as_that_is_decided() -> None:
    under_test = broker_of_two()
    under_test.configure("q", type="queue", max_deliveries=1, dead_letter="one")
    under_test.append("q", "job")
    under_test.broker.queues.claim("q", 0, "node", 1, 100, 0, lambda _: None)
    under_test.runtime.run()
    under_test.runtime.clock.advance(200)
    under_test.broker.configure("one", ConfigChange(cap_records=10), lambda _: None)
    under_test.broker.queues.claim("q", 0, "node", 1, 100, 0, lambda _: None)
    under_test.runtime.run()
    assert (seen(under_test, "one"), seen(under_test, "q")) == ([0, "job"], [])


def test_seqs_of_a_commit_that_could_not_be_written_are_used_by_the_next() -> None:
    under_test = broker_of_two()
    under_test.disk.fault = lambda _step, op, path: errno.ENOSPC if op == "write_at" and path.endswith(".wal") else None
    (refused,) = commit_to_both(under_test, 1)
    assert refused.code == "storage_full"
    under_test.disk.fault = None
    assert under_test.append("two", 2).first_seq == 2
    assert under_test.append("one", 2).first_seq == 2
