"""Repair: damaged ranges become reported gaps, nothing else changes, and a power cut leaves one state or the other."""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.durability.recovery import recover
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import View
from topics.maintenance.check import check
from topics.maintenance.repair import Repair, find_damage
from topics.model.errors import CorruptStorage
from topics.model.records.match import TagMatch
from topics.model.storage_settings import StorageSettings
from topics.segments.packed_segments import PackedSegment
from topics.testing.disk.fake_disk import FakeDisk, PowerCut

SMALL = StorageSettings(
    wal_file_bytes=64 << 10,
    segment_bytes=1 << 30,
    hot_bytes=1 << 30,
    checkpoint_bytes=1 << 30,
    margin=1000,
    # Files of gigabytes would be slow in memory.
    reserve_bytes=0,
)
# Two batches and a half in one segment.
RECORDS = 1_201
BATCH = 512


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.storage.segments.segment_writer.BATCH_RECORDS", BATCH)


def directory() -> FakeDisk:
    """A stopped server: topic `big` with three batches in one segment, some deleted; `small` with two segments; a queue."""
    under_test = BrokerUnderTest(settings=SMALL)
    under_test.configure("big", durability="fsync")
    under_test.append("big", *[{"data": n, "tag": f"t{n % 3}"} for n in range(1, RECORDS + 1)])
    seal(under_test, "big")
    under_test.ask(under_test.broker.delete_records, "big", 11, None, 0)
    under_test.ask(under_test.broker.delete_records, "big", None, TagMatch("t0", False), 0)
    under_test.configure("small", durability="fsync")
    for first in (1, 11):
        under_test.append("small", *[{"data": n, "tag": "t"} for n in range(first, first + 10)])
        seal(under_test, "small")
    under_test.append("small", 21)
    under_test.configure("jobs", durability="fsync", type="queue", leases_durable=True, lease_ms=60_000)
    under_test.append("jobs", *range(1, 11))
    seal(under_test, "jobs")
    under_test.append("jobs", 11)
    claimed: list[Any] = []
    under_test.broker.queues.claim("jobs", 0, "node", 3, None, 0, claimed.append)
    under_test.runtime.run()
    stopped: list[bool] = []
    under_test.broker.stop(stopped.append)
    under_test.runtime.run()
    assert stopped == [True]
    return under_test.disk


def seal(under_test: BrokerUnderTest, name: str) -> None:
    topic = under_test.broker.topic(name)
    under_test.broker.sealer.seal(topic, topic.partitions[0])
    under_test.runtime.run()


def path_of(disk: FakeDisk, topic_id: int, suffix: str, number: int = 0) -> str:
    return sorted([path for path in disk.snapshot_tree() if f"{topic_id:016x}-" in path and path.endswith(suffix)])[
        number
    ]


def empty(disk: FakeDisk, path: str) -> None:
    file = disk.open(path)
    file.truncate(0)
    file.sync_data()
    file.close()


def damage_a_batch(disk: FakeDisk, path: str) -> None:
    """The second batch of `big`."""
    content = disk.snapshot_tree()[path]
    file = disk.open(path)
    file.write_at(len(content) // 2, [bytes([content[len(content) // 2] ^ 1])])
    file.sync_data()
    file.close()


Lost = dict[str, list[tuple[int, int]]]
# What is damaged, and the ranges that are lost with it.
DAMAGES: dict[str, tuple[Callable[[FakeDisk], None], Lost]] = {
    "one batch": (
        lambda disk: damage_a_batch(disk, path_of(disk, 1, ".arrow")),
        # The first record of the batch was deleted.
        {"big": [(BATCH + 2, 2 * BATCH)]},
    ),
    "a segment": (lambda disk: empty(disk, path_of(disk, 2, ".arrow")), {"small": [(1, 10)]}),
    "a missing segment": (lambda disk: disk.remove(path_of(disk, 2, ".arrow", 1)), {"small": [(11, 20)]}),
    "delete flags": (lambda disk: empty(disk, path_of(disk, 1, ".dead")), {"big": [(11, RECORDS)]}),
    "a tag index": (lambda disk: empty(disk, path_of(disk, 1, ".tags")), {}),
    "jobs": (lambda disk: empty(disk, path_of(disk, 3, ".arrow")), {"jobs": [(1, 10)]}),
}


def repair(disk: FakeDisk) -> tuple[BrokerUnderTest, list[str], Repair]:
    under_test = BrokerUnderTest(disk, SMALL)
    lines: list[str] = []
    outcome: list[Exception | None] = []
    work = Repair(under_test.broker, disk, lines.append, outcome.append)
    work.start()
    under_test.runtime.run()
    assert outcome == [None]
    under_test.broker.stop(lambda worked: None)
    under_test.runtime.run()
    return under_test, lines, work


class Seen(msgspec.Struct):
    """All that a reader from the beginning finds."""

    datas: dict[int, Any] = {}
    tombstones: list[tuple[int, int, str | None]] = []
    refused: list[tuple[int, int]] = []


def read(under_test: BrokerUnderTest, name: str) -> Seen:
    partition = under_test.broker.topic(name).partitions[0]
    seen = Seen()
    from_seq = 0
    while from_seq < partition.head_seq:
        try:
            found = read_records(partition, from_seq, 1000, 1 << 20, View(tags=True))
        except CorruptStorage as error:
            seen.refused.append(error.records or (0, 0))
            from_seq = seen.refused[-1][1]
            continue
        for record in msgspec.json.decode(b"[" + found.records + b"]"):
            seen.datas[record["$seq"]] = (record["data"], record.get("$tag"))
        lost = found.tombstone
        if lost is not None:
            seen.tombstones.append((lost.gap_from, lost.gap_to, lost.cause))
        from_seq = found.next_from_seq
    return seen


NAMES = ("big", "small", "jobs")


@pytest.mark.parametrize("kind", list(DAMAGES))
def test_repair_turns_damaged_ranges_into_reported_gaps_and_keeps_everything_else(kind: str) -> None:
    disk = directory()
    whole = {name: read(BrokerUnderTest(disk.after_kill(), SMALL), name) for name in NAMES}
    damage, lost = DAMAGES[kind]
    damage(disk)
    assert check(disk).status == 2
    _, lines, work = repair(disk)
    assert check(disk).status == 0
    tombstones = {name: [(*each, "damage") for each in lost.get(name, [])] for name in NAMES}
    for under_test in (
        BrokerUnderTest(disk.after_kill(), SMALL),
        BrokerUnderTest(disk.after_power_cut(survive="none"), SMALL),
    ):
        assert not under_test.broker.health.degraded
        for name in NAMES:
            seen = read(under_test, name)
            expected = {
                seq: data
                for seq, data in whole[name].datas.items()
                if not any([first <= seq <= last for first, last in lost.get(name, [])])
            }
            assert (seen.refused, seen.tombstones, seen.datas) == ([], tombstones[name], expected)
            partition = under_test.broker.topic(name).partitions[0]
            assert partition.count == len(expected)
            assert partition.earliest_seq == min(expected, default=partition.head_seq + 1)
            assert under_test.append(name, "next").first_seq == max(whole[name].datas) + 1
    given_up = [(name, seq) for name in lost for first, last in lost[name] for seq in range(first, last + 1)]
    live = [each for each in given_up if each[1] in whole[each[0]].datas]
    assert work.lost_records == len(given_up if kind == "delete flags" else live)
    for name, ranges in lost.items():
        for first, last in ranges:
            assert f'lost: topic "{name}", partition 0: records {first} to {last}' in lines
    aside = [path for path in disk.snapshot_tree() if path.startswith("damaged/") and not path.endswith("/")]
    assert sorted([line.removeprefix("kept aside: ") for line in lines if line.startswith("kept aside")]) == aside


def test_repairing_again_changes_nothing() -> None:
    disk = directory()
    for damage, _ in DAMAGES.values():
        damage(disk)
    repair(disk)
    seen = [read(BrokerUnderTest(disk.after_kill(), SMALL), name) for name in NAMES]
    aside = [path for path in disk.snapshot_tree() if path.startswith("damaged/")]
    _, lines, work = repair(disk)
    assert (lines, work.repaired) == ([], 0)
    assert [read(BrokerUnderTest(disk.after_kill(), SMALL), name) for name in NAMES] == seen
    assert [path for path in disk.snapshot_tree() if path.startswith("damaged/")] == aside


def test_repaired_segment_that_is_damaged_again_can_be_repaired_again() -> None:
    disk = directory()
    damage_a_batch(disk, path_of(disk, 1, ".arrow"))
    repair(disk)
    first, second = [path for path in disk.snapshot_tree() if "0001-0000" in path and path.endswith("-1.arrow")]
    empty(disk, second)
    under_test, _, _ = repair(disk)
    assert [each[:2] for each in read(under_test, "big").tombstones] == [
        (BATCH + 2, 2 * BATCH),
        (2 * BATCH + 1, RECORDS),
    ]
    assert first in disk.snapshot_tree()
    assert check(disk).status == 0


def test_leases_of_lost_jobs_are_gone_and_later_jobs_can_be_claimed() -> None:
    disk = directory()
    empty(disk, path_of(disk, 3, ".arrow"))
    repair(disk)
    under_test = BrokerUnderTest(disk.after_kill(), SMALL)
    counters = under_test.broker.queues.stats(under_test.broker.topic("jobs"))
    assert (counters.ready, counters.in_flight) == (1, 0)
    claimed: list[Any] = []
    under_test.broker.queues.claim("jobs", 0, "node", 3, None, 0, claimed.append)
    under_test.runtime.run()
    assert list(claimed[0].delivery.seqs) == [11]


def test_damaged_snapshot_next_to_a_whole_one_is_put_aside() -> None:
    disk = directory()
    under_test = BrokerUnderTest(disk, SMALL)
    under_test.append("small", 22)
    under_test.broker.stop(lambda worked: None)
    under_test.runtime.run()
    newest = max(path for path in disk.snapshot_tree() if path.endswith(".snap"))
    empty(disk, newest)
    assert check(disk).status == 2
    repair(disk)
    assert check(disk).status == 0
    assert newest.replace("snapshots/", "damaged/") in disk.snapshot_tree()
    assert BrokerUnderTest(disk.after_kill(), SMALL).datas("small") == list(range(1, 23))


def test_dry_run_finds_what_a_repair_would_lose() -> None:
    disk = directory()
    damage_a_batch(disk, path_of(disk, 1, ".arrow"))
    before = disk.snapshot_tree()
    (found,) = find_damage(disk, recover(disk.after_kill(), SMALL).state)
    assert disk.snapshot_tree() == before
    assert (found.topic, found.lost) == ("big", [(BATCH + 2, 2 * BATCH)])
    assert found.kept == [(1, BATCH), (2 * BATCH + 1, RECORDS)]
    assert found.lost_records == len([n for n in range(BATCH + 2, 2 * BATCH + 1) if n % 3])


@pytest.mark.parametrize(
    ("kind", "survive"),
    [
        ("one batch", "random"),
        ("delete flags", "none"),
        ("delete flags", "all"),
        pytest.param("one batch", "none", marks=pytest.mark.long),
        pytest.param("one batch", "all", marks=pytest.mark.long),
        pytest.param("a tag index", "random", marks=pytest.mark.long),
    ],
)
def test_power_cut_at_any_step_of_a_repair_leaves_the_damaged_or_the_repaired_state(kind: str, survive: Any) -> None:
    original = directory()
    damage, _ = DAMAGES[kind]
    damage(original)
    damaged = {name: read(BrokerUnderTest(original.after_kill(), SMALL), name) for name in NAMES}
    finished = original.after_kill()
    repair(finished)
    repaired = {name: read(BrokerUnderTest(finished, SMALL), name) for name in NAMES}
    name_of_file = path_of(original, 1, ".arrow").rpartition("/")[2]
    outcomes = set()
    for step in itertools.count():
        disk = original.after_power_cut(survive="all")
        disk.cut_at = step
        try:
            repair(disk)
        except PowerCut:
            pass
        if not disk.was_cut:
            break
        left = disk.after_power_cut(survive=survive, seed=step)
        kept = [path for path in left.snapshot_tree() if path.endswith((name_of_file, f"{name_of_file}.2"))]
        assert kept, "the damaged file is in segments or in damaged"
        under_test = BrokerUnderTest(left, SMALL)
        seen = {name: read(under_test, name) for name in NAMES}
        is_repaired = seen == repaired
        assert is_repaired or seen == damaged, f"at step {step}"
        outcomes.add(is_repaired)
        again, _, _ = repair(left.after_kill())
        assert {name: read(again, name) for name in NAMES} == repaired
    assert outcomes == ({True} if kind == "a tag index" else {False, True})


PACKING = msgspec.structs.replace(SMALL, hot_bytes=3000, segment_bytes=20_000, min_segment_bytes=8000)


def packed_directory() -> FakeDisk:
    """A stopped server with forty small topics, most of them in packs; some records are deleted."""
    under_test = BrokerUnderTest(settings=PACKING)
    for number in range(40):
        under_test.append(
            f"topic-{number}", *[{"data": f"{number}-{each}" + 40 * "x", "tag": f"t{each}"} for each in range(4)]
        )
    under_test.ask(under_test.broker.delete_records, "topic-3", None, TagMatch("t0", False), 0)
    stopped: list[bool] = []
    under_test.broker.stop(stopped.append)
    under_test.runtime.run()
    assert stopped == [True]
    return under_test.disk


def entry_of(disk: FakeDisk, name: str) -> tuple[str, int]:
    under_test = BrokerUnderTest(disk.after_kill(), PACKING)
    segment = under_test.broker.topic(name).partitions[0].segments[0]
    assert isinstance(segment, PackedSegment)
    return segment.base + ".pack", segment.info.offset


def repair_packed(disk: FakeDisk) -> BrokerUnderTest:
    under_test = BrokerUnderTest(disk, PACKING)
    outcomes: list[Exception | None] = []
    Repair(under_test.broker, disk, lambda line: None, outcomes.append).start()
    under_test.runtime.run()
    assert outcomes == [None]
    stopped: list[bool] = []
    under_test.broker.stop(stopped.append)
    under_test.runtime.run()
    assert stopped == [True]
    return BrokerUnderTest(disk.after_kill(), PACKING)


def test_a_damaged_entry_of_a_pack_becomes_a_gap_and_the_other_entries_stay() -> None:
    disk = packed_directory()
    seen = {
        f"topic-{number}": BrokerUnderTest(disk.after_kill(), PACKING).datas(f"topic-{number}") for number in range(40)
    }
    path, offset = entry_of(disk, "topic-3")
    file = disk.open(path)
    file.write_at(offset + 50, [b"?????"])
    file.close()
    (found,) = find_damage(disk, recover(disk.after_kill(), PACKING).state)
    assert (found.topic, found.kept, found.lost, found.lost_records) == ("topic-3", [], [(2, 4)], 3)
    again = repair_packed(disk)
    assert check(again.disk).status == 0
    assert again.disk.exists(path), "other entries of the pack are in use"
    assert again.disk.exists(path.replace("segments/", "damaged/")), "a copy is kept"
    for name, datas in seen.items():
        assert again.datas(name) == ([] if name == "topic-3" else datas)
    read = read_records(again.broker.topic("topic-3").partitions[0], 0, 10, 1 << 20, View())
    assert read.tombstone is not None
    assert (read.tombstone.gap_from, read.tombstone.gap_to, read.tombstone.cause) == (2, 4, "damage")
    again.append("topic-3", "next")
    assert again.datas("topic-3") == ["next"]
    assert BrokerUnderTest(again.disk.after_kill(), PACKING).datas("topic-3") == ["next"]


def test_a_pack_that_cannot_be_opened_is_given_up_as_a_whole_and_kept_aside() -> None:
    disk = packed_directory()
    path, _ = entry_of(disk, "topic-3")
    empty(disk, path)
    lost = {each.topic for each in find_damage(disk, recover(disk.after_kill(), PACKING).state)}
    assert {"topic-3"} < lost
    again = repair_packed(disk)
    assert check(again.disk).status == 0
    assert path.replace("segments/", "damaged/") in again.disk.snapshot_tree()
    for number in range(40):
        assert len(again.datas(f"topic-{number}")) == (0 if f"topic-{number}" in lost else 4)


def test_power_cut_while_a_pack_is_repaired_leaves_the_damaged_or_the_repaired_state() -> None:
    original = packed_directory()
    path, offset = entry_of(original, "topic-3")
    file = original.open(path)
    file.write_at(offset + 50, [b"?????"])
    file.sync_data()
    file.close()
    damaged = read(BrokerUnderTest(original.after_kill(), PACKING), "topic-3")
    repaired = read(repair_packed(original.after_kill()), "topic-3")
    outcomes = set()
    for step in itertools.count():
        disk = original.after_power_cut(survive="all")
        disk.cut_at = step
        try:
            repair_packed(disk)
        except PowerCut:
            pass
        if not disk.was_cut:
            break
        left = disk.after_power_cut(seed=step)
        assert {path, path.replace("segments/", "damaged/")} & left.snapshot_tree().keys()
        seen = read(BrokerUnderTest(left, PACKING), "topic-3")
        # The power cut itself takes seqs of a topic of class disk.
        seen.tombstones = [each for each in seen.tombstones if each[2] == "damage"]
        assert seen in (damaged, repaired), f"at step {step}"
        outcomes.add(seen == repaired)
    assert outcomes == {False, True}
