"""The archive job on Spark: every record of a topic is in the table once, also after failures."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.connector.test_exactly_once import Driver
from tests.spark.connector.test_stream import finish, sink, source
from topics.archive import ArchiveError, open_archive
from topics.client import Client
from topics.client.calls import RecordIn
from topics.spark.archive.job import ArchiveJob, archive_jobs
from topics.spark.pipeline.job import JobContext

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def job_context(spark: Any, client: Client, checkpoint: Path, progress: dict[str, Any] | None = None) -> JobContext:
    shown = {} if progress is None else progress
    return JobContext(spark, client.url, None, str(checkpoint), 100, shown.update)


def job_of(client: Client, topic: str) -> ArchiveJob:
    (job,) = [each for each in archive_jobs(client) if each.name == f"archive {topic}"]
    assert isinstance(job, ArchiveJob)
    return job


def archive_now(
    spark: Any, client: Client, topic: str, checkpoint: Path, progress: dict[str, Any] | None = None
) -> None:
    """Archive what is there now, and end."""
    finish(job_of(client, topic).start_with(job_context(spark, client, checkpoint, progress), availableNow=True))


@contextmanager
def archiving(spark: Any, client: Client, topic: str, checkpoint: Path) -> Iterator[Any]:
    query = job_of(client, topic).start(job_context(spark, client, checkpoint))
    try:
        yield query
    finally:
        query.stop()


def rows_of(uri: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    table = DeltaTable(str(uri)).to_pyarrow_table()
    return (
        pa.table(table).sort_by([("epoch", "ascending"), ("partition", "ascending"), ("seq", "ascending")]).to_pylist()
    )


def test_a_topic_is_archived_and_its_progress_reported_to_the_server(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic, partitions=2)
    client.append(topic, [{"n": 1}, {"n": 2}], partition=0)
    client.append(topic, [RecordIn({"n": 3}, tag="t", node="ada")], partition=1)
    client.set_archive(topic, str(tmp_path / "table"), freshness_ms=1000)
    progress: dict[str, Any] = {}
    archive_now(spark, client, topic, tmp_path / "checkpoint", progress)
    found = rows_of(tmp_path / "table")
    epoch = client.info(topic).epoch
    assert [(row["topic"], row["partition"], row["seq"], row["data"]) for row in found] == [
        (topic, 0, 1, '{"n":1}'),
        (topic, 0, 2, '{"n":2}'),
        (topic, 1, 1, '{"n":3}'),
    ]
    assert (found[2]["node"], found[2]["tag"], found[2]["kind"], found[2]["epoch"]) == ("ada", "t", "record", epoch)
    assert found[0]["date"] == found[0]["ts"].date()
    assert (progress["rows"], progress["lag"], progress["bytes"]) == (3, 0, 3 * len('{"n":1}'))
    assert progress["newest_ts"] == max([int(row["ts"].timestamp() * 1000) for row in found])
    assert progress["latency_ms"] >= 0
    archived = client.archive(topic)
    assert archived is not None
    assert [(each.partition, each.epoch, each.next_seq) for each in archived.archived] == [(0, epoch, 3), (1, epoch, 2)]
    assert archived.table_version == open_archive(str(tmp_path / "table")).version == progress["table_version"]
    assert (progress["rows"], progress["lag"]) == (3, 0)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_driver_killed_again_and_again_archives_every_record_once(client: Client, topic: str, tmp_path: Path) -> None:
    """Real processes and SIGKILL: right after a commit, and somewhere in the next batch."""
    records = 6000
    uri = str(tmp_path / "table")
    client.create(topic, partitions=2)
    for start in range(0, records, 1000):
        client.append(topic, list(range(start, start + 1000)), partition=start // 1000 % 2, return_seqs=False)
    client.set_archive(topic, uri, freshness_ms=1000)
    chance = random.Random(9)
    job = {"master": "local[2]", "do": "archive", "url": client.url, "topic": topic, "seqs_per_ms": 1}
    job |= {"checkpoint": str(tmp_path / "checkpoint")}
    reached = 0
    for attempt in range(2):
        driver = Driver(**job)
        try:
            aim = reached + chance.randrange(1, 3)
            deadline = time.monotonic() + 200
            while (reached := commits(uri, topic)) < aim:
                assert driver.process.poll() is None, "the driver ended before it was killed"
                assert time.monotonic() < deadline, f"commit {aim} never came"
                time.sleep(0.003)
            time.sleep(0 if attempt == 0 else chance.uniform(0, 0.5))
        finally:
            driver.kill()
    assert len(rows_of(Path(uri))) < records, "it was killed in the middle"
    Driver(**job).reports(200)
    half = records // 2
    assert [(row["partition"], row["seq"]) for row in rows_of(Path(uri))] == [
        (partition, seq) for partition in (0, 1) for seq in range(1, half + 1)
    ]
    assert sorted([int(row["data"]) for row in rows_of(Path(uri))]) == list(range(records))


def commits(uri: str, topic: str) -> int:
    """How many batches the table has."""
    try:
        return open_archive(uri).version
    except ArchiveError:
        return 0


def test_the_files_are_read_by_sparks_own_parquet_reader(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    uri = str(tmp_path / "table")
    client.create(topic)
    client.append(topic, [{"n": n} for n in range(100)])
    client.set_archive(topic, uri)
    archive_now(spark, client, topic, tmp_path / "checkpoint")
    frame = spark.read.option("basePath", uri).parquet(*DeltaTable(uri).file_uris())
    totals = frame.selectExpr("topic", "get_json_object(data, '$.n') AS n", "date").groupBy("topic", "date")
    (total,) = totals.agg({"n": "sum"}).collect()
    assert (total["topic"], total["sum(n)"]) == (topic, 4950)


def test_a_running_job_is_fresh_and_a_restart_continues_at_the_position_of_the_table(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    """Also with its checkpoint lost, and under compaction."""
    uri = str(tmp_path / "table")
    client.create(topic)
    client.set_archive(topic, uri, freshness_ms=1000, compact_interval_ms=1000)
    for attempt in range(2):
        with archiving(spark, client, topic, tmp_path / f"checkpoint-{attempt}") as query:
            for number in range(3):
                client.append(topic, [attempt * 3 + number])
                query.processAllAvailable()
                assert len(rows_of(tmp_path / "table")) == attempt * 3 + number + 1
    assert [row["data"] for row in rows_of(tmp_path / "table")] == ["0", "1", "2", "3", "4", "5"]


def test_a_failing_table_stops_the_query_with_the_reason_and_loses_nothing(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    uri = tmp_path / "table"
    client.create(topic)
    client.append(topic, [1])
    client.set_archive(topic, str(uri))
    archive_now(spark, client, topic, tmp_path / "checkpoint")
    (directory,) = uri.glob("topic=*")
    directory.rename(tmp_path / "aside")
    directory.write_text("a file where a directory should be")
    client.append(topic, [2])
    with pytest.raises(Exception, match=r"exists|Not a directory"):
        archive_now(spark, client, topic, tmp_path / "checkpoint")
    directory.unlink()
    (tmp_path / "aside").rename(directory)
    archive_now(spark, client, topic, tmp_path / "checkpoint")
    assert [row["seq"] for row in rows_of(uri)] == [1, 2]


# history=all


def history(spark: Any, client: Client, topic: str, **options: Any) -> Any:
    reader = spark.read.format("topics").option("url", client.url).option("subscribe", topic).option("history", "all")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def test_history_is_complete_after_retention_removed_most_live_records(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic, partitions=2)
    client.set_archive(topic, str(tmp_path / "table"))
    for partition in (0, 1):
        client.append(topic, [partition * 1000 + n for n in range(300)], partition=partition)
    archive_now(spark, client, topic, tmp_path / "checkpoint")
    client.create(topic, cap_records=20)
    for partition in (0, 1):
        client.append(topic, [partition * 1000 + n for n in range(300, 310)], partition=partition)
    written = [(p, n + 1, str(p * 1000 + n)) for p in (0, 1) for n in range(310)]
    assert client.info(topic).count <= 40
    frame = history(spark, client, topic, minPartitions=5).orderBy("partition", "seq")
    assert [(row.partition, row.seq, row.data) for row in frame.collect()] == written
    # From within the archive, at the boundary, and from a time.
    some = history(spark, client, topic, startingOffsets=f'{{"{topic}": {{"0": 250, "1": 301}}}}')
    assert some.count() == 61 + 10
    with pytest.raises(Exception, match="lost"):
        (
            spark.read.format("topics")
            .option("url", client.url)
            .option("subscribe", topic)
            .option("startingOffsets", f'{{"{topic}": {{"0": 1, "1": 1}}}}')
            .load()
            .count()
        )


def test_a_gap_between_archive_and_live_is_data_loss(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    client.create(topic)
    client.set_archive(topic, str(tmp_path / "table"))
    client.append(topic, list(range(1, 6)))
    archive_now(spark, client, topic, tmp_path / "checkpoint")
    client.create(topic, cap_records=5)
    for number in range(6, 16):
        client.append(topic, [number])
    with pytest.raises(Exception, match="records 6 to 10 were lost"):
        history(spark, client, topic).count()
    emitted = history(spark, client, topic, onDataLoss="emit").orderBy("seq").collect()
    assert [(row.seq, row.data) for row in emitted] == [
        *[(n, str(n)) for n in range(1, 6)],
        (10, None),
        *[(n, str(n)) for n in range(11, 16)],
    ]
    # Now the archive has the gap as a tombstone, and the error is the same.
    archive_now(spark, client, topic, tmp_path / "checkpoint")
    again = history(spark, client, topic, onDataLoss="emit").orderBy("seq").collect()
    assert [(row.seq, row.data) for row in again] == [(row.seq, row.data) for row in emitted]
    with pytest.raises(Exception, match="records 6 to 10 were lost"):
        history(spark, client, topic).count()
    assert history(spark, client, topic, onDataLoss="ignore").count() == 10


def test_a_stream_begins_in_the_archive_and_continues_live(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic)
    client.create(f"{topic}.out")
    client.set_archive(topic, str(tmp_path / "table"))
    client.append(topic, list(range(200)))
    archive_now(spark, client, topic, tmp_path / "checkpoint")
    client.create(topic, cap_records=50)
    client.append(topic, list(range(200, 230)))
    frame = source(spark, client.url, subscribe=topic, history="all", maxOffsetsPerTrigger=90).selectExpr("data")
    query = sink(frame, client.url, f"{topic}.out", tmp_path / "stream", processingTime="0 seconds")
    try:
        query.processAllAvailable()
        client.append(topic, list(range(230, 240)))
        archive_now(spark, client, topic, tmp_path / "checkpoint")
        query.processAllAvailable()
    finally:
        query.stop()
    assert [int(record.data) for record in client.read(f"{topic}.out")] == list(range(240))
