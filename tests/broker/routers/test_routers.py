"""Routers over the log: what is copied, what that costs, and what is there after which end of the process."""

import errno
import random
from typing import Any

import msgspec
import pytest

import topics.broker.durability.checkpointer
import topics.broker.routers.forwarder
from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from topics.broker.routers.routers import WantedRouter
from topics.engine.routers.router import Router
from topics.model.errors import Conflict, Forbidden
from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.router import RouterChange
from topics.model.storage_settings import StorageSettings
from topics.testing.broker import BrokerBench
from topics.testing.disk.fake_disk import FakeDisk


def route(under_test: BrokerUnderTest, source: str, dest: str, *, earliest: bool = False, **options: Any) -> Router:
    wanted = WantedRouter(f"{source}->{dest}", source, dest, RouterChange(**options), from_earliest=earliest)
    router: Router = under_test.ask(under_test.broker.routers.put, wanted).router
    return router


def wal_bytes(under_test: BrokerUnderTest) -> int:
    return under_test.broker.committer.wal.bytes_written


# What it costs


def test_the_log_does_not_grow_with_the_payload_times_the_routers() -> None:
    written = {}
    payload = "x" * 1000
    for routers in (0, 1, 20):
        under_test = BrokerUnderTest(settings=StorageSettings(margin=1 << 20))
        under_test.configure("s")
        for number in range(routers):
            route(under_test, "s", f"d{number}")
        before = wal_bytes(under_test)
        for _ in range(20):
            under_test.append("s", *[payload] * 50)
        written[routers] = wal_bytes(under_test) - before
        for number in range(routers):
            assert under_test.broker.topic(f"d{number}").count == 1000
    assert written[1] - written[0] < 20 * 150, "a small fact for each run"
    assert written[20] - written[0] < 20 * 800
    assert written[20] < 1.02 * written[0]


def test_copies_share_their_bytes_with_the_source() -> None:
    under_test = BrokerUnderTest(settings=StorageSettings(margin=1 << 20))
    under_test.configure("s")
    for number in range(3):
        route(under_test, "s", f"d{number}")
    under_test.append("s", *["x" * 100] * 200)
    (page,) = under_test.broker.topic("s").partitions[0].segments[0].pages  # type: ignore[attr-defined]
    for number in range(3):
        (copy,) = under_test.broker.topic(f"d{number}").partitions[0].segments[0].pages  # type: ignore[attr-defined]
        assert copy.data is page.data


def test_the_source_is_acknowledged_before_anything_is_forwarded() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s")
    under_test.configure("d", durability="fsync")
    route(under_test, "s", "d")
    under_test.append("s", 0)
    acked_at: list[int] = []
    dest = under_test.broker.topic("d").partitions[0]
    batch = decode_batch(b'{"records":[{"data":1}]}', Limits())
    under_test.broker.append("s", batch, lambda _: acked_at.append(dest.head_seq))
    under_test.runtime.turn()
    assert acked_at == [1]
    under_test.runtime.run()
    assert dest.head_seq == 2


def test_copies_in_an_fsync_dest_are_not_seen_before_they_are_safe() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s")
    under_test.configure("d", durability="fsync")
    route(under_test, "s", "d")
    batch = decode_batch(b'{"records":[{"data":1}]}', Limits())
    under_test.broker.append("s", batch, lambda _: None)
    for _ in range(20):
        under_test.runtime.turn()
        if under_test.datas("d"):
            assert under_test.after_power_cut().datas("d") == [1]
            return
        assert under_test.runtime.waiting_aside, "it waits for a sync"
        under_test.runtime.finish_one()
    raise AssertionError("the copy never appears")


# After an end


def test_copies_of_an_ephemeral_source_survive_in_a_disk_dest() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s", durability="ephemeral")
    route(under_test, "s", "d")
    under_test.append("s", "a", "b")
    again = under_test.after_kill()
    assert again.datas("d") == ["a", "b"]
    assert again.datas("s") == []
    again.append("s", "c")
    assert again.datas("d") == ["a", "b", "c"]


def test_copies_of_records_written_while_the_source_was_ephemeral_survive() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s", durability="ephemeral")
    under_test.append("s", "a", "b")
    under_test.configure("s", durability="disk")
    under_test.append("s", "c")
    route(under_test, "s", "d", earliest=True)
    again = under_test.after_kill()
    assert again.datas("d") == under_test.datas("d") == ["a", "b", "c"]


def test_no_payload_of_an_ephemeral_dest_reaches_the_disk_twice_and_its_seqs_are_not_used_again() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("d", durability="ephemeral")
    route(under_test, "s", "d")
    under_test.append("s", "needle", "needle")
    everything = b"".join(under_test.disk.snapshot_tree().values())
    assert everything.count(b"needle") == 2
    again = under_test.after_kill()
    assert again.datas("d") == []
    again.append("s", "c")
    assert [(record["$seq"], record["data"]) for record in again.read("d")] == [(3, "c")]


def test_a_router_made_while_a_snapshot_is_taken_copies_nothing_that_recovery_would_miss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topics.broker.durability.checkpointer, "IMAGES_PER_TURN", 1)
    under_test = BrokerUnderTest()
    under_test.configure("d")
    under_test.configure("s")
    under_test.append("s", "a", "b")
    under_test.broker.checkpointer.checkpoint()
    under_test.runtime.run()  # the dest's image is taken, the source's waits for time to pass
    route(under_test, "s", "d", earliest=True)
    under_test.ask(under_test.broker.delete_records, "s", 3, None, 0)
    seen = under_test.datas("d")
    under_test.wait(1)
    assert under_test.broker.checkpointer.snapshots_total == 1
    assert under_test.after_kill().datas("d") == seen
    under_test.append("s", "c")
    assert under_test.datas("d") == [*seen, "c"]


def test_nothing_is_copied_from_a_topic_that_is_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics.broker.routers.forwarder, "MAX_RUN_RECORDS", 1)
    under_test = BrokerUnderTest()
    under_test.configure("s")
    under_test.configure("d", durability="fsync")
    under_test.append("s", 0)
    route(under_test, "s", "d")
    batch = decode_batch(b'{"records":[{"data":1},{"data":2},{"data":3}]}', Limits())
    under_test.broker.append("s", batch, lambda _: None)
    under_test.runtime.turn()  # the first copy waits for its sync
    under_test.runtime.finish_one()
    under_test.broker.delete_topic("s", if_empty=False, reply=lambda _: None)
    under_test.runtime.run()
    seen = under_test.datas("d")
    assert seen
    assert under_test.after_kill().datas("d") == seen
    assert under_test.broker.topic("d").partitions[0].holes == []


def test_a_cycle_goes_on_where_it_stood_after_an_end() -> None:
    under_test = BrokerUnderTest()
    for source, dest in (("a", "b"), ("b", "c"), ("c", "a")):
        route(under_test, source, dest, allow_cycle=True)
    for name in "abc":
        under_test.append(name, f"from {name}")
    expected = ["from a", "from b", "from c"]
    assert [sorted(under_test.datas(name)) for name in "abc"] == [expected] * 3
    for end in ("kill", "snapshot"):
        if end == "snapshot":
            under_test.checkpoint()
        again = under_test.after_kill()
        for name in "abc":
            again.append(name, f"later {name}")
        everything = sorted([*expected, "later a", "later b", "later c"])
        assert [sorted(again.datas(name)) for name in "abc"] == [everything] * 3


def test_a_failed_write_is_tried_again_and_nothing_is_lost_or_doubled() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    under_test = BrokerUnderTest(disk)
    under_test.configure("s")
    under_test.configure("d")
    router = route(under_test, "s", "d")
    batch = decode_batch(b'{"records":[{"data":1},{"data":2}]}', Limits())
    writes = 0

    def fail_the_second(_step: int, op: str, _path: str) -> int | None:
        nonlocal writes
        writes += op == "write_at"
        return errno.ENOSPC if op == "write_at" and 2 <= writes <= 4 else None

    disk.fault = fail_the_second
    under_test.broker.append("s", batch, lambda _: None)
    under_test.runtime.run()
    assert under_test.datas("s") == [1, 2]
    assert under_test.datas("d") == []
    assert under_test.broker.forwarder.state_of(router) == "backoff"
    under_test.wait(1000)
    assert under_test.datas("d") == [1, 2]
    assert under_test.broker.forwarder.state_of(router) == "running"
    assert under_test.after_kill().read("d") == under_test.read("d")


# Who gets what


def test_partitions_go_to_their_own_kind_and_a_new_dest_has_as_many() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s", partitions=3)
    route(under_test, "s", "d")
    for partition in range(3):
        under_test.append("s", f"p{partition}", partition=partition)
    dest = under_test.broker.topic("d")
    assert [each.head_seq for each in dest.partitions] == [1, 1, 1]
    again = under_test.after_kill().broker.topic("d")
    assert [each.head_seq for each in again.partitions] == [1, 1, 1]


def test_more_partitions_than_the_dest_has_share_them() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s", partitions=3)
    under_test.configure("d")
    route(under_test, "s", "d")
    for partition in range(3):
        under_test.append("s", f"p{partition}", partition=partition)
    assert sorted(under_test.datas("d")) == ["p0", "p1", "p2"]
    assert under_test.after_kill().read("d") == under_test.read("d")


def test_the_quota_of_the_server_holds_a_router_up() -> None:
    under_test = BrokerUnderTest(limits=Limits(max_total_bytes=1000))
    under_test.configure("s")
    router = route(under_test, "s", "d")
    under_test.append("s", "x" * 600)
    under_test.wait(10)
    assert under_test.broker.forwarder.state_of(router) == "blocked"
    assert under_test.datas("d") == []
    under_test.ask(under_test.broker.delete_records, "s", 2, None, 0)
    under_test.append("s", "small")
    under_test.wait(1000)
    assert under_test.datas("d") == ["small"], "what was deleted on purpose meanwhile is not forwarded"


def test_jobs_forwarded_into_a_queue_can_be_claimed_and_its_acks_do_not_travel() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s")
    under_test.configure("q", type="queue")
    route(under_test, "s", "q")
    route(under_test, "q", "log")
    under_test.append("s", "job 1", "job 2")
    topic = under_test.broker.topic("q")
    assert under_test.broker.queues.stats(topic).ready == 2
    under_test.ask(under_test.broker.delete_records, "q", 2, None, 0)
    assert under_test.datas("log") == ["job 1", "job 2"]
    again = under_test.after_kill()
    assert again.broker.queues.stats(again.broker.topic("q")).ready == 1
    assert again.datas("log") == ["job 1", "job 2"]


def test_a_slow_dest_does_not_hold_up_the_others() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("s")
    under_test.configure("full", cap_records=1, discard="reject")
    route(under_test, "s", "full")
    route(under_test, "s", "free")
    under_test.append("s", 1, 2, 3)
    under_test.append("s", 4)
    assert under_test.datas("full") == [1]
    assert under_test.datas("free") == [1, 2, 3, 4]


def test_a_parallel_route_that_closes_a_cycle_is_refused_until_the_first_is_gone() -> None:
    under_test = BrokerUnderTest()
    route(under_test, "a", "b")
    with pytest.raises(Conflict) as refused:
        route(under_test, "b", "a")
    assert refused.value.detail == {"cycle": ["a", "b", "a"]}
    under_test.ask(under_test.broker.routers.delete, "a->b")
    route(under_test, "b", "a")


def test_concurrent_puts_create_one_router() -> None:
    under_test = BrokerUnderTest()
    outcomes: list[Any] = []
    for _ in range(3):
        under_test.broker.routers.put(WantedRouter("r", "a", "b"), outcomes.append)
    under_test.broker.routers.put(WantedRouter("back", "b", "a"), outcomes.append)
    under_test.runtime.run()
    assert [getattr(each, "created", each.__class__) for each in outcomes] == [True, False, False, Conflict]


def test_only_what_came_after_its_creation_is_forwarded_even_when_writes_are_on_their_way() -> None:
    under_test = BrokerUnderTest()
    under_test.append("s", "old")
    batch = decode_batch(b'{"records":[{"data":"on its way"}]}', Limits())
    under_test.broker.append("s", batch, lambda _: None)
    route(under_test, "s", "d")
    under_test.append("s", "new")
    assert under_test.datas("d") == ["on its way", "new"]


@pytest.mark.parametrize("seed", range(20))
def test_two_mirrored_topics_show_each_node_the_other_ones_records_once(seed: int) -> None:
    """No echo and no loop, whatever the order of events and however often the process ends."""
    chance = random.Random(seed)
    under_test = BrokerUnderTest(settings=SMALL)
    for one, other in (("a", "b"), ("b", "a")):
        route(under_test, one, other, allow_cycle=True, guarantee=chance.choice(["at_least_once", "exactly_once"]))
    written: dict[str, list[str]] = {"a": [], "b": []}
    for number in range(60):
        name = chance.choice("ab")
        data = f"{name}{number}"
        written[name].append(data)
        batch = decode_batch(msgspec.json.encode({"records": [{"data": data}], "node": f"node-{name}"}), Limits())
        under_test.broker.append(name, batch, lambda _: None)
        for _ in range(chance.randrange(3)):
            chance.choice([under_test.runtime.turn, under_test.runtime.run])()
        event = chance.random()
        if event < 0.1:
            under_test.runtime.run()
            under_test = under_test.after_kill()
        elif event < 0.15:
            under_test.broker.checkpointer.checkpoint()
    under_test.runtime.run()
    under_test.wait(100)
    for name, other in (("a", "b"), ("b", "a")):
        records = under_test.read(name, without=f"node-{name}")
        assert [record["data"] for record in records] == written[other]
        assert sorted(under_test.datas(name)) == sorted(written["a"] + written["b"])


def test_delete_of_a_topic_counts_a_router_that_is_being_created() -> None:
    """Both are asked for before either is decided: the router comes first, so the delete would remove it."""
    bench = BrokerBench()
    bench.configure("t42:a")
    made: list[Any] = []
    deleted: list[Any] = []
    bench.broker.routers.put(WantedRouter("r", "other", "t42:a"), made.append)
    bench.broker.delete_topic(
        "t42:a", if_empty=False, may_touch=lambda name: name.startswith("t42:"), reply=deleted.append
    )
    bench.runtime.run()
    assert made[0].created
    assert isinstance(deleted[0], Forbidden)
    assert set(bench.broker.state.topics) == {"t42:a", "other"}
