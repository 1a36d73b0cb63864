"""Routers over the log: what is copied, what that costs, and what is there after which end of the process."""

import errno
import random
from typing import Any

import msgspec
import pytest

import topics.broker.checkpoint
import topics.broker.forward
from tests.broker.house import SMALL, House
from topics.broker.checkpoint import StorageSettings
from topics.broker.routers import WantedRouter
from topics.engine.router import Router
from topics.model.batch import decode_batch
from topics.model.errors import Conflict
from topics.model.limits import Limits
from topics.model.router import RouterChange
from topics.testing.disk import FakeDisk

TWO_SHARDS = StorageSettings(
    shards=2, wal_file_bytes=16 << 10, segment_bytes=2000, hot_bytes=20_000, checkpoint_bytes=1 << 30, margin=1000
)


def route(house: House, source: str, dest: str, *, earliest: bool = False, **options: Any) -> Router:
    wanted = WantedRouter(f"{source}->{dest}", source, dest, RouterChange(**options), from_earliest=earliest)
    router: Router = house.ask(house.broker.routers.put, wanted).router
    return router


def wal_bytes(house: House) -> int:
    return sum([lane.shard.bytes_written for lane in house.broker.committer.lanes])


# What it costs


def test_the_log_does_not_grow_with_the_payload_times_the_routers() -> None:
    written = {}
    payload = "x" * 1000
    for routers in (0, 1, 20):
        house = House(settings=StorageSettings(margin=1 << 20))
        house.configure("s")
        for number in range(routers):
            route(house, "s", f"d{number}")
        before = wal_bytes(house)
        for _ in range(20):
            house.append("s", *[payload] * 50)
        written[routers] = wal_bytes(house) - before
        for number in range(routers):
            assert house.broker.topic(f"d{number}").count == 1000
    assert written[1] - written[0] < 20 * 150, "a small fact for each run"
    assert written[20] - written[0] < 20 * 800
    assert written[20] < 1.02 * written[0]


def test_copies_share_their_bytes_with_the_source() -> None:
    house = House(settings=StorageSettings(margin=1 << 20))
    house.configure("s")
    for number in range(3):
        route(house, "s", f"d{number}")
    house.append("s", *["x" * 100] * 200)
    (page,) = house.broker.topic("s").partitions[0].segments[0].pages  # type: ignore[attr-defined]
    for number in range(3):
        (copy,) = house.broker.topic(f"d{number}").partitions[0].segments[0].pages  # type: ignore[attr-defined]
        assert copy.data is page.data


def test_the_source_is_acknowledged_before_anything_is_forwarded() -> None:
    house = House()
    house.configure("s")
    house.configure("d", durability="fsync")
    route(house, "s", "d")
    house.append("s", 0)
    acked_at: list[int] = []
    dest = house.broker.topic("d").partitions[0]
    batch = decode_batch(b'{"records":[{"data":1}]}', Limits())
    house.broker.append("s", batch, lambda _: acked_at.append(dest.head_seq))
    house.runtime.turn()
    assert acked_at == [1]
    house.runtime.run()
    assert dest.head_seq == 2


def test_copies_in_an_fsync_dest_are_not_seen_before_they_are_safe() -> None:
    house = House(settings=TWO_SHARDS)
    house.configure("s")
    house.configure("d", durability="fsync")
    route(house, "s", "d")
    batch = decode_batch(b'{"records":[{"data":1}]}', Limits())
    house.broker.append("s", batch, lambda _: None)
    for _ in range(20):
        house.runtime.turn()
        if house.datas("d"):
            assert house.after_power_cut().datas("d") == [1]
            return
        assert house.runtime.waiting_aside, "it waits for a sync"
        house.runtime.finish_one()
    raise AssertionError("the copy never appears")


# After an end


def test_copies_of_an_ephemeral_source_survive_in_a_disk_dest() -> None:
    house = House()
    house.configure("s", durability="ephemeral")
    route(house, "s", "d")
    house.append("s", "a", "b")
    again = house.after_kill()
    assert again.datas("d") == ["a", "b"]
    assert again.datas("s") == []
    again.append("s", "c")
    assert again.datas("d") == ["a", "b", "c"]


def test_copies_of_records_written_while_the_source_was_ephemeral_survive() -> None:
    house = House()
    house.configure("s", durability="ephemeral")
    house.append("s", "a", "b")
    house.configure("s", durability="disk")
    house.append("s", "c")
    route(house, "s", "d", earliest=True)
    again = house.after_kill()
    assert again.datas("d") == house.datas("d") == ["a", "b", "c"]


def test_no_payload_of_an_ephemeral_dest_reaches_the_disk_twice_and_its_seqs_are_not_used_again() -> None:
    house = House()
    house.configure("d", durability="ephemeral")
    route(house, "s", "d")
    house.append("s", "needle", "needle")
    everything = b"".join(house.disk.snapshot_tree().values())
    assert everything.count(b"needle") == 2
    again = house.after_kill()
    assert again.datas("d") == []
    again.append("s", "c")
    assert [(record["$seq"], record["data"]) for record in again.read("d")] == [(3, "c")]


def test_a_router_made_while_a_snapshot_is_taken_copies_nothing_that_recovery_would_miss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics.broker.checkpoint, "IMAGES_PER_TURN", 1)
    house = House()
    house.configure("d")
    house.configure("s")
    house.append("s", "a", "b")
    house.broker.keeper.checkpoint()
    house.runtime.run()  # the dest's image is taken, the source's waits for time to pass
    route(house, "s", "d", earliest=True)
    house.ask(house.broker.delete_records, "s", 3, None, 0)
    seen = house.datas("d")
    house.wait(1)
    assert house.broker.keeper.snapshots_total == 1
    assert house.after_kill().datas("d") == seen
    house.append("s", "c")
    assert house.datas("d") == [*seen, "c"]


def test_nothing_is_copied_from_a_topic_that_is_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics.broker.forward, "RUN_RECORDS", 1)
    house = House()
    house.configure("s")
    house.configure("d", durability="fsync")
    house.append("s", 0)
    route(house, "s", "d")
    batch = decode_batch(b'{"records":[{"data":1},{"data":2},{"data":3}]}', Limits())
    house.broker.append("s", batch, lambda _: None)
    house.runtime.turn()  # the first copy waits for its sync
    house.runtime.finish_one()
    house.broker.delete_topic("s", if_empty=False, reply=lambda _: None)
    house.runtime.run()
    seen = house.datas("d")
    assert seen
    assert house.after_kill().datas("d") == seen
    assert house.broker.topic("d").partitions[0].holes == []


def test_a_cycle_goes_on_where_it_stood_after_an_end() -> None:
    house = House()
    for source, dest in (("a", "b"), ("b", "c"), ("c", "a")):
        route(house, source, dest, allow_cycle=True)
    for name in "abc":
        house.append(name, f"from {name}")
    expected = ["from a", "from b", "from c"]
    assert [sorted(house.datas(name)) for name in "abc"] == [expected] * 3
    for end in ("kill", "snapshot"):
        if end == "snapshot":
            house.checkpoint()
        again = house.after_kill()
        for name in "abc":
            again.append(name, f"later {name}")
        everything = sorted([*expected, "later a", "later b", "later c"])
        assert [sorted(again.datas(name)) for name in "abc"] == [everything] * 3


def test_a_failed_write_is_tried_again_and_nothing_is_lost_or_doubled() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    house = House(disk)
    house.configure("s")
    house.configure("d")
    router = route(house, "s", "d")
    batch = decode_batch(b'{"records":[{"data":1},{"data":2}]}', Limits())
    writes = 0

    def fail_the_second(_step: int, op: str, _path: str) -> int | None:
        nonlocal writes
        writes += op == "write_at"
        return errno.ENOSPC if op == "write_at" and 2 <= writes <= 4 else None

    disk.fault = fail_the_second
    house.broker.append("s", batch, lambda _: None)
    house.runtime.run()
    assert house.datas("s") == [1, 2]
    assert house.datas("d") == []
    assert house.broker.forwarder.state_of(router) == "backoff"
    house.wait(1000)
    assert house.datas("d") == [1, 2]
    assert house.broker.forwarder.state_of(router) == "running"
    assert house.after_kill().read("d") == house.read("d")


# Who gets what


def test_partitions_go_to_their_own_kind_and_a_new_dest_has_as_many() -> None:
    house = House()
    house.configure("s", partitions=3)
    route(house, "s", "d")
    for partition in range(3):
        house.append("s", f"p{partition}", partition=partition)
    dest = house.broker.topic("d")
    assert [each.head_seq for each in dest.partitions] == [1, 1, 1]
    again = house.after_kill().broker.topic("d")
    assert [each.head_seq for each in again.partitions] == [1, 1, 1]


def test_more_partitions_than_the_dest_has_share_them() -> None:
    house = House()
    house.configure("s", partitions=3)
    house.configure("d")
    route(house, "s", "d")
    for partition in range(3):
        house.append("s", f"p{partition}", partition=partition)
    assert sorted(house.datas("d")) == ["p0", "p1", "p2"]
    assert house.after_kill().read("d") == house.read("d")


def test_the_quota_of_the_server_holds_a_router_up() -> None:
    house = House(limits=Limits(max_total_bytes=1000))
    house.configure("s")
    router = route(house, "s", "d")
    house.append("s", "x" * 600)
    house.wait(10)
    assert house.broker.forwarder.state_of(router) == "blocked"
    assert house.datas("d") == []
    house.ask(house.broker.delete_records, "s", 2, None, 0)
    house.append("s", "small")
    house.wait(1000)
    assert house.datas("d") == ["small"], "what was deleted on purpose meanwhile is not forwarded"


def test_jobs_forwarded_into_a_queue_can_be_claimed_and_its_acks_do_not_travel() -> None:
    house = House()
    house.configure("s")
    house.configure("q", type="queue")
    route(house, "s", "q")
    route(house, "q", "log")
    house.append("s", "job 1", "job 2")
    topic = house.broker.topic("q")
    assert house.broker.queues.counters(topic).ready == 2
    house.ask(house.broker.delete_records, "q", 2, None, 0)
    assert house.datas("log") == ["job 1", "job 2"]
    again = house.after_kill()
    assert again.broker.queues.counters(again.broker.topic("q")).ready == 1
    assert again.datas("log") == ["job 1", "job 2"]


def test_a_slow_dest_does_not_hold_up_the_others() -> None:
    house = House()
    house.configure("s")
    house.configure("full", cap_records=1, discard="reject")
    route(house, "s", "full")
    route(house, "s", "free")
    house.append("s", 1, 2, 3)
    house.append("s", 4)
    assert house.datas("full") == [1]
    assert house.datas("free") == [1, 2, 3, 4]


def test_a_parallel_route_that_closes_a_cycle_is_refused_until_the_first_is_gone() -> None:
    house = House()
    route(house, "a", "b")
    with pytest.raises(Conflict) as refused:
        route(house, "b", "a")
    assert refused.value.detail == {"cycle": ["a", "b", "a"]}
    house.ask(house.broker.routers.delete, "a->b")
    route(house, "b", "a")


def test_concurrent_puts_create_one_router() -> None:
    house = House()
    outcomes: list[Any] = []
    for _ in range(3):
        house.broker.routers.put(WantedRouter("r", "a", "b"), outcomes.append)
    house.broker.routers.put(WantedRouter("back", "b", "a"), outcomes.append)
    house.runtime.run()
    assert [getattr(each, "created", each.__class__) for each in outcomes] == [True, False, False, Conflict]


def test_only_what_came_after_its_creation_is_forwarded_even_when_writes_are_on_their_way() -> None:
    house = House()
    house.append("s", "old")
    batch = decode_batch(b'{"records":[{"data":"on its way"}]}', Limits())
    house.broker.append("s", batch, lambda _: None)
    route(house, "s", "d")
    house.append("s", "new")
    assert house.datas("d") == ["on its way", "new"]


@pytest.mark.parametrize("seed", range(20))
def test_two_mirrored_topics_show_each_node_the_other_ones_records_once(seed: int) -> None:
    """No echo and no loop, whatever the order of events and however often the process ends."""
    chance = random.Random(seed)
    house = House(settings=SMALL)
    for one, other in (("a", "b"), ("b", "a")):
        route(house, one, other, allow_cycle=True, guarantee=chance.choice(["at_least_once", "exactly_once"]))
    written: dict[str, list[str]] = {"a": [], "b": []}
    for number in range(60):
        name = chance.choice("ab")
        data = f"{name}{number}"
        written[name].append(data)
        batch = decode_batch(msgspec.json.encode({"records": [{"data": data}], "node": f"node-{name}"}), Limits())
        house.broker.append(name, batch, lambda _: None)
        for _ in range(chance.randrange(3)):
            chance.choice([house.runtime.turn, house.runtime.run])()
        event = chance.random()
        if event < 0.1:
            house.runtime.run()
            house = house.after_kill()
        elif event < 0.15:
            house.broker.keeper.checkpoint()
    house.runtime.run()
    house.wait(100)
    for name, other in (("a", "b"), ("b", "a")):
        records = house.read(name, without=f"node-{name}")
        assert [record["data"] for record in records] == written[other]
        assert sorted(house.datas(name)) == sorted(written["a"] + written["b"])
