"""Acknowledged positions of a group survive a kill of the process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.topic import succeeded
from topics.testing.http import Api


class Process:
    """`topics serve`, to be killed."""

    def __init__(self, directory: Path) -> None:
        self.port_file = directory / "port"
        environment = os.environ | {
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(self.port_file),
            "TOPICS_DATA_DIR": str(directory / "data"),
        }
        self.port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "topics.cli.main", "serve"]
        self.child = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        while not self.port_file.exists():
            assert self.child.poll() is None, "the server ended"
            os.sched_yield()
        self.api = Api("http://" + self.port_file.read_text(encoding="utf-8").strip())
        self.api.wait_until_ready(30)

    def kill(self) -> None:
        self.api.close()
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_pins_acks_aliases_and_routes_survive_kill_9(tmp_path: Path, durability: str) -> None:
    process = Process(tmp_path)
    try:
        api = process.api
        statement = f"CREATE TOPIC t PARTITIONS 2 WITH (durability = '{durability}', alias = 'other')"
        succeeded(api.post("/api/sql", {"sql": statement}))
        succeeded(api.post("/api/sql", {"sql": "ALTER TOPIC t ADD SOURCE a.b ON INSERT WHERE (x = 1)"}))
        succeeded(api.post("/v0/topics/t", {"records": [{"data": n} for n in range(9)]}))
        late = {"topic": "t", "group_id": "late", "start": "Latest", "timeout_seconds": 0}
        succeeded(api.post("/api/topics/consume", late))
        succeeded(api.post("/v0/topics/t", {"records": [{"data": 9}]}))
        for offset in range(1, 8):
            body = {"topic": "t", "group_id": "g", "upto_offset": offset}
            assert succeeded(api.post("/api/topics/ack", body))["acknowledged_offset"] == offset
        process.kill()
        process = Process(tmp_path)
        api = process.api
        for group, offsets in (("g", [8, 9, 10]), ("late", [10])):
            body = {"topic": "other", "group_id": group, "timeout_seconds": 0}
            found = succeeded(api.post("/api/topics/consume", body))["messages"]
            assert [message["offset"] for message in found] == offsets
        routes = succeeded(api.get("/api/routes"))
        assert (routes["version"], [route["filter_expr"] for route in routes["routes"]]) == (1, ["`x` = 1"])
    finally:
        process.kill()
