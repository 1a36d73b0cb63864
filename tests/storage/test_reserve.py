"""The reserve on disks of all sizes."""

import errno

import pytest

from topics.storage.reserve import MIN_BYTES, PATH, Reserve
from topics.testing.disk.fake_disk import FakeDisk

WANTED = 8 * MIN_BYTES


def disk_of(capacity_bytes: int | None) -> FakeDisk:
    disk = FakeDisk(capacity_bytes=capacity_bytes)
    disk.make_directory("")
    return disk


def test_reserve_is_held_survives_a_power_cut_and_is_released() -> None:
    disk = disk_of(None)
    assert Reserve(disk, WANTED).hold(100)
    disk = disk.after_power_cut("none")
    reserve = Reserve(disk, WANTED)
    assert reserve.held_bytes == WANTED + 100
    reserve.release()
    reserve.release()
    assert not reserve.is_held
    assert len(disk.snapshot_tree()[PATH]) <= 4096


@pytest.mark.parametrize(
    ("capacity_bytes", "held_bytes"),
    [(WANTED, WANTED), (WANTED - 1, WANTED // 2), (MIN_BYTES, MIN_BYTES), (MIN_BYTES - 1, 0), (0, 0)],
)
def test_small_disk_gives_what_it_has(capacity_bytes: int, held_bytes: int) -> None:
    disk = disk_of(capacity_bytes)
    reserve = Reserve(disk, WANTED)
    assert reserve.hold() == bool(held_bytes)
    assert (reserve.held_bytes, disk.exists(PATH)) == (held_bytes, bool(held_bytes))


def test_released_reserve_must_come_back_to_what_it_was() -> None:
    disk = disk_of(WANTED + 1000)
    reserve = Reserve(disk, WANTED)
    assert reserve.hold()
    reserve.release()
    disk.capacity_bytes = WANTED - 1
    assert not reserve.hold()
    assert reserve.held_bytes == 0
    # The next start knows as well.
    reserve = Reserve(disk.after_power_cut("none"), WANTED)
    assert not reserve.hold()
    reserve = Reserve(disk, WANTED)
    disk.capacity_bytes = WANTED
    assert reserve.hold()


def test_small_disk_needs_no_more_after_a_release_than_it_had() -> None:
    disk = disk_of(2 * MIN_BYTES + 5)
    reserve = Reserve(disk, WANTED)
    assert reserve.hold()
    reserve.release()
    assert Reserve(disk, WANTED).hold()


def test_reserve_follows_the_size_that_is_asked_for() -> None:
    disk = disk_of(2 * WANTED)
    reserve = Reserve(disk, WANTED)
    for extra_bytes in (0, 5000, 10, 0):
        assert reserve.hold(extra_bytes)
        assert len(disk.snapshot_tree()[PATH]) == reserve.held_bytes == WANTED + extra_bytes
    assert reserve.hold(10 * WANTED), "what is wanted is held, although not all of the rest"
    assert WANTED <= reserve.held_bytes <= 2 * WANTED


def test_spare_files_count_for_the_snapshot_and_for_nothing_else() -> None:
    disk = disk_of(None)
    reserve = Reserve(disk, WANTED)
    for snapshot_bytes, spare_bytes, extra_bytes in ((5000, 0, 5000), (5000, 2000, 3000), (5000, 9000, 0)):
        assert reserve.hold(snapshot_bytes, spare_bytes)
        assert reserve.held_bytes == WANTED + extra_bytes


def test_what_spare_files_covered_must_be_covered_again_when_they_are_gone() -> None:
    disk = disk_of(WANTED)
    reserve = Reserve(disk, WANTED)
    assert reserve.hold(5000, 5000)
    reserve.release()
    reserve = Reserve(disk.after_power_cut("none"), WANTED)
    assert not reserve.hold(5000)
    assert reserve.hold(5000, 5000), "there are as many spare files as before"
    disk = disk_of(WANTED)
    reserve = Reserve(disk, WANTED)
    assert reserve.hold(5000), "this disk never had more"
    reserve.release()
    assert Reserve(disk, WANTED).hold(5000)


def test_damaged_reserve_is_replaced() -> None:
    disk = disk_of(None)
    disk.make_directory(PATH)
    assert Reserve(disk, WANTED).hold()
    file = disk.open(PATH)
    file.write_at(0, [b"garbage" * 10])
    file.truncate(100)
    assert Reserve(disk, WANTED).hold()
    assert len(disk.snapshot_tree()[PATH]) == WANTED


def test_no_reserve_is_held_where_none_is_wanted() -> None:
    disk = disk_of(None)
    reserve = Reserve(disk, 0)
    assert reserve.hold(5000)
    assert not disk.exists(PATH)


@pytest.mark.parametrize("op", ["open", "allocate", "sync_data", "sync_directory"])
def test_reserve_that_cannot_be_written_leaves_no_file(op: str) -> None:
    disk = disk_of(None)
    disk.fault = lambda _, called, __: errno.EIO if called == op else None
    reserve = Reserve(disk, WANTED)
    with pytest.raises(OSError, match="Input/output"):
        reserve.hold()
    assert not reserve.is_held
    assert not disk.exists(PATH)
