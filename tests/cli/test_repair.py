"""`topics repair`: what it prints, how it exits, and that --dry-run changes nothing."""

import json
from pathlib import Path

import pytest

from tests.crash.history import play
from tests.crash.world import World
from topics.broker.durability.data_directory import DataDirectory
from topics.cli.main import main


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory as a stopped server leaves it."""
    data = tmp_path / "data"
    directory = DataDirectory(str(data))
    directory.open()
    world = World(directory.fs)
    play(world)
    assert world.stop()
    directory.close()
    return data


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_dry_run_of_a_whole_directory_finds_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(root)
    assert main(["repair", "--dry-run", str(root)]) == 0
    assert capsys.readouterr().out == "Nothing is damaged.\n"
    assert contents(root) == before


def test_dry_run_reports_what_would_be_lost_and_changes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = sorted((root / "segments").glob("*.arrow"))[0]
    damaged.write_bytes(b"")
    before = contents(root)
    assert main(["repair", "--dry-run", str(root)]) == 10
    planned = capsys.readouterr().out
    assert f"damaged: segments/{damaged.name} at byte 0: " in planned
    assert 'lost: topic "' in planned
    assert "Nothing was changed." in planned
    assert contents(root) == before

    assert main(["repair", str(root)]) == 0
    done = capsys.readouterr().out
    assert [line for line in planned.splitlines() if line.startswith("lost")] == [
        line for line in done.splitlines() if line.startswith("lost")
    ]
    assert f"kept aside: damaged/{damaged.name}" in done
    assert "Repaired: 1 segments." in done
    assert (root / "damaged" / damaged.name).exists()
    assert main(["check", str(root)]) == 0


def test_damaged_tag_index_is_made_again_and_nothing_is_lost(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (root / "segments").glob("*.tags"):
        path.unlink()
    assert main(["check", str(root)]) == 11
    assert main(["repair", str(root)]) == 0
    out = capsys.readouterr().out
    assert " 0 records are lost." in out
    assert "lost: topic" not in out.replace("nothing lost: topic", "")
    assert main(["check", str(root)]) == 0


def test_a_directory_in_use_is_not_repaired(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = DataDirectory(str(root))
    server.open()
    try:
        assert main(["repair", str(root)]) == 4
        assert main(["repair", "--dry-run", str(root)]) == 4
    finally:
        server.close()
    assert "a server is using" in capsys.readouterr().err


def test_a_directory_without_data_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repair", str(tmp_path / "nowhere")]) == 3
    assert "there is no data in" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_damage_that_stops_a_server_cannot_be_repaired(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (root / "snapshots").iterdir():
        path.write_bytes(b"")
    before = contents(root)
    assert main(["repair", "--dry-run", str(root)]) == 11
    assert main(["repair", str(root)]) == 11
    out = capsys.readouterr().out
    assert "snapshots" in out
    assert "Restore the named files from a copy." in out
    assert {path: content for path, content in contents(root).items() if path != "LOCK"} == {
        path: content for path, content in before.items() if path != "LOCK"
    }


def test_outcome_as_json_has_the_state_and_the_lost_records(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sorted((root / "segments").glob("*.arrow"))[0].write_bytes(b"")
    outcomes = []
    for options in (["--dry-run"], [], []):
        code = main(["repair", *options, str(root), "-o", "json"])
        outcome = json.loads(capsys.readouterr().out)
        outcomes.append((code, outcome["state"], outcome["segments"], outcome["lost_records"] > 0))
    assert outcomes == [(10, "repairable", 1, True), (0, "repaired", 1, True), (0, "whole", 0, False)]
