"""Following a Delta table on Spark: every change is in the change topic once, also after the driver was killed."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.spark.connector.test_exactly_once import Driver, fence
from tests.spark.delta.lake_table import LakeTable, applied
from topics.client import Client
from topics.spark.delta.feed import DeltaFeed, feed_jobs
from topics.spark.pipeline.job import Job, JobContext
from topics.spark.pipeline.progress import newest_s_of, observed_bytes

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_SECONDS = 60


@pytest.fixture
def orders(tmp_path: Path) -> LakeTable:
    return LakeTable(tmp_path / "orders", {"id": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture
def start(spark: Any, client: Client, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a job; ends them all."""
    queries: list[Any] = []

    def started(job: Job, checkpoint: str = "checkpoint") -> Any:
        around = JobContext(spark, client.url, None, str(tmp_path / checkpoint), 0, lambda fields: None)
        # In a thread of its own, as the pipeline does it: Spark keeps some of what it knows by thread.
        with ThreadPoolExecutor(1) as threads:
            queries.append(threads.submit(job.start, around).result())
        return queries[-1]

    yield started
    for query in queries:
        query.stop()


def events(client: Client, topic: str) -> list[Any]:
    return [record.data for record in client.read(topic)]


def wait_for(condition: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def test_a_route_that_names_a_delta_table_makes_a_job(client: Client, topic: str) -> None:
    client.put_table(f"lake.{topic}", "delta", "/lake/orders", key_columns=["id"])
    client.put_table(f"push.{topic}", "push", key_columns=["id"])
    client.create(topic)
    assert not [job for job in feed_jobs(client) if job.name == f"delta lake.{topic}"], "no route names it"
    for table in (f"lake.{topic}", f"push.{topic}"):
        client.sql(f'ALTER TOPIC "{topic}" ADD SOURCE "{table}" ON INSERT WITH (payload = \'full\')')
    (job,) = [job for job in feed_jobs(client) if topic in job.name]
    client.put_table(f"lake.{topic}.other", "delta", "/lake/other", key_columns=["id"])
    client.sql(f"ALTER TABLE \"lake.{topic}.other\" SET MATERIALIZED WITH (uri = '/lake/{topic}')")
    assert f"delta lake.{topic}.other" in {each.name for each in feed_jobs(client)}, "it is materialised"
    assert job == DeltaFeed(f"lake.{topic}", "/lake/orders", ("id",), f"changes:lake.{topic}")
    assert (job.name, job.kind) == (f"delta lake.{topic}", "delta")


def test_a_feed_sends_the_table_then_its_changes_and_continues_after_a_restart(
    start: Callable[..., Any], client: Client, topic: str, orders: LakeTable
) -> None:
    changes = f"changes:{topic}"
    job = DeltaFeed(topic, orders.uri, ("id",), changes)
    query = start(job)
    wait_for(lambda: client.info(changes).count == 3, query)
    wait_for(lambda: any([each["numInputRows"] for each in query.recentProgress]), query)
    first = next(each for each in query.recentProgress if each["numInputRows"])
    assert (first["name"], observed_bytes(first) > 3 * 50) == (f"delta {topic}", True)
    assert newest_s_of(first) == events(client, changes)[0]["ts"] / 1000
    assert client.info(changes).config["durability"] == "fsync"
    assert all([event["source"]["snapshot"] for event in events(client, changes)])
    orders.merge({"id": [3, 4], "v": ["C", "d"]})
    orders.delta.optimize.compact()
    orders.delta.delete("id = 1")
    wait_for(lambda: client.info(changes).count == 6, query)
    query.stop()
    orders.delta.update(updates={"v": "'B'"}, predicate="id = 2")
    query = start(job)
    wait_for(lambda: client.info(changes).count == 7, query)
    assert applied(events(client, changes)) == orders.rows()
    assert [event["op"] for event in events(client, changes)[-2:]] == ["delete", "update"]


def test_a_new_checkpoint_sends_a_truncate_to_every_partition_first(
    start: Callable[..., Any], client: Client, topic: str, orders: LakeTable
) -> None:
    changes = f"changes:{topic}"
    client.create(changes, partitions=2)
    job = DeltaFeed(topic, orders.uri, ("id",), changes)
    query = start(job, "first")
    wait_for(lambda: client.info(changes).count == 3, query)
    query.stop()
    orders.delta.delete("id = 1")
    query = start(job, "second")
    wait_for(lambda: client.info(changes).count == 7, query)
    rows = {}
    for partition in range(2):
        found = [record.data for record in client.read(changes, partition=partition)]
        assert [event["op"] for event in found].count("truncate") == 1
        rows |= applied(found)
    assert rows == orders.rows()


def test_a_feed_removed_by_vacuum_fails_with_the_versions_and_skips_nothing(
    start: Callable[..., Any], client: Client, topic: str, orders: LakeTable
) -> None:
    changes = f"changes:{topic}"
    job = DeltaFeed(topic, orders.uri, ("id",), changes)
    query = start(job)
    wait_for(lambda: client.info(changes).count == 3, query)
    query.stop()
    orders.append({"id": [4], "v": ["d"]})
    orders.append({"id": [5], "v": ["e"]})
    orders.delta.optimize.compact()
    orders.delta.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    orders.append({"id": [6], "v": ["f"]})
    for _ in range(2):
        query = start(job)
        with pytest.raises(Exception, match="has lost versions 1 to 2: vacuum") as failed:
            query.awaitTermination(PATIENCE_SECONDS)
        assert "delete the checkpoint of this job" in str(failed.value)
    assert client.info(changes).count == 3
    query = start(job, "second")
    wait_for(lambda: client.info(changes).count == 3 + 1 + 6, query)
    assert applied(events(client, changes)) == orders.rows()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_killed_driver_repeats_nothing_and_loses_nothing(client: Client, topic: str, tmp_path: Path) -> None:
    """Killed right after a commit in the middle of a large version, whose rows come in another order the next time."""
    rows, changes = 4000, f"changes:{topic}"
    lake = LakeTable(tmp_path / "lake", {"id": list(range(rows)), "v": ["x"] * rows})
    job = {"master": "local[2]", "do": "delta", "url": client.url, "table": topic, "uri": lake.uri, "until": 2 * rows}
    job |= {"checkpoint": str(tmp_path / "checkpoint"), "sizes": [500, 1000]}
    client.create(changes)
    checkpoint = tmp_path / "checkpoint" / f"epoch-{client.info(changes).epoch}"
    driver = Driver(**job)
    try:
        wait_for_driver(driver, lambda: fence(client, checkpoint) >= 3)
        lake.delta.update(updates={"v": "'z'"})
        wait_for_driver(driver, lambda: fence(client, checkpoint) >= 5)
    finally:
        driver.kill()
    assert rows < client.info(changes).count < 2 * rows, "it was killed in the middle of the update"
    assert Driver(**job).reports(400)["delta"]["error"] == ""
    found = events(client, changes)
    assert len(found) == 2 * rows
    assert applied(found) == lake.rows()


def wait_for_driver(driver: Driver, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 250
    while not condition():
        assert driver.process.poll() is None, "the driver ended before it was killed"
        assert time.monotonic() < deadline, "the batch never came"
        time.sleep(0.003)
