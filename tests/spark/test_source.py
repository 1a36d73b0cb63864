"""The streaming reader's own decisions, without Spark around them: when to wait, and how far a batch goes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.spark.conftest import python_path
from topics.client import Client
from topics.spark import source
from topics.spark.options import BadOption, source_options

datasource = pytest.importorskip("pyspark.sql.streaming.datasource")
types = pytest.importorskip("pyspark.sql.types")

# What must not happen would take this long; what must happen takes milliseconds.
LONG_MS = 30_000


def test_workers_import_nothing_that_only_archives_need() -> None:
    """Spark starts some of its workers anew for every batch."""
    heavy = ("pandas", "pyarrow", "deltalake", "duckdb", "topics.server", "topics.broker")
    code = f"import sys, pyspark_topics; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": python_path()}
    )
    assert ran.stdout.strip() == "[]", ran


def test_a_stream_has_no_end_to_be_given(client: Client, topic: str) -> None:
    found = source.TopicsDataSource({"url": client.url, "subscribe": topic, "endingOffsets": "latest"})
    names = [column.split()[0] for column in source.SCHEMA.split(", ")]
    schema = types.StructType([types.StructField(name, types.StringType()) for name in names])
    with pytest.raises(BadOption, match="for batch queries"):
        found.streamReader(schema)


def reader(client: Client, topic: str, **options: Any) -> source.StreamReader:
    given = {"url": client.url, "subscribe": topic, **{name: str(value) for name, value in options.items()}}
    return source.StreamReader(source_options(given))


def latest(found: source.StreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return found.latestOffset(start, found.getDefaultReadLimit())


def aside(act: Callable[[], Any]) -> Future[Any]:
    threads = ThreadPoolExecutor(1)
    future = threads.submit(act)
    threads.shutdown(wait=False)
    return future


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_reader_that_has_caught_up_waits_until_any_partition_has_more(
    client: Client, topic: str, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "WAIT_MS", LONG_MS)
    client.create(topic, partitions=partitions)
    found = reader(client, topic)
    start = found.initialOffset()
    future = aside(lambda: latest(found, start))
    client.append(topic, ["new"], partition=partitions - 1)
    moved = future.result(20)
    assert moved[topic][str(partitions - 1)] == 2


def test_a_reader_with_nothing_to_read_asks_once_and_waits(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic, partitions=3)
    found = reader(client, topic)
    start = found.initialOffset()
    asked: list[str] = []
    once = Client._once

    def counted(self: Client, call: Any) -> Any:
        asked.append(call.path.partition("?")[0])
        return once(self, call)

    monkeypatch.setattr(Client, "_once", counted)
    monkeypatch.setattr(source, "WAIT_MS", 300)
    began = time.monotonic()
    assert latest(found, start) == start
    assert time.monotonic() - began >= 0.3
    assert asked == [f"/v0/topics/{topic}", "/v0/heads", f"/v0/topics/{topic}"]


def test_less_than_wanted_is_waited_for_and_then_left(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(topic, partitions=2)
    found = reader(client, topic, startingOffsets="earliest", minOffsetsPerTrigger=5)
    start = found.initialOffset()
    client.append(topic, [1, 2], partition=0)
    client.append(topic, [3, 4], partition=1)
    monkeypatch.setattr(source, "WAIT_MS", 50)
    assert latest(found, start) == start
    monkeypatch.setattr(source, "WAIT_MS", LONG_MS)
    future = aside(lambda: latest(found, start))
    client.append(topic, [5], partition=1)
    moved = future.result(20)
    assert (moved[topic]["0"], moved[topic]["1"]) == (3, 4)


def test_what_is_there_is_taken_at_once_up_to_the_limit(client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    found = reader(client, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    start = found.initialOffset()
    for number in (0, 1):
        client.append(topic, [1, 2, 3], partition=number)
    moved = latest(found, start)
    assert (moved[topic]["0"] + moved[topic]["1"]) - 2 == 4
    everything = found.latestOffset(start, datasource.ReadAllAvailable())
    assert (everything[topic]["0"], everything[topic]["1"]) == (4, 4)


def test_available_now_ends_where_the_topic_ended_when_it_began(client: Client, topic: str) -> None:
    client.create(topic)
    client.append(topic, [1, 2])
    found = reader(client, topic, startingOffsets="earliest", minOffsetsPerTrigger=100)
    start = found.initialOffset()
    found.prepareForTriggerAvailableNow()
    client.append(topic, [3])
    moved = latest(found, start)
    assert moved[topic]["0"] == 3, "two records, and no waiting for a hundred"
    assert latest(found, moved) == moved


def test_a_pattern_that_matches_nothing_waits_too(client: Client, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "WAIT_MS", 200)
    found = source.StreamReader(source_options({"url": client.url, "subscribePattern": f"{topic}-none-.*"}))
    began = time.monotonic()
    assert latest(found, {}) == {}
    assert time.monotonic() - began >= 0.2
