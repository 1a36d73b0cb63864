"""Data directories written by earlier versions open, and every read answers what it answered then (`tests/fixtures`)."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures import content
from tests.fixtures.write_directories import DIRECTORIES, start, unpack
from topics.maintenance.check import check
from topics.storage.os_fs import OsFileSystem

NAMES = sorted([path.name.removesuffix(".tar.xz") for path in DIRECTORIES.glob("*.tar.xz")])


def differences(expected: Any, found: Any, where: str = "") -> list[str]:
    """Where `found` is not as expected. Fields that were added since do not matter."""
    if isinstance(expected, dict) and isinstance(found, dict):
        missing = [f"{where}.{name} is missing" for name in expected if name not in found]
        common = [name for name in expected if name in found]
        return missing + [
            each for name in common for each in differences(expected[name], found[name], f"{where}.{name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [each for number, (old, new) in pairs for each in differences(old, new, f"{where}[{number}]")]
    if where.endswith(".last_write_ts") and None not in (expected, found) and found > expected:
        # Earlier versions showed the time of an older write, of another partition, after a restart.
        return []
    return [] if expected == found else [f"{where}: {found!r:.300} instead of {expected!r:.300}"]


def read(root: Path, expected: dict[str, Any]) -> dict[str, Any]:
    process, port = start(sys.executable, root / "data", content.READ_MS, expected["settings"])
    try:
        return content.read(content.Server(port), expected["known"])
    finally:
        process.kill()
        process.wait()


def test_there_are_directories_with_one_log_and_with_several_shards() -> None:
    assert NAMES == ["four-shards-killed", "four-shards-stopped", "one-log-killed", "one-log-stopped"]


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_of_an_earlier_version_is_read_as_it_was(name: str, tmp_path: Path) -> None:
    expected = unpack(name, tmp_path)
    assert differences(expected["answers"], read(tmp_path, expected)) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_of_an_earlier_version_is_found_whole(name: str, tmp_path: Path) -> None:
    unpack(name, tmp_path)
    report = check(OsFileSystem.at(tmp_path / "data"))
    assert (report.status, report.findings) == (0, [])


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("killed")])
def test_a_directory_of_an_earlier_version_that_was_taken_over_is_read_as_it_was(name: str, tmp_path: Path) -> None:
    """After a first server of this version has checkpointed it twice, as each clean stop does."""
    expected = unpack(name, tmp_path)
    for _ in range(2):
        process, _ = start(sys.executable, tmp_path / "data", content.READ_MS, expected["settings"])
        process.terminate()
        assert process.wait(60) == 0
    assert [each.name for each in (tmp_path / "data" / "wal").iterdir() if any(each.iterdir())] == ["shard-00"]
    assert differences(expected["answers"], read(tmp_path, expected)) == []


def test_a_directory_of_an_earlier_version_keeps_what_this_version_writes(tmp_path: Path) -> None:
    """Appends, claims and acks of this version are there after another start."""
    expected = unpack("one-log-stopped", tmp_path)
    answers = read(tmp_path, expected)["answers"]
    process, port = start(sys.executable, tmp_path / "data", content.READ_MS, expected["settings"])
    try:
        server = content.Server(port)
        heads = {name: server.call("GET", f"/v0/topics/{name}")["head_seq"] for name in answers["next seqs"]}
        assert heads == answers["next seqs"]
        leased = [job["$seq"] for job in answers["jobs"]]
        acked = server.post("/v0/topics/jobs/ack", node="other", seqs=leased)["acked"]
        assert acked == len(leased), "leases of the queue are durable"
        server.append("jobs", {"data": "new"})
        assert [job["data"] for job in server.post("/v0/topics/jobs/claim", node="w", max=9)["claimed"]] == ["new"]
    finally:
        process.kill()
        process.wait()
