"""Batch: topics read into frames and frames written to topics, on classic Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from topics.client import Client
from topics.client.calls import RecordIn
from topics.server.ops.settings import load_settings
from topics.testing.server import running_server

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def load(spark: Any, url: str, **options: Any) -> Any:
    reader = spark.read.format("topics").option("url", url)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def save(frame: Any, url: str, **options: Any) -> None:
    writer = frame.write.format("topics").option("url", url).mode("append")
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def failure(action: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps it in classes of its own
        action()
    return str(caught.value)


def filled(client: Client, topic: str, records: int = 10, partitions: int = 1) -> None:
    client.create(topic, partitions=partitions)
    for number in range(partitions):
        client.append(topic, [{"p": number, "n": n} for n in range(records)], partition=number)


def test_many_short_partitions_and_topics_are_read_by_few_tasks(spark: Any, client: Client, topic: str) -> None:
    client.create(topic, partitions=256)
    for number in range(256):
        client.append(topic, [number], partition=number)
    names = [f"{topic}-{number}" for number in range(400)]
    for name in names:
        client.append(name, [1])
    parts = load(spark, client.url, subscribe=topic)
    assert parts.rdd.getNumPartitions() == 1
    assert [int(row.data) for row in parts.collect()] == list(range(256)), "in the order of the partitions"
    several = load(spark, client.url, subscribePattern=f"{topic}-.*", minPartitions=3)
    assert several.rdd.getNumPartitions() == 3
    assert sorted([row.topic for row in several.collect()]) == sorted(names)


def test_a_topic_is_read_with_its_schema_and_its_partitions(spark: Any, client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    client.append(topic, [RecordIn({"a": 1}, tag="t", node="n", meta={"k": 2})], partition=1)
    client.append(topic, [7, 8], partition=0)
    frame = load(spark, client.url, subscribe=topic)
    assert frame.dtypes == [
        ("topic", "string"),
        ("partition", "int"),
        ("seq", "bigint"),
        ("ts", "timestamp"),
        ("node", "string"),
        ("tag", "string"),
        ("data", "string"),
        ("meta", "string"),
        ("epoch", "bigint"),
    ]
    assert frame.rdd.getNumPartitions() == 1, "short ranges share a task"
    found = frame.orderBy("partition", "seq").collect()
    assert [(row.partition, row.seq, row.data) for row in found] == [(0, 1, "7"), (0, 2, "8"), (1, 1, '{"a":1}')]
    assert (found[2].tag, found[2].node, json.loads(found[2].meta)) == ("t", "n", {"k": 2})
    written = client.diff(topic, partition=1).records[0].ts
    assert round(found[2].ts.timestamp() * 1000) % 3_600_000 == written % 3_600_000


def test_min_partitions_cuts_ranges_and_offsets_bound_them(spark: Any, client: Client, topic: str) -> None:
    filled(client, topic, 100)
    bounds = {"startingOffsets": f'{{"{topic}": {{"0": 11}}}}', "endingOffsets": f'{{"{topic}": {{"0": 91}}}}'}
    frame = load(spark, client.url, subscribe=topic, minPartitions=4, transport="json", **bounds)
    assert frame.rdd.getNumPartitions() == 4
    assert [row.seq for row in frame.collect()] == list(range(11, 91))


def test_partitions_are_assigned_and_times_begin_a_read(spark: Any, client: Client, topic: str) -> None:
    filled(client, topic, 2, partitions=3)
    frame = load(spark, client.url, assign=f'{{"{topic}": [0, 2]}}')
    assert sorted([(row.partition, row.seq) for row in frame.collect()]) == [(0, 1), (0, 2), (2, 1), (2, 2)]
    last = max([record.ts for number in range(3) for record in client.diff(topic, partition=number).records])
    assert load(spark, client.url, subscribe=topic, startingTimestamp=last + 1).count() == 0
    assert load(spark, client.url, subscribe=topic, startingTimestamp=1).count() == 6
    assert load(spark, client.url, subscribe=topic, endingTimestamp=last + 1).count() == 6
    assert load(spark, client.url, subscribe=topic, endingTimestamp=1).count() == 0
    each = {"startingOffsetsByTimestamp": f'{{"{topic}": {{"0": {last + 1}}}}}', "maxRecordsPerPartition": 1}
    assert [(row.partition, row.seq) for row in load(spark, client.url, subscribe=topic, **each).collect()] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]


def test_several_topics_are_read_as_one_frame(spark: Any, client: Client, topic: str) -> None:
    filled(client, f"{topic}.a", 3)
    filled(client, f"{topic}.b", 4)
    for options in ({"subscribe": f"{topic}.a,{topic}.b"}, {"subscribePattern": f"{topic}\\..*"}):
        counts = load(spark, client.url, **options).groupBy("topic").count().collect()
        assert {row["topic"]: row["count"] for row in counts} == {f"{topic}.a": 3, f"{topic}.b": 4}


def test_an_empty_topic_is_an_empty_frame(spark: Any, client: Client, topic: str) -> None:
    client.create(topic)
    assert load(spark, client.url, subscribe=topic).count() == 0


def test_a_frame_is_written_with_all_that_a_record_has(spark: Any, client: Client, topic: str) -> None:
    client.create(topic, partitions=2)
    frame = spark.sql(
        "SELECT struct(id AS n, concat('é', id) AS s) AS data, concat('t', id) AS tag, 'spark' AS node, "
        "map('src', id) AS meta, CAST(id % 2 AS INT) AS partition FROM range(6)"
    ).coalesce(1)
    save(frame, client.url, topic=topic)
    for number in (0, 1):
        records = client.diff(topic, partition=number).records
        assert [record.data for record in records] == [{"n": n, "s": f"é{n}"} for n in range(number, 6, 2)]
        assert [(record.tag, record.node, record.meta) for record in records] == [
            (f"t{n}", "spark", {"src": n}) for n in range(number, 6, 2)
        ]


def test_rows_choose_their_topics_and_keys_their_partitions(spark: Any, client: Client, topic: str) -> None:
    for letter in "ab":
        client.create(f"{topic}.{letter}", partitions=3)
    frame = spark.sql(
        f"SELECT concat('{topic}.', if(id % 2 = 0, 'a', 'b')) AS topic, CAST(id AS STRING) AS data, "
        "concat('key', id % 3) AS partition_key FROM range(60)"
    )
    save(frame, client.url)
    for letter, odd in (("a", 0), ("b", 1)):
        keys = [
            {int(record.data) % 3 for record in client.diff(f"{topic}.{letter}", partition=number).records}
            for number in range(3)
        ]
        assert sorted([key for some in keys for key in some]) == [0, 1, 2], "a key lies in one partition"
        found = load(spark, client.url, subscribe=f"{topic}.{letter}").collect()
        assert sorted([int(row.data) for row in found]) == list(range(odd, 60, 2))


def test_rows_are_written_in_the_order_of_the_frame(spark: Any, client: Client, topic: str) -> None:
    client.create(topic)
    save(spark.range(0, 5000, 1, 4).selectExpr("CAST(id AS STRING) AS data"), client.url, topic=topic)
    assert [int(row.data) for row in load(spark, client.url, subscribe=topic).collect()] == list(range(5000))


def test_nothing_is_written_when_something_is_wrong(spark: Any, client: Client, topic: str) -> None:
    client.create(topic)
    frame = spark.sql(f"SELECT '1' AS data, if(id < 5, '{topic}', 'nowhere') AS topic FROM range(10)").coalesce(1)
    assert "nowhere" in failure(lambda: save(frame, client.url))
    assert 'no column "data"' in failure(lambda: save(spark.range(1), client.url, topic=topic))
    assert 'topic "nowhere" does not exist' in failure(lambda: save(frame.select("data"), client.url, topic="nowhere"))
    assert client.info(topic).count == 0


def test_mistakes_and_absent_servers_are_named(spark: Any, client: Client, topic: str) -> None:
    filled(client, topic, 1)
    assert "did you mean subscribe?" in failure(lambda: load(spark, client.url, subscribed=topic).count())
    assert "column _seq of the schema must be BIGINT" in failure(
        lambda: spark.read.format("topics").schema("_seq INT").option("subscribe", topic).load().count()
    )
    gone = "http://127.0.0.1:9"
    assert f"{gone} does not answer" in failure(lambda: load(spark, gone, subscribe=topic, numRetries=1).count())


def test_a_wrong_token_fails_the_read_with_the_reason(spark: Any, topic: str, tmp_path: Path) -> None:
    keys = {"TOPICS_API_KEYS": "right-key::"}
    with running_server(load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path), **keys})) as url:
        assert "the key is not known here" in failure(
            lambda: load(spark, url, subscribe=topic, token="wrong-key").count()
        )


def test_a_queue_is_refused_and_read_as_a_log_when_asked(spark: Any, client: Client, topic: str) -> None:
    client.create(topic, type="queue")
    client.append(topic, [1, 2, 3])
    assert "queueAsLog=true" in failure(lambda: load(spark, client.url, subscribe=topic).count())
    assert load(spark, client.url, subscribe=topic, queueAsLog="true").count() == 3


def test_lost_records_fail_a_read_that_asked_for_them(spark: Any, client: Client, topic: str) -> None:
    client.create(topic, cap_records=4)
    for number in range(10):
        client.append(topic, [number])
    start = {"startingOffsets": f'{{"{topic}": {{"0": 2}}}}'}
    assert "records 2 to 6 were lost" in failure(lambda: load(spark, client.url, subscribe=topic, **start).count())
    assert load(spark, client.url, subscribe=topic, onDataLoss="ignore", **start).count() == 4
    emitted = load(spark, client.url, subscribe=topic, onDataLoss="emit", **start).where("data IS NULL").collect()
    assert [row.seq for row in emitted] == [6]


@pytest.mark.parametrize("transport", ["arrow", "json"])
def test_a_variant_is_written_as_its_json_also_inside_other_types(
    spark: Any, client: Client, topic: str, transport: str
) -> None:
    client.create(topic)
    text = """{"a": [1, null, 12345678901234567.89, "é"], "b": {}}"""
    frame = spark.sql(f"SELECT parse_json('{text}') AS v, parse_json(NULL) AS nothing")
    nested = "struct(v AS v, nothing AS nothing, array(v) AS many, map('k', v) AS named, 1 AS n) AS data"
    for columns in ("v AS data", nested, "nothing AS data"):
        save(frame.selectExpr(columns), client.url, topic=topic, transport=transport)
    alone, inside, nothing = [
        json.loads(row.data, parse_float=str)
        for row in load(spark, client.url, subscribe=topic).orderBy("seq").collect()
    ]
    value = {"a": [1, None, "12345678901234567.89", "é"], "b": {}}
    assert alone == value
    assert inside == {"v": value, "nothing": None, "many": [value], "named": {"k": value}, "n": 1}
    assert nothing is None
