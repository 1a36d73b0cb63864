"""A server on the slow disk waits for every sync, and is the server of `topics serve`."""

import os
import time
from pathlib import Path

import pytest

import topics.cli.main
from topics.testing.disk import slow_disk


def test_server_runs_with_syncs_that_take_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    took: list[float] = []

    def run_command(arguments: list[str]) -> int:
        commands.append(arguments)
        with open(tmp_path / "file", "wb") as file:
            for sync in (os.fsync, os.fdatasync):
                started = time.monotonic()
                sync(file.fileno())
                took.append(time.monotonic() - started)
        return 3

    for name in ("fsync", "fdatasync"):
        # Restored after the test.
        monkeypatch.setattr(os, name, getattr(os, name))
    monkeypatch.setattr(slow_disk, "SYNC_SECONDS", 0.02)
    monkeypatch.setattr(topics.cli.main, "main", run_command)
    assert slow_disk.main() == 3
    assert commands == [["serve"]]
    assert all([each >= 0.02 for each in took])
    assert len(took) == 2
