"""A real server that is killed, and one whose data directory is replaced by an earlier copy while the machine runs on."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topics.testing.process import ServerProcess

UNSYNCED_RECORDS = 1000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path, TOPICS_UNSYNCED_RECORDS=str(UNSYNCED_RECORDS), TOPICS_WAL_FILE_BYTES="65536")
    server.start()
    yield server
    server.kill()


def append(server: ServerProcess, topic: str, count: int) -> int:
    status, body = server.request("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}] * count})
    assert status in (200, 201)
    last_seq: int = body["last_seq"]
    return last_seq


def read(server: ServerProcess, topic: str, from_seq: int) -> Any:
    status, body = server.request("POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq})
    assert status == 200
    return body


def replace_files(directory: Path, copy: Path) -> None:
    """The directory stays the same one, as a volume that is restored does."""
    for path in directory.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(copy, directory, dirs_exist_ok=True)


def test_killed_server_reports_no_loss(server: ServerProcess) -> None:
    for _ in range(3):
        seq = append(server, "t", 3)
        server.kill()
        server.start()
        assert server.request("GET", "/v0/topics/t")[1]["head_seq"] == seq
        assert read(server, "t", 0)["tombstone"] is None
    assert "reported as lost" not in server.logs


@pytest.mark.parametrize("durability", ["disk", "fsync"])
@pytest.mark.parametrize("stopped", [False, True])
def test_restored_volume_reports_what_is_lost_and_never_assigns_its_seqs_again(
    server: ServerProcess, tmp_path: Path, durability: str, stopped: bool
) -> None:
    server.request("PUT", "/v0/topics/t", {"durability": durability})
    before = append(server, "t", 5)
    if stopped:
        assert server.stop() == 0
        shutil.copytree(server.data_dir, tmp_path / "copy")
        server.start()
    else:
        shutil.copytree(server.data_dir, tmp_path / "copy")
    after = append(server, "t", 7)
    server.kill()
    replace_files(server.data_dir, tmp_path / "copy")
    server.start()
    tombstone = read(server, "t", before)["tombstone"]
    assert tombstone["gap_from"] == before + 1
    assert tombstone["gap_to"] >= after
    assert append(server, "t", 1) > after
    assert "restored from an earlier copy" in server.logs
    # Reported once: the next kill loses nothing.
    head = server.request("GET", "/v0/topics/t")[1]["head_seq"]
    server.kill()
    server.start()
    assert server.request("GET", "/v0/topics/t")[1]["head_seq"] == head


def test_server_without_a_runtime_directory_says_so_and_reports_possible_loss_after_a_kill(
    server: ServerProcess, tmp_path: Path
) -> None:
    server.kill()
    nowhere = str(tmp_path / "nowhere")
    server.start(TOPICS_RUNTIME_DIR=nowhere)
    assert f"cannot keep a marker in {nowhere}" in server.logs
    seq = append(server, "t", 5)
    server.kill()
    server.start(TOPICS_RUNTIME_DIR=nowhere)
    assert server.request("GET", "/v0/topics/t")[1]["head_seq"] == seq + UNSYNCED_RECORDS
    assert read(server, "t", seq)["tombstone"]["gap_from"] == seq + 1
    assert server.stop() == 0
    server.start(TOPICS_RUNTIME_DIR=nowhere)
    assert server.request("GET", "/v0/topics/t")[1]["head_seq"] == seq + UNSYNCED_RECORDS
