"""A data directory is used by one process at a time."""

from pathlib import Path

import pytest

from topics.broker.durability.data_directory import DataDirectory, DirectoryInUse


def test_a_directory_in_use_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    first = DataDirectory(str(tmp_path / "data"), str(tmp_path / "run"))
    second = DataDirectory(str(tmp_path / "data"), str(tmp_path / "run"))
    first.open()
    with pytest.raises(DirectoryInUse):
        second.open()
    first.close()
    second.open()
    second.close()
