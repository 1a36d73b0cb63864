"""`topics pipeline run` as the process it is: killed, stopped, with a server that goes away."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import python_path
from topics.client import Client
from topics.model.errors import TopicsError

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PATIENCE_SECONDS = 150


class Process:
    """A command of ours, or `command`, in a process group of its own."""

    def __init__(self, *arguments: str, command: list[str] | None = None, **environment: str) -> None:
        variables = {**os.environ, "PYTHONPATH": python_path(), **environment}
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            variables.pop(name, None)
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by end
        self.last = ""
        self.process = subprocess.Popen(
            command or [sys.executable, "-m", "topics.cli.main", *arguments],
            env=variables,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def output(self) -> str:
        if self._out.closed:
            return self.last
        self._out.seek(0)
        return self._out.read()

    def kill(self) -> None:
        """Kill it with its JVM and workers."""
        if self._out.closed:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.last = self.output()
        self._out.close()


class ServerAndPipeline:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port_file = directory / "port"
        self.port = 0
        self.server: Process | None = None
        self.pipeline: Process | None = None
        self.client = Client()
        self.start_server()

    def start_server(self) -> None:
        self.port_file.unlink(missing_ok=True)
        self.server = Process(
            "serve",
            TOPICS_PORT=str(self.port),
            TOPICS_PORT_FILE=str(self.port_file),
            TOPICS_DATA_DIR=str(self.directory / "data"),
        )
        wait_until(lambda: self.port_file.exists() and bool(self.port_file.read_text()), self.server)
        self.url = "http://" + self.port_file.read_text().strip()
        self.port = int(self.url.rpartition(":")[2])
        self.client.close()
        self.client = Client(self.url)

    def start_pipeline(self, *more: str) -> Process:
        self.pipeline = Process(
            *("pipeline", "run", "--url", self.url, "--checkpoint", str(self.directory / "checkpoint")),
            *(
                "--conf",
                "spark.driver.memory=600m",
                "--name",
                "main",
                "--no-ui",
                "--no-logs",
                *(more or ("--master", "local[2,4]")),
            ),
        )
        return self.pipeline

    def job(self, name: str) -> Any:
        try:
            found = [job for job in self.client.pipeline("main").jobs if job.name == name]
        except TopicsError:
            return None
        return found[0] if found else None

    def end(self) -> None:
        self.client.close()
        for each in (self.pipeline, self.server):
            if each is not None:
                each.kill()


def wait_until(true: Callable[[], bool], process: Process | None) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert process is None or process.process.poll() is None, process.output()[-3000:]
        assert time.monotonic() < until, "" if process is None else process.output()[-3000:]
        time.sleep(0.02)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[ServerAndPipeline]:
    system = ServerAndPipeline(tmp_path)
    try:
        yield system
    finally:
        system.end()


def change(number: int, keys: int = 20) -> dict[str, Any]:
    return {"op": "update", "ts": number, "after": {"id": number % keys, "n": number}, "position": number + 1}


def send(system: ServerAndPipeline, table: str, first: int, last: int) -> None:
    for start in range(first, last, 500):
        changes = [change(number) for number in range(start, min(last, start + 500))]
        system.client.send_changes(table, changes, source="test", key_columns=["id"])


def routed(system: ServerAndPipeline, topic: str, partitions: int) -> list[list[int]]:
    return [
        [record.data["n"] for record in system.client.read(topic, partition=number)] for number in range(partitions)
    ]


def count(system: ServerAndPipeline, topic: str) -> int:
    return sum([each.count for each in system.client.info(topic).partitions]) or system.client.info(topic).count


def check(system: ServerAndPipeline, topic: str, wanted: list[int], partitions: int) -> None:
    found = routed(system, topic, partitions)
    assert sorted([n for each in found for n in each]) == wanted, "every matching change, once"
    for each in found:
        for key in range(20):
            of_key = [n for n in each if n % 20 == key]
            assert of_key == sorted(of_key), "changes of a key in their order"


def test_every_matching_change_is_routed_once_however_driver_and_server_end(system: ServerAndPipeline) -> None:
    client = system.client
    client.create("changes:shop.orders", partitions=2)
    client.create("all", partitions=3)
    client.create("even")
    client.sql("ALTER TOPIC \"all\" ADD SOURCE shop.orders ON UPDATE WITH (payload = 'full')")
    client.sql("ALTER TOPIC even ADD SOURCE shop.orders ON UPDATE WHERE (n % 2 = 0) WITH (payload = 'full')")
    sent = 4000
    send(system, "shop.orders", 0, sent)
    for kill in ("driver", "server"):
        if system.pipeline is None or system.pipeline.process.poll() is not None:
            system.start_pipeline()
        before = count(system, "even")
        # In the middle of the work: something new has arrived, and more is on its way.
        wait_until(lambda seen=before: count(system, "even") > seen, system.pipeline)  # type: ignore[misc]
        send(system, "shop.orders", sent, sent + 3000)
        sent += 3000
        if kill == "driver":
            assert system.pipeline is not None
            system.pipeline.kill()
        else:
            assert system.server is not None
            system.server.kill()
            system.start_server()
        send(system, "shop.orders", sent, sent + 500)
        sent += 500
    pipeline = system.pipeline
    assert pipeline is not None
    wait_until(lambda: count(system, "all") >= sent and count(system, "even") >= sent // 2, pipeline)

    # Routes that come and go while it runs: what was sent after one was made is routed by it, and none of what came after
    # it was dropped.
    system.client.create("late")
    system.client.sql("ALTER TOPIC late ADD SOURCE shop.orders ON UPDATE WITH (payload = 'full')")
    send(system, "shop.orders", sent, sent + 50)
    wait_until(lambda: count(system, "late") >= 50, pipeline)
    system.client.sql("ALTER TOPIC late DROP SOURCE shop.orders")
    send(system, "shop.orders", sent + 50, sent + 100)
    wait_until(lambda: count(system, "all") >= sent + 100, pipeline)
    check(system, "late", list(range(sent, sent + 50)), 1)
    sent += 100

    job = system.job("route shop.orders")
    assert (job.kind, job.state) == ("route", "running")
    pipeline.process.send_signal(signal.SIGTERM)
    assert pipeline.process.wait(60) == 0, pipeline.output()[-3000:]
    assert system.client.pipeline("main").state == "stopped"
    assert "route shop.orders: running" in pipeline.output()
    check(system, "all", list(range(sent)), 3)
    check(system, "even", list(range(0, sent, 2)), 1)
