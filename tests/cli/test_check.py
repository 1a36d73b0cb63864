"""`topics check`: what it says of a data directory, and that it leaves everything as it was."""

import itertools
import json
from pathlib import Path

import pytest

from tests.crash.history import play, texts
from tests.crash.world import World
from topics.broker.durability.data_directory import DataDirectory
from topics.cli.main import main
from topics.storage.os_fs import OsFileSystem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory as a killed server leaves it."""
    data = tmp_path / "data"
    directory = DataDirectory(str(data))
    directory.open()
    play(World(directory.fs))
    directory.close()
    return data


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_whole_directory_is_reported_whole_and_not_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(root)
    assert main(["check", str(root)]) == 0
    out = capsys.readouterr().out
    assert "Everything is whole." in out
    assert "5 topics holding" in out
    assert "DAMAGED" not in out
    assert contents(root) == before


def test_a_torn_tail_is_distinguished_from_damage(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newest = max((root / "wal" / "shard-00").iterdir())
    with newest.open("ab") as file:
        file.write(b"half a frame")
    before = contents(root)
    assert main(["check", str(root)]) == 10
    out = capsys.readouterr().out
    assert f"torn tail: wal/shard-00/{newest.name} at byte" in out
    assert contents(root) == before


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("snapshots/*.snap", "snapshot section is damaged"),
        ("segments/*.arrow", "is damaged"),
        ("segments/*.tags", "tag index is damaged"),
        ("segments/*.dead", "delete flags are damaged"),
    ],
)
def test_damage_is_reported_with_its_file_and_offset(
    root: Path, capsys: pytest.CaptureFixture[str], pattern: str, says: str
) -> None:
    path = sorted(root.glob(pattern))[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    assert main(["check", str(root)]) == 11
    out = capsys.readouterr().out
    assert f"DAMAGED: {path.relative_to(root)} at byte " in out
    assert says in out
    assert "Restore the named files from a copy" in out


def test_damage_in_the_middle_of_the_log_is_no_torn_tail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World(OsFileSystem.at(tmp_path))
    numbers = itertools.count()
    for _ in range(4):
        world.append("a", texts(numbers, 1), config='{"durability":"fsync"}')
        world.run()
    (log,) = (tmp_path / "wal" / "shard-00").iterdir()
    content = bytearray(log.read_bytes())
    content[110] ^= 0xFF
    log.write_bytes(content)
    assert main(["check", str(tmp_path)]) == 11
    assert "at byte 96: a frame that was safely stored is broken or missing" in capsys.readouterr().out


def test_left_over_files_are_reported_as_notes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "snapshots" / "000000000099.tmp").write_bytes(b"half")
    (root / "segments" / "0000000000000063-0000-00000000000000000001.arrow").write_bytes(b"half")
    assert main(["check", str(root)]) == 0
    out = capsys.readouterr().out
    assert "note: snapshots/000000000099.tmp" in out
    assert "note: segments/0000000000000063-0000-00000000000000000001" in out


def test_a_directory_in_use_is_not_checked(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = DataDirectory(str(root))
    server.open()
    try:
        assert main(["check", str(root)]) == 4
    finally:
        server.close()
    assert "a server is using" in capsys.readouterr().err
    assert main(["check", str(root)]) == 0


def test_a_directory_without_data_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "nowhere")]) == 3
    assert "there is no data in" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_the_directory_is_that_of_the_server_when_none_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOPICS_DATA_DIR", str(root))
    assert main(["check"]) == 0
    assert "Everything is whole." in capsys.readouterr().out


def test_a_report_as_json_has_the_state_the_counts_and_the_findings(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(root), "-o", "json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert (whole["state"], whole["topics"], whole["findings"]) == ("whole", 5, [])
    path = sorted(root.glob("segments/*.arrow"))[0]
    path.write_bytes(b"")
    assert main(["check", str(root), "-o", "json"]) == 11
    damaged = json.loads(capsys.readouterr().out)
    assert damaged["state"] == "damaged"
    assert path.relative_to(root).as_posix() in [finding["path"] for finding in damaged["findings"]]


def test_a_directory_that_cannot_be_read_exits_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("no directory")
    assert main(["check", str(tmp_path / "file")]) == 5
    assert "cannot be read" in capsys.readouterr().err
