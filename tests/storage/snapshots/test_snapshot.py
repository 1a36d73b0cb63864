"""Files of snapshots: every cut, every changed byte and garbage are noticed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.model.errors import CorruptStorage
from topics.storage.snapshots.snapshot import read_snapshot, remove_snapshots_but, snapshot_numbers, write_snapshot
from topics.testing.disk.fake_disk import FakeDisk


def disk_with(path: str, content: bytes) -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory(path.rsplit("/", 1)[0])
    disk.open(path, create=True).write_at(0, [content])
    return disk


def test_every_cut_and_every_change_of_a_snapshot_is_noticed() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    write_snapshot(disk, 4, [b"header", b"topic one", b"topic two"])
    whole = disk.snapshot_tree()["snapshots/000000000004.snap"]
    assert [bytes(section) for section in read_snapshot(disk, 4)] == [b"header", b"topic one", b"topic two"]
    spoiled = [whole[:cut] for cut in range(len(whole))] + [whole + b"\0"]
    for place in [*range(12), *range(16, len(whole))]:
        spoiled.append(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
    for content in spoiled:
        with pytest.raises(CorruptStorage, match=r"snapshots/000000000004.snap at byte \d+"):
            read_snapshot(disk_with("snapshots/000000000004.snap", content), 4)


@given(st.binary(max_size=200))
def test_garbage_is_not_a_snapshot(garbage: bytes) -> None:
    with pytest.raises(CorruptStorage):
        read_snapshot(disk_with("snapshots/000000000001.snap", garbage), 1)


def test_snapshots_are_listed_newest_first_and_old_ones_removed() -> None:
    disk = FakeDisk()
    disk.make_directory("")
    for number in (1, 2, 3):
        write_snapshot(disk, number, [b"header"])
    assert snapshot_numbers(disk) == [3, 2, 1]
    remove_snapshots_but(disk, 3, 2)
    assert snapshot_numbers(disk) == [3, 2]
