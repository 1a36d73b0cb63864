"""Others read the table with what they have: DuckDB over Arrow and Polars, without Spark and without us."""

from pathlib import Path

import duckdb
import polars
from deltalake import DeltaTable

from tests.archive.copier import Copier
from topics.client import Client
from topics.client.calls import RecordIn


def filled(client: Client, copier: Copier) -> str:
    client.create(copier.topic, partitions=2)
    for partition in (0, 1):
        client.append(copier.topic, [{"cents": cents} for cents in range(100)], partition=partition)
        copier.up_to(50, partition=partition)
        copier.up_to(100, partition=partition)
    copier.archive.compact(copier.topic)
    client.append(copier.topic, [{"cents": 1000}])
    copier.up_to(101)
    return copier.archive.uri


def test_duckdb_reads_the_table(client: Client, copier: Copier) -> None:
    uri = filled(client, copier)
    archive = DeltaTable(uri).to_pyarrow_dataset()
    query = "SELECT count(*), count(DISTINCT (partition, seq)), sum(CAST(data ->> 'cents' AS INT)) FROM archive WHERE topic = ?"
    with duckdb.connect() as connection:
        connection.register("archive", archive)
        assert connection.execute(query, [copier.topic]).fetchall() == [(201, 201, 2 * 4950 + 1000)]
        # Over the files that the log names, for those without delta-rs in the process that asks.
        files = DeltaTable(uri).file_uris()
        counted = connection.execute("SELECT count(*), min(seq), max(seq) FROM read_parquet(?)", [files]).fetchall()
    assert counted == [(201, 1, 101)]


def test_every_column_can_be_filtered_by(client: Client, copier: Copier) -> None:
    """delta-rs makes bounds for every column out of the log: none may shut out what is there, compacted or not."""
    client.create(copier.topic, cap_records=3)
    for number in range(5):
        client.append(copier.topic, [RecordIn({"n": number, "text": "x" * 100}, tag="t", node="n", meta={"m": number})])
    copier.up_to(4)
    copier.up_to(5)
    filters = {
        "kind = 'record'": 3,
        "kind = 'tombstone' AND gap_from = 1 AND reason = 'cap'": 1,
        "tag = 't'": 3,
        "tag IS NULL": 1,
        "node = 'n' AND seq = 4": 1,
        "data LIKE '%\"n\":4%'": 1,
        """data = '{"n":4,"text":"%s"}'""" % ("x" * 100): 1,
        """meta = '{"m":3}'""": 1,
        "reason IS NULL": 3,
        "tag = 'other'": 0,
    }
    for files in (2, 1):
        archive = DeltaTable(copier.archive.uri).to_pyarrow_dataset()
        assert len(archive.files) == files
        with duckdb.connect() as connection:
            connection.register("archive", archive)
            for text, count in filters.items():
                assert connection.execute(f"SELECT count(*) FROM archive WHERE {text}").fetchall() == [(count,)], text
        copier.archive.compact(copier.topic)


def test_polars_reads_the_table(client: Client, copier: Copier) -> None:
    uri = filled(client, copier)
    frame = polars.scan_delta(uri).filter((polars.col("topic") == copier.topic) & (polars.col("partition") == 0))
    assert frame.select(polars.len()).collect().item() == 101
    assert frame.filter(polars.col("seq") > 99).sort("seq").collect()["data"].to_list() == [
        '{"cents":99}',
        '{"cents":1000}',
    ]
    assert polars.read_delta(uri).height == 201


def test_the_files_lie_by_topic_and_day(client: Client, copier: Copier) -> None:
    uri = filled(client, copier)
    (topic,) = Path(uri).glob("topic=*")
    assert [path.name.partition("=")[0] for path in topic.iterdir()] == ["date"] * len(list(topic.iterdir()))
