"""Damaged files are kept in `damaged/` under a name of their own."""

import pytest

from topics.storage.damaged_files import copy_to_damaged, move_to_damaged, remove_file
from topics.testing.disk.fake_disk import FakeDisk


@pytest.fixture
def disk() -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("wal")
    write(disk, b"first")
    return disk


def write(disk: FakeDisk, content: bytes) -> None:
    disk.open("wal/1", create=True).write_at(0, [content])


def test_files_of_one_name_do_not_replace_each_other(disk: FakeDisk) -> None:
    first = move_to_damaged(disk, "wal/1")
    write(disk, b"second")
    second = move_to_damaged(disk, "wal/1")
    assert (first, second) == ("damaged/1", "damaged/1.2")
    assert disk.snapshot_tree()[first] == b"first"
    assert disk.snapshot_tree()[second] == b"second"
    assert not disk.exists("wal/1")


def test_a_move_survives_a_power_cut(disk: FakeDisk) -> None:
    disk.sync_directory("")
    disk.sync_directory("wal")
    disk.open("wal/1").sync_data()
    target = move_to_damaged(disk, "wal/1")
    assert disk.after_power_cut("none").snapshot_tree()[target] == b"first"


def test_a_copy_leaves_the_file(disk: FakeDisk) -> None:
    target = copy_to_damaged(disk, "wal/1")
    assert disk.snapshot_tree()[target] == disk.snapshot_tree()["wal/1"] == b"first"


def test_a_directory_in_the_place_of_a_file_is_kept(disk: FakeDisk) -> None:
    disk.make_directory("wal/2")
    for path in ("wal/1", "wal/2", "wal/3"):
        remove_file(disk, path)
        assert not disk.exists(path)
    assert disk.exists("damaged/2")
    assert not disk.exists("damaged/1")
