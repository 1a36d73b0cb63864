"""Every kind of file in a data directory, damaged in every way: the outcome is the one that docs/FORMAT.md states.

    damaged                       outcome
    segment, delete flags, pack   degraded: its records answer corrupt_storage, everything else is served
    tag index                     degraded: everything is served, deletes by tag search the rows
    snapshot                      degraded: an older one is used; refused when none is whole
    reserve                       nothing is missing, it is created again
    log                           a torn tail is cut off; refused, with file and offset, when a safe frame is gone

Where the log still holds the records of a damaged segment, or only an older snapshot needs the file, nothing is missing.
Wrong data is never served, also not after further checkpoints and restarts.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.history import play
from tests.crash.test_packs import PACKING, play_small_topics
from tests.crash.world import EVERYTHING, Known, World, data_of, split_records
from topics.broker.durability.data_directory import DataDirectory
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reading import read_records
from topics.maintenance.check import check
from topics.model.errors import CorruptStorage, TopicsError
from topics.model.records.match import TagMatch
from topics.model.steps import finish
from topics.storage.fs import names_in
from topics.testing.clock import ManualClock
from topics.testing.disk.fake_disk import FakeDisk

Damager = Callable[[FakeDisk, str, str], None]


def rewrite(disk: FakeDisk, path: str, content: bytes) -> None:
    file = disk.open(path)
    file.truncate(0)
    file.write_at(0, [content])
    file.close()


def content_of(disk: FakeDisk, path: str) -> bytes:
    return disk.snapshot_tree()[path]


def flipped(place: Callable[[int], int]) -> Damager:
    def damage(disk: FakeDisk, path: str, other: str) -> None:
        content = bytearray(content_of(disk, path))
        content[place(len(content))] ^= 0x10
        rewrite(disk, path, bytes(content))

    return damage


def shortened(length: Callable[[int], int]) -> Damager:
    return lambda disk, path, other: rewrite(disk, path, content_of(disk, path)[: length(len(content_of(disk, path)))])


def swapped(disk: FakeDisk, path: str, other: str) -> None:
    rewrite(disk, path, content_of(disk, other))


def directory(disk: FakeDisk, path: str, other: str) -> None:
    disk.remove(path)
    disk.make_directory(path)


DAMAGES: dict[str, Damager] = {
    "missing": lambda disk, path, other: disk.remove(path),
    "empty": shortened(lambda size: 0),
    "half": shortened(lambda size: size // 2),
    "short by one byte": shortened(lambda size: size - 1),
    "bit in the head": flipped(lambda size: 9),
    "bit in the middle": flipped(lambda size: size // 2),
    "bit in the end": flipped(lambda size: size - 2),
    "another file of its kind": swapped,
    "unreadable": lambda disk, path, other: disk.unreadable.add(path),
    "a directory": directory,
}
KINDS = ("arrow", "dead", "tags", "pack", "snap", "wal", "reserve")
OUTCOMES = {
    "arrow": {"degraded", "whole"},
    "dead": {"degraded", "whole"},
    "tags": {"degraded", "whole"},
    "pack": {"degraded", "whole"},
    "snap": {"degraded", "whole", "refused"},
    "wal": {"torn", "whole", "degraded", "refused"},
    "reserve": {"whole"},
}


@pytest.fixture(scope="module", params=["killed", "stopped", "packed and killed", "packed and stopped"])
def original(request: pytest.FixtureRequest) -> tuple[str, FakeDisk, World]:
    """How a server ended, its disk, and the world that made it; `packed`: all records are in packs."""
    disk = FakeDisk()
    disk.make_directory("")
    if request.param.startswith("packed"):
        world = World(disk, PACKING)
        play_small_topics(world)
    else:
        world = World(disk)
        play(world)
    if request.param.endswith("stopped"):
        assert world.stop()
    return request.param, disk, world


def files_of(disk: FakeDisk, kind: str) -> list[str]:
    """A few files of the kind; of the log only those with frames."""
    found = [path for path, content in disk.snapshot_tree().items() if path.rpartition(".")[2] == kind and content]
    if kind == "wal":
        found = [path for path in found if len(content_of(disk, path)) > 96] or found
    return sorted({found[0], found[len(found) // 2], found[-1]}) if found else []


@pytest.mark.parametrize("damage", list(DAMAGES))
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_has_its_documented_outcome_and_never_serves_wrong_data(
    original: tuple[str, FakeDisk, World], kind: str, damage: str
) -> None:
    how, disk, world = original
    if how.startswith("packed") and kind in ("wal", "reserve"):
        pytest.skip("the same as without packs")
    files = files_of(disk, kind)
    seen = set()
    for path in files:
        copy = disk.after_kill()
        others = [each for each in disk.snapshot_tree() if each.rpartition(".")[2] == kind and each != path]
        if damage == "another file of its kind" and not others:
            continue
        DAMAGES[damage](copy, path, others[0] if others else "")
        try:
            outcome = outcome_of(copy, path, world)
        except BaseException as error:
            error.add_note(f"{how}, {path}: {damage}")
            raise
        assert outcome in OUTCOMES[kind], f"{how}, {path}: {damage}"
        seen.add(outcome)
    if how.endswith("stopped") and kind in ("arrow", "dead", "pack") and seen:
        assert "degraded" in seen, "nothing but the segments holds the records"


def outcome_of(disk: FakeDisk, path: str, world: World) -> str:
    report = check(disk)
    try:
        again = World(disk, world.settings, clock=ManualClock(world.clock.now_ms()))
    except CorruptStorage as error:
        refused = error.path
    else:
        refused = None
    assert report.starts == (refused is None)
    if refused is not None:
        assert report.status == 2
        assert names_in(refused)[0] == names_in(path)[0]
        return "refused"
    torn = bool(again.recovered.torn)
    for _ in range(2):
        damaged = verify(again, world, path, torn)
        again.checkpoint()
        again.run()
        again.checkpoint()
        assert again.stop()
        left = disk.after_kill() if not disk.unreadable else disk
        again = World(left, world.settings, clock=ManualClock(world.clock.now_ms()))
    if torn:
        assert report.status >= 1
        return "torn"
    conditions = [each for each in report.findings if each.kind in ("degraded", "damage")]
    if damaged:
        assert any([path in finding.path for finding in conditions])
    return "degraded" if conditions else "whole"


def verify(again: World, world: World, path: str, torn: bool) -> bool:
    """Read all that can be read and compare; say whether some of it could not be."""
    damaged = False
    for known in world.promises.topics.values():
        topic = again.broker.state.by_id.get(known.topic_id)
        if known.deleted or topic is None:
            assert known.deleted == (topic is None) or torn
            continue
        partition = topic.partitions[0]
        texts, ranges = read_around(partition, path)
        compare(known, partition, texts, ranges, torn)
        damaged = damaged or bool(ranges)
        if not ranges:
            tagged = [seq for seq, text in sorted(texts.items()) if b'"$tag":' in text]
            assert finish(partition.select(TagMatch("", True), partition.head_seq + 1)).seqs() == tagged
    if damaged:
        reasons = " ".join([condition.reason for condition in again.broker.health.conditions])
        assert path in reasons
    return damaged


def read_around(partition: Partition, path: str | None) -> tuple[dict[int, bytes], list[tuple[int, int]]]:
    """All readable records, and the ranges that are not, as a reader finds them that steps over those."""
    texts: dict[int, bytes] = {}
    ranges: list[tuple[int, int]] = []
    from_seq = 0
    while from_seq < partition.head_seq:
        try:
            read = read_records(partition, from_seq, 7, 1 << 20, EVERYTHING)
        except CorruptStorage as error:
            damaged = error
        else:
            for text in split_records(read.records):
                texts[int(text[8 : text.index(b",")])] = text
            assert read.next_from_seq > from_seq
            from_seq = read.next_from_seq
            continue
        assert path is None or damaged.path == path
        assert damaged.records is not None
        assert "topic" in (damaged.detail or {})
        ranges.append(damaged.records)
        from_seq = damaged.records[1]
    return texts, ranges


def compare(
    known: Known, partition: Partition, texts: dict[int, bytes], ranges: list[tuple[int, int]], torn: bool
) -> None:
    for seq, text in texts.items():
        write, index = known.acked[seq]
        assert text == write.texts[index].shown(seq, write.ts)
        assert data_of(text) == write.texts[index].data
    if not torn:
        assert not known.gone & texts.keys(), "deleted records came back"
        missing = known.acked.keys() - texts.keys() - known.gone - known.going
        unexplained = [
            seq
            for seq in missing
            if seq >= partition.evict_floor and not any([first <= seq <= last for first, last in ranges])
        ]
        assert unexplained == []


def test_topic_with_a_damaged_segment_takes_writes_and_refuses_deletes_within_it() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    world = World(disk)
    play(world)
    assert world.stop()
    for path in [path for path in disk.snapshot_tree() if path.endswith(".arrow")]:
        rewrite(disk, path, b"")
    again = World(disk, clock=ManualClock(world.clock.now_ms()))
    topics = again.broker.state.by_id.values()
    damaged = [topic for topic in topics if any([each.is_damaged for each in topic.partitions[0].segments])]
    assert damaged
    for topic in damaged:
        partition = topic.partitions[0]
        segment = next(each for each in partition.segments if each.is_damaged)
        outcomes: list[object] = []
        with pytest.raises(CorruptStorage):
            again.broker.delete_records(topic.name, segment.last_seq, None, 0, outcomes.append)
        head = partition.head_seq
        assert again.append(topic.name, [world.promises.writes[0].texts[0]]).state in ("open", "acked")
        again.run()
        assert partition.head_seq == head + 1
        assert read_records(partition, head, 1, 1 << 20, EVERYTHING).count == 1
        again.broker.delete_topic(topic.name, if_empty=False, reply=outcomes.append)
        again.run()
        assert not any([isinstance(outcome, TopicsError) for outcome in outcomes])
        assert again.broker.state.by_id.get(topic.id) is None
    assert not again.broker.health.is_raised("damaged_file")
    assert again.broker.recovered.damage == []
    assert again.stop()
    assert check(disk).status == 0


def remove_all(disk: FakeDisk, *roots: str) -> None:
    for path in [path for path in disk.snapshot_tree() if path.startswith(roots) and not path.endswith("/")]:
        disk.remove(path)


def test_missing_snapshots_stop_the_start_and_no_segment_is_removed(original: tuple[str, FakeDisk, World]) -> None:
    _, disk, _ = original
    for roots in (("snapshots/",), ("snapshots/", "wal/"), ("wal/",)):
        copy = disk.after_kill()
        remove_all(copy, *roots)
        before = copy.snapshot_tree()
        assert check(copy).starts is False
        with pytest.raises(CorruptStorage, match=r"missing|no snapshot"):
            World(copy)
        assert copy.snapshot_tree() == before


def test_missing_segments_directory_costs_the_records_in_it_and_nothing_else(
    original: tuple[str, FakeDisk, World],
) -> None:
    how, disk, world = original
    copy = disk.after_kill()
    remove_all(copy, "segments/")
    copy.remove_directory("segments")
    again = World(copy, world.settings, clock=ManualClock(world.clock.now_ms()))
    ranges = []
    for known in world.promises.topics.values():
        topic = again.broker.state.by_id.get(known.topic_id)
        if topic is not None:
            texts, damaged = read_around(topic.partitions[0], None)
            compare(known, topic.partitions[0], texts, damaged, torn=False)
            ranges += damaged
    assert bool(ranges) or how.endswith("killed")


def test_lock_file_is_created_again_or_keeps_the_server_from_starting(tmp_path: Path) -> None:
    directory = DataDirectory(str(tmp_path))
    directory.open()
    directory.close()
    (tmp_path / "LOCK").write_bytes(b"anything")
    directory.open()
    directory.close()
    (tmp_path / "LOCK").unlink()
    (tmp_path / "LOCK").mkdir()
    with pytest.raises(IsADirectoryError):
        directory.open()
