"""The marker in a real directory."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from topics.storage.fs import Mark
from topics.storage.os_fs import OsFileSystem
from topics.storage.os_marker import OsMarker

MARK = Mark(1 << 63, 5, 5)


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    path = tmp_path / "runtime"
    path.mkdir()
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


def marker(runtime: Path, data: Path, boot_id: str = "boot") -> OsMarker:
    return OsMarker(str(runtime), str(data), boot_id)


def test_next_process_finds_how_far_the_last_one_came(runtime: Path, data: Path) -> None:
    assert marker(runtime, data).read() is None
    first = marker(runtime, data)
    first.begin(MARK)
    assert marker(runtime, data).read() == MARK
    first.advance((1 << 64) - 1)
    assert marker(runtime, data).read() == Mark(1 << 63, 5, (1 << 64) - 1)
    marker(runtime, data).begin(Mark(7, 8, 9))
    assert marker(runtime, data).read() == Mark(7, 8, 9)


def test_marker_of_an_earlier_boot_says_nothing(runtime: Path, data: Path) -> None:
    marker(runtime, data).begin(MARK)
    assert marker(runtime, data, "another boot").read() is None


def test_marker_belongs_to_one_directory(runtime: Path, data: Path, tmp_path: Path) -> None:
    marker(runtime, data).begin(MARK)
    shutil.copytree(data, tmp_path / "copy")
    assert marker(runtime, tmp_path / "copy").read() is None
    data.rename(tmp_path / "moved")
    assert marker(runtime, tmp_path / "moved").read() == MARK


def test_marker_of_a_removed_directory_says_nothing_about_the_next_one(runtime: Path, data: Path) -> None:
    """The next one may get the same inode."""
    for _ in range(5):
        assert marker(runtime, data).read() is None
        marker(runtime, data).begin(MARK)
        data.rmdir()
        data.mkdir()


def test_markers_of_directories_that_are_gone_are_removed(runtime: Path, data: Path, tmp_path: Path) -> None:
    (runtime / "topics-of-another-kind").write_text("kept")
    for number in range(3):
        other = tmp_path / f"other-{number}"
        other.mkdir()
        marker(runtime, other).begin(MARK)
    shutil.rmtree(tmp_path / "other-1")
    marker(runtime, data).begin(MARK)
    assert len(list(runtime.iterdir())) == 4
    assert marker(runtime, tmp_path / "other-0").read() == MARK


def test_marker_is_readable_by_its_user_alone(runtime: Path, data: Path) -> None:
    marker(runtime, data).begin(MARK)
    (file,) = runtime.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def swap_for_link(file: Path, target: Path) -> None:
    file.unlink()
    file.symlink_to(target)


def swap_for_hard_link(file: Path, target: Path) -> None:
    file.unlink()
    os.link(target, file)


def swap_for_directory(file: Path, _target: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("swap", [swap_for_link, swap_for_hard_link, swap_for_directory])
def test_marker_that_is_not_a_file_of_ours_is_not_used(
    runtime: Path, data: Path, tmp_path: Path, swap: Callable[[Path, Path], None]
) -> None:
    marker(runtime, data).begin(MARK)
    (file,) = runtime.iterdir()
    target = tmp_path / "target"
    target.write_bytes(file.read_bytes())
    swap(file, target)
    before = target.read_bytes()
    assert marker(runtime, data).read() is None
    other = marker(runtime, data)
    with pytest.raises(OSError, match=r"not a file|symbolic|directory"):
        other.begin(Mark(1, 2, 3))
    other.advance(4)
    assert target.read_bytes() == before


def test_damaged_marker_says_nothing(runtime: Path, data: Path) -> None:
    marker(runtime, data).begin(MARK)
    (file,) = runtime.iterdir()
    for content in (b"", b"short", bytes(4096)):
        file.write_bytes(content)
        assert marker(runtime, data).read() is None


def test_missing_runtime_directory_is_an_error_and_advance_does_nothing(data: Path, tmp_path: Path) -> None:
    broken = OsFileSystem.at(data, str(tmp_path / "missing")).marker()
    assert broken.read() is None
    with pytest.raises(FileNotFoundError):
        broken.begin(MARK)
    broken.advance(5)
