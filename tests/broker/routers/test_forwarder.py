"""Copies are in their dest in the order of their seqs, also beside other writers; and a source that cannot be read stops only
its own routers."""

import errno
from typing import Any

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from tests.broker.queues.test_damaged_jobs import damage
from tests.broker.routers.test_routers import route
from topics.broker.routers.routers import WantedRouter
from topics.broker.transactions.stages import commit
from topics.engine.transactions.commit_request import CommitRequest, Write
from topics.model.records.batch import decode_batch
from topics.testing.disk.fake_disk import FakeDisk


@pytest.mark.parametrize("cap", [5, 7])
def test_two_routers_into_a_dest_that_is_full_lose_nothing(cap: int) -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s")
    under_test.configure("d", cap_records=cap, discard="reject")
    for name in ("r1", "r2", "r3"):
        under_test.ask(under_test.broker.routers.put, WantedRouter(name, "s", "d"))
    under_test.append("s", 1, 2, 3)
    assert under_test.datas("d") == [1, 2, 3, 1, 2, 3, 1, 2, 3][:cap]
    assert [record["$seq"] for record in under_test.read("d")] == list(range(1, cap + 1))
    assert under_test.after_kill().read("d") == under_test.read("d")
    under_test.configure("d", cap_records=100)
    under_test.wait(1000)
    assert sorted(under_test.datas("d")) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_gap_of_a_source_is_reported_in_the_dest_before_a_later_commit_over_topics() -> None:
    under_test = BrokerUnderTest()
    broker = under_test.broker
    under_test.configure("s", cap_records=2)
    under_test.configure("other")
    under_test.configure("d")
    for name in ("s", "other", "d"):
        under_test.append(name, 0)
    route(under_test, "s", "d")
    broker.forwarder.hold()
    under_test.append("s", 1, 2)
    under_test.append("s", 3, 4)
    under_test.wait(2000)
    assert not broker.committer.wal.dirty
    broker.forwarder.release(True)
    got: list[Any] = []
    writes = [
        Write(name, decode_batch(b'{"records":[{"data":"commit"}]}', under_test.limits)) for name in ("other", "d")
    ]
    # In the same turn, behind the step that tells of the loss.
    under_test.runtime.call_soon(lambda: commit(broker, CommitRequest([], writes), got.append))
    under_test.runtime.run()
    under_test.wait(100)
    assert len(got) == 1
    for each in (under_test, under_test.after_kill(), under_test.after_power_cut("all")):
        partition = each.broker.topic("d").partitions[0]
        assert [(hole.first, hole.last) for hole in partition.holes][:1] == [(2, 3)]
        assert each.datas("d") == [0, "commit", 3, 4]


def test_a_router_whose_copies_cannot_be_written_tries_less_and_less_often() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    under_test = BrokerUnderTest(disk)
    under_test.configure("s", durability="ephemeral")
    under_test.configure("d")
    router = route(under_test, "s", "d")
    under_test.append("s", 1)
    under_test.broker.forwarder.hold()
    under_test.append("s", 2)
    disk.fault = lambda _step, op, _path: errno.ENOSPC if op == "write_at" else None
    under_test.broker.forwarder.release(True)
    under_test.wait(10_000)
    assert under_test.broker.forwarder.state_of(router) == "backoff"
    assert under_test.broker.committer.write_failures_total < 20
    disk.fault = None
    under_test.wait(10_000)
    assert (under_test.broker.forwarder.state_of(router), under_test.datas("d")) == ("running", [1, 2])


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_router_whose_source_is_damaged_on_disk_does_not_stop_the_others(guarantee: str) -> None:
    under_test = BrokerUnderTest()
    for name in ("s", "t"):
        under_test.configure(name)
    under_test.append("s", *["needle"] * 5)
    topic = under_test.broker.topic("s")
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    under_test.runtime.run()
    under_test.checkpoint()
    damage(under_test)
    under_test = under_test.after_kill()
    broken = route(under_test, "s", "d", earliest=True, guarantee=guarantee)
    route(under_test, "t", "e")
    route(under_test, "s", "f")
    broker = under_test.broker
    # Both sources have something new in one step.
    for name in ("s", "t"):
        broker.append(name, decode_batch(b'{"records":[{"data":1}]}', under_test.limits), lambda _: None)
    under_test.runtime.run()
    assert (under_test.datas("d"), under_test.datas("e"), under_test.datas("f")) == ([], [1], [1])
    assert broker.forwarder.state_of(broken) == "backoff"
    assert broker.health.conditions[0].kind == "damaged_file"
    under_test.wait(20_000)
    assert broker.health.failures_total["damaged_file"] < 20, "it is tried again, not all the time"


@pytest.mark.parametrize("names", ["ab", "abc"])
@pytest.mark.parametrize("end", ["after_kill", "after_power_cut", "neither"])
def test_a_loss_goes_around_a_cycle_once(names: str, end: str) -> None:
    under_test = BrokerUnderTest()
    for name in names:
        under_test.configure(name, cap_records=10)
    for source, dest in zip(names, names[1:] + names[0], strict=True):
        route(under_test, source, dest, allow_cycle=True)
    under_test.append("a", 0)
    under_test.broker.forwarder.hold()
    for number in range(1, 6):
        under_test.append("a", number * 3, number * 3 + 1, number * 3 + 2)
    under_test.broker.forwarder.release(True)
    if end != "neither":
        # In between: some watchers were called and some were not.
        for _ in range(4):
            under_test.runtime.turn()
        under_test = getattr(under_test, end)()
    # It would never come to rest.
    for _ in range(200):
        under_test.runtime.turn()
        while under_test.runtime.waiting_aside:
            under_test.runtime.finish_one()
    heads = {name: under_test.broker.topic(name).partitions[0].head_seq for name in names}
    under_test.wait(100)
    assert {name: under_test.broker.topic(name).partitions[0].head_seq for name in names} == heads
    under_test.append("b", "later")
    under_test.wait(100)
    assert all([under_test.datas(name)[-1] == "later" for name in names])
    again = under_test.after_kill()
    assert {name: again.read(name) for name in names} == {name: under_test.read(name) for name in names}
    again.append("a", "last")
    assert [again.datas(name).count("last") for name in names] == [1] * len(names)
