"""The query on Spark: a table is equal to its source row by row, though its driver is killed again and again."""

import json
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.spark.connector.test_exactly_once import Driver
from tests.spark.connector.test_stream import finish
from topics.cli.pipeline.table import run as table_command
from topics.client import Client
from topics.model.tables.change import change_topic
from topics.spark.materialize.job import MaterializeJob, Materializer
from topics.spark.materialize.table import MaterializeError
from topics.spark.pipeline.job import JobContext, NotYet
from topics.spark.pipeline.progress import lag_of, latency_ms_of, observed_bytes
from topics.spark.pipeline.run import all_jobs

pytestmark = [pytest.mark.spark, pytest.mark.slow]
PATIENCE_SECONDS = 100


class Source:
    """A table that sends its changes to the server."""

    def __init__(self, client: Client, name: str, seed: int) -> None:
        self.client = client
        self.name = name
        self.rows: dict[int, dict[str, Any]] = {}
        self.chance = random.Random(seed)
        self.position = 0

    def change(self, count: int, **more: Any) -> None:
        changes = []
        for _ in range(count):
            self.position += 1
            key = self.chance.randrange(50)
            event: dict[str, Any] = {"ts": 1000 + self.position, "key": {"id": key}, "position": self.position}
            if key in self.rows and self.chance.random() < 0.3:
                del self.rows[key]
                event["op"] = "delete"
            else:
                event["op"] = "update" if key in self.rows else "insert"
                event["after"] = self.rows[key] = {"id": key, "v": self.position, **more}
            changes.append(event)
        self.client.send_changes(self.name, changes, source="test")


def stored(uri: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(uri)).to_pyarrow_table()).to_pylist()
    return found


def current(uri: Path) -> dict[int, dict[str, Any]]:
    return {row["id"]: {name: value for name, value in row.items() if name[0] != "_"} for row in stored(uri)}


def materialize(spark: Any, client: Client, table: str, uri: Path, mode: str, **options: Any) -> None:
    running = Materializer(client, table, str(uri), mode, **options).start(spark, availableNow=True)
    assert running.wait(PATIENCE_SECONDS), "the query did not end"


def test_a_table_follows_its_source_in_both_modes(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    table = f"shop.{topic}"
    client.create(change_topic(table), partitions=2)
    source = Source(client, table, 1)
    source.change(200)
    applied: list[Any] = []
    for mode in ("scd1", "scd2"):
        materialize(spark, client, table, tmp_path / mode, mode, max_changes=70, on_applied=applied.append)
    assert sum([each.changes for each in applied]) == 400
    assert current(tmp_path / "scd1") == source.rows
    # A column is added, and the second run begins where the table is.
    source.change(60, colour="red")
    for mode in ("scd1", "scd2"):
        materialize(spark, client, table, tmp_path / mode, mode)
    expected = {key: {"colour": None, **row} for key, row in source.rows.items()}
    assert current(tmp_path / "scd1") == expected
    now = [row for row in stored(tmp_path / "scd2") if row["_is_current"]]
    assert {row["id"]: {"id": row["id"], "v": row["v"], "colour": row["colour"]} for row in now} == expected


def test_a_table_that_cannot_be_materialised_is_named(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    with pytest.raises(MaterializeError, match=f'topic "changes:{topic}" does not exist'):
        Materializer(client, topic, str(tmp_path / "t"), "scd1").start(spark, availableNow=True)
    client.send_changes(topic, [{"op": "insert", "ts": 1, "key": {"id": 1}, "after": {"id": 1, "v": 1}}])
    materialize(spark, client, topic, tmp_path / "t", "scd1")
    client.send_changes(topic, [{"op": "update", "ts": 2, "key": {"id": 1}, "after": {"id": 1, "v": "text"}}])
    with pytest.raises(Exception, match="column v is int64 and cannot hold"):
        materialize(spark, client, topic, tmp_path / "t", "scd1")
    assert current(tmp_path / "t") == {1: {"id": 1, "v": 1}}


def test_changes_that_retention_removed_are_an_error_also_for_a_new_table(
    spark: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create(change_topic(topic), cap_records=2)
    for ts in (1, 2, 3):
        client.send_changes(topic, [{"op": "insert", "ts": ts, "key": {"id": ts}, "after": {"id": ts}}])
    with pytest.raises(MaterializeError, match=rf"changes 1 to 1 of {topic}, partition 0, are gone.*--ignore-loss"):
        materialize(spark, client, topic, tmp_path / "t", "scd1")
    materialize(spark, client, topic, tmp_path / "t", "scd1", ignore_loss=True)
    assert current(tmp_path / "t") == {2: {"id": 2}, 3: {"id": 3}}
    client.delete(change_topic(topic), before_seq=3)
    materialize(spark, client, topic, tmp_path / "deleted", "scd1", ignore_loss=True)
    client.send_changes(topic, [{"op": "insert", "ts": 4, "key": {"id": 4}, "after": {"id": 4}}])
    materialize(spark, client, topic, tmp_path / "t", "scd1")
    assert sorted(current(tmp_path / "t")) == [2, 3, 4]


def test_a_table_set_by_sql_is_a_job_of_the_pipeline(spark: Any, client: Client, topic: str, tmp_path: Path) -> None:
    table = f"shop.{topic}"
    client.put_table(table, columns={"id": "bigint", "v": "bigint"})
    client.sql(f"ALTER TABLE \"{table}\" SET MATERIALIZED WITH (uri = '{tmp_path / 't'}')")
    (job,) = [job for job in all_jobs(client)[0] if topic in job.name]
    assert (job.name, job.kind) == (f"materialize {table}", "materialize")
    assert isinstance(job, MaterializeJob)
    notes: dict[str, Any] = {}
    context = JobContext(spark, client.url, None, str(tmp_path / "checkpoint"), 0, notes.update)
    with pytest.raises(NotYet, match="does not exist"):
        job.start(context)
    source = Source(client, table, 3)
    source.change(80)
    query = job.start_with(context, availableNow=True)
    finish(query)
    assert current(tmp_path / "t") == source.rows
    assert notes == {"uri": str(tmp_path / "t"), "mode": "scd1", "table_version": notes["table_version"]}
    (last,) = [each for each in query.recentProgress if each["numInputRows"]]
    assert (last["numInputRows"], last["name"], lag_of(last)) == (80, job.name, 0)
    assert observed_bytes(last) > 80 * 30
    assert latency_ms_of(last) is not None
    client.sql(f'ALTER TABLE "{table}" CLEAR MATERIALIZED')
    assert not [job for job in all_jobs(client)[0] if topic in job.name]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["scd1", "scd2"])
def test_a_driver_killed_again_and_again_applies_every_change_once(
    client: Client, topic: str, tmp_path: Path, mode: str
) -> None:
    table = f"shop.{topic}"
    client.create(change_topic(table), partitions=2)
    source = Source(client, table, 2)
    for _ in range(6):
        source.change(500)
    job: dict[str, Any] = {"master": "local[2]", "do": "materialize", "url": client.url, "table": table, "mode": mode}
    job |= {"uri": str(tmp_path / "t"), "max_changes": 150}
    reached = 0
    for _ in range(2):
        driver = Driver(**job)
        try:
            deadline = time.monotonic() + 200
            while (version := _version(tmp_path / "t")) < reached + 2:
                assert driver.process.poll() is None, "the driver ended before it was killed"
                assert time.monotonic() < deadline, "no commit came"
                time.sleep(0.01)
            reached = version
            time.sleep(source.chance.uniform(0, 0.3))
        finally:
            driver.kill()
    Driver(**job).reports(200)
    rows = stored(tmp_path / "t")
    if mode == "scd1":
        assert len(rows) == len(source.rows)
        assert current(tmp_path / "t") == source.rows
        return
    assert {row["id"]: row["v"] for row in rows if row["_is_current"]} == {k: r["v"] for k, r in source.rows.items()}
    versions = [(row["id"], row["v"]) for row in rows]
    assert len(versions) == len(set(versions))
    sent = [json.loads(row) for row in _payloads(client, change_topic(table))]
    assert sorted(versions) == sorted([(each["key"]["id"], each["after"]["v"]) for each in sent if each["after"]])


def _version(uri: Path) -> int:
    return DeltaTable(str(uri)).version() if DeltaTable.is_deltatable(str(uri)) else 0


def _payloads(client: Client, topic: str) -> list[str]:
    return [json.dumps(record.data) for number in (0, 1) for record in client.read(topic, partition=number)]  # type: ignore[union-attr]


def test_the_command_says_what_is_missing(client: Client, topic: str, tmp_path: Path, capsys: Any) -> None:
    DeltaTable.create(str(tmp_path / "other"), pa.schema([("a", pa.int64())]))
    arguments = ["materialize", topic, "--delta", str(tmp_path / "other"), "--once", "--url", client.url]
    assert table_command(arguments) == 1
    assert "was not made by topics table materialize" in capsys.readouterr().err
