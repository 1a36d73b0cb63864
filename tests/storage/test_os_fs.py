"""The file system of the machine. `test_fs.py` has the behaviour that it shares with the fake disk."""

import stat
from pathlib import Path

from topics.storage.os_fs import OsFileSystem, boot_id


def test_files_and_directories_are_closed_to_other_users(tmp_path: Path) -> None:
    fs = OsFileSystem.at(tmp_path / "data")
    fs.make_directory("wal")
    fs.open("wal/1", create=True).close()
    modes = [stat.S_IMODE((tmp_path / "data" / path).stat().st_mode) for path in ("", "wal", "wal/1")]
    assert [mode & 0o077 for mode in modes] == [0, 0, 0]


def test_a_machine_without_a_boot_id_seems_to_have_restarted(tmp_path: Path) -> None:
    assert boot_id(str(tmp_path)) != boot_id(str(tmp_path))


def test_the_time_of_the_boot_serves_as_its_id(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")
    assert boot_id(str(tmp_path)) == boot_id(str(tmp_path)) == "booted-at-1700000000"
