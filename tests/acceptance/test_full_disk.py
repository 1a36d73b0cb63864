"""A real server on a real file system that is full: what frees space works, also after a kill, and frees it."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.testing.process import ServerProcess

SETTINGS = {
    "TOPICS_WAL_FILE_BYTES": "1048576",
    "TOPICS_SEGMENT_BYTES": "1048576",
    "TOPICS_HOT_BYTES": "2097152",
    "TOPICS_CHECKPOINT_BYTES": "2097152",
    "TOPICS_RESERVE_BYTES": "4194304",
}
PATIENCE_SECONDS = 10.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose data directory is a file system of 24 MB."""
    server = ServerProcess(tmp_path, **SETTINGS)
    server.data_dir.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(server.data_dir)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system needs a superuser")
    try:
        server.start()
        yield server
    finally:
        server.kill()
        subprocess.run(["umount", str(server.data_dir)], check=True)


def is_appended(server: ServerProcess, topic: str) -> bool:
    """Append 20 records; False when the disk is full."""
    records = [{"data": "x" * 10_000, "tag": "t"}] * 20
    status, body = server.request("POST", f"/v0/topics/{topic}", {"records": records})
    assert status in (200, 201) or (status, body["error"]["code"]) == (503, "storage_full"), body
    return status != 503


def fill(server: ServerProcess) -> None:
    for _ in range(1000):
        if not (is_appended(server, "a") and is_appended(server, "b")):
            return
    raise AssertionError("the disk is never full")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["topic", "tagged records"])
def test_full_disk_is_freed_by_deletes_right_after_a_kill(server: ServerProcess, what: str) -> None:
    server.request("PUT", "/v0/routers/r", {"source": "nothing", "dest": "copies"})
    fill(server)
    server.kill()
    server.start()
    assert server.request("DELETE", "/v0/routers/r")[1]["deleted"] is True
    if what == "topic":
        status, body = server.request("DELETE", "/v0/topics/a")
        assert (status, body["deleted"]) == (200, True)
    else:
        status, body = server.request("POST", "/v0/topics/a/delete", {"match": "t"})
        assert status == 200
        assert body["deleted"] > 100
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_appended(server, "b"):
        assert time.monotonic() < deadline, server.request("GET", "/v0/ready")
        time.sleep(0.05)
    while server.request("GET", "/v0/ready")[1]["degraded"]:
        assert time.monotonic() < deadline, server.request("GET", "/v0/ready")
        time.sleep(0.05)
    head = server.request("GET", "/v0/topics/b")[1]["head_seq"]
    server.kill()
    server.start()
    assert server.request("GET", "/v0/topics/b")[1]["head_seq"] == head
