"""Commits over topics of several shards: a power cut takes the newest records of a log, never some from its middle."""

import errno
from typing import Any

import msgspec
import pytest

from tests.broker.house import SMALL, House
from topics.broker.stages import CommitRequest, Write, commit
from topics.engine.render import View
from topics.model.batch import decode_batch

TWO_SHARDS = msgspec.structs.replace(SMALL, shards=2)


def house_of_two() -> House:
    """With the topics `zero` and `one`, each in a shard of its own, and a record in both that is safe."""
    house = House(settings=TWO_SHARDS)
    for name in ("zero", "one", "two"):
        house.configure(name, durability="disk")
    lanes = {name: house.broker.committer.lane_of(house.broker.topic(name).id).shard.number for name in ("one", "two")}
    assert len(set(lanes.values())) == 2
    house.append("one", 0)
    house.append("two", 0)
    house.wait(2000)
    return house


def commit_to_both(house: House, data: int, producer: str | None = None) -> list[Any]:
    outcomes: list[Any] = []
    writes = [Write(name, decode_batch(b'{"records":[{"data":%d}]}' % data, house.limits)) for name in ("one", "two")]
    commit(house.broker, CommitRequest([], writes, producer, 1), outcomes.append)
    for _ in range(5):
        house.runtime.run()
        house.runtime.clock.advance(1)
    assert len(outcomes) == 1
    return outcomes


def seen(house: House, name: str) -> list[Any]:
    """The data of a log, and "lost" where its readers are told so."""
    partition = house.broker.topic(name).partitions[0]
    found: list[Any] = []
    from_seq = 0
    while True:
        read = partition.read(from_seq, 1000, 1 << 20, View())
        if read.tombstone is not None:
            found.append("lost")
        found += [record["data"] for record in msgspec.json.decode(b"[" + bytes(read.records) + b"]")]
        if read.next_from_seq >= partition.head_seq:
            return found
        from_seq = read.next_from_seq


@pytest.mark.parametrize("name", ["one", "two"])
def test_what_was_written_before_a_commit_that_survives_a_power_cut_survives_too(name: str) -> None:
    house = house_of_two()
    house.append(name, 1)
    commit_to_both(house, 2, producer="p")
    assert seen(house.after_power_cut(), name)[:3] == [0, 1, 2]


@pytest.mark.parametrize("name", ["one", "two"])
def test_what_follows_a_commit_survives_no_power_cut_that_the_commit_does_not(name: str) -> None:
    house = house_of_two()
    commit_to_both(house, 1)
    house.append(name, 2)
    # The shard of this topic is synced, the other one is not.
    house.broker.committer.lane_of(house.broker.topic(name).id).shard.sync()
    assert seen(house.after_power_cut(), name)[:3] == [0, 1, 2]


def test_dead_letters_survive_no_power_cut_that_takes_what_stood_before_them() -> None:
    house = house_of_two()
    other = {"one": "two", "two": "one"}
    lane_of = house.broker.committer.lane_of
    house.configure("q", type="queue", durability="disk", max_deliveries=1, dead_letter="dead")
    lane = lane_of(house.broker.topic("q").id)
    # A topic in the other shard takes them.
    dead = next(name for name in other if lane_of(house.broker.topic(name).id) is not lane)
    house.configure("q", dead_letter=dead)
    house.append("q", "job")
    house.wait(2000)
    house.append(dead, 1)
    for _ in range(2):
        house.broker.queues.claim("q", 0, "node", 1, 100, 0, lambda _: None)
        for _ in range(5):
            house.runtime.run()
            house.runtime.clock.advance(1)
        house.runtime.clock.advance(200)
        house.runtime.run()
    assert house.datas(dead) == [0, 1, "job"]
    after = house.after_power_cut()
    assert seen(after, dead)[:3] == [0, 1, "job"]
    assert after.datas("q") == []


def fail_syncs_of(house: House, name: str) -> None:
    lane = house.broker.committer.lane_of(house.broker.topic(name).id)
    house.disk.fault = lambda _step, op, path: (
        errno.EIO if op == "sync_data" and path.startswith(f"wal/shard-{lane.shard.number:02}") else None
    )


def test_seqs_of_a_commit_whose_sync_failed_are_not_given_to_others() -> None:
    """It may stand in the log of its shard all the same, where the next start finds it; the other shard goes on."""
    house = house_of_two()
    fail_syncs_of(house, "one")
    (refused,) = commit_to_both(house, 1)
    assert refused.code == "read_only"
    house.append("two", 2)
    house.disk.fault = None
    assert [each for each in house.after_kill().datas("two") if each != 1] == [0, 2]
    house.wait(2000)
    assert [each for each in house.after_power_cut().datas("two") if each != 1] == [0, 2]


def test_seqs_of_dead_letters_whose_sync_failed_are_not_given_to_others() -> None:
    house = house_of_two()
    house.configure("q", type="queue", durability="disk", max_deliveries=1, dead_letter="dead")
    lane_of = house.broker.committer.lane_of
    lane = lane_of(house.broker.topic("q").id)
    dead = next(name for name in ("one", "two") if lane_of(house.broker.topic(name).id) is not lane)
    house.configure("q", dead_letter=dead)
    house.append("q", "job")
    house.wait(2000)
    house.broker.queues.claim("q", 0, "node", 1, 100, 0, lambda _: None)
    house.wait(200)
    fail_syncs_of(house, "q")
    house.broker.queues.claim("q", 0, "node", 1, 100, 0, lambda _: None)
    house.wait(100)
    assert house.broker.committer.read_only
    house.append(dead, 1)
    house.disk.fault = None
    assert [each for each in house.after_kill().datas(dead) if each != "job"] == [0, 1]


def test_seqs_of_a_commit_that_could_not_be_written_are_used_by_the_next() -> None:
    house = house_of_two()
    house.disk.fault = lambda _step, op, path: errno.ENOSPC if op == "write_at" and path.endswith(".wal") else None
    (refused,) = commit_to_both(house, 1)
    assert refused.code == "storage_full"
    house.disk.fault = None
    assert house.append("two", 2).first_seq == 2
    assert house.append("one", 2).first_seq == 2
