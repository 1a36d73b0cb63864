"""Bytes on a real disk change behind the server's back: every region of every file, and every file as a whole.

Either that is noticed, as CorruptStorage with the file that was changed, or it does no harm. Wrong data is never served
and nothing else is ever raised. A changed end of the newest log file is taken for a torn tail: a power cut could have
left it so.
"""

import itertools
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings

from tests.crash.history import play, texts
from tests.crash.world import SMALL, World, compare, data_of, read_all
from topics.maintenance.check import check
from topics.model.errors import CorruptStorage
from topics.model.records.match import TagMatch
from topics.storage.os_fs import OsFileSystem
from topics.testing.clock import ManualClock
from topics.testing.disk.fake_disk import FakeDisk

LONG = hypothesis_settings().max_examples >= 1000
PLACES = 200 if LONG else 3
PATTERNS = [0xFF, 0x01, 0x80]


@pytest.fixture(scope="module", params=["killed", "stopped"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """A data directory as a kill or a clean stop leaves it, and the world that made it."""
    root = tmp_path_factory.mktemp("data")
    world = World(OsFileSystem.at(root))
    play(world)
    compare(world.broker, world.promises, "clean")
    if request.param == "stopped":
        assert world.stop()
    left = root.with_name(root.name + "-left")
    shutil.copytree(root, left)
    return left, world


def files_of(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())


def newest_log_file(root: Path) -> Path:
    """The last one that holds frames."""
    return max(
        path for path in files_of(root) if path.suffix == ".wal" and (root / path).read_bytes()[96:].strip(b"\0")
    )


def places(size: int) -> list[int]:
    """Offsets spread over a file, its first and last bytes among them."""
    return sorted({0, 8, 20, size - 1, size - 9, *range(0, size, max(1, size // PLACES))} & set(range(size)))


def test_the_run_on_a_real_disk_ends_as_it_does_on_the_fake_one(original: tuple[Path, World], tmp_path: Path) -> None:
    root, world = original
    shutil.copytree(root, tmp_path / "copy")
    again = World(OsFileSystem.at(tmp_path / "copy"), clock=ManualClock(world.clock.now_ms()))
    compare(again.broker, world.promises, "kill")
    assert again.recovered.torn == []


@pytest.mark.slow
def test_a_changed_byte_anywhere_is_noticed_or_harmless(original: tuple[Path, World], tmp_path: Path) -> None:
    root, world = original
    noticed = harmless = 0
    for file in files_of(root):
        content = (root / file).read_bytes()
        for number, offset in enumerate(places(len(content))):
            changed = bytearray(content)
            changed[offset] ^= PATTERNS[number % len(PATTERNS)]
            copy = tmp_path / "copy"
            shutil.copytree(root, copy)
            (copy / file).write_bytes(changed)
            try:
                if is_noticed(copy, file.as_posix(), world):
                    noticed += 1
                else:
                    harmless += 1
            except BaseException as error:
                error.add_note(f"{file} changed at byte {offset}")
                raise
            shutil.rmtree(copy)
    assert noticed > 50
    assert harmless > 10


def test_a_missing_or_shortened_file_is_noticed_or_harmless(original: tuple[Path, World], tmp_path: Path) -> None:
    root, world = original
    for file in files_of(root):
        content = (root / file).read_bytes()
        for length in (None, 0, len(content) // 2, len(content) - 1):
            copy = tmp_path / "copy"
            shutil.copytree(root, copy)
            if length is None:
                (copy / file).unlink()
            else:
                (copy / file).write_bytes(content[: max(length, 0)])
            try:
                if not length and file == newest_log_file(root) and is_whole(copy):
                    # Only a snapshot could tell that it was there.
                    only_what_was_written(World(OsFileSystem.at(copy)), world)
                else:
                    is_noticed(copy, file.as_posix(), world)
            except BaseException as error:
                error.add_note(f"{file} shortened to {length}")
                raise
            shutil.rmtree(copy)


def is_noticed(root: Path, file: str, world: World) -> bool:
    """Whether starting on this directory, or reading all of it, says that the file is damaged. Fails if it lies."""
    report = check(OsFileSystem.at(root))
    try:
        again = World(OsFileSystem.at(root), clock=ManualClock(world.clock.now_ms()))
    except CorruptStorage as error:
        assert report.status == 2, "refused by a server, but not by a check"
        check_names(error, file)
        return True
    try:
        if again.recovered.torn:
            # Taken for a torn tail: less is there, but nothing else.
            assert file.startswith("wal/")
            assert report.status >= 1
            only_what_was_written(again, world)
            return True
        compare(again.broker, world.promises, "kill")
    except CorruptStorage as error:
        assert report.status == 2, "found by a reader, but not by a check"
        check_names(error, file)
        return True
    if again.recovered.bad_snapshots:
        assert report.status == 2
        assert again.recovered.bad_snapshots[0].path == file
        return True
    return False


def is_whole(root: Path) -> bool:
    return check(OsFileSystem.at(root)).status == 0


def check_names(error: CorruptStorage, file: str) -> None:
    """The file itself or, when a log file is gone, the one behind it; of a segment any file, since they go together."""
    named = error.path.startswith("wal/") if file.startswith("wal/") else error.path[:-6] == file[:-6]
    assert named or error.path.rsplit(".", 1)[0] == file.rsplit(".", 1)[0], f"{error} does not name {file}"
    assert error.offset >= 0


def only_what_was_written(again: World, world: World) -> None:
    sent = {text.data: (write, index) for write in world.promises.writes for index, text in enumerate(write.texts)}
    for topic in again.broker.state.by_id.values():
        for seq, text in read_all(topic.partitions[0]).texts.items():
            write, index = sent[data_of(text)]
            assert (write.topic_id, write.first_seq + index) == (topic.id, seq)
            assert text == write.texts[index].shown(seq, write.ts)


def test_two_files_of_different_segments_cannot_be_taken_for_each_other(
    original: tuple[Path, World], tmp_path: Path
) -> None:
    root, world = original
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    for suffix in (".dead", ".arrow"):
        first, second = sorted((copy / "segments").glob(f"*{suffix}"))[:2]
        one, other = first.read_bytes(), second.read_bytes()
        first.write_bytes(other)
        second.write_bytes(one)
        assert check(OsFileSystem.at(copy)).status == 2
        first.write_bytes(one)
        second.write_bytes(other)
    assert check(OsFileSystem.at(copy)).status == 0
    assert world.errors == []


@pytest.fixture
def damaged() -> tuple[World, FakeDisk]:
    """A running server, one of whose sealed segments is damaged on the disk and not in any cache."""
    disk = FakeDisk()
    disk.make_directory("")
    world = World(disk, msgspec.structs.replace(SMALL, checkpoint_bytes=1 << 20, cache_bytes=0))
    numbers = itertools.count()
    for _ in range(4):
        world.append("a", texts(numbers, 10, tag="t"))
        world.run()
    first = next(name for name in disk.list("segments") if name.endswith(".arrow"))
    file = disk.open(f"segments/{first}")
    file.write_at(900, [bytes([file.read_at(900, 1)[0] ^ 0xFF])])
    world.broker.state.segment_cache.close()
    return world, disk


def test_a_write_to_a_topic_with_a_damaged_segment_is_still_answered(damaged: tuple[World, FakeDisk]) -> None:
    """Its cap cannot take the damaged records one by one; that is no reason to leave writers without an answer."""
    world, _ = damaged
    world.configure("a", cap_records=39)
    world.run()
    numbers = itertools.count(1000)
    writes = [world.append("a", texts(numbers, 1)), world.append("b", texts(numbers, 1))]
    world.run()
    assert [write.state for write in writes] == ["acked", "acked"]
    with pytest.raises(CorruptStorage, match=r"segments/.*\.arrow at byte"):
        read_all(world.broker.topic("a").partitions[0])


def test_a_delete_in_a_damaged_segment_is_refused_and_others_are_answered(damaged: tuple[World, FakeDisk]) -> None:
    world, _ = damaged
    world.delete("a", match=TagMatch("t-1", False))
    write = world.append("b", texts(itertools.count(1000), 1))
    world.run()
    assert [error.code for error in world.errors] == ["corrupt_storage"]
    assert write.state == "acked"
