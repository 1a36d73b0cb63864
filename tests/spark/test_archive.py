"""The archive job on Spark: a topic becomes a table, every record once, whatever happens in between."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.test_stream import finish
from topics.archive import open_archive
from topics.client import Client
from topics.client.calls import RecordIn
from topics.spark.archive import ArchiveJob, archive_jobs
from topics.spark.job import Surroundings

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def surroundings(spark: Any, client: Client, checkpoint: Path, told: dict[str, Any] | None = None) -> Surroundings:
    shown = {} if told is None else told
    return Surroundings(spark, client.url, None, str(checkpoint), 100, shown.update)


def job_of(client: Client, topic: str) -> ArchiveJob:
    (job,) = [each for each in archive_jobs(client) if each.name == f"archive {topic}"]
    assert isinstance(job, ArchiveJob)
    return job


def archive_now(spark: Any, client: Client, topic: str, checkpoint: Path, told: dict[str, Any] | None = None) -> None:
    """Archive what is there now, and end."""
    finish(job_of(client, topic).start_with(surroundings(spark, client, checkpoint, told), availableNow=True))


@contextmanager
def archiving(spark: Any, client: Client, topic: str, checkpoint: Path) -> Iterator[Any]:
    query = job_of(client, topic).start(surroundings(spark, client, checkpoint))
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


def test_a_topic_becomes_a_table_and_the_server_is_told_how_far(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(topic, partitions=2)
    client.append(topic, [{"n": 1}, {"n": 2}], partition=0)
    client.append(topic, [RecordIn({"n": 3}, tag="t", node="ada")], partition=1)
    client.set_archive(topic, str(tmp_path / "table"), freshness_ms=1000)
    told: dict[str, Any] = {}
    archive_now(spark, client, topic, tmp_path / "checkpoint", told)
    found = rows_of(tmp_path / "table")
    assert [(row["topic"], row["partition"], row["seq"], row["data"]) for row in found] == [
        (topic, 0, 1, '{"n":1}'),
        (topic, 0, 2, '{"n":2}'),
        (topic, 1, 1, '{"n":3}'),
    ]
    assert (found[2]["node"], found[2]["tag"], found[2]["kind"], found[2]["epoch"]) == ("ada", "t", "record", 1)
    assert found[0]["date"] == found[0]["ts"].date()
    archived = client.archive(topic)
    assert archived is not None
    assert [(each.partition, each.epoch, each.next_seq) for each in archived.archived] == [(0, 1, 3), (1, 1, 2)]
    assert archived.table_version == open_archive(str(tmp_path / "table")).version == told["table_version"]
    assert (told["archived_records"], told["archived_lag"]) == (3, 0)
