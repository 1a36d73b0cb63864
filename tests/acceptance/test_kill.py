"""The real process: killed under load again and again, stopped by a signal, and started twice on one directory.

Writers note what was acknowledged. After each kill the server is started again on the same directory and everything that
was acknowledged must be there, byte for byte, under its seq.
"""

import http.client
import json
import shutil
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from topics.cli.main import main
from topics.testing.process import ServerEnded, ServerProcess

# So small that a second of load rotates, seals and takes snapshots.
SMALL = {
    "TOPICS_WAL_FILE_BYTES": "65536",
    "TOPICS_SEGMENT_BYTES": "20000",
    "TOPICS_HOT_BYTES": "100000",
    "TOPICS_CHECKPOINT_BYTES": "150000",
    "TOPICS_UNSYNCED_RECORDS": "1000",
}
CLASSES = ["memory", "disk", "fsync"]
ROUNDS = 3
WRITES_PER_ROUND = 250


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path, **SMALL)
    yield process
    process.kill()


class Writer(threading.Thread):
    """Appends batches of growing numbers to one topic until the server is gone; notes the seqs of each answer."""

    def __init__(self, server: ServerProcess, topic: str, first: int, enough: threading.Semaphore) -> None:
        super().__init__(daemon=True)
        self.acked: dict[int, str] = {}
        # Sent, and perhaps written, when the server went away.
        self.open: list[str] = []
        self.number = first
        self.statuses: set[int] = set()
        self._server = server
        self._topic = topic
        self._enough = enough

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=30)
        try:
            while True:
                count = 1 + self.number % 3
                datas = [f"{self._topic}-{self.number + each}-{'x' * (self.number % 200)}" for each in range(count)]
                self.open = datas
                self.number += count
                records = [{"data": data, "tag": f"t{self.number % 5}"} for data in datas]
                body = json.dumps({"records": records, "idempotency_key": f"k{self.number}"})
                connection.request("POST", f"/v0/topics/{self._topic}", body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = json.loads(response.read())
                self.statuses.add(response.status)
                if response.status in (200, 201):
                    self.acked |= dict(zip(answer["seqs"], datas, strict=True))
                    self.open = []
                self._enough.release()
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return
        finally:
            connection.close()


def read_all(server: ServerProcess, topic: str) -> tuple[dict[int, str], list[dict[str, Any]]]:
    """Every record by its seq, and every tombstone on the way."""
    found: dict[int, str] = {}
    tombstones = []
    from_seq = 0
    for _ in range(10_000):
        status, page = server.request("POST", f"/v0/topics/{topic}/diff", {"from_seq": from_seq, "limit": 1000})
        assert status == 200
        found |= {record["$seq"]: record["data"] for record in page["records"]}
        if page.get("tombstone"):
            tombstones.append(page["tombstone"])
        from_seq = page["next_from_seq"]
        if page["caught_up"]:
            return found, tombstones
    raise AssertionError("the reader never catches up")


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_process_is_killed_under_load(server: ServerProcess) -> None:
    acked: dict[str, dict[int, str]] = {name: {} for name in CLASSES}
    possible: dict[str, set[str]] = {name: set() for name in CLASSES}
    numbers = dict.fromkeys(CLASSES, 0)
    server.start()
    for name in CLASSES:
        assert server.request("PUT", f"/v0/topics/{name}", {"durability": name})[0] == 201
    for _ in range(ROUNDS):
        enough = threading.Semaphore(0)
        writers = {name: Writer(server, name, numbers[name], enough) for name in CLASSES}
        for writer in writers.values():
            writer.start()
        for _ in range(WRITES_PER_ROUND):
            assert enough.acquire(timeout=30), server.logs
        server.kill()
        for name, writer in writers.items():
            writer.join(30)
            assert writer.statuses <= {200, 201}
            assert not acked[name].keys() & writer.acked.keys(), "a seq was handed out twice"
            acked[name] |= writer.acked
            possible[name] |= set(writer.open)
            numbers[name] = writer.number
        server.start()
        for name in CLASSES:
            found, tombstones = read_all(server, name)
            assert tombstones == []
            assert {seq: found.get(seq) for seq in acked[name]} == acked[name]
            rest = {data for seq, data in found.items() if seq not in acked[name]}
            assert rest <= possible[name], "a record was invented"
            assert sorted(found) == list(range(1, len(found) + 1))
            # What was under way and is there is as good as acknowledged from now on.
            acked[name] = found
    assert server.stop() == 0
    assert main(["check", str(server.data_dir)]) == 0


def test_an_ephemeral_topic_loses_its_records_with_the_process_and_says_so(server: ServerProcess) -> None:
    server.start()
    secret = "never-on-disk-" + "z" * 50
    body = {"records": [{"data": secret}] * 3, "config": {"durability": "ephemeral", "cap_records": 77}}
    assert server.request("POST", "/v0/topics/e", body)[0] == 201
    server.kill()
    assert not any(secret.encode() in path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file())
    server.start()
    status, state = server.request("GET", "/v0/topics/e")
    assert (status, state["head_seq"], state["count"], state["config"]["cap_records"]) == (200, 3, 0, 77)
    found, (tombstone,) = read_all(server, "e")
    assert (found, tombstone["gap_from"], tombstone["gap_to"]) == ({}, 1, 3)
    _, again = server.request("POST", "/v0/topics/e", {"records": [{"data": 1}]})
    assert again["first_seq"] == 4


def test_a_clean_stop_exits_0_keeps_everything_and_leaves_nothing_to_replay(server: ServerProcess) -> None:
    server.start()
    for name in [*CLASSES, "deleted"]:
        for number in range(60):
            body = {"records": [{"data": f"{number}" * 50, "tag": f"t{number % 3}"}], "config": {"durability": "disk"}}
            assert server.request("POST", f"/v0/topics/{name}", body)[0] in (200, 201)
        server.request("POST", f"/v0/topics/{name}/delete", {"match": "t1"})
    server.request("DELETE", "/v0/topics/deleted")
    before = {name: read_all(server, name) for name in CLASSES}
    assert server.stop() == 0
    server.start()
    assert " 0 frames" in server.logs.splitlines()[-1] or '"frames":0' in server.logs.replace(" ", "").splitlines()[-1]
    assert {name: read_all(server, name) for name in CLASSES} == before
    assert server.request("GET", "/v0/topics/deleted")[0] == 404


def test_a_second_server_on_the_same_directory_does_not_start_and_does_no_harm(
    server: ServerProcess, tmp_path: Path
) -> None:
    server.start()
    server.request("POST", "/v0/topics/a", {"records": [{"data": 1}]})
    second = ServerProcess(tmp_path / "second", TOPICS_DATA_DIR=str(server.data_dir))
    with pytest.raises(ServerEnded, match="another server is using it"):
        second.start()
    assert second.wait() == 1
    assert server.request("POST", "/v0/topics/a", {"records": [{"data": 2}]})[0] == 200
    server.kill()
    server.start()
    assert list(read_all(server, "a")[0].values()) == [1, 2]


def test_a_damaged_directory_is_refused_with_the_file_in_the_log(server: ServerProcess) -> None:
    server.start()
    server.request("POST", "/v0/topics/a", {"records": [{"data": 1}]})
    assert server.stop() == 0
    for snapshot in (server.data_dir / "snapshots").glob("*.snap"):
        content = bytearray(snapshot.read_bytes())
        content[len(content) // 2] ^= 0xFF
        snapshot.write_bytes(content)
    with pytest.raises(ServerEnded, match=r"snapshots/000000000001\.snap at byte"):
        server.start()
    assert server.wait() == 1


def test_the_port_file_holds_what_a_url_takes_for_ipv6_too(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    server = ServerProcess(tmp_path, TOPICS_HOST="::1")
    try:
        server.start()
        address = (tmp_path / "port").read_text().strip()
        with urllib.request.urlopen(f"http://{address}/v0/health", timeout=30) as answer:
            assert answer.status == 200
    finally:
        server.kill()


@pytest.mark.slow
def test_the_ready_probe_tells_how_far_recovery_is(tmp_path: Path) -> None:
    """The port is open while the log is replayed, and everything but the probes is answered 503."""
    with ServerProcess(tmp_path / "first", TOPICS_CHECKPOINT_BYTES=str(1 << 30)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        body = json.dumps({"records": [{"data": "x" * 20, "tag": "t"}] * 10_000})
        for _ in range(30):
            connection.request("POST", "/v0/topics/a", body, {"Content-Type": "application/json"})
            assert connection.getresponse().read()
        connection.close()
    for attempt in range(5):
        again = ServerProcess(tmp_path / f"copy-{attempt}")
        shutil.copytree(server.data_dir, again.data_dir)
        try:
            again.start(ready=False)
            status, answer = again.request("GET", "/v0/ready")
            write, refused = again.request("POST", "/v0/topics/a", {"records": [{"data": 1}]})
            health, _ = again.request("GET", "/v0/health")
        finally:
            again.kill()
        assert health == 200
        if status == 503 and write == 503:
            assert answer["error"]["code"] == "not_ready"
            assert 0 <= answer["error"]["detail"]["replay_progress"] <= 1
            assert refused["error"]["code"] == "not_ready"
            return
    pytest.skip("recovery was over before the first request each time")
