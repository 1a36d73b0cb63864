"""What the fake disk says about power cuts, torn writes and faults: tests of storage are only as good as this."""

import errno
import itertools
import os
import random
import threading
from collections.abc import Callable

import pytest

from topics.storage.fs import FileSystem
from topics.testing.disk.fake_disk import FakeDisk, Fault, PowerCut, ShortWrite
from topics.testing.disk.survival import Survive, Torn

SURVIVE: tuple[Survive, ...] = ("none", "all", "random")
SEEDS = range(300)


def durable(disk: FileSystem, path: str, data: bytes) -> None:
    """A file that a power cut cannot touch."""
    file = disk.open(path, create=True)
    file.write_at(0, [data])
    file.sync_data()
    disk.sync_directory(os.path.dirname(path))


def after_cuts(disk: FakeDisk) -> list[dict[str, bytes]]:
    """What many seeds leave of a disk."""
    return [disk.after_power_cut("random", seed=seed).snapshot_tree() for seed in SEEDS]


def cut_next(disk: FakeDisk, call: Callable[[], object]) -> None:
    """The power goes out in this call."""
    disk.cut_at = disk.steps
    with pytest.raises(PowerCut):
        call()


# -- steps and the cut -------------------------------------------------------------------------------------------


def every_kind_of_step(disk: FakeDisk) -> None:
    disk.make_directory("d")
    file = disk.open("d/new", create=True)
    file.allocate(64)
    file.write_at(0, [b"abc", b"def"])
    file.truncate(32)
    file.sync_data()
    disk.rename("d/new", "d/log")
    disk.sync_directory("d")
    disk.remove("d/log")
    disk.remove_directory("d")


STEPS = [
    (0, "make_directory", "d", ""),
    (1, "open", "d/new", "create"),
    (2, "allocate", "d/new", "64 bytes"),
    (3, "write_at", "d/new", "6 bytes at 0"),
    (4, "truncate", "d/new", "to 32 bytes"),
    (5, "sync_data", "d/new", ""),
    (6, "rename", "d/new", "to d/log"),
    (7, "sync_directory", "d", ""),
    (8, "remove", "d/log", ""),
    (9, "remove_directory", "d", ""),
]


def test_every_change_is_a_step_and_reading_is_none() -> None:
    disk = FakeDisk()
    every_kind_of_step(disk)
    assert disk.trace == STEPS
    assert disk.steps == len(STEPS)
    durable(disk, "log", b"abc")
    before = disk.steps
    file = disk.open("log")
    file.read_at(0, 3)
    file.size()
    file.map()
    file.close()
    disk.list("")
    disk.exists("log")
    disk.boot_id()
    disk.free_bytes()
    assert disk.steps == before


def test_creating_the_lock_file_is_a_step_and_locking_is_none() -> None:
    disk = FakeDisk()
    disk.lock("LOCK").release()
    disk.lock("LOCK").release()
    assert disk.trace == [(0, "lock", "LOCK", "create")]


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_power_goes_out_at_the_step_that_was_asked_for(step: int) -> None:
    disk = FakeDisk(cut_at=step)
    with pytest.raises(PowerCut, match=f"step {step}: {STEPS[step][1]}"):
        every_kind_of_step(disk)
    assert disk.was_cut
    assert disk.steps == step + 1
    assert disk.trace[:-1] == STEPS[:step]
    assert disk.trace[-1].detail.endswith("power cut")


def test_power_stays_on_when_the_run_ends_before_the_cut() -> None:
    disk = FakeDisk(cut_at=len(STEPS))
    every_kind_of_step(disk)
    assert not disk.was_cut


def test_step_that_was_cut_did_not_happen() -> None:
    expected = []
    for step in range(len(STEPS)):
        disk = FakeDisk(cut_at=step)
        with pytest.raises(PowerCut):
            every_kind_of_step(disk)
        expected.append(disk.snapshot_tree())
    assert expected == [
        {},
        {"d/": b""},
        {"d/": b"", "d/new": b""},
        {"d/": b"", "d/new": bytes(64)},
        {"d/": b"", "d/new": b"abcdef" + bytes(58)},
        {"d/": b"", "d/new": b"abcdef" + bytes(26)},
        {"d/": b"", "d/new": b"abcdef" + bytes(26)},
        {"d/": b"", "d/log": b"abcdef" + bytes(26)},
        {"d/": b"", "d/log": b"abcdef" + bytes(26)},
        {"d/": b""},
    ]


def test_every_call_after_the_cut_finds_the_power_out() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"abc")
    file = disk.open("log")
    lock = disk.lock("LOCK")
    cut_next(disk, file.sync_data)
    calls: list[Callable[[], object]] = [
        lambda: disk.open("log"),
        lambda: disk.open("new", create=True),
        lambda: disk.rename("log", "x"),
        lambda: disk.remove("log"),
        lambda: disk.make_directory("d"),
        lambda: disk.remove_directory("d"),
        lambda: disk.list(""),
        lambda: disk.exists("log"),
        lambda: disk.sync_directory(""),
        lambda: disk.lock("LOCK"),
        lambda: disk.lock("other"),
        disk.boot_id,
        disk.free_bytes,
        lambda: file.write_at(0, [b"x"]),
        lambda: file.read_at(0, 1),
        file.size,
        lambda: file.allocate(10),
        lambda: file.truncate(0),
        file.sync_data,
        file.map,
    ]
    steps = disk.steps
    for call in calls:
        with pytest.raises(PowerCut):
            call()
    assert disk.steps == steps
    file.close()
    lock.release()


def test_power_cut_is_not_an_error_that_code_could_handle() -> None:
    assert not issubclass(PowerCut, Exception)


def test_cut_that_lies_behind_happens_at_the_next_step() -> None:
    disk = FakeDisk()
    every_kind_of_step(disk)
    disk.cut_at = 0
    with pytest.raises(PowerCut):
        disk.make_directory("d")


def test_cut_reaches_every_thread() -> None:
    disk = FakeDisk(cut_at=1_000)
    ended: list[str] = []

    def write(path: str) -> None:
        try:
            file = disk.open(path, create=True)
            for number in range(10_000):
                file.write_at(number, [b"x"])
        except PowerCut:
            ended.append(path)

    threads = [threading.Thread(target=write, args=(path,)) for path in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["a", "b"]
    assert disk.steps == 1_001


def test_disk_tells_its_seed_and_its_cut() -> None:
    disk = FakeDisk(7, cut_at=0)
    with pytest.raises(PowerCut):
        disk.make_directory("d")
    assert repr(disk) == "<FakeDisk(seed=7, cut_at=0) after 1 steps, power is out>"


# -- what survives: names ----------------------------------------------------------------------------------------


def test_synced_file_with_a_synced_name_survives_every_cut() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"abc")
    assert {disk.after_power_cut(survive).snapshot_tree()["log"] for survive in SURVIVE} == {b"abc"}
    assert all(tree == {"log": b"abc"} for tree in after_cuts(disk))


def test_file_whose_name_was_not_synced_is_gone_although_its_data_was() -> None:
    disk = FakeDisk()
    file = disk.open("log", create=True)
    file.write_at(0, [b"abc"])
    file.sync_data()
    assert disk.after_power_cut("none").snapshot_tree() == {}
    assert disk.after_power_cut("all").snapshot_tree() == {"log": b"abc"}
    trees = after_cuts(disk)
    assert {} in trees
    assert {"log": b"abc"} in trees


def test_new_directory_needs_a_sync_of_its_parent() -> None:
    disk = FakeDisk()
    disk.make_directory("a/b")
    durable(disk, "a/b/log", b"abc")
    assert disk.after_power_cut("none").snapshot_tree() == {}
    disk.sync_directory("a")
    assert disk.after_power_cut("none").snapshot_tree() == {}
    disk.sync_directory("")
    assert disk.after_power_cut("none").snapshot_tree() == {"a/": b"", "a/b/": b"", "a/b/log": b"abc"}


def test_parent_may_survive_without_the_directory_in_it() -> None:
    disk = FakeDisk()
    disk.make_directory("a/b")
    trees = after_cuts(disk)
    for possible in ({}, {"a/": b""}, {"a/": b"", "a/b/": b""}):
        assert possible in trees


def test_removed_name_may_come_back_until_its_directory_is_synced() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"abc")
    disk.remove("log")
    assert disk.after_power_cut("none").snapshot_tree() == {"log": b"abc"}
    assert disk.after_power_cut("all").snapshot_tree() == {}
    assert {len(tree) for tree in after_cuts(disk)} == {0, 1}
    disk.sync_directory("")
    assert disk.after_power_cut("none").snapshot_tree() == {}


def test_removed_directory_may_come_back_until_its_parent_is_synced() -> None:
    disk = FakeDisk()
    disk.make_directory("d")
    disk.sync_directory("")
    disk.remove_directory("d")
    assert disk.after_power_cut("none").list("") == ["d"]
    disk.sync_directory("")
    assert disk.after_power_cut("none").list("") == []


def test_rename_survives_whole_or_not_at_all() -> None:
    disk = FakeDisk()
    durable(disk, "current", b"old")
    durable(disk, "new", b"new")
    disk.rename("new", "current")
    before, after = {"current": b"old", "new": b"new"}, {"current": b"new"}
    assert disk.after_power_cut("none").snapshot_tree() == before
    trees = after_cuts(disk)
    assert before in trees
    assert after in trees
    assert all(tree in (before, after) for tree in trees)
    disk.sync_directory("")
    assert disk.after_power_cut("none").snapshot_tree() == after


def test_rename_of_a_file_that_was_not_synced_may_leave_an_empty_one() -> None:
    """The mistake that makes programs lose a config file: renamed into place before it was synced."""
    disk = FakeDisk()
    durable(disk, "current", b"old")
    disk.open("new", create=True).write_at(0, [b"new"])
    disk.rename("new", "current")
    disk.sync_directory("")
    assert disk.after_power_cut("none").snapshot_tree() == {"current": b""}


def test_unrelated_names_survive_in_any_order() -> None:
    disk = FakeDisk()
    for name in ("a", "b"):
        disk.open(name, create=True)
    assert {tuple(tree) for tree in after_cuts(disk)} == {(), ("a",), ("b",), ("a", "b")}


def test_changes_of_one_name_survive_in_order() -> None:
    """A file moved out of the way is not lost because the new one's name survived."""
    disk = FakeDisk()
    durable(disk, "log", b"old")
    disk.rename("log", "log.1")
    durable_content = disk.open("log", create=True)
    durable_content.write_at(0, [b"new"])
    durable_content.sync_data()
    possible = [{"log": b"old"}, {"log.1": b"old"}, {"log": b"new", "log.1": b"old"}]
    trees = after_cuts(disk)
    assert all(tree in possible for tree in trees)
    assert all(tree in trees for tree in possible)


def test_rename_between_directories_needs_both_synced() -> None:
    disk = FakeDisk()
    disk.make_directory("a")
    disk.make_directory("b")
    disk.sync_directory("")
    durable(disk, "a/log", b"abc")
    disk.rename("a/log", "b/log")
    disk.sync_directory("b")
    assert disk.after_power_cut("none").snapshot_tree() == {"a/": b"", "a/log": b"abc", "b/": b"", "b/log": b"abc"}
    disk.sync_directory("a")
    assert disk.after_power_cut("none").snapshot_tree() == {"a/": b"", "b/": b"", "b/log": b"abc"}


@pytest.mark.parametrize("synced", [[], ["a"], ["new"], [""], ["a", "new"]])
def test_rename_never_leaves_a_file_without_a_name(synced: list[str]) -> None:
    disk = FakeDisk()
    disk.make_directory("a")
    disk.sync_directory("")
    durable(disk, "a/log", b"abc")
    disk.make_directory("new")
    disk.rename("a/log", "new/log")
    for path in synced:
        disk.sync_directory(path)
    trees = [disk.after_power_cut("none").snapshot_tree(), *after_cuts(disk)]
    assert all(b"abc" in tree.values() for tree in trees)


def test_directory_goes_only_after_what_was_moved_out_of_it() -> None:
    disk = FakeDisk()
    disk.make_directory("a")
    disk.sync_directory("")
    durable(disk, "a/log", b"abc")
    disk.rename("a/log", "log")
    disk.remove_directory("a")
    trees = after_cuts(disk)
    assert all(b"abc" in tree.values() for tree in trees)
    assert {"log": b"abc"} in trees


def test_moved_directory_is_in_one_place() -> None:
    disk = FakeDisk()
    for path in ("a", "x"):
        disk.make_directory(path)
    disk.sync_directory("")
    durable(disk, "a/log", b"abc")
    disk.rename("x", "a/x")
    disk.rename("a/x", "x")
    disk.rename("a", "x/a")
    for tree in after_cuts(disk):
        assert [path.rsplit("/", 1)[-1] for path in tree].count("log") == 1
        assert sum(path.endswith("a/") for path in tree) == sum(path.endswith("x/") for path in tree) == 1


# -- what survives: data -----------------------------------------------------------------------------------------


def with_unsynced_writes(sector_bytes: int = 512) -> FakeDisk:
    """Two synced sectors of dots, then four writes of a sector each: over the second, and three behind it."""
    disk = FakeDisk(sector_bytes=sector_bytes)
    durable(disk, "log", b"." * (2 * sector_bytes))
    file = disk.open("log")
    for sector, letter in enumerate((b"b", b"c", b"d", b"e"), start=1):
        file.write_at(sector * sector_bytes, [letter * sector_bytes])
    return disk


def test_none_and_all_are_the_ends_of_what_can_survive() -> None:
    disk = with_unsynced_writes()
    assert disk.after_power_cut("none").snapshot_tree()["log"] == b"." * 1024
    assert disk.after_power_cut("all").snapshot_tree() == disk.snapshot_tree()


def test_unsynced_writes_survive_in_any_order_sector_by_sector() -> None:
    found = set()
    for tree in after_cuts(with_unsynced_writes()):
        log = tree["log"].ljust(5 * 512, b"\0")
        sectors = [log[at : at + 512] for at in range(0, len(log), 512)]
        assert all(len(set(sector)) == 1 for sector in sectors), "a sector is written whole"
        found.add("".join(chr(sector[0]) for sector in sectors).replace("\0", "_"))
    assert found >= {"..___", ".bcde", "..cde", ".b_d_"}
    assert all(state[0] == "." and state[1] in ".b" and state[2] in "_c" for state in found)


def test_length_may_survive_without_the_bytes_and_bytes_without_the_length() -> None:
    logs = [tree["log"] for tree in after_cuts(with_unsynced_writes())]
    assert any(len(log) == 5 * 512 and log.endswith(bytes(512)) for log in logs)
    assert any(len(log) == 2 * 512 and log.endswith(b"b" * 512) for log in logs)
    assert {len(log) for log in logs} == {1024, 1536, 2048, 2560}


def test_writes_to_one_sector_survive_in_order() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"......")
    file = disk.open("log")
    for offset in range(6):
        file.write_at(offset, [b"x"])
    found = {tree["log"] for tree in after_cuts(disk)}
    assert found == {b"x" * count + b"." * (6 - count) for count in range(7)}


def test_small_sectors_make_disorder_of_few_bytes() -> None:
    disk = FakeDisk(sector_bytes=1)
    durable(disk, "log", b"...")
    disk.open("log").write_at(0, [b"xyz"])
    found = {tree["log"] for tree in after_cuts(disk)}
    assert found == {bytes(letters) for letters in itertools.product(b".x", b".y", b".z")}


def test_allocated_zeros_survive_or_not() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"abc")
    disk.open("log").allocate(2000)
    assert disk.after_power_cut("none").snapshot_tree()["log"] == b"abc"
    assert {tree["log"] for tree in after_cuts(disk)} == {b"abc", b"abc" + bytes(1997)}


def test_truncation_survives_or_not() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"x" * 2000)
    file = disk.open("log")
    file.truncate(10)
    assert disk.after_power_cut("none").snapshot_tree()["log"] == b"x" * 2000
    found = {tree["log"] for tree in after_cuts(disk)}
    assert {b"x" * 10, b"x" * 2000} <= found
    assert {len(log) for log in found} == {10, 2000}
    assert all(log.startswith(b"x" * 10) for log in found)
    file.sync_data()
    assert {tree["log"] for tree in after_cuts(disk)} == {b"x" * 10}


def test_truncated_bytes_may_be_zeros_when_the_file_has_grown_again() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"x" * 100)
    file = disk.open("log")
    file.truncate(10)
    file.allocate(100)
    assert {tree["log"] for tree in after_cuts(disk)} == {b"x" * 100, b"x" * 10 + bytes(90), b"x" * 10}


def test_old_tail_may_follow_what_was_written_after_an_unsynced_truncation() -> None:
    disk = FakeDisk(sector_bytes=4)
    durable(disk, "log", b"oldoldoldold")
    file = disk.open("log")
    file.truncate(4)
    file.write_at(4, [b"NEW!"])
    found = {tree["log"] for tree in after_cuts(disk)}
    assert {b"oldoNEW!", b"oldoNEW!dold", b"oldoldoldold", b"oldo"} <= found


def test_synced_data_is_safe_from_a_cut_in_a_later_sync() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"abc")
    file = disk.open("log")
    file.write_at(3, [b"def"])
    cut_next(disk, file.sync_data)
    assert disk.after_power_cut("none").snapshot_tree() == {"log": b"abc"}
    assert disk.after_power_cut("all").snapshot_tree() == {"log": b"abcdef"}


@pytest.mark.parametrize("seed", range(40))
def test_no_cut_takes_or_spoils_a_synced_byte(seed: int) -> None:
    """Random histories: a byte that no unsynced change has touched reads as it was synced, whatever survives."""
    chance = random.Random(seed)
    disk = FakeDisk(seed, sector_bytes=chance.choice((8, 512)))
    durable(disk, "log", b"")
    file = disk.open("log")
    now = bytearray()
    synced, touched, shortest = b"", set[int](), 0
    for _ in range(chance.randrange(1, 40)):
        match chance.choice(("write", "write", "write", "truncate", "allocate", "sync")):
            case "write":
                data, offset = chance.randbytes(chance.randrange(1, 60)), chance.randrange(len(now) + 20)
                file.write_at(offset, [data])
                now.extend(bytes(max(offset - len(now), 0)))
                now[offset : offset + len(data)] = data
                touched.update(range(offset, offset + len(data)))
            case "truncate":
                length = chance.randrange(len(now) + 1)
                file.truncate(length)
                touched.update(range(length, len(synced)))
                shortest = min(shortest, length)
                del now[length:]
            case "allocate":
                length = chance.randrange(200)
                file.allocate(length)
                now.extend(bytes(max(length - len(now), 0)))
            case "sync":
                file.sync_data()
                synced, touched, shortest = bytes(now), set(), len(now)
    assert disk.snapshot_tree()["log"] == bytes(now)
    data = chance.randbytes(30)
    offset = chance.randrange(len(now) + 1)
    cut_next(disk, lambda: file.write_at(offset, [data]))
    touched.update(range(offset, offset + len(data)))
    assert disk.after_power_cut("none").snapshot_tree()["log"] == synced
    for tree in (disk.after_power_cut("all").snapshot_tree(), *after_cuts(disk)[:50]):
        log = tree["log"]
        assert len(log) >= shortest
        untouched = [at for at in range(len(synced)) if at not in touched]
        assert all(log[at] == synced[at] for at in untouched), disk.trace


def test_survivors_of_a_cut_are_synced() -> None:
    disk = FakeDisk()
    disk.make_directory("d")
    disk.open("d/log", create=True).write_at(0, [b"abc"])
    once = disk.after_power_cut("all")
    assert once.after_power_cut("none").snapshot_tree() == once.snapshot_tree() == disk.snapshot_tree()


def test_same_seed_leaves_the_same_disk() -> None:
    first = [with_unsynced_writes().after_power_cut(seed=seed).snapshot_tree() for seed in range(20)]
    again = [with_unsynced_writes().after_power_cut(seed=seed).snapshot_tree() for seed in range(20)]
    assert first == again
    assert len({tree["log"] for tree in first}) > 5


def test_disk_can_be_asked_again_and_is_not_changed_by_the_question() -> None:
    disk = with_unsynced_writes()
    before = disk.snapshot_tree()
    left = disk.after_power_cut("all")
    left.open("log").write_at(0, [b"changed"])
    left.remove("log")
    assert disk.snapshot_tree() == before
    assert disk.after_power_cut("all").snapshot_tree() == before
    assert not disk.was_cut


# -- the write in flight -----------------------------------------------------------------------------------------


def torn(kind: Torn, torn_bytes: int, *, offset: int = 500, length: int = 1000) -> bytes:
    """A synced file of 1200 dots in which the power went out during a write of x."""
    disk = FakeDisk()
    durable(disk, "log", b"." * 1200)
    file = disk.open("log")
    cut_next(disk, lambda: file.write_at(offset, [b"x" * length]))
    return disk.after_power_cut("all", torn=kind, torn_bytes=torn_bytes).snapshot_tree()["log"]


@pytest.mark.parametrize("kept", [0, 1, 12, 13, 700, 999, 1000])
def test_torn_write_may_leave_a_prefix(kept: int) -> None:
    assert torn("prefix", kept) == b"." * 500 + b"x" * kept + b"." * (700 - kept)


def test_torn_write_may_leave_a_prefix_and_a_zeroed_sector() -> None:
    assert torn("zero", 5) == b"." * 500 + b"x" * 5 + bytes(7) + b"." * 688
    assert torn("zero", 12) == b"." * 500 + b"x" * 12 + bytes(512) + b"." * 176
    assert torn("zero", 990) == b"." * 500 + b"x" * 990 + bytes(10), "only where the write was going"
    assert torn("zero", 1000) == b"." * 500 + b"x" * 1000


def test_torn_write_may_leave_a_prefix_and_garbage() -> None:
    log = torn("garbage", 12)
    assert log[:512] == b"." * 500 + b"x" * 12
    assert len(set(log[512:1024])) > 50
    assert log[1024:] == b"." * 176
    assert torn("garbage", 990)[:1490] == b"." * 500 + b"x" * 990
    assert len(torn("garbage", 990)) == 1500
    inside = torn("garbage", 3, offset=10, length=20)
    assert inside[:13] + inside[30:] == b"." * 10 + b"xxx" + b"." * 1170


def test_seed_chooses_how_and_where_the_write_is_torn() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"." * 100)
    file = disk.open("log")
    cut_next(disk, lambda: file.write_at(0, [b"x" * 100]))
    logs = [disk.after_power_cut("all", seed=seed).snapshot_tree()["log"] for seed in SEEDS]
    prefixes = {len(log) - len(log.lstrip(b"x")) for log in logs}
    assert len(prefixes) > 50
    assert any(log.rstrip(b".").strip(b"x") == b"" for log in logs)
    assert any(b"\0" * 10 in log for log in logs)
    assert any(len(set(log)) > 10 for log in logs)


def test_write_in_flight_is_gone_when_only_the_synced_survives() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"...")
    file = disk.open("log")
    cut_next(disk, lambda: file.write_at(0, [b"xyz"]))
    assert disk.after_power_cut("none", torn_bytes=3).snapshot_tree()["log"] == b"..."
    assert {tree["log"][:1] for tree in after_cuts(disk)} > {b".", b"x"}


# -- a boot, and a kill ------------------------------------------------------------------------------------------


def test_power_cut_begins_a_new_boot_and_releases_locks() -> None:
    disk = FakeDisk(3, cut_at=100, fail_at={100: errno.EIO}, capacity_bytes=5000, sector_bytes=64)
    disk.lock("LOCK")
    left = disk.after_power_cut("all")
    again = left.after_power_cut("all")
    assert len({disk.boot_id(), left.boot_id(), again.boot_id()}) == 3
    left.lock("LOCK")
    assert (left.seed, left.capacity_bytes, left.sector_bytes) == (3, 5000, 64)
    assert (left.steps, left.cut_at, left.fail_at, left.was_cut) == (0, None, {}, False)


def test_kill_keeps_what_was_written_the_boot_and_no_lock() -> None:
    disk = with_unsynced_writes()
    disk.lock("LOCK")
    left = disk.after_kill()
    assert left.snapshot_tree() == disk.snapshot_tree()
    assert left.boot_id() == disk.boot_id()
    left.lock("LOCK").release()


def test_power_cut_after_a_kill_takes_what_was_not_synced() -> None:
    disk = with_unsynced_writes()
    disk.remove("log")
    disk.open("new", create=True)
    left = disk.after_kill()
    assert left.snapshot_tree() == {"new": b""}
    assert left.after_power_cut("none").snapshot_tree() == {"log": b"." * 1024}
    left.sync_directory("")
    assert left.after_power_cut("none").snapshot_tree() == {"new": b""}
    assert disk.after_power_cut("none").snapshot_tree() == {"log": b"." * 1024}, "the old disk is another one"


def test_kill_during_a_write_leaves_a_prefix_of_it() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"...")
    file = disk.open("log")
    cut_next(disk, lambda: file.write_at(3, [b"xyz"]))
    assert disk.after_kill(torn_bytes=2).snapshot_tree()["log"] == b"...xy"
    assert disk.after_kill(torn_bytes=2).after_power_cut("none").snapshot_tree()["log"] == b"..."
    assert disk.after_kill().snapshot_tree()["log"] in (b"...", b"...x", b"...xy", b"...xyz")
    assert disk.snapshot_tree()["log"] == b"..."


# -- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", range(len(STEPS)))
@pytest.mark.parametrize("fault", [errno.EIO, OSError(errno.EIO, "broken")])
def test_step_fails_as_configured_and_changes_nothing(step: int, fault: Fault) -> None:
    cut = FakeDisk(cut_at=step)
    with pytest.raises(PowerCut):
        every_kind_of_step(cut)
    disk = FakeDisk(fail_at={step: fault})
    with pytest.raises(OSError, match=f"{os.strerror(errno.EIO)}|broken") as failure:
        every_kind_of_step(disk)
    assert failure.value.errno == errno.EIO
    assert disk.snapshot_tree() == cut.snapshot_tree()
    assert disk.trace[-1][:3] == STEPS[step][:3]
    assert str(failure.value) in disk.trace[-1].detail


def test_disk_works_on_after_a_fault() -> None:
    disk = FakeDisk(fail_at={1: errno.ENOSPC})
    file = disk.open("log", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.write_at(0, [b"abc"])
    file.write_at(0, [b"def"])
    assert disk.snapshot_tree() == {"log": b"def"}


def test_short_write_leaves_its_first_bytes_and_fails() -> None:
    disk = FakeDisk(fail_at={1: ShortWrite(4)})
    file = disk.open("log", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.write_at(0, [b"abc", b"def"])
    assert file.read_at(0, 10) == b"abcd"


def test_fault_may_choose_by_operation_and_path() -> None:
    seen = []

    def fault(step: int, op: str, path: str) -> Fault | None:
        seen.append((step, op, path))
        return ShortWrite(1, errno.EIO) if (op, path) == ("write_at", "bad") else None

    disk = FakeDisk(fault=fault)
    for path in ("good", "bad"):
        disk.open(path, create=True)
    disk.open("good").write_at(0, [b"abc"])
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.open("bad").write_at(0, [b"abc"])
    assert disk.snapshot_tree() == {"good": b"abc", "bad": b"a"}
    assert seen == [(0, "open", "good"), (1, "open", "bad"), (2, "write_at", "good"), (3, "write_at", "bad")]


def test_short_write_of_something_else_is_a_mistake_in_the_test() -> None:
    disk = FakeDisk(fail_at={0: ShortWrite(1)})
    with pytest.raises(AssertionError, match="no write"):
        disk.open("log", create=True)


def test_failed_sync_is_final_although_a_later_one_succeeds() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"abc")
    file = disk.open("log")
    file.write_at(3, [b"lost"])
    disk.fail_at[disk.steps] = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync_data()
    assert file.read_at(0, 10) == b"abclost", "it can still be read"
    assert disk.after_kill().snapshot_tree()["log"] == b"abclost"
    file.sync_data()
    assert {disk.after_power_cut(survive).snapshot_tree()["log"] for survive in SURVIVE} == {b"abc"}
    file.write_at(7, [b"kept"])
    file.sync_data()
    assert file.read_at(0, 20) == b"abclostkept"
    assert disk.after_power_cut("none").snapshot_tree()["log"] == b"abc\0\0\0\0kept"


def test_bytes_whose_sync_failed_may_have_reached_the_disk() -> None:
    disk = FakeDisk()
    durable(disk, "log", b"abc")
    file = disk.open("log")
    file.write_at(3, [b"def"])
    disk.fail_at[disk.steps] = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync_data()
    assert disk.after_power_cut("none").snapshot_tree()["log"] == b"abc"
    assert {tree["log"] for tree in after_cuts(disk)} >= {b"abc", b"abcdef"}


def test_failed_sync_of_one_file_loses_nothing_of_another() -> None:
    disk = FakeDisk()
    files = []
    for path in ("a", "b"):
        durable(disk, path, b"")
        files.append(disk.open(path))
        files[-1].write_at(0, [b"abc"])
    disk.fail_at[disk.steps] = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        files[0].sync_data()
    files[1].sync_data()
    assert disk.after_power_cut("none").snapshot_tree() == {"a": b"", "b": b"abc"}


def test_failed_sync_of_a_directory_leaves_its_names_unsynced() -> None:
    disk = FakeDisk()
    disk.open("log", create=True)
    disk.fail_at[disk.steps] = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.sync_directory("")
    assert disk.after_power_cut("none").snapshot_tree() == {}


# -- a full disk -------------------------------------------------------------------------------------------------


def test_full_disk_takes_what_fits_and_fails() -> None:
    disk = FakeDisk(capacity_bytes=10)
    file = disk.open("a", create=True)
    file.write_at(0, [b"0123"])
    assert disk.free_bytes() == 6
    other = disk.open("b", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        other.write_at(0, [b"abcd", b"efgh"])
    assert other.read_at(0, 10) == b"abcdef"
    assert disk.free_bytes() == 0
    file.write_at(0, [b"9876"])
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.write_at(5, [b"x"])
    assert file.read_at(0, 10) == b"9876"


def test_full_disk_allocates_nothing_until_something_is_removed() -> None:
    disk = FakeDisk(capacity_bytes=10)
    durable(disk, "a", b"0123456")
    file = disk.open("b", create=True)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.allocate(4)
    assert file.size() == 0
    disk.remove("a")
    file.allocate(10)
    assert disk.free_bytes() == 0


# -- the sweep that storage tests are made of --------------------------------------------------------------------


def append_lines(disk: FakeDisk, *, careful: bool) -> list[bytes]:
    """Write and acknowledge lines, each synced before it is acknowledged; return those acknowledged."""
    acked: list[bytes] = []
    try:
        file = disk.open("log", create=True)
        if careful:
            disk.sync_directory("")
        offset = 0
        for number in range(5):
            line = b"line %d\n" % number
            file.write_at(offset, [line])
            file.sync_data()
            offset += len(line)
            acked.append(line)
    except PowerCut:
        pass
    return acked


@pytest.mark.parametrize("careful", [True, False])
def test_sweep_over_every_step_finds_the_forgotten_sync_and_nothing_else(careful: bool) -> None:
    losses = 0
    for step in itertools.count():
        disk = FakeDisk(cut_at=step)
        acked = append_lines(disk, careful=careful)
        for survive in SURVIVE:
            log = disk.after_power_cut(survive).snapshot_tree().get("log", b"")
            losses += not log.startswith(b"".join(acked))
        if not disk.was_cut:
            break
    assert step == (12 if careful else 11)
    assert (losses == 0) == careful
