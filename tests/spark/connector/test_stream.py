"""Streams: micro-batches from topics and into them, on classic Spark."""

from pathlib import Path
from typing import Any

import pytest

from topics.client import Client
from topics.client.calls import RecordIn

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_SECONDS = 400


def source(spark: Any, url: str, **options: Any) -> Any:
    reader = spark.readStream.format("topics").option("url", url)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def sink(frame: Any, url: str, topic: str, checkpoint: Path, *, numRetries: int = 5, **trigger: Any) -> Any:  # noqa: N803 - as the option
    writer = frame.writeStream.format("topics").option("url", url).option("topic", topic)
    writer = writer.option("numRetries", numRetries)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(**trigger).start()


def finish(query: Any) -> None:
    assert query.awaitTermination(PATIENCE_SECONDS), "the query did not end"


def data(client: Client, topic: str) -> list[Any]:
    return [record.data for record in client.read(topic)]


def test_available_now_reads_what_is_there_in_bounded_batches(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic, partitions=2)
    client.create(f"{topic}.out")
    for number in (0, 1):
        client.append(topic, [number * 100 + n for n in range(25)], partition=number)
    query = sink(
        source(spark, client.url, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20).select("data"),
        client.url,
        f"{topic}.out",
        tmp_path,
        availableNow=True,
    )
    finish(query)
    assert sorted(data(client, f"{topic}.out")) == [*range(25), *range(100, 125)]
    assert client.last_commit(f"spark-{query.id}").batch == 2  # type: ignore[union-attr]
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    assert [each["numInputRows"] for each in progress] == [20, 20, 10]


def test_a_query_resumes_from_its_checkpoint_and_reads_new_partitions_and_topics(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(f"{topic}.in.a")
    client.create(f"{topic}.out")

    def run() -> None:
        frame = source(
            spark, client.url, subscribePattern=f"{topic}\\.in\\..*", startingOffsets="earliest", group="lag"
        )
        finish(sink(frame.select("data"), client.url, f"{topic}.out", tmp_path, availableNow=True))

    client.append(f"{topic}.in.a", [1, 2])
    run()
    client.append(f"{topic}.in.a", [3])
    client.create(f"{topic}.in.b", partitions=2)
    client.append(f"{topic}.in.b", [4], partition=1)
    run()
    assert sorted(data(client, f"{topic}.out")) == [1, 2, 3, 4]
    lag = client.sql("SELECT * FROM system.topic_offsets WHERE group_id = 'lag'")
    shown = [dict(zip(lag.columns, row, strict=True)) for row in lag.rows]
    mine = {
        (row["topic_id"], row["partition_id"]): row for row in shown if str(row["topic_id"]).startswith(f"{topic}.in")
    }
    # Spark commits a batch at the source when it plans the next one: the last batch of a run is not acknowledged yet.
    shown_lag = mine[f"{topic}.in.a", 0]
    assert (shown_lag["last_acked_offset"], shown_lag["lag_records"]) == (2, 1)


def test_a_stream_begins_at_the_end_by_default_and_follows(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic)
    client.create(f"{topic}.out")
    client.append(topic, ["old"])
    query = sink(
        source(spark, client.url, subscribe=topic).select("data"),
        client.url,
        f"{topic}.out",
        tmp_path,
        processingTime="0 seconds",
    )
    try:
        query.processAllAvailable()
        client.append(topic, ["new"])
        query.processAllAvailable()
        assert data(client, f"{topic}.out") == ["new"]
    finally:
        query.stop()


def test_a_recreated_topic_stops_the_query_with_its_name(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic)
    client.create(f"{topic}.out")
    client.append(topic, [1])

    def start() -> Any:
        frame = source(spark, client.url, subscribe=topic, startingOffsets="earliest")
        return sink(frame.select("data"), client.url, f"{topic}.out", tmp_path, availableNow=True)

    finish(start())
    client.drop(topic)
    client.create(topic)
    client.append(topic, [2, 3])
    with pytest.raises(Exception, match="deleted and created again"):
        finish(start())


def test_records_lost_under_a_query_stop_it_with_the_range(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic)
    client.create(f"{topic}.out")
    client.append(topic, [1])

    def start(**options: str) -> Any:
        frame = source(spark, client.url, subscribe=topic, startingOffsets="earliest", **options)
        return sink(frame.select("data"), client.url, f"{topic}.out", tmp_path, availableNow=True)

    finish(start())
    client.append(topic, list(range(2, 12)))
    client.create(topic, cap_records=3)
    client.append(topic, [12])
    with pytest.raises(Exception, match="records 2 to 9 were lost"):
        finish(start())
    finish(start(onDataLoss="ignore"))
    assert data(client, f"{topic}.out") == [1, 10, 11, 12]
    # What is deleted on purpose is no loss.
    client.append(topic, [RecordIn(13, tag="mistake"), RecordIn(14)])
    client.delete(topic, match="mistake")
    finish(start())
    assert data(client, f"{topic}.out") == [1, 10, 11, 12, 14]


def test_a_stream_waits_for_min_offsets_per_trigger(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    client.create(topic, partitions=2)
    client.create(f"{topic}.out")
    frame = source(spark, client.url, subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=5)
    query = sink(frame.select("data"), client.url, f"{topic}.out", tmp_path, processingTime="0 seconds")
    try:
        client.append(topic, [1, 2, 3], partition=0)
        query.processAllAvailable()
        assert data(client, f"{topic}.out") == []
        client.append(topic, [4, 5], partition=1)
        query.processAllAvailable()
        assert sorted(data(client, f"{topic}.out")) == [1, 2, 3, 4, 5]
        assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [5]
    finally:
        query.stop()


def test_a_stream_reads_the_partitions_it_is_assigned_from_the_time_it_is_given(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic, partitions=3)
    client.create(f"{topic}.out")
    for number in range(3):
        client.append(topic, [f"old-{number}"], partition=number)
    old_ts = max([client.diff(topic, partition=number).records[0].ts for number in range(3)])
    began = client.append(topic, ["new-1"], partition=1)
    while client.diff(topic, began.first_seq - 1, partition=1).records[0].ts <= old_ts:
        began = client.append(topic, ["new-1"], partition=1)
    begin = client.diff(topic, began.first_seq - 1, partition=1).records[0]
    for number in range(3):
        client.append(topic, [f"newer-{number}"], partition=number)
    frame = source(spark, client.url, assign=f'{{"{topic}": [1, 2]}}', startingTimestamp=begin.ts)
    finish(sink(frame.select("data"), client.url, f"{topic}.out", tmp_path, availableNow=True))
    assert sorted(data(client, f"{topic}.out")) == ["new-1", "newer-1", "newer-2"]


def test_records_lost_under_a_stream_become_rows_when_asked(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic, cap_records=2)
    client.create(f"{topic}.out")
    client.append(topic, [1, 2])

    def run() -> None:
        frame = source(spark, client.url, subscribe=topic, startingOffsets="earliest", onDataLoss="emit")
        rows = frame.selectExpr("coalesce(data, get_json_object(meta, '$._topics_tombstone')) AS data")
        finish(sink(rows, client.url, f"{topic}.out", tmp_path, availableNow=True))

    run()
    for number in range(3, 8):
        client.append(topic, [number])
    run()
    found = data(client, f"{topic}.out")
    assert [each for each in found if isinstance(each, int)] == [1, 2, 6, 7]
    (lost,) = [each for each in found if isinstance(each, dict)]
    assert (lost["gap_from"], lost["gap_to"], lost["reason"]) == (3, 5, "cap")


def test_each_batch_written_by_hand_is_fenced_by_the_ids_it_is_given(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic)
    client.create(f"{topic}.out")
    client.append(topic, [1, 2, 3])

    def write(frame: Any, batch: int) -> None:
        for _ in range(2):
            writer = frame.select("data").write.format("topics").mode("append").option("url", client.url)
            writer.option("topic", f"{topic}.out").option("queryId", topic).option("batchId", batch).save()

    frame = source(spark, client.url, subscribe=topic, startingOffsets="earliest")
    started = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
    finish(started.trigger(availableNow=True).start())
    assert data(client, f"{topic}.out") == [1, 2, 3]
