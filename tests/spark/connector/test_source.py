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
from topics.client.calls import Call
from topics.spark.connector import source
from topics.spark.connector.options import BadOption, source_options
from topics.spark.connector.reading import DataLoss

datasource = pytest.importorskip("pyspark.sql.streaming.datasource")
types = pytest.importorskip("pyspark.sql.types")

# What must not happen would take this long; what must happen takes milliseconds.
LONG_MS = 30_000


def test_workers_import_nothing_that_only_archives_need() -> None:
    """Spark starts some workers again for every batch, so each import costs time in every batch."""
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
    run = Client.run

    def counted(self: Client, call: Any) -> Any:
        asked.append(call.path.partition("?")[0])
        return run(self, call)

    monkeypatch.setattr(Client, "run", counted)
    monkeypatch.setattr(source, "WAIT_MS", 300)
    began = time.monotonic()
    assert latest(found, start) == start
    assert time.monotonic() - began >= 0.3
    assert asked == ["/v0/heads"] * 3


def test_a_batch_waits_until_min_offsets_per_trigger_are_available(
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


def test_a_wait_for_more_seqs_ends_after_max_trigger_delay(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "WAIT_MS", 1)
    client.create(topic)
    client.append(topic, [1, 2])
    given = {"url": client.url, "subscribe": topic, "startingOffsets": "earliest"}
    patient = source.StreamReader(source_options(given | {"minOffsetsPerTrigger": "3"}))
    start = patient.initialOffset()
    assert patient.latestOffset(start, patient.getDefaultReadLimit()) == start
    hasty = source.StreamReader(source_options(given | {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "0s"}))
    assert hasty.latestOffset(start, hasty.getDefaultReadLimit())[topic]["0"] == 3


def test_available_seqs_are_taken_at_once_up_to_the_limit(client: Client, topic: str) -> None:
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


@pytest.mark.parametrize("choice", ["subscribe", "subscribePattern"])
def test_a_topic_that_is_deleted_while_it_is_read_is_data_loss(client: Client, topic: str, choice: str) -> None:
    gone, kept = f"{topic}-gone", f"{topic}-kept"
    names = f"{gone},{kept}" if choice == "subscribe" else f"{topic}-.*"
    for each in (gone, kept):
        client.append(each, [1, 2])

    def made(on_data_loss: str) -> source.StreamReader:
        options = {choice: names, "startingOffsets": "earliest", "onDataLoss": on_data_loss}
        return source.StreamReader(source_options({"url": client.url, **options}))

    start = made("fail").initialOffset()
    end = latest(made("fail"), start)
    client.append(gone, [3])
    client.append(kept, [3])
    client.drop(gone)
    failing = made("fail")
    failing.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match=f'"{gone}", which this query has read, was deleted'):
        latest(failing, end)
    with pytest.raises(DataLoss, match=f'"{gone}" was deleted before records 1 to 2'):
        [list(failing.read(each)) for each in failing.partitions(start, end)]
    for on_data_loss in ("emit", "ignore"):
        going_on = made(on_data_loss)
        going_on.prepareForTriggerAvailableNow()
        after = latest(going_on, end)
        assert after[kept]["0"] == 4
        assert latest(made("fail"), after)[kept]["0"] == 4, "the loss is accepted once"
        rows = [batch.num_rows for each in going_on.partitions(start, end) for batch in going_on.read(each)]
        assert sum(rows) == 2, "only those of the topic that is there"


@pytest.mark.parametrize("transport", ["arrow", "json"])
def test_a_lone_surrogate_is_read_as_it_was_written(client: Client, topic: str, transport: str) -> None:
    body = rb'{"records":[{"data":"x\ud800y","meta":{"m":"\udc00"}},{"data":"\ud83d\ude00"}]}'
    client.run(Call("POST", f"/v0/topics/{topic}", bytes, body))
    found = source.BatchReader(source_options({"url": client.url, "subscribe": topic, "transport": transport}))
    (batch,) = [batch for each in found.partitions() for batch in found.read(each)]
    assert batch.column("data").to_pylist() == [r'"x\ud800y"', r'"\ud83d\ude00"']
    assert batch.column("meta").to_pylist() == [r'{"m":"\udc00"}', None]
