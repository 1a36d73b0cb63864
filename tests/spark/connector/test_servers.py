"""`url` with several servers: a query reads their topics as one, in batches and in streams."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.served import server_settings
from topics.client import Client
from topics.spark.connector import source
from topics.spark.connector.options import BadOption, source_options
from topics.testing.server import running_server

PATIENCE_SECONDS = 400
# A wait that does not end early takes this long.
LONG_MS = 30_000


@pytest.fixture(scope="module")
def second_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_server(server_settings(tmp_path_factory.mktemp("second"))) as url:
        yield url


@pytest.fixture
def second(second_url: str) -> Iterator[Client]:
    with Client(second_url) as client:
        yield client


def read(found: source.BatchReader) -> list[tuple[str, str]]:
    batches = [batch for each in found.partitions() for batch in found.read(each)]
    return [
        row
        for batch in batches
        for row in zip(*[batch.column(name).to_pylist() for name in ("topic", "data")], strict=True)
    ]


def options(client: Client, second: Client, **more: str) -> dict[str, str]:
    return {"url": f"{client.url},{second.url}", **more}


def test_a_topic_is_read_from_the_server_that_has_it(client: Client, second: Client, topic: str) -> None:
    client.append(f"{topic}.a", [1, 2])
    second.append(f"{topic}.b", [3])
    for chosen in ({"subscribe": f"{topic}.a,{topic}.b"}, {"subscribePattern": rf"{topic}\..*"}):
        found = source.BatchReader(source_options(options(client, second, **chosen)))
        assert sorted(read(found)) == [(f"{topic}.a", "1"), (f"{topic}.a", "2"), (f"{topic}.b", "3")]
        assert len(found.partitions()) == 1, "short ranges of several servers share a task"


def test_a_topic_on_two_servers_is_refused(client: Client, second: Client, topic: str) -> None:
    client.append(topic, [1])
    second.append(topic, [2])
    with pytest.raises(BadOption, match=f"exists on {client.url} and on {second.url}"):
        source.BatchReader(source_options(options(client, second, subscribe=topic))).partitions()


def test_a_topic_on_no_server_is_named_with_all_servers(client: Client, second: Client) -> None:
    with pytest.raises(BadOption, match=f"does not exist on {client.url} or {second.url}"):
        source.BatchReader(source_options(options(client, second, subscribe="nowhere"))).partitions()


def test_an_offset_names_the_server_and_the_offset_of_one_server_stays_valid(
    client: Client, second: Client, topic: str
) -> None:
    client.append(f"{topic}.a", [1, 2])
    second.append(f"{topic}.b", [3])
    subscribed = {"subscribe": f"{topic}.a,{topic}.b", "startingOffsets": "earliest"}
    found = source.StreamReader(source_options(options(client, second, **subscribed)))
    old_form = {f"{topic}.a": {"epoch": client.info(f"{topic}.a").epoch, "0": 2}}
    end = found.latestOffset(old_form, found.getDefaultReadLimit())
    assert end[f"{topic}.a"] == {**old_form[f"{topic}.a"], "0": 3}
    assert end[f"{topic}.b"] == {"epoch": second.info(f"{topic}.b").epoch, "server": 1, "0": 2}
    rows = [batch for each in found.partitions(old_form, end) for batch in found.read(each)]
    assert sorted([data for batch in rows for data in batch.column("data").to_pylist()]) == ["2", "3"]
    other_order = source.StreamReader(source_options(options(second, client, **subscribed)))
    with pytest.raises(BadOption, match="keep the order of the servers"):
        other_order.latestOffset(end, other_order.getDefaultReadLimit())


def test_a_stream_that_waits_sees_a_record_of_any_server(
    client: Client, second: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(f"{topic}.a")
    second.create(f"{topic}.b")
    found = source.StreamReader(source_options(options(client, second, subscribe=f"{topic}.a,{topic}.b")))
    start = found.initialOffset()
    monkeypatch.setattr(source, "WAIT_MS", LONG_MS)
    with ThreadPoolExecutor(1) as threads:
        request = threads.submit(found.latestOffset, start, found.getDefaultReadLimit())
        second.append(f"{topic}.b", ["new"])
        assert request.result(20)[f"{topic}.b"]["0"] == 2
        # Ends the request that still waits at the first server.
        client.append(f"{topic}.a", ["end"])


@pytest.mark.spark
@pytest.mark.slow
def test_spark_reads_two_servers_as_one_and_a_stream_continues_from_its_checkpoint(
    spark: Any, client: Client, second: Client, topic: str, tmp_path: Path
) -> None:
    client.append(f"{topic}.a", [{"n": 1}, {"n": 2}])
    second.append(f"{topic}.b", [{"n": 3}])
    reader = spark.read.format("topics").option("url", f"{client.url},{second.url}")
    rows = reader.option("subscribePattern", rf"{topic}\.[ab]").load().select("topic", "data").collect()
    assert sorted([(row.topic, json.loads(row.data)["n"]) for row in rows]) == [
        (f"{topic}.a", 1),
        (f"{topic}.a", 2),
        (f"{topic}.b", 3),
    ]

    def copy_all() -> None:
        stream = spark.readStream.format("topics").option("url", f"{client.url},{second.url}")
        stream = stream.option("subscribePattern", rf"{topic}\.[ab]").option("startingOffsets", "earliest").load()
        writer = stream.select("data").writeStream.format("topics").option("url", client.url)
        writer = writer.option("topic", f"{topic}-copy").option("checkpointLocation", str(tmp_path))
        assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_SECONDS)

    client.create(f"{topic}-copy")
    copy_all()
    second.append(f"{topic}.b", [{"n": 4}])
    copy_all()
    assert sorted([record.data["n"] for record in client.read(f"{topic}-copy")]) == [1, 2, 3, 4]
