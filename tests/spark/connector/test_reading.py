"""Reading a range: both transports give the same rows; a lost range follows onDataLoss; deletes are not loss."""

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.lying import LIES, Lie, lying_server
from topics.client import Client
from topics.client.calls import RecordIn
from topics.client.range_pages import IncompletePage
from topics.spark.connector.options import source_options
from topics.spark.connector.ranges import SeqRange
from topics.spark.connector.reading import DataLoss, TopicRecreated, read_range
from topics.spark.connector.source import BatchReader

TRANSPORTS = pytest.mark.parametrize("transport", ["arrow", "json"])


def rows(
    client: Client,
    topic: str,
    first: int,
    last: int,
    *,
    transport: str = "arrow",
    on_data_loss: str = "fail",
    partition: int = 0,
    epoch: int | None = None,
) -> list[dict[str, Any]]:
    wanted = SeqRange(topic, partition, client.info(topic).epoch if epoch is None else epoch, first, last)
    batches = list(read_range(client, wanted, transport=transport, on_data_loss=on_data_loss))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_both_transports_give_identical_rows(client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    client.append(
        topic,
        [
            RecordIn({"a": "é", "n": 1.5}, tag="t", node="n", meta={"k": [1]}),
            RecordIn(None),
            RecordIn("text"),
            RecordIn([1, {"x": None}], tag="u"),
        ],
        partition=1,
    )
    arrow = rows(client, topic, 1, 4, transport="arrow", partition=1)
    assert arrow == rows(client, topic, 1, 4, transport="json", partition=1)
    assert [row["seq"] for row in arrow] == [1, 2, 3, 4]
    assert [json.loads(row["data"]) for row in arrow] == [{"a": "é", "n": 1.5}, None, "text", [1, {"x": None}]]
    assert (arrow[0]["tag"], arrow[0]["node"], json.loads(arrow[0]["meta"])) == ("t", "n", {"k": [1]})
    assert {(row["topic"], row["partition"], row["epoch"]) for row in arrow} == {(topic, 1, client.info(topic).epoch)}


@TRANSPORTS
def test_a_range_is_read_whole_over_many_pages(client: Client, topic: str, transport: str) -> None:
    client.create(topic)
    for start in range(0, 2500, 500):
        client.append(topic, list(range(start, start + 500)), return_seqs=False)
    assert [int(row["data"]) for row in rows(client, topic, 11, 2400, transport=transport)] == list(range(10, 2400))


@TRANSPORTS
def test_deletes_are_silent_wherever_they_lie(client: Client, topic: str, transport: str) -> None:
    client.create(topic)
    client.append(topic, [RecordIn(number, tag=f"t{number}") for number in range(1, 11)])
    client.delete(topic, before_seq=3)
    client.delete(topic, match="t5")
    client.delete(topic, match="t10")
    found = rows(client, topic, 1, 10, transport=transport)
    assert [row["seq"] for row in found] == [3, 4, 6, 7, 8, 9]


@TRANSPORTS
def test_capped_records_fail_the_read_with_the_exact_range(client: Client, topic: str, transport: str) -> None:
    client.create(topic, cap_records=4)
    for number in range(10):
        client.append(topic, [number])
    with pytest.raises(DataLoss, match=f'topic "{topic}" partition 0: records 2 to 6 were lost'):
        rows(client, topic, 2, 10, transport=transport)


@TRANSPORTS
def test_records_that_outlived_their_time_are_a_loss_too(client: Client, topic: str, transport: str) -> None:
    client.create(topic, ttl_ms=1)
    client.append(topic, [1, 2, 3])
    while client.info(topic).count:
        pass
    with pytest.raises(DataLoss, match=r"records 2 to 3 were lost \(ttl\)"):
        rows(client, topic, 2, 3, transport=transport)


@TRANSPORTS
def test_a_loss_becomes_a_row_when_asked(client: Client, topic: str, transport: str) -> None:
    client.create(topic, cap_records=4)
    for number in range(10):
        client.append(topic, [number])
    found = rows(client, topic, 2, 10, transport=transport, on_data_loss="emit")
    assert [row["seq"] for row in found] == [6, 7, 8, 9, 10]
    tombstone = json.loads(found[0]["meta"])["_topics_tombstone"]
    assert (tombstone["gap_from"], tombstone["gap_to"]) == (2, 6)
    assert found[0]["data"] is None


@TRANSPORTS
def test_a_loss_is_passed_over_when_asked(client: Client, topic: str, transport: str) -> None:
    client.create(topic, cap_records=4)
    for number in range(10):
        client.append(topic, [number])
    found = rows(client, topic, 1, 10, transport=transport, on_data_loss="ignore")
    assert [row["seq"] for row in found] == [7, 8, 9, 10]


@TRANSPORTS
def test_a_range_that_is_lost_whole_ends(client: Client, topic: str, transport: str) -> None:
    client.create(topic, cap_records=1)
    for number in range(10):
        client.append(topic, [number])
    assert rows(client, topic, 1, 5, transport=transport, on_data_loss="ignore") == []
    assert len(rows(client, topic, 1, 5, transport=transport, on_data_loss="emit")) == 1


@TRANSPORTS
def test_a_recreated_topic_is_refused_by_the_reader(client: Client, topic: str, transport: str) -> None:
    client.create(topic)
    client.append(topic, [1, 2])
    epoch = client.info(topic).epoch
    client.drop(topic)
    client.create(topic)
    client.append(topic, [1, 2])
    with pytest.raises(TopicRecreated, match="deleted and created again"):
        rows(client, topic, 1, 2, transport=transport, epoch=epoch)


@TRANSPORTS
def test_records_that_were_planned_and_are_gone_are_a_loss(client: Client, topic: str, transport: str) -> None:
    client.create(topic)
    client.append(topic, [1, 2])
    with pytest.raises(DataLoss, match="records 3 to 5 were there"):
        rows(client, topic, 1, 5, transport=transport)


@TRANSPORTS
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
def test_a_page_that_does_not_cover_what_it_claims_fails_the_read(
    client: Client, topic: str, transport: str, lie: Lie
) -> None:
    client.create(topic)
    client.append(topic, list(range(10)))
    with (
        lying_server(client.url, lie) as url,
        Client(url) as lied_to,
        pytest.raises(IncompletePage, match=f'topic "{topic}" partition 0: the page for records 1 to 10 claims'),
    ):
        rows(lied_to, topic, 1, 10, transport=transport, on_data_loss="emit")


def test_a_page_that_does_not_cover_what_it_claims_fails_a_spark_task(client: Client, topic: str) -> None:
    client.create(topic)
    client.append(topic, list(range(10)))
    with lying_server(client.url, LIES[0]) as url:
        reader = BatchReader(source_options({"url": url, "subscribe": topic}))
        (partition,) = reader.partitions()
        with pytest.raises(IncompletePage, match="it holds 5 of 10 records there"):
            list(reader.read(partition))
