"""A full disk: what frees space is always written, and the server accepts everything again when there is some."""

from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import SMALL, BrokerUnderTest
from tests.crash.world import watched
from topics.broker.log.disk_space import MAX_RECHECK_MS
from topics.broker.transactions.stages import drop_stages, stage
from topics.model.errors import TopicsError, Unavailable
from topics.model.records.batch import decode_batch
from topics.model.records.match import TagMatch
from topics.storage.reserve import PATH
from topics.storage.snapshots.snapshot import snapshot_numbers
from topics.testing.disk.fake_disk import FakeDisk

SETTINGS = msgspec.structs.replace(
    SMALL, wal_file_bytes=16_000, segment_bytes=8000, hot_bytes=30_000, checkpoint_bytes=20_000, reserve_bytes=120_000
)
CAPACITY_BYTES = 500_000


def broker_on_full_disk(disk: FakeDisk | None = None) -> BrokerUnderTest:
    """A server whose disk is full: topics `a` and `b` hold most of it, `c` a little."""
    if disk is None:
        disk = FakeDisk(capacity_bytes=CAPACITY_BYTES)
        disk.make_directory("")
    under_test = BrokerUnderTest(disk, SETTINGS)
    under_test.append("c", 1, 2, 3)
    with pytest.raises(Unavailable, match="the disk is full"):
        fill(under_test)
    return under_test


def fill(under_test: BrokerUnderTest) -> None:
    for _ in range(10_000):
        for name in ("a", "b"):
            under_test.append(name, *[{"data": "x" * 300, "tag": "t"}] * 5)
        under_test.wait(1)


def restarted(under_test: BrokerUnderTest, how: str) -> BrokerUnderTest:
    if how == "running":
        return under_test
    if how == "stopped":
        under_test.broker.stop(lambda _: None)
        under_test.runtime.run()
        under_test.wait(1)
    disk = under_test.disk.after_power_cut("random") if how == "power cut" else under_test.disk.after_kill()
    return BrokerUnderTest(disk, under_test.settings)


@pytest.mark.parametrize("how", ["running", "killed", "power cut", "stopped"])
@pytest.mark.parametrize("what", ["records", "tagged records", "topic"])
def test_deletes_are_written_on_a_full_disk_and_free_it(what: str, how: str) -> None:
    under_test = restarted(broker_on_full_disk(), how)
    broker = under_test.broker
    kept = under_test.datas("b")
    if what == "records":
        under_test.ask(broker.delete_records, "a", broker.topic("a").partitions[0].head_seq + 1, None, 0)
    elif what == "tagged records":
        under_test.ask(broker.delete_records, "a", None, TagMatch("t", False), 0)
    else:
        under_test.ask(broker.delete_topic, "a", if_empty=False)
    under_test.wait(MAX_RECHECK_MS)
    assert not broker.health.degraded, broker.health.conditions
    under_test.append("b", "there is space")
    assert under_test.datas("b") == [*kept, "there is space"]
    again = under_test.after_kill()
    assert again.datas("b") == [*kept, "there is space"]
    assert "a" not in again.broker.state.topics or again.datas("a") == []


def test_other_writes_are_refused_while_space_is_low_and_leave_nothing_behind() -> None:
    under_test = broker_on_full_disk()
    # Takes the reserve, and frees next to nothing.
    under_test.ask(under_test.broker.delete_records, "c", 2, None, 0)
    assert under_test.broker.space.low
    for attempt in (
        lambda: under_test.append("a", 1),
        lambda: under_test.append("new", 1),
        lambda: under_test.configure("newer"),
        lambda: under_test.configure("a", ttl_ms=1000),
    ):
        with pytest.raises(TopicsError) as refused:
            attempt()
        assert refused.value.code == "storage_full"
    assert set(under_test.broker.state.topics) == {"a", "b", "c"}
    assert under_test.datas("c") == [2, 3]
    head = under_test.broker.topic("a").partitions[0].head_seq
    under_test.disk.capacity_bytes = 10 * CAPACITY_BYTES
    under_test.wait(MAX_RECHECK_MS)
    assert under_test.append("a", 1).last_seq == head + 1
    assert not under_test.broker.health.degraded


def test_delete_in_one_batch_with_appends_is_written_and_the_appends_are_refused() -> None:
    under_test = broker_on_full_disk()
    outcomes: dict[str, Any] = {}
    body = decode_batch(b'{"records":[{"data":"%b"}]}' % (b"x" * 20_000), under_test.limits)
    under_test.broker.append("a", body, lambda outcome: outcomes.update(before=outcome))
    under_test.broker.delete_records("b", 5, None, 0, lambda outcome: outcomes.update(delete=outcome))
    under_test.broker.append("b", body, lambda outcome: outcomes.update(after=outcome))
    under_test.runtime.run()
    assert [getattr(outcomes[name], "code", None) for name in ("before", "delete", "after")] == [
        "storage_full",
        None,
        "storage_full",
    ]
    assert outcomes["delete"].deleted == 4


def test_stages_are_dropped_on_a_full_disk() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    under_test = BrokerUnderTest(disk, SETTINGS)
    under_test.append("c", 1)
    under_test.ask(
        stage,
        under_test.broker,
        "s",
        under_test.broker.topic("c"),
        [decode_batch(b'{"records":[{"data":1}]}', under_test.limits)],
    )
    disk.capacity_bytes = 0
    with pytest.raises(Unavailable):
        under_test.append("c", *["x" * 1000] * 20)
    disk.capacity_bytes = sum(map(len, disk.snapshot_tree().values()))
    assert drop_stages(under_test.broker, ["s"]) == 1
    under_test.runtime.run()
    assert under_test.after_kill().broker.state.stages.stages == {}


def test_one_snapshot_is_kept_while_space_is_low_and_two_when_there_is_space_again() -> None:
    under_test = broker_on_full_disk()
    # Another program takes most of the reserve when it is released.
    under_test.disk.capacity_bytes = CAPACITY_BYTES - 100_000
    with pytest.raises(Unavailable):
        fill(under_test)
    under_test.ask(under_test.broker.delete_records, "c", 2, None, 0)
    under_test.wait(MAX_RECHECK_MS)
    assert under_test.broker.space.low
    assert len(snapshot_numbers(under_test.disk)) == 1
    under_test.disk.capacity_bytes = 10 * CAPACITY_BYTES
    under_test.wait(MAX_RECHECK_MS)
    under_test.checkpoint()
    assert len(snapshot_numbers(under_test.disk)) == 2
    assert under_test.after_kill().datas("c") == [2, 3]


@pytest.mark.parametrize("survive", ["none", "random"])
def test_freeing_a_full_disk_can_be_cut_at_any_step(survive: Any) -> None:
    disk = FakeDisk(capacity_bytes=CAPACITY_BYTES)
    disk.make_directory("")
    under_test = broker_on_full_disk(watched(disk))
    under_test.broker.committer.sync()
    under_test.runtime.run()
    kept = under_test.datas("b")

    def cut(step: int) -> None:
        if step % 3:
            return
        found = BrokerUnderTest(under_test.disk.after_power_cut(survive), SETTINGS)
        assert found.datas("b") == kept
        if "a" in found.broker.state.topics:
            found.ask(found.broker.delete_topic, "a", if_empty=False)
        found.wait(MAX_RECHECK_MS)
        assert not found.broker.health.degraded, found.broker.health.conditions
        found.append("b", "there is space")

    under_test.disk.watcher = cut  # type: ignore[attr-defined]
    under_test.ask(under_test.broker.delete_topic, "a", if_empty=False)
    under_test.wait(MAX_RECHECK_MS)


def test_server_that_cannot_reserve_space_at_its_start_says_so_and_accepts_deletes_later() -> None:
    under_test = broker_on_full_disk()
    disk = under_test.disk.after_kill()
    disk.remove(PATH)
    disk.capacity_bytes = 0
    under_test = BrokerUnderTest(disk, SETTINGS)
    assert under_test.broker.health.is_raised("disk_space")
    assert under_test.datas("c") == [1, 2, 3]
    disk.capacity_bytes = 2 * CAPACITY_BYTES
    under_test.wait(MAX_RECHECK_MS)
    assert not under_test.broker.health.is_raised("disk_space")


# A reserve for the log alone, four files of it.
NARROW = msgspec.structs.replace(SETTINGS, reserve_bytes=64_000)


@pytest.mark.parametrize("how", ["running", "killed", "power cut", "stopped"])
@pytest.mark.parametrize("what", ["tagged records", "topic"])
def test_deletes_free_a_disk_that_another_program_fills_at_any_step(what: str, how: str) -> None:
    rounds = 40
    quiet = written(rounds, fill_at=None)
    first, last = quiet.disk.steps // 2 + len(what + how), quiet.disk.steps
    for fill_at in range(first, last, 29):
        under_test = restarted(written(10 * rounds, fill_at=fill_at), how)
        broker = under_test.broker
        kept = under_test.datas("b")
        if what == "topic":
            under_test.ask(broker.delete_topic, "a", if_empty=False)
        else:
            under_test.ask(broker.delete_records, "a", None, TagMatch("t", False), 0)
        under_test.wait(3 * MAX_RECHECK_MS)
        assert not broker.health.degraded, (fill_at, broker.health.conditions)
        under_test.append("b", "there is space")
        assert under_test.datas("b") == [*kept, "there is space"]
        assert under_test.after_kill().datas("b") == [*kept, "there is space"], fill_at


def written(rounds: int, *, fill_at: int | None) -> BrokerUnderTest:
    """A server that was written to until it refused, on a disk without free space from step `fill_at` on."""
    disk = watched(FakeDisk())
    disk.make_directory("")

    def fill_disk(step: int) -> None:
        if step == fill_at:
            disk.capacity_bytes = sum(map(len, disk.snapshot_tree().values()))

    disk.watcher = fill_disk
    under_test = BrokerUnderTest(disk, NARROW)
    for _ in range(rounds):
        try:
            for name in ("a", "b", "a"):
                under_test.append(name, *[{"data": "x" * 300, "tag": "t"}] * 5)
        except Unavailable:
            break
        under_test.wait(1)
    # What is under way ends, or fails.
    under_test.wait(MAX_RECHECK_MS)
    return under_test
