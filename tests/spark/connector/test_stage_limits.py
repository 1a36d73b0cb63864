"""Writes that are larger than the server keeps in stages, and writes that take longer than a stage lives."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.served import server_settings
from topics.client import Client
from topics.client.calls import Call
from topics.spark.connector.options import BadOption, SinkOptions, sink_options
from topics.spark.connector.sink import BatchWriter, StageLimitReached
from topics.testing.server import running_server

MAX_STAGED_BYTES = 1 << 20
# Longer than the task waits before its first renewal.
STAGE_TTL_MS = 2500
ROW = '"' + "x" * 998 + '"'


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server that keeps few stages, and not for long."""
    directory: Path = tmp_path_factory.mktemp("small")
    limits = {"TOPICS_MAX_STAGED_BYTES": str(MAX_STAGED_BYTES), "TOPICS_STAGE_TTL_MS": str(STAGE_TTL_MS)}
    settings = server_settings(directory, **limits, TOPICS_RETENTION_INTERVAL_MS="100")
    with running_server(settings) as url, Client(url) as client:
        yield client


def options(client: Client, topic: str, **given: str) -> SinkOptions:
    return sink_options({"url": client.url, "topic": topic, "numRetries": "0", **given})


def rows(count: int) -> list[Any]:
    return pa.table({"data": [ROW] * count}).to_batches(max_chunksize=100)


def test_write_beyond_the_stage_limit_names_the_setting_and_the_option(small: Client, topic: str) -> None:
    small.create(topic)
    writer = BatchWriter(options(small, topic))
    written = [writer.write(iter(rows(500))) for _ in range(2)]
    with pytest.raises(StageLimitReached, match=r"TOPICS_MAX_STAGED_BYTES.*atomic=false"):
        writer.write(iter(rows(500)))
    writer.abort(written)
    assert small.info(topic).count == 0


def test_write_without_atomic_needs_no_more_space_than_a_piece(
    small: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.create(topic)
    monkeypatch.setattr("topics.spark.connector.sink.STAGE_BYTES", MAX_STAGED_BYTES // 8)
    writer = BatchWriter(options(small, topic, atomic="false"))
    written = writer.write(iter(rows(5000)))
    assert small.info(topic).count == 5000, "readable before the job ends"
    writer.commit([written])
    writer.abort([written])
    assert small.info(topic).count == 5000


@pytest.mark.long
@pytest.mark.timeout(300)
def test_write_without_atomic_writes_a_gigabyte_with_default_settings(tmp_path: Path) -> None:
    row = '"' + "x" * 9_998 + '"'
    batch = pa.table({"data": [row] * 1000}).to_batches()[0]
    with running_server(server_settings(tmp_path / "data")) as url, Client(url) as client:
        client.create("large")
        writer = BatchWriter(sink_options({"url": url, "topic": "large", "atomic": "false"}))
        writer.commit([writer.write(iter([batch] * 100))])
        info = client.info("large")
        assert (info.count, info.bytes > 1_000_000_000) == (100_000, True)


def test_write_that_takes_longer_than_a_stage_lives_keeps_its_stages(small: Client, topic: str) -> None:
    """The first task ends at once; the second one waits until a stage that is not renewed has expired."""
    small.create(topic)
    writer = BatchWriter(options(small, topic))
    first = writer.write(iter(rows(10)))
    abandoned = small.stage(topic, ["not renewed"]).stage_id
    expired = threading.Event()

    def slow() -> Iterator[Any]:
        yield from rows(10)
        while not expired.wait(0.05):
            if _expired_stages(small):
                expired.set()

    second = writer.write(slow())
    assert not small.drop_stage(abandoned).deleted
    writer.commit([first, second])
    assert small.info(topic).count == 20


def _expired_stages(client: Client) -> bool:
    lines = client.run(Call("GET", "/v0/metrics", bytes)).decode().splitlines()
    (count,) = [line.split()[-1] for line in lines if line.startswith("topics_stages_expired_total ")]
    return int(float(count)) > 0


def test_atomic_false_is_refused_where_a_write_must_be_once() -> None:
    with pytest.raises(BadOption, match="atomic=false"):
        sink_options({"topic": "t", "atomic": "false", "queryId": "q", "batchId": "1"})
