"""Reading files that may be damaged: what counts as damage, and that a mapped file never ends the process."""

import errno
import os
from pathlib import Path

import pytest

from topics.model.errors import CorruptStorage
from topics.storage.os_fs import OsFileSystem
from topics.storage.reading import load, map_file, reading
from topics.testing.disk.fake_disk import FakeDisk


def test_lost_bytes_of_a_mapped_file_raise_an_error_and_do_not_kill_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    view = map_file(OsFileSystem.at(tmp_path), "file")
    os.truncate(tmp_path / "file", 10_000)
    load(view, 0, 10_000, "file")
    # Touching them would be SIGBUS, as it is for a sector that the disk cannot read.
    with pytest.raises(CorruptStorage, match=r"file at byte .*: the disk cannot read these bytes"):
        load(view, 50_000, 60_000, "file")


def test_empty_file_can_be_mapped_and_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    view = map_file(OsFileSystem.at(tmp_path), "file")
    load(view, 0, len(view), "file")
    assert len(view) == 0


def test_missing_file_a_directory_and_a_file_that_the_disk_cannot_read_are_damaged() -> None:
    disk = FakeDisk()
    disk.make_directory("directory")
    disk.open("scratched", create=True).close()
    disk.unreadable.add("scratched")
    for path, what in (
        ("missing", "file is missing"),
        ("directory", "cannot be read: Is a directory"),
        ("scratched", "cannot be read: Input/output error"),
    ):
        with pytest.raises(CorruptStorage) as found:
            map_file(disk, path)
        assert (found.value.path, found.value.what) == (path, what)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_error_of_the_process_does_not_mean_a_damaged_file(number: int) -> None:
    with pytest.raises(OSError, match="whole") as raised, reading("file"):
        raise OSError(number, "whole")
    assert raised.value.errno == number
