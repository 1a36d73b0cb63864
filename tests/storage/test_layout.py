"""Files that must exist in a data directory."""

import pytest

from topics.model.errors import CorruptStorage
from topics.storage.layout import check_complete, make_directories
from topics.storage.log.wal import directory, open_shards
from topics.testing.disk.fake_disk import FakeDisk


def test_directories_survive_a_power_cut() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    make_directories(disk)
    after = disk.after_power_cut("none")
    assert all(after.exists(path) for path in ("wal", "segments", "snapshots", directory(0)))


def test_a_log_without_its_first_file_and_without_a_snapshot_is_damaged() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    make_directories(disk)
    check_complete(disk, open_shards(disk))
    disk.open(f"{directory(0)}/000000000002.wal", create=True)
    with pytest.raises(CorruptStorage, match="missing"):
        check_complete(disk, open_shards(disk))


def test_segments_without_a_log_and_a_snapshot_are_damage() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    make_directories(disk)
    disk.open("segments/0000000000000001-0000-00000000000000000001.arrow", create=True)
    with pytest.raises(CorruptStorage, match="segments"):
        check_complete(disk, open_shards(disk))
