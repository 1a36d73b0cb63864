"""Exactly once from topic to topic: count, distinct and order are right after failures of the driver and the tasks."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connector.test_stream import finish, sink, source
from tests.spark.driver import stream
from topics.client import Client, RetryPolicy
from topics.testing.process import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Reached only by a test that fails: starting Spark takes 15 s, and ten times that on a machine that has much else to do.
PATIENCE_SECONDS = 450
DRIVER = Path(__file__).resolve().parents[1] / "driver.py"
SOURCE = Path(__file__).resolve().parents[3] / "src"


def check_copied(client: Client, target: str, records: int) -> None:
    copied = [int(record.data) for record in client.read(target)]
    assert len(copied) == records
    assert len(set(copied)) == records
    assert copied == list(range(records)), "the order of the source"


def fill(client: Client, topic: str, records: int) -> None:
    client.create(topic)
    client.create(f"{topic}.out")
    for start in range(0, records, 1000):
        client.append(topic, list(range(start, min(records, start + 1000))), return_seqs=False)


class Driver:
    """`driver.py` in a process group of its own, so that its JVM and its workers can be killed together with it."""

    def __init__(self, **job: Any) -> None:
        path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
            environment.pop(name, None)
        # Files: a full pipe without a reader would block the writer.
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by kill
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by kill
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), json.dumps(job)],
            env=environment,
            stdout=self._out,
            stderr=self._errors,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill it with its JVM and workers."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._out.close()
        self._errors.close()

    def errors(self) -> str:
        """The end of what it complained about."""
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def reports(self, timeout: float = PATIENCE_SECONDS) -> dict[str, dict[str, Any]]:
        """Wait for its end: what it printed, by the name of what it did."""
        try:
            status = self.process.wait(timeout)
            assert status == 0, self.errors()
            self._out.seek(0)
            return {line["did"]: line for line in map(json.loads, self._out.read().splitlines())}
        finally:
            self.kill()


def fence(client: Client, checkpoint: Path) -> int:
    """The last batch the server has of the query of this checkpoint; -1 before the first."""
    try:
        query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    except (OSError, ValueError):
        return -1
    producer = client.last_commit(f"spark-{query_id}")
    return -1 if producer is None else producer.batch


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.long)])
def test_a_driver_killed_again_and_again_copies_every_record_once(
    spark: Any, client: Client, topic: str, tmp_path: Path, kills: int
) -> None:
    """Each attempt has another partition count, and dies right after a commit or somewhere in the next batch."""
    records, batch = 5000 * (1 + kills), 1000
    fill(client, topic, records)
    chance = random.Random(8)
    job = {"master": "local[2]", "do": "stream", "url": client.url, "source": topic, "target": f"{topic}.out"}
    job |= {"checkpoint": str(tmp_path / "checkpoint"), "batch": batch}
    reached = -1
    for attempt in range(kills):
        driver = Driver(**job, min_partitions=1 + attempt)
        try:
            aim = reached + 1 + chance.randrange(1, 4)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while (reached := fence(client, tmp_path / "checkpoint")) < aim:
                assert driver.process.poll() is None, f"the driver ended before it was killed: {driver.errors()}"
                assert time.monotonic() < deadline, f"batch {aim} never came: {driver.errors()}"
                time.sleep(0.003)
            # Every other time at once: the server has the batch, and the driver has not noted it yet.
            time.sleep(0 if attempt % 2 == 0 else chance.uniform(0, 0.3))
        finally:
            driver.kill()
    assert client.info(f"{topic}.out").count < records, "it was killed in the middle"
    stream(spark, {**job, "min_partitions": 5})
    check_copied(client, f"{topic}.out", records)


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_a_server_killed_and_restarted_under_a_running_query_gets_every_record_once(
    spark: Any, topic: str, tmp_path: Path
) -> None:
    """Killed at once after a commit and somewhere in a batch, and once stopped in good order; the query never ends."""
    records, batch = 6000, 300
    chance = random.Random(9)
    checkpoint = tmp_path / "checkpoint"
    query = None
    with ServerProcess(tmp_path / "server") as server, Client(server.url, retry=RetryPolicy(attempts=20)) as client:
        try:
            fill(client, topic, records)
            frame = source(
                spark,
                server.url,
                subscribe=topic,
                startingOffsets="earliest",
                minPartitions=2,
                maxOffsetsPerTrigger=batch,
                numRetries=20,
            )
            frame = frame.select("data")
            query = sink(frame, server.url, f"{topic}.out", checkpoint, processingTime="0 seconds", numRetries=20)
            reached = -1
            for end in (server.kill, server.kill, server.stop):
                aim = reached + chance.randrange(1, 4)
                deadline = time.monotonic() + PATIENCE_SECONDS
                while (reached := fence(client, checkpoint)) < aim:
                    assert query.isActive, query.exception()
                    assert time.monotonic() < deadline, f"batch {aim} never came"
                    time.sleep(0.003)
                time.sleep(0 if end is server.stop else chance.uniform(0, 0.3))
                end()
                server.start()
            assert client.info(f"{topic}.out").count < records, "it was ended in the middle"
            query.processAllAvailable()
            assert query.isActive, query.exception()
            check_copied(client, f"{topic}.out", records)
        finally:
            if query is not None:
                query.stop()


def test_a_batch_run_again_with_other_partitions_is_written_once(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    """The worst moment for a driver to die, made certain: the server has the last batch, Spark's own note is missing."""
    fill(client, topic, 3000)

    def run(partitions: int) -> None:
        frame = source(
            spark,
            client.url,
            subscribe=topic,
            startingOffsets="earliest",
            minPartitions=partitions,
            maxOffsetsPerTrigger=1000,
        )
        finish(sink(frame.select("data"), client.url, f"{topic}.out", tmp_path, availableNow=True))

    run(2)
    check_copied(client, f"{topic}.out", 3000)
    for note in (tmp_path / "commits").glob("*2*"):
        note.unlink()
    client.append(topic, list(range(3000, 3500)))
    run(3)
    check_copied(client, f"{topic}.out", 3500)


def test_tasks_that_fail_are_tried_again_and_leave_nothing_behind(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 2000)
    frame = source(spark, client.url, subscribe=topic, startingOffsets="earliest", minPartitions=3)
    frame = frame.select("data").mapInArrow(fails_twice, "data STRING")
    finish(sink(frame, client.url, f"{topic}.out", tmp_path, availableNow=True))
    check_copied(client, f"{topic}.out", 2000)


def fails_twice(batches: Iterator[Any]) -> Iterator[Any]:
    """Hands its rows on, then fails, in the first two attempts of every task."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() < 2:
        raise RuntimeError("a task that fails")


def test_a_deleted_checkpoint_copies_again_and_the_source_seq_shows_repeats(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 100)
    for attempt in range(2):
        frame = source(spark, client.url, subscribe=topic, startingOffsets="earliest")
        frame = frame.selectExpr("data", "named_struct('src_topic', topic, 'src_seq', seq) AS meta")
        finish(sink(frame, client.url, f"{topic}.out", tmp_path / str(attempt), availableNow=True))
    reader = spark.read.format("topics").option("url", client.url).option("subscribe", f"{topic}.out")
    copied = reader.load().selectExpr("data", "get_json_object(meta, '$.src_seq') AS src_seq")
    assert copied.count() == 200
    assert copied.dropDuplicates(["src_seq"]).count() == 100
