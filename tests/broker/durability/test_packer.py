"""Small segments share files: few files for many topics, and nothing that a reader could notice."""

import errno
from typing import Any

import msgspec
import pyarrow
import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.topics.bulk_read import bulk_read
from topics.broker.topics.read import ReadRequest
from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.render import View
from topics.maintenance.check import check
from topics.model.errors import CorruptStorage
from topics.model.records.match import TagMatch
from topics.model.storage_settings import StorageSettings
from topics.segments.packed_segments import PackedSegment
from topics.testing.disk.fake_disk import FakeDisk

SETTINGS = StorageSettings(
    wal_file_bytes=64 << 10,
    segment_bytes=20_000,
    min_segment_bytes=8000,
    hot_bytes=4000,
    checkpoint_bytes=1 << 30,
    pack_bytes=16 << 10,
    margin=100,
)
TEXT = "x" * 100


def broker_of(topics: int, **fields: Any) -> BrokerUnderTest:
    """A broker whose small topics, each with one record, have outgrown `hot_bytes`."""
    under_test = BrokerUnderTest(settings=msgspec.structs.replace(SETTINGS, **fields))
    for number in range(topics):
        under_test.append(f"topic-{number:04d}", {"data": f"{number} {TEXT}", "tag": f"tag-{number % 3}"})
    return under_test


def packed(under_test: BrokerUnderTest, name: str) -> list[PackedSegment]:
    return [each for each in under_test.broker.topic(name).partitions[0].segments if isinstance(each, PackedSegment)]


def everything(under_test: BrokerUnderTest) -> dict[str, Any]:
    """All records of all topics, and what is counted of them."""
    return {
        name: (topic.count, topic.bytes, under_test.read(name))
        for name, topic in under_test.broker.state.topics.items()
    }


def files(under_test: BrokerUnderTest, suffix: str) -> list[str]:
    return [name for name in under_test.disk.list("segments") if name.endswith(suffix)]


def assert_survives(under_test: BrokerUnderTest) -> None:
    """Kill, clean stop and power cut: readers see the same, and `topics check` finds nothing."""
    seen = everything(under_test)
    for again in (under_test.after_kill(), under_test.after_power_cut("all")):
        assert everything(again) == seen
        assert check(again.disk).status == 0
        stop(again)
        assert everything(again.after_kill()) == seen


def stop(under_test: BrokerUnderTest) -> None:
    worked: list[bool] = []
    under_test.broker.stop(worked.append)
    under_test.runtime.run()
    assert worked == [True]


def test_many_small_topics_share_a_few_files() -> None:
    under_test = broker_of(300)
    assert len(under_test.disk.list("segments")) <= 20
    assert files(under_test, ".arrow") == []
    assert sum(len(packed(under_test, f"topic-{number:04d}")) for number in range(300)) > 250
    assert_survives(under_test)


def test_memory_stays_bounded_by_hot_bytes() -> None:
    under_test = broker_of(300)
    hot = sum(topic.partitions[0].hot_bytes for topic in under_test.broker.state.topics.values())
    assert hot <= SETTINGS.hot_bytes


def test_a_segment_that_is_large_enough_still_gets_files_of_its_own() -> None:
    under_test = BrokerUnderTest(settings=msgspec.structs.replace(SETTINGS, hot_bytes=14_000))
    for _ in range(90):
        under_test.append("large", TEXT)
    for number in range(150):
        under_test.append(f"small-{number}", TEXT)
    assert len(files(under_test, ".arrow")) >= 1
    assert len(files(under_test, ".pack")) >= 1
    assert_survives(under_test)


def test_deletes_in_packed_records_survive_restarts_when_the_log_is_trimmed() -> None:
    under_test = BrokerUnderTest(settings=SETTINGS)
    for number in range(40):
        records = [{"data": f"{each} {TEXT}", "tag": f"tag-{each % 2}"} for each in range(4)]
        under_test.append(f"topic-{number}", *records)
    assert packed(under_test, "topic-0")
    under_test.ask(under_test.broker.delete_records, "topic-0", None, TagMatch("tag-1", False), 0)
    under_test.ask(under_test.broker.delete_records, "topic-1", None, TagMatch("tag", True), 0)
    under_test.ask(under_test.broker.delete_records, "topic-2", 3, None, 0)
    assert [record["$seq"] for record in under_test.read("topic-0")] == [1, 3]
    assert under_test.datas("topic-1") == []
    assert [record["$seq"] for record in under_test.read("topic-2")] == [3, 4]
    assert_survives(under_test)
    for _ in range(3):
        under_test.checkpoint()
        under_test.wait(2000)
    assert_survives(under_test)


def test_a_topic_that_is_packed_again_and_again_keeps_few_segments() -> None:
    under_test = broker_of(60)
    texts: dict[str, list[str]] = {name: under_test.datas(name) for name in under_test.broker.state.topics}
    for turn in range(60):
        for name, known in texts.items():
            known.append(f"{turn} {TEXT}")
            under_test.append(name, {"data": known[-1], "tag": "later"})
    for name, known in texts.items():
        assert under_test.datas(name) == known
        assert len(packed(under_test, name)) < 16
    assert_survives(under_test)


def test_merging_keeps_deletes_that_come_while_the_pack_is_written() -> None:
    under_test = broker_of(40, pack_merge_count=3)
    for turn in range(6):
        for number in range(40):
            under_test.append(f"topic-{number:04d}", {"data": f"{turn} {TEXT}", "tag": f"turn-{turn}"})
    topic = under_test.broker.topic("topic-0000")
    under_test.append("topic-0000", {"data": "last", "tag": "last"})
    before = under_test.broker.state.next_pack
    under_test.broker.sealer.packer.pack(topic.partitions)
    under_test.runtime.turn()
    assert under_test.runtime.waiting_aside
    under_test.broker.delete_records("topic-0000", None, TagMatch("turn-1", False), 0, lambda _: None)
    under_test.broker.delete_records("topic-0000", 2, None, 0, lambda _: None)
    under_test.runtime.run()
    assert under_test.broker.state.next_pack == before + 1
    found = [record["data"] for record in under_test.read("topic-0000")]
    assert found == [f"{turn} {TEXT}" for turn in range(6) if turn != 1] + ["last"]
    assert_survives(under_test)


def test_packs_without_live_records_leave_the_disk() -> None:
    under_test = broker_of(300)
    first = files(under_test, ".pack")
    for number in range(300):
        under_test.ask(under_test.broker.delete_topic, f"topic-{number:04d}", if_empty=False)
    under_test.wait(2000)
    assert set(first).isdisjoint(files(under_test, ".pack"))


def test_a_topic_that_is_deleted_while_its_pack_is_written_does_not_keep_the_pack() -> None:
    under_test = BrokerUnderTest(settings=msgspec.structs.replace(SETTINGS, hot_bytes=1 << 20))
    for number in range(3):
        under_test.append(f"topic-{number}", TEXT)
    for number in range(3):
        under_test.broker.delete_topic(f"topic-{number}", if_empty=False, reply=lambda _: None)
    under_test.runtime.turn()
    # The deletes wait for their sync, and the pack is written behind it.
    under_test.broker.sealer.packer.pack([topic.partitions[0] for topic in under_test.broker.state.topics.values()])
    under_test.runtime.run()
    assert under_test.broker.sealer.packer.packs_total == 1
    assert not under_test.broker.state.topics
    under_test.append("another", TEXT)
    under_test.wait(2000)
    assert files(under_test, ".pack") == []


def test_packs_that_a_kept_snapshot_names_stay() -> None:
    under_test = broker_of(300)
    named = files(under_test, ".pack")
    under_test.checkpoint()
    for number in range(300):
        under_test.ask(under_test.broker.delete_topic, f"topic-{number:04d}", if_empty=False)
    under_test.wait(2000)
    assert set(files(under_test, ".pack")) >= set(named)
    again = under_test.after_kill()
    assert everything(again) == {}
    for _ in range(2):
        again.checkpoint()
        again.wait(2000)
    assert files(again, ".pack") == []


def test_a_pack_that_is_mostly_dead_is_replaced_by_a_smaller_one() -> None:
    under_test = broker_of(300)
    first = files(under_test, ".pack")
    for number in range(300):
        if number % 5:
            under_test.ask(under_test.broker.delete_topic, f"topic-{number:04d}", if_empty=False)
    seen = everything(under_test)
    for _ in range(3):
        under_test.checkpoint()
        under_test.wait(2000)
    assert set(first).isdisjoint(files(under_test, ".pack"))
    assert 1 <= len(files(under_test, ".pack")) <= 2
    assert everything(under_test) == seen
    assert_survives(under_test)


def test_small_packs_are_merged() -> None:
    under_test = broker_of(300)
    for turn in range(40):
        # Two topics at a time, so that each pack is small.
        for number in (turn, turn + 1):
            topic = under_test.broker.topic(f"topic-{number:04d}")
            under_test.append(topic.name, f"{turn} {TEXT}")
            under_test.broker.sealer.packer.pack(topic.partitions)
            under_test.runtime.run()
    seen = everything(under_test)
    for _ in range(3):
        under_test.checkpoint()
        under_test.wait(2000)
    assert len(files(under_test, ".pack")) < 8
    assert everything(under_test) == seen
    assert_survives(under_test)


def test_idle_records_are_written_once_and_not_with_every_snapshot() -> None:
    under_test = broker_of(100, hot_bytes=1 << 20)
    assert files(under_test, ".pack") == []
    for _ in range(2):
        under_test.checkpoint()
        under_test.wait(2000)
    packs = {name: under_test.disk.open(f"segments/{name}").size() for name in files(under_test, ".pack")}
    assert packs
    for _ in range(2):
        under_test.append("busy", TEXT)
        under_test.checkpoint()
        under_test.wait(2000)
    assert {name: under_test.disk.open(f"segments/{name}").size() for name in files(under_test, ".pack")} == packs
    sizes = [under_test.disk.open(f"snapshots/{name}").size() for name in under_test.disk.list("snapshots")]
    assert max(sizes) < 100 * 600, "the snapshot does not hold the records again"
    assert_survives(under_test)


def test_records_that_change_between_snapshots_stay_hot() -> None:
    under_test = broker_of(20, hot_bytes=1 << 20, min_segment_bytes=100)
    for _ in range(4):
        for number in range(20):
            under_test.append(f"topic-{number:04d}", "x")
        under_test.checkpoint()
        under_test.wait(2000)
    assert files(under_test, ".pack") == []


def test_a_pack_that_cannot_be_written_leaves_records_readable_and_is_tried_again() -> None:
    under_test = BrokerUnderTest(settings=SETTINGS)
    under_test.disk.fault = lambda step, op, path: errno.ENOSPC if path.endswith(".pack") and op == "write_at" else None
    for number in range(50):
        under_test.append(f"topic-{number:04d}", f"{number} {TEXT}")
    assert under_test.broker.health.is_raised("seal")
    assert under_test.broker.health.failures_total["seal"] == 1, "it backs off"
    assert files(under_test, ".pack") == []
    seen = everything(under_test)
    assert len(seen) == 50
    under_test.disk.fault = None
    under_test.wait(2000)
    assert not under_test.broker.health.is_raised("seal")
    assert files(under_test, ".pack")
    assert files(under_test, ".arrow") == []
    assert everything(under_test) == seen
    assert_survives(under_test)


def test_records_stay_where_they_are_when_the_log_cannot_take_the_facts_of_a_pack() -> None:
    under_test = BrokerUnderTest(settings=msgspec.structs.replace(SETTINGS, hot_bytes=1 << 20))
    for number in range(10):
        under_test.append(f"topic-{number}", TEXT)
    seen = everything(under_test)
    under_test.broker.sealer.packer.pack([topic.partitions[0] for topic in under_test.broker.state.topics.values()])
    under_test.disk.fault = lambda step, op, path: errno.ENOSPC if path.endswith(".wal") and op == "write_at" else None
    under_test.runtime.run()
    assert everything(under_test) == seen
    assert all(
        [isinstance(topic.partitions[0].segments[0], HotSegment) for topic in under_test.broker.state.topics.values()]
    )
    under_test.disk.fault = None
    under_test.wait(2000)
    assert packed(under_test, "topic-0")
    under_test.wait(2000)
    assert len(files(under_test, ".pack")) == 1, "the pack that the log does not name is removed"
    assert everything(under_test) == seen
    assert_survives(under_test)


def test_a_damaged_entry_is_an_error_for_its_topic_alone() -> None:
    under_test = broker_of(100)
    victim = packed(under_test, "topic-0003")[0]
    info = victim.info
    seen = everything(under_test)
    file = under_test.disk.open(victim.base + ".pack")
    file.write_at(info.offset + 60, [b"\xff\xff"])
    file.close()
    again = under_test.after_kill()
    with pytest.raises(CorruptStorage) as caught:
        again.read("topic-0003")
    assert (caught.value.path, caught.value.offset) == (victim.base + ".pack", info.offset)
    assert caught.value.records == (1, 1)
    assert caught.value.detail is not None
    assert caught.value.detail["topic"] == "topic-0003"
    for name, each in seen.items():
        if name != "topic-0003":
            assert again.read(name) == each[2]
    report = check(again.disk)
    assert [(each.path, each.offset) for each in report.findings if each.kind == "degraded"] == [
        (victim.base + ".pack", info.offset)
    ]
    assert 'records 1 to 1 cannot be read (topic "topic-0003", partition 0)' in report.findings[0].what
    # The damaged entry is neither copied nor merged, and the rest of its pack stays as it is.
    for number in range(100):
        if number != 3:
            again.ask(again.broker.delete_topic, f"topic-{number:04d}", if_empty=False)
    for turn in range(12):
        again.append("topic-0003", f"{turn} {TEXT}")
        again.broker.sealer.packer.pack(again.broker.topic("topic-0003").partitions)
        again.runtime.run()
        again.checkpoint()
    assert again.datas("topic-0003", 1) == [f"{turn} {TEXT}" for turn in range(12)]
    assert again.broker.health.is_raised("damaged_file", f"{victim.base}.pack records 1 to 1")
    again.ask(again.broker.delete_records, "topic-0003", 2, None, 0)
    assert again.broker.topic("topic-0003").count == 12
    assert not again.broker.health.degraded


def test_a_missing_pack_makes_its_records_unreadable_and_nothing_else() -> None:
    under_test = broker_of(100)
    lost = packed(under_test, "topic-0003")[0].base
    gone = {name for name in under_test.broker.state.topics if lost in [each.base for each in packed(under_test, name)]}
    seen = everything(under_test)
    stop(under_test)
    disk = under_test.disk.after_kill()
    disk.remove(lost + ".pack")
    again = BrokerUnderTest(disk, SETTINGS)
    for name, each in seen.items():
        if name in gone:
            with pytest.raises(CorruptStorage):
                again.read(name)
        else:
            assert again.read(name) == each[2]
    assert [each.subject for each in again.broker.health.conditions] == [lost + ".pack"]
    assert len([each for each in check(again.disk).findings if each.kind == "degraded"]) == len(gone)
    for name in gone:
        again.ask(again.broker.delete_topic, name, if_empty=False)
    assert not again.broker.health.degraded


def test_expired_and_capped_records_leave_packs_as_they_leave_other_segments() -> None:
    under_test = BrokerUnderTest(settings=SETTINGS)
    for number in range(60):
        under_test.configure(f"topic-{number}", ttl_ms=10_000, cap_records=3)
        under_test.append(f"topic-{number}", *[f"{each} {TEXT}" for each in range(2)])
    assert packed(under_test, "topic-0")
    under_test.append("topic-0", "third", "fourth")
    assert [record["$seq"] for record in under_test.read("topic-0")] == [2, 3, 4]
    under_test.wait(6000)
    under_test.append("topic-1", "younger")
    assert_survives(under_test)
    under_test.wait(6000)
    assert under_test.datas("topic-2") == []
    assert under_test.datas("topic-1") == ["younger"]
    assert under_test.after_kill().datas("topic-1") == ["younger"]


def test_reading_packed_records_keeps_no_more_than_the_cache() -> None:
    under_test = broker_of(300, cache_bytes=4000)
    for name in list(under_test.broker.state.topics):
        assert len(under_test.read(name)) == 1
    assert under_test.broker.state.segment_cache.pages.bytes <= 4000


def test_a_hot_segment_without_live_records_does_not_hold_memory() -> None:
    under_test = BrokerUnderTest(settings=SETTINGS)
    for number in range(30):
        under_test.append(f"topic-{number}", "y" * 3000)
        under_test.ask(under_test.broker.delete_records, f"topic-{number}", 2, None, 0)
    under_test.append("another", TEXT)
    hot = [each for topic in under_test.broker.state.topics.values() for each in topic.partitions[0].segments]
    assert sum(each.held_bytes for each in hot if isinstance(each, HotSegment)) <= 3 * SETTINGS.hot_bytes
    assert_survives(under_test)


def test_a_snapshot_of_version_1_is_still_read() -> None:
    under_test = BrokerUnderTest(settings=SETTINGS)
    under_test.append("log", "one", "two")
    stop(under_test)
    disk = under_test.disk.after_kill()
    assert isinstance(disk, FakeDisk)
    for name in disk.list("snapshots"):
        file = disk.open(f"snapshots/{name}")
        file.write_at(8, [(1).to_bytes(4, "little")])
        file.close()
    assert BrokerUnderTest(disk, SETTINGS).datas("log") == ["one", "two"]


def test_a_snapshot_of_a_later_version_is_refused_by_name() -> None:
    under_test = BrokerUnderTest(settings=SETTINGS)
    under_test.append("log", "one")
    stop(under_test)
    disk = under_test.disk.after_kill()
    for name in disk.list("snapshots"):
        file = disk.open(f"snapshots/{name}")
        file.write_at(8, [(3).to_bytes(4, "little")])
        file.close()
    with pytest.raises(CorruptStorage, match="version 3"):
        BrokerUnderTest(disk, SETTINGS)


def test_pack_numbers_are_not_used_again_after_all_packs_are_gone() -> None:
    under_test = broker_of(100)
    for number in range(100):
        under_test.ask(under_test.broker.delete_topic, f"topic-{number:04d}", if_empty=False)
    under_test.wait(2000)
    assert files(under_test, ".pack") == []
    used = under_test.broker.state.next_pack
    assert used > 1
    stop(under_test)
    again = under_test.after_kill()
    assert again.broker.state.next_pack == used
    again.checkpoint()
    assert again.after_kill().broker.state.next_pack == used


def test_bulk_reads_deliver_packed_records() -> None:
    under_test = BrokerUnderTest(settings=SETTINGS)
    for number in range(60):
        under_test.append(f"topic-{number}", *[f"{each} {TEXT}" for each in range(3)])
    assert packed(under_test, "topic-0")
    under_test.append("topic-0", "hot")
    pages: list[Any] = []
    wanted = ReadRequest("topic-0", 1, 100, 1 << 20, View())
    bulk_read(under_test.broker, wanted, None, None, lambda page, error: pages.append((page, error)))
    under_test.runtime.run()
    page, error = pages[0]
    assert error is None
    rows = pyarrow.ipc.open_stream(page.stream).read_all().to_pylist()
    assert [(row["seq"], row["data"]) for row in rows] == [(2, f'"1 {TEXT}"'), (3, f'"2 {TEXT}"'), (4, '"hot"')]
