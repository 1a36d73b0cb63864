"""Each promise of the seam, kept by the real disk and by the fake one; then what only the real one can show."""

import errno
import mmap
import os
import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from topics.storage.fs import File, FileSystem, names_in
from topics.storage.os_fs import IOV_MAX, OsFileSystem, boot_id
from topics.testing.disk.fake_disk import FakeDisk


@pytest.fixture(autouse=True)
def _nothing_stays_open(tmp_path: Path) -> Iterator[None]:
    yield
    for number in descriptors(tmp_path):
        os.close(number)


@pytest.fixture(params=[OsFileSystem, FakeDisk])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FileSystem:
    made: FileSystem = request.param.at(tmp_path)
    return made


def written(fs: FileSystem, path: str, data: bytes = b"") -> File:
    """A new file with `data` in it."""
    file = fs.open(path, create=True)
    file.write_at(0, [data])
    return file


def content(fs: FileSystem, path: str) -> bytes:
    file = fs.open(path)
    try:
        return file.read_at(0, file.size() + 1)
    finally:
        file.close()


# -- files -------------------------------------------------------------------------------------------------------


def test_parts_are_written_consecutively_from_the_offset(fs: FileSystem) -> None:
    file = written(fs, "log", b"0123456789")
    file.write_at(4, [b"ab", bytearray(b"cd"), memoryview(b"-ef-")[1:3]])
    assert file.read_at(0, 100) == b"0123abcdef"


def test_write_past_the_end_fills_the_gap_with_zeros(fs: FileSystem) -> None:
    file = written(fs, "log", b"ab")
    file.write_at(5, [b"z"])
    assert file.read_at(0, 100) == b"ab\0\0\0z"
    assert file.size() == 6


@pytest.mark.parametrize("parts", [[], [b""], [b"", b""]])
def test_write_of_nothing_changes_nothing(fs: FileSystem, parts: list[bytes]) -> None:
    file = written(fs, "log", b"ab")
    file.write_at(9, parts)
    assert file.read_at(0, 100) == b"ab"


@pytest.mark.parametrize("count", [IOV_MAX - 1, IOV_MAX, IOV_MAX + 1, 3 * IOV_MAX + 7])
def test_any_number_of_parts_is_written(fs: FileSystem, count: int) -> None:
    parts = [b"%d," % number for number in range(count)]
    parts[5] = b""
    file = fs.open("log", create=True)
    file.write_at(3, parts)
    assert file.read_at(3, 1 << 20) == b"".join(parts)
    assert file.size() == 3 + len(b"".join(parts))


def test_written_bytes_are_seen_through_every_open_file(fs: FileSystem) -> None:
    writer = fs.open("log", create=True)
    reader = fs.open("log")
    writer.write_at(0, [b"seen"])
    assert reader.read_at(0, 4) == b"seen"


def test_read_is_short_only_at_the_end(fs: FileSystem) -> None:
    file = written(fs, "log", b"0123456789")
    assert file.read_at(2, 3) == b"234"
    assert file.read_at(8, 3) == b"89"
    assert file.read_at(10, 3) == b""
    assert file.read_at(99, 3) == b""
    assert file.read_at(0, 0) == b""


def test_allocated_bytes_are_zeros_and_nothing_is_overwritten(fs: FileSystem) -> None:
    file = written(fs, "log", b"abc")
    file.allocate(3000)
    assert file.size() == 3000
    assert file.read_at(0, 4000) == b"abc" + bytes(2997)


def test_allocate_never_shortens(fs: FileSystem) -> None:
    file = written(fs, "log", b"abcdef")
    file.allocate(3)
    file.allocate(0)
    assert file.read_at(0, 10) == b"abcdef"


def test_negative_length_cannot_be_allocated(fs: FileSystem) -> None:
    file = written(fs, "log", b"abcdef")
    with pytest.raises(ValueError, match="negative"):
        file.allocate(-1)


def test_truncate_sets_the_length(fs: FileSystem) -> None:
    file = written(fs, "log", b"abcdef")
    file.truncate(3)
    assert file.read_at(0, 10) == b"abc"
    file.truncate(5)
    assert file.read_at(0, 10) == b"abc\0\0", "what was cut off must not come back"


def test_sync_changes_nothing_that_is_read(fs: FileSystem) -> None:
    file = written(fs, "log", b"abc")
    file.sync_data()
    assert file.read_at(0, 10) == b"abc"


def test_map_shows_the_whole_file_read_only(fs: FileSystem) -> None:
    file = written(fs, "log", b"abcdef")
    view = file.map()
    assert bytes(view) == b"abcdef"
    assert view.readonly
    assert view.nbytes == len(view) == 6
    view.release()


def test_map_of_an_empty_file_is_empty(fs: FileSystem) -> None:
    view = fs.open("log", create=True).map()
    assert len(view) == 0
    view.release()


def test_map_outlives_the_file_and_its_name(fs: FileSystem) -> None:
    file = written(fs, "log", b"abcdef")
    view = file.map()
    file.close()
    fs.remove("log")
    assert bytes(view[2:4]) == b"cd"
    view.release()


def test_slice_of_a_map_outlives_the_release_of_the_map(fs: FileSystem) -> None:
    view = written(fs, "log", b"abcdef").map()
    part = view[2:4]
    view.release()
    assert bytes(part) == b"cd"
    part.release()


def test_removed_file_can_be_used_while_it_is_open(fs: FileSystem) -> None:
    file = written(fs, "log", b"abc")
    fs.remove("log")
    file.write_at(3, [b"d"])
    file.sync_data()
    assert file.read_at(0, 10) == b"abcd"


@pytest.mark.parametrize(
    "call",
    [
        lambda file: file.write_at(0, [b"x"]),
        lambda file: file.read_at(0, 1),
        lambda file: file.size(),
        lambda file: file.allocate(10),
        lambda file: file.truncate(0),
        lambda file: file.sync_data(),
        lambda file: file.map(),
    ],
)
def test_closed_file_refuses_every_call(fs: FileSystem, call: Callable[[File], object]) -> None:
    file = written(fs, "log", b"abc")
    file.close()
    file.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        call(file)
    assert content(fs, "log") == b"abc"


def test_file_has_its_path(fs: FileSystem) -> None:
    fs.make_directory("wal")
    assert fs.open("wal/1", create=True).path == "wal/1"


# -- names -------------------------------------------------------------------------------------------------------


def test_create_refuses_a_name_that_is_taken(fs: FileSystem) -> None:
    written(fs, "log", b"precious")
    fs.make_directory("directory")
    for path in ("log", "directory"):
        with pytest.raises(FileExistsError):
            fs.open(path, create=True)
    assert content(fs, "log") == b"precious"


def test_open_finds_only_files_that_exist(fs: FileSystem) -> None:
    fs.make_directory("directory")
    with pytest.raises(FileNotFoundError):
        fs.open("log")
    with pytest.raises(FileNotFoundError):
        fs.open("missing/log", create=True)
    with pytest.raises(IsADirectoryError):
        fs.open("directory")
    assert fs.list("") == ["directory"]


def test_rename_replaces_the_target(fs: FileSystem) -> None:
    written(fs, "new", b"new")
    old = written(fs, "current", b"old")
    fs.rename("new", "current")
    assert fs.list("") == ["current"]
    assert content(fs, "current") == b"new"
    assert old.read_at(0, 3) == b"old", "a reader keeps the file it opened"


def test_rename_to_itself_changes_nothing(fs: FileSystem) -> None:
    written(fs, "log", b"abc")
    fs.rename("log", "log")
    assert content(fs, "log") == b"abc"


def test_rename_moves_between_directories(fs: FileSystem) -> None:
    fs.make_directory("a")
    fs.make_directory("b/c")
    written(fs, "a/log", b"abc")
    fs.rename("a/log", "b/c/log")
    assert fs.list("a") == []
    assert content(fs, "b/c/log") == b"abc"


def test_rename_moves_a_directory_with_all_in_it(fs: FileSystem) -> None:
    fs.make_directory("a/deep")
    written(fs, "a/deep/log", b"abc")
    fs.make_directory("empty")
    fs.rename("a", "empty")
    assert fs.list("") == ["empty"]
    assert content(fs, "empty/deep/log") == b"abc"


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("missing", "other", errno.ENOENT),
        ("file", "missing/other", errno.ENOENT),
        ("file", "directory", errno.EISDIR),
        ("file", "file/below", errno.ENOTDIR),
        ("directory", "file", errno.ENOTDIR),
        ("directory", "full", errno.ENOTEMPTY),
        ("full", "full/below", errno.EINVAL),
    ],
)
def test_impossible_rename_changes_nothing(fs: FileSystem, source: str, target: str, error: int) -> None:
    fs.make_directory("directory")
    fs.make_directory("full")
    written(fs, "full/file")
    written(fs, "file")
    with pytest.raises(OSError, match=os.strerror(error)) as failure:
        fs.rename(source, target)
    assert failure.value.errno == error
    assert fs.list("") == ["directory", "file", "full"]
    assert fs.list("full") == ["file"]


def test_remove_accepts_files_only(fs: FileSystem) -> None:
    fs.make_directory("directory")
    written(fs, "log")
    fs.remove("log")
    assert not fs.exists("log")
    with pytest.raises(FileNotFoundError):
        fs.remove("log")
    with pytest.raises(IsADirectoryError):
        fs.remove("directory")


def test_remove_directory_accepts_empty_directories_only(fs: FileSystem) -> None:
    fs.make_directory("a/b")
    written(fs, "file")
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        fs.remove_directory("a")
    with pytest.raises(NotADirectoryError):
        fs.remove_directory("file")
    with pytest.raises(FileNotFoundError):
        fs.remove_directory("missing")
    fs.remove_directory("a/b")
    fs.remove_directory("a")
    assert fs.list("") == ["file"]


def test_make_directory_makes_parents_and_may_be_repeated(fs: FileSystem) -> None:
    fs.make_directory("a/b/c")
    written(fs, "a/b/c/log", b"abc")
    fs.make_directory("a/b/c")
    fs.make_directory("")
    assert content(fs, "a/b/c/log") == b"abc"


def test_make_directory_never_replaces_a_file(fs: FileSystem) -> None:
    written(fs, "log", b"abc")
    with pytest.raises(FileExistsError):
        fs.make_directory("log")
    with pytest.raises(NotADirectoryError):
        fs.make_directory("log/below")
    assert content(fs, "log") == b"abc"


def test_list_is_sorted_and_empty_for_a_missing_directory(fs: FileSystem) -> None:
    for name in ("b", "a", "B", "10", "9"):
        written(fs, name)
    assert fs.list("") == fs.list(".") == ["10", "9", "B", "a", "b"]
    assert fs.list("missing") == []
    assert fs.list("missing/too") == []
    with pytest.raises(NotADirectoryError):
        fs.list("a")


def test_exists_finds_files_and_directories(fs: FileSystem) -> None:
    fs.make_directory("a")
    written(fs, "a/log")
    assert [fs.exists(path) for path in ("", "a", "a/log", "a/b", "b/a", "a/log/b")] == [True] * 3 + [False] * 3


def test_directories_can_be_synced_and_files_cannot(fs: FileSystem) -> None:
    fs.make_directory("a")
    written(fs, "file")
    fs.sync_directory("")
    fs.sync_directory("a")
    with pytest.raises(FileNotFoundError):
        fs.sync_directory("missing")
    with pytest.raises(NotADirectoryError):
        fs.sync_directory("file")


OUTSIDE = ["/etc/hostname", "..", "../other", "a/../../other", "a/..", "a\0b", "/"]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_the_root_can_be_named(fs: FileSystem, path: str) -> None:
    fs.make_directory("a")
    written(fs, "log")
    calls: list[Callable[[], object]] = [
        lambda: fs.open(path),
        lambda: fs.open(path, create=True),
        lambda: fs.rename(path, "x"),
        lambda: fs.rename("log", path),
        lambda: fs.remove(path),
        lambda: fs.remove_directory(path),
        lambda: fs.make_directory(path),
        lambda: fs.list(path),
        lambda: fs.exists(path),
        lambda: fs.sync_directory(path),
        lambda: fs.lock(path),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="root"):
            call()
    assert fs.list("") == ["a", "log"]


@pytest.mark.parametrize("path", ["", ".", "./"])
def test_the_root_is_neither_removed_nor_renamed_nor_a_file(fs: FileSystem, path: str) -> None:
    written(fs, "log")
    calls: list[Callable[[], object]] = [
        lambda: fs.open(path),
        lambda: fs.rename(path, "x"),
        lambda: fs.rename("log", path),
        lambda: fs.remove(path),
        lambda: fs.remove_directory(path),
        lambda: fs.lock(path),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="root"):
            call()
    assert fs.list(path) == ["log"]


def test_dots_and_doubled_slashes_are_ignored_in_paths() -> None:
    assert names_in("./a//b/.") == ("a", "b")
    assert names_in("..a/b..") == ("..a", "b..")
    assert names_in("") == ()


# -- locks and the machine ---------------------------------------------------------------------------------------


def test_lock_has_one_holder_at_a_time(fs: FileSystem) -> None:
    lock = fs.lock("LOCK")
    with pytest.raises(BlockingIOError):
        fs.lock("LOCK")
    with pytest.raises(BlockingIOError):
        fs.lock("./LOCK")
    lock.release()
    second = fs.lock("LOCK")
    lock.release()
    with pytest.raises(BlockingIOError):
        fs.lock("LOCK")
    second.release()


def test_lock_file_is_created_and_stays(fs: FileSystem) -> None:
    written(fs, "precious", b"abc")
    fs.lock("LOCK").release()
    fs.lock("precious").release()
    assert fs.list("") == ["LOCK", "precious"]
    assert content(fs, "precious") == b"abc"


def test_locks_of_two_names_are_independent(fs: FileSystem) -> None:
    first, second = fs.lock("a"), fs.lock("b")
    first.release()
    second.release()


def test_boot_id_is_the_same_for_the_whole_boot(fs: FileSystem) -> None:
    assert fs.boot_id() == fs.boot_id() != ""


def test_free_bytes_is_a_number_of_bytes(fs: FileSystem) -> None:
    assert fs.free_bytes() > 0


def test_two_threads_may_use_one_file(fs: FileSystem) -> None:
    """A thread syncs while the event loop writes."""
    file = fs.open("log", create=True)

    def sync_often() -> None:
        for _ in range(20):
            file.sync_data()

    syncing = threading.Thread(target=sync_often)
    syncing.start()
    for number in range(200):
        file.write_at(number * 2, [b"%02d" % (number % 100)])
    syncing.join()
    assert file.read_at(0, 1000) == b"".join(b"%02d" % (number % 100) for number in range(200))


# -- both at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_fake_disk_behaves_like_the_real_one(tmp_path: Path, seed: int) -> None:
    """The same random calls on both: the same results, the same errors, the same tree after each."""
    chance = random.Random(seed)
    disks: list[FileSystem] = [OsFileSystem.at(tmp_path), FakeDisk.at(tmp_path)]
    for _ in range(150):
        call, arguments = random_call(chance)
        real, fake = (outcome(call, disk, arguments) for disk in disks)
        assert real == fake, (call.__name__, arguments)
        real_tree, fake_tree = (dict(tree(disk)) for disk in disks)
        assert real_tree == fake_tree, (call.__name__, arguments)


def random_call(chance: random.Random) -> tuple[Callable[..., object], tuple[object, ...]]:
    path = "/".join(chance.choices("abc", k=chance.choice((1, 1, 2, 3))))
    other = "/".join(chance.choices("abc", k=chance.choice((1, 1, 2, 3))))
    calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
        (written, (path, chance.randbytes(chance.randrange(20)))),
        (written, (path, chance.randbytes(chance.randrange(20)))),
        (write, (path, chance.randrange(40), chance.randbytes(chance.randrange(20)))),
        (truncate, (path, chance.randrange(-1, 40))),
        (allocate, (path, chance.randrange(40))),
        (rename, (path, other)),
        (rename, (path, other)),
        (remove, (path,)),
        (remove_directory, (path,)),
        (make_directory, (path,)),
        (make_directory, (path,)),
        (sync_directory, (path,)),
        (names, (path,)),
        (lock, (path,)),
    ]
    return chance.choice(calls)


def outcome(call: Callable[..., object], fs: FileSystem, arguments: tuple[object, ...]) -> object:
    """What a call answers, or which error it raises; files are answered by what is in them."""
    try:
        answer = call(fs, *arguments)
    except OSError as error:
        return type(error), error.errno
    return answer if isinstance(answer, list) else None


def write(fs: FileSystem, path: str, offset: int, data: bytes) -> None:
    fs.open(path).write_at(offset, [data[:3], data[3:]])


def truncate(fs: FileSystem, path: str, length: int) -> None:
    fs.open(path).truncate(length)


def allocate(fs: FileSystem, path: str, length: int) -> None:
    fs.open(path).allocate(length)


def rename(fs: FileSystem, source: str, target: str) -> None:
    fs.rename(source, target)


def remove(fs: FileSystem, path: str) -> None:
    fs.remove(path)


def remove_directory(fs: FileSystem, path: str) -> None:
    fs.remove_directory(path)


def make_directory(fs: FileSystem, path: str) -> None:
    fs.make_directory(path)


def sync_directory(fs: FileSystem, path: str) -> None:
    fs.sync_directory(path)


def names(fs: FileSystem, path: str) -> list[str]:
    return fs.list(path)


def lock(fs: FileSystem, path: str) -> None:
    fs.lock(path).release()


def tree(fs: FileSystem, path: str = "") -> Iterator[tuple[str, bytes | None]]:
    """Every path with its content, None for directories."""
    for name in fs.list(path):
        below = f"{path}/{name}" if path else name
        try:
            yield below, content(fs, below)
        except IsADirectoryError:
            yield below, None
            yield from tree(fs, below)


# -- only on the real disk ---------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> OsFileSystem:
    return OsFileSystem.at(tmp_path)


def test_missing_root_is_an_empty_tree_until_a_directory_is_made(tmp_path: Path) -> None:
    disk = OsFileSystem.at(tmp_path / "not" / "yet")
    assert disk.list("") == []
    assert not disk.exists("")
    assert os.listdir(tmp_path) == []
    disk.make_directory("")
    written(disk, "log", b"abc")
    assert (tmp_path / "not" / "yet" / "log").read_bytes() == b"abc"


def test_first_directory_makes_the_root_too(tmp_path: Path) -> None:
    OsFileSystem.at(tmp_path / "not" / "yet").make_directory("a/b")
    assert (tmp_path / "not" / "yet" / "a" / "b").is_dir()


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the kernel is asked to sync below the test's directory, as (call, path), and still does.

    Servers of other tests may run in this process, and sync their own files.
    """
    calls: list[tuple[str, str]] = []

    def watched(name: str, call: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path == tmp_path or tmp_path in path.parents:
                calls.append((name, str(path)))
            call(descriptor)

        return sync

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    return calls


def test_syncs_reach_the_kernel(disk: OsFileSystem, tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    disk.make_directory("a")
    written(disk, "a/log", b"abc").sync_data()
    disk.sync_directory("a")
    disk.sync_directory("")
    assert synced == [
        ("fdatasync", str(tmp_path / "a" / "log")),
        ("fsync", str(tmp_path / "a")),
        ("fsync", str(tmp_path)),
    ]


def test_new_root_is_made_durable_up_to_what_was_there(tmp_path: Path, synced: list[tuple[str, str]]) -> None:
    OsFileSystem.at(tmp_path / "not" / "yet").make_directory("a")
    assert synced == [("fsync", str(tmp_path / "not")), ("fsync", str(tmp_path))]


def test_root_stays_where_it_was_when_the_process_changes_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    disk = OsFileSystem.at("data")
    monkeypatch.chdir(tmp_path / "elsewhere")
    written(disk, "log")
    assert os.listdir(tmp_path / "data") == ["log"]


def test_write_continues_after_a_short_write(disk: OsFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev = os.pwritev
    calls = 0

    def stingy(descriptor: int, parts: Sequence[bytes], offset: int) -> int:
        nonlocal calls
        calls += 1
        return pwritev(descriptor, [b"".join(parts)[:7]], offset)

    parts = [b"abc", b"", b"defgh", b"i" * 20, b"jk", b""]
    file = disk.open("log", create=True)
    monkeypatch.setattr(os, "pwritev", stingy)
    file.write_at(2, parts)
    assert file.read_at(2, 100) == b"".join(parts)
    assert calls == 5


def test_write_of_one_part_continues_after_a_short_write(disk: OsFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    file = disk.open("log", create=True)
    monkeypatch.setattr(os, "pwrite", lambda descriptor, part, offset: pwrite(descriptor, part[:7], offset))
    file.write_at(2, [b"0123456789" * 3])
    assert file.read_at(2, 100) == b"0123456789" * 3


@pytest.mark.parametrize("parts", [[b"abc"], [b"abc", b"d"]])
def test_write_of_zero_bytes_is_an_error(
    disk: OsFileSystem, monkeypatch: pytest.MonkeyPatch, parts: list[bytes]
) -> None:
    file = disk.open("log", create=True)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    with pytest.raises(OSError, match="0 bytes"):
        file.write_at(0, parts)


def test_read_continues_after_a_short_read(disk: OsFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    file = written(disk, "log", b"0123456789")
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: pread(descriptor, min(length, 3), offset))
    assert file.read_at(1, 8) == b"12345678"
    assert file.read_at(1, 99) == b"123456789"


def test_write_past_the_limit_of_the_disk_fails_and_leaves_a_prefix(disk: OsFileSystem) -> None:
    file = disk.open("log", create=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            file.write_at((1 << 20) - 6, [b"abcd", b"efgh"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.read_at((1 << 20) - 6, 100) == b"abcdef"


def test_allocate_reserves_blocks(disk: OsFileSystem, tmp_path: Path) -> None:
    disk.open("log", create=True).allocate(1 << 20)
    assert (tmp_path / "log").stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_allocate_writes_zeros_where_blocks_cannot_be_reserved(
    disk: OsFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = written(disk, "log", b"abc")
    file.allocate((2 << 20) + 10)
    assert file.read_at(0, 1 << 22) == b"abc" + bytes((2 << 20) + 7)
    assert (tmp_path / "log").stat().st_blocks * 512 >= 2 << 20
    file.allocate(10)
    assert file.size() == (2 << 20) + 10


def test_full_disk_is_not_treated_as_a_disk_that_cannot_reserve(
    disk: OsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = disk.open("log", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.allocate(100)
    assert file.size() == 0


def test_releasing_the_view_frees_the_mapping(disk: OsFileSystem, tmp_path: Path) -> None:
    file = written(disk, "mapped", bytes(mmap.PAGESIZE))
    view = file.map()
    assert len(descriptors(tmp_path)) == 2
    assert str(tmp_path / "mapped") in Path("/proc/self/maps").read_text()
    view.release()
    assert str(tmp_path / "mapped") not in Path("/proc/self/maps").read_text()
    assert len(descriptors(tmp_path)) == 1


def test_no_call_leaves_a_descriptor_behind(disk: OsFileSystem, tmp_path: Path) -> None:
    held = disk.lock("LOCK")
    with pytest.raises(BlockingIOError):
        disk.lock("LOCK")
    held.release()
    file = written(disk, "log")
    with pytest.raises(FileExistsError):
        disk.open("log", create=True)
    file.close()
    disk.make_directory("a")
    disk.sync_directory("a")
    with pytest.raises(NotADirectoryError):
        disk.sync_directory("log")
    assert descriptors(tmp_path) == []


def test_second_close_does_not_close_a_reused_descriptor(disk: OsFileSystem) -> None:
    first = written(disk, "first")
    first.close()
    second = written(disk, "second", b"abc")
    first.close()
    assert second.read_at(0, 3) == b"abc"


def test_descriptors_are_not_inherited_by_programs_we_start(disk: OsFileSystem, tmp_path: Path) -> None:
    file = written(disk, "log")
    lock = disk.lock("LOCK")
    assert [os.get_inheritable(number) for number in descriptors(tmp_path)] == [False, False]
    file.close()
    lock.release()
    assert descriptors(tmp_path) == []


HOLD_THE_LOCK = """
import sys
from topics.storage.os_fs import OsFileSystem
lock = OsFileSystem.at(sys.argv[1]).lock("LOCK")
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_of_a_killed_process_is_free(disk: OsFileSystem, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            disk.lock("LOCK")
        holder.kill()
        holder.wait(timeout=30)
        disk.lock("LOCK").release()


def test_boot_id_is_that_of_the_kernel(disk: OsFileSystem) -> None:
    assert disk.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_boot_id_falls_back_to_the_time_of_the_boot(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2 3\nctxt 5\nbtime 1748450000\nprocesses 9\n")
    assert boot_id(str(tmp_path)) == "booted-at-1748450000"


def test_unknown_boot_id_differs_each_time(tmp_path: Path) -> None:
    assert boot_id(str(tmp_path)) != boot_id(str(tmp_path))
    (tmp_path / "stat").write_text("cpu 1 2 3\n")
    assert boot_id(str(tmp_path)) != boot_id(str(tmp_path))


def descriptors(below: Path) -> list[int]:
    """Those of this process that are open on something below a directory."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = Path(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # closed by a server of another test in this process
        if below in target.parents:
            found.append(int(name))
    return found


# -- modes ---------------------------------------------------------------------------------------------------------


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_files_and_directories_are_accessible_to_their_owner_only(tmp_path: Path) -> None:
    root = tmp_path / "parent" / "root"
    fs = OsFileSystem.at(root)
    before = os.umask(0)
    try:
        fs.make_directory("")
        fs.make_directory("a/b")
        fs.open("a/b/file", create=True).close()
        fs.lock("LOCK").release()
    finally:
        os.umask(before)
    assert [mode(root / path) for path in ("", "a", "a/b")] == [0o700] * 3
    assert [mode(root / path) for path in ("a/b/file", "LOCK")] == [0o600] * 2


def test_directories_of_an_earlier_version_lose_permissions_of_others(tmp_path: Path) -> None:
    for path in ("", "wal", "wal/shard-00", "foreign"):
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path).chmod(0o755)
    fs = OsFileSystem.at(tmp_path)
    fs.make_directory("")
    fs.make_directory("wal/shard-00")
    assert [mode(tmp_path / path) for path in ("wal", "wal/shard-00")] == [0o700] * 2
    # Not ours: the root may hold files of others.
    assert [mode(tmp_path / path) for path in ("", "foreign")] == [0o755] * 2
