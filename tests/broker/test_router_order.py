"""Copies stand in their dest in the order of their seqs, whoever else writes there; and a source that cannot be read stops
nobody but its own routers."""

import errno
from typing import Any

import pytest

from tests.broker.house import House
from tests.broker.test_damaged_jobs import damage
from tests.broker.test_routers import TWO_SHARDS, route
from topics.broker.routers import WantedRouter
from topics.broker.stages import CommitRequest, Write, commit
from topics.model.batch import decode_batch
from topics.testing.disk import FakeDisk


@pytest.mark.parametrize("cap", [5, 7])
def test_routers_side_by_side_into_a_dest_without_room_for_all_of_it_lose_nothing(cap: int) -> None:
    house = House()
    house.configure("s")
    house.configure("d", cap_records=cap, discard="reject")
    for name in ("r1", "r2", "r3"):
        house.ask(house.broker.routers.put, WantedRouter(name, "s", "d"))
    house.append("s", 1, 2, 3)
    assert house.datas("d") == [1, 2, 3, 1, 2, 3, 1, 2, 3][:cap]
    assert [record["$seq"] for record in house.read("d")] == list(range(1, cap + 1))
    assert house.after_kill().read("d") == house.read("d")
    house.configure("d", cap_records=100)
    house.wait(1000)
    assert sorted(house.datas("d")) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_what_a_source_lost_is_told_in_the_dest_although_a_commit_over_shards_comes_behind_it() -> None:
    house = House(settings=TWO_SHARDS)
    broker = house.broker
    house.configure("s", cap_records=2)
    house.configure("other")
    house.configure("d")
    for name in ("s", "other", "d"):
        house.append(name, 0)
    route(house, "s", "d")
    assert [broker.committer.lane_of(broker.topic(name).id).shard.number for name in ("other", "d")] == [0, 1]
    broker.forwarder.hold()
    house.append("s", 1, 2)
    house.append("s", 3, 4)
    house.wait(2000)
    assert not any([lane.shard.dirty for lane in broker.committer.lanes])
    broker.forwarder.release(True)
    got: list[Any] = []
    writes = [Write(name, decode_batch(b'{"records":[{"data":"commit"}]}', house.limits)) for name in ("other", "d")]
    # In the same turn, behind the step that tells of the loss.
    house.runtime.call_soon(lambda: commit(broker, CommitRequest([], writes), got.append))
    house.runtime.run()
    house.wait(100)
    assert len(got) == 1
    for each in (house, house.after_kill(), house.after_power_cut("all")):
        partition = each.broker.topic("d").partitions[0]
        assert [(hole.first, hole.last) for hole in partition.holes][:1] == [(2, 3)]
        assert each.datas("d") == [0, "commit", 3, 4]


def test_a_router_whose_copies_cannot_be_written_tries_less_and_less_often() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    house = House(disk)
    house.configure("s", durability="ephemeral")
    house.configure("d")
    router = route(house, "s", "d")
    house.append("s", 1)
    house.broker.forwarder.hold()
    house.append("s", 2)
    disk.fault = lambda _step, op, _path: errno.ENOSPC if op == "write_at" else None
    house.broker.forwarder.release(True)
    house.wait(10_000)
    assert house.broker.forwarder.state_of(router) == "backoff"
    assert house.broker.committer.write_failures_total < 20
    disk.fault = None
    house.wait(10_000)
    assert (house.broker.forwarder.state_of(router), house.datas("d")) == ("running", [1, 2])


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_router_whose_source_is_damaged_on_disk_does_not_stop_the_others(guarantee: str) -> None:
    house = House()
    for name in ("s", "t"):
        house.configure(name)
    house.append("s", *["needle"] * 5)
    topic = house.broker.topic("s")
    house.broker.keeper.seal(topic, topic.partitions[0])
    house.runtime.run()
    house.checkpoint()
    damage(house)
    house = house.after_kill()
    broken = route(house, "s", "d", earliest=True, guarantee=guarantee)
    route(house, "t", "e")
    route(house, "s", "f")
    broker = house.broker
    # Both sources have something new in one step.
    for name in ("s", "t"):
        broker.append(name, decode_batch(b'{"records":[{"data":1}]}', house.limits), lambda _: None)
    house.runtime.run()
    assert (house.datas("d"), house.datas("e"), house.datas("f")) == ([], [1], [1])
    assert broker.forwarder.state_of(broken) == "backoff"
    assert "forwarding" in (broker.keeper.last_error or "")
    house.wait(20_000)
    assert broker.keeper.failures_total < 20, "it is tried again, not all the time"


@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("end", ["after_kill", "after_power_cut", "neither"])
def test_a_loss_goes_around_a_cycle_once(names: str, end: str) -> None:
    house = House()
    for name in names:
        house.configure(name, cap_records=10)
    for source, dest in zip(names, names[1:] + names[0], strict=True):
        route(house, source, dest, allow_cycle=True)
    house.append("a", 0)
    house.broker.forwarder.hold()
    for number in range(1, 6):
        house.append("a", number * 3, number * 3 + 1, number * 3 + 2)
    house.broker.forwarder.release(True)
    if end != "neither":
        # In between: some were told of it and some were not.
        for _ in range(4):
            house.runtime.turn()
        house = getattr(house, end)()
    # It would never come to rest.
    for _ in range(200):
        house.runtime.turn()
        while house.runtime.waiting_aside:
            house.runtime.finish_one()
    heads = {name: house.broker.topic(name).partitions[0].head_seq for name in names}
    house.wait(100)
    assert {name: house.broker.topic(name).partitions[0].head_seq for name in names} == heads
    house.append("b", "later")
    house.wait(100)
    assert all([house.datas(name)[-1] == "later" for name in names])
    again = house.after_kill()
    assert {name: again.read(name) for name in names} == {name: house.read(name) for name in names}
    again.append("a", "last")
    assert [again.datas(name).count("last") for name in names] == [1] * len(names)
