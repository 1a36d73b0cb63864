"""Spark beside itself: the connector beside Parquet, then the jobs of the pipeline, in one session on one machine.

Every figure is the best of a few runs in a warm session, so that neither the start of Spark nor a disturbed run counts.
Targets are those of the design: reads and writes in rows/s, reading at least 0.6 of Parquet, changes routed and records archived
in rows/s from the start of the first batch to the end of the last, and how long a change takes to its topic.

Sections, for `--only=`: connector, routing, routes (how cost grows with them), backlog (and with what waits), archive, latency,
delta.
"""

import itertools
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bench.tools import Row, TopicsServer, at_least, at_most, need, topics_server
from topics.client import Client

PAYLOAD = "concat('{\"id\":', id, ',\"text\":\"', repeat('x', 80), '\"}')"
RUNS = 4
PATIENCE_SECONDS = 300
# Changes that only warm the pipeline up.
WARM = 20


def main(quick: bool, only: list[str] | None = None) -> Iterator[Row]:
    need("java")
    unknown = set(only or []) - set(SECTIONS)
    if unknown:
        sys.exit(f"no section {min(unknown)}; there are {', '.join(SECTIONS)}")
    rows = 200_000 if quick else 1_000_000
    directory = tempfile.mkdtemp(prefix="topics-bench-spark-")
    try:
        with topics_server() as server:
            spark = _session()
            try:
                for section in only or SECTIONS:
                    yield from SECTIONS[section](Bench(spark, server, directory, rows, quick))
            finally:
                spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass
class Bench:
    """What every section gets."""

    spark: Any
    server: TopicsServer
    directory: str
    rows: int
    quick: bool

    @property
    def url(self) -> str:
        return self.server.url("")


def _connector(bench: Bench) -> Iterator[Row]:
    spark, server, directory, rows, url = bench.spark, bench.server, bench.directory, bench.rows, bench.url
    for name in ("bulk", "json", "arrow", "copy"):
        server.call("PUT", f"/v0/topics/{name}", {"partitions": 2})
    made = spark.range(0, rows, 1, 2).selectExpr(f"{PAYLOAD} AS data", "CAST(id % 2 AS INT) AS partition")
    parquet = os.path.join(directory, "rows")
    made.select("data").write.parquet(parquet)
    _write(made, url, "bulk", "arrow")

    best = _best_of(
        rows,
        parquet=lambda: _drain(spark.read.parquet(parquet)),
        arrow=lambda: _drain(_read(spark, url, "arrow")),
        json=lambda: _drain(_read(spark, url, "json")),
    )
    yield at_least("bulk read, Arrow, of Parquet", best["arrow"], best["parquet"], 0.6, "rows/s", "Parquet")
    yield at_least("bulk read, Arrow", best["arrow"], 1_500_000, 1.0, "rows/s", "target")
    yield at_least("bulk read, JSON", best["json"], 800_000, 1.0, "rows/s", "target")

    staged = made.select("data", "partition")
    best = _best_of(
        rows,
        parquet=lambda: staged.write.mode("overwrite").parquet(os.path.join(directory, "out")),
        arrow=lambda: _write(staged, url, "arrow", "arrow"),
        json=lambda: _write(staged, url, "json", "json"),
    )
    yield at_least("write, Arrow", best["arrow"], 600_000, 1.0, "rows/s", "target")
    yield at_least("write, JSON", best["json"], 250_000, 1.0, "rows/s", "target")
    yield at_least("write, Arrow, of Parquet", best["arrow"], best["parquet"], 0.0, "rows/s", "Parquet, for comparison")

    copied = _best_of(rows, copy=lambda: _copy(spark, url, tempfile.mkdtemp(dir=directory)))["copy"]
    yield at_least("topic to topic stream", copied, 250_000, 1.0, "rows/s", "target")


# The jobs of the pipeline


def _routing(bench: Bench) -> Iterator[Row]:
    best = 0.0
    for _ in range(1 if bench.quick else RUNS):
        best = max(best, _routed(bench, bench.rows // 2, FIVE_ROUTES))
    yield at_least("routing, 5 routes", best, 80_000, 1.0, "changes/s", "target")


def _routes(bench: Bench) -> Iterator[Row]:
    """Each change goes to one of the routes: found by lookup for `column = constant`, by evaluation for others."""
    constants = [(f"out{at % 10}", f"WHERE (channel = {at})", "full") for at in range(1000)]
    looked_up = _routed(bench, bench.rows // 10, constants)
    yield at_least("routing, 1,000 routes of column = constant", looked_up, 20_000, 1.0, "changes/s", "target")
    changes = bench.rows // 10
    one = 0.0
    for number in (1, 10, 100, 1000):
        routes = [(f"out{at % 10}", f"WHERE (channel % {number} = {at})", "full") for at in range(number)]
        rate = _routed(bench, changes, routes)
        one = one or rate
        yield at_least(f"routing, {number:,} routes", rate, one, 0.0, "changes/s", "1 route, for comparison")


def _backlog(bench: Bench) -> Iterator[Row]:
    least = 0.0
    for waiting in (bench.rows // 100, bench.rows // 10, bench.rows):
        rate = _routed(bench, waiting, FIVE_ROUTES)
        least = least or rate
        yield at_least(f"routing, backlog of {waiting:,}", rate, least, 1.0, "changes/s", "the smallest backlog")


FIVE_ROUTES = [
    ("out0", "WHERE (visible = true AND channel IN (1, 2, 3))", "full"),
    ("out1", "WHERE (channel = 4)", "key"),
    ("out2", "WHERE (author LIKE 'a%' OR length(text) > 1000)", "full"),
    ("out3", "WHERE (channel > 90) PARTITION BY (author)", "full"),
    ("out4", "WHERE (NOT visible)", "key"),
]
_tables = itertools.count(1)


def _routed(bench: Bench, changes: int, routes: list[tuple[str, str, str]]) -> float:
    """Changes a second through a job of a table of its own."""
    from topics.spark.routing.job import route_jobs

    table = f"bench.t{next(_tables)}"
    with Client(bench.url) as client:
        for topic, rest, payload in routes:
            name = f"{table}.{topic}"
            client.create(name)
            where, _, partition = rest.partition(" PARTITION BY ")
            by = f" PARTITION BY {partition}" if partition else ""
            client.sql(
                f"ALTER TOPIC {name} ADD SOURCE {table} ON INSERT {where}{by} WITH (payload = '{payload}', key = 'id')"
            )
        _fill_changes(bench, client, table, changes)
        (job,) = [job for job in route_jobs(client.routes().routes) if job.name.endswith(f" {table}")]
        return _job_rate(bench, job, changes)


def _fill_changes(bench: Bench, client: Client, table: str, changes: int) -> None:
    """Change events as the server keeps them, put there with the sink, which is faster than sending them."""
    client.create(f"changes:{table}", durability="fsync")
    event = (
        'concat(\'{"op":"insert","ts":1730000000000,"key":{"id":\', id, \'},"before":null,"after":{"id":\', id, '
        "',\"channel\":', id % 1000, ',\"author\":\"', element_at(array('ada', 'grace', 'linus'), CAST(id % 3 + 1 AS INT)), "
        '\'","text":"\', repeat(\'x\', 40), \'","visible":\', id % 10 <> 0, \'},"source":null}\')'
    )
    _write(bench.spark.range(0, changes, 1, 2).selectExpr(f"{event} AS data"), bench.url, f"changes:{table}", "arrow")


def _job_rate(bench: Bench, job: Any, rows: int) -> float:
    """Rows a second from the start of the job's first batch to the end of its last one."""
    query = _started(bench, job)
    try:
        return _rate(_progress_until(query, rows))
    finally:
        query.stop()


def _first_batch(query: Any) -> float:
    """When the first batch with rows began. It is among these only when it is over."""
    _wait(query, lambda: any([each["numInputRows"] for each in query.recentProgress]))
    return min([_seconds(each) for each in query.recentProgress if each["numInputRows"]])


def _started(bench: Bench, job: Any) -> Any:
    from topics.spark.pipeline.job import JobContext

    checkpoint = tempfile.mkdtemp(dir=bench.directory)
    return job.start(JobContext(bench.spark, bench.url, None, checkpoint, 0))


def _rate(batches: list[Any]) -> float:
    return float(sum([each["numInputRows"] for each in batches]) / _duration(batches))


def _duration(batches: list[Any]) -> float:
    """From the start of the first batch to the end of the last."""
    return _seconds(batches[-1]) + batches[-1]["batchDuration"] / 1000 - _seconds(batches[0])


def _progress_until(query: Any, rows: int) -> list[Any]:
    """The batches with the first `rows` rows."""
    seen: dict[int, Any] = {}

    def enough() -> bool:
        # Spark keeps the last hundred.
        seen.update({each["batchId"]: each for each in query.recentProgress if each["numInputRows"]})
        return sum([each["numInputRows"] for each in seen.values()]) >= rows

    _wait(query, enough)
    return [seen[number] for number in sorted(seen)]


def _wait(query: Any, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if not query.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"the job never came to its end: {query.exception()}")
        time.sleep(0.02)


def _seconds(progress: Any) -> float:
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()


def _archive(bench: Bench) -> Iterator[Row]:
    """Spark sees one row for each task, so the records are counted from the progress that the archive reports to the server."""
    from topics.spark.archive.job import archive_jobs

    best = 0.0
    made = bench.spark.range(0, bench.rows, 1, 2).selectExpr(f"{PAYLOAD} AS data", "CAST(id % 2 AS INT) AS partition")
    with Client(bench.url) as client:
        for number in range(1 if bench.quick else RUNS):
            topic = f"archived{number}"
            client.create(topic, partitions=2)
            _write(made, bench.url, topic, "arrow")
            client.set_archive(topic, os.path.join(bench.directory, topic))
            (job,) = [job for job in archive_jobs(client) if job.name == f"archive {topic}"]
            query = _started(bench, job)
            try:
                _wait(query, lambda topic=topic: _archived(client, topic) >= bench.rows)
                best = max(best, bench.rows / (time.time() - _first_batch(query)))
            finally:
                query.stop()
            client.clear_archive(topic)
    yield at_least("archive to Delta", best, 150_000, 1.0, "rows/s", "target")


def _archived(client: Client, topic: str) -> int:
    found = client.archive(topic)
    return 0 if found is None else sum([each.next_seq - 1 for each in found.archived])


def _latency(bench: Bench) -> Iterator[Row]:
    """One change after the other, from its request to its arrival at a reader that waits for it."""
    for what, settings, bounds in (("", {}, (150, 220)), (", fast", FAST, (100, 150))):
        for name, value in settings.items():
            bench.spark.conf.set(name, value)
        times = _route_times(bench, 40 if bench.quick else 200)
        for name in settings:
            bench.spark.conf.unset(name)
        yield at_most(f"change to topic{what}, p50", _share(times, 0.50), bounds[0], "ms")
        yield at_most(f"change to topic{what}, p95", _share(times, 0.95), bounds[1], "ms")


# As docs/pipeline.md says: for checkpoints on a local disk.
FAST = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing."
    "FileSystemBasedCheckpointFileManager"
}


def _route_times(bench: Bench, changes: int) -> list[float]:
    from topics.spark.routing.job import route_jobs

    table = f"bench.t{next(_tables)}"
    with Client(bench.url) as client:
        client.create(f"{table}.out")
        client.sql(f"ALTER TOPIC {table}.out ADD SOURCE {table} ON INSERT WITH (payload = 'full', key = 'id')")
        client.create(f"changes:{table}", durability="fsync")
        (job,) = [job for job in route_jobs(client.routes().routes) if job.name.endswith(f" {table}")]
        query = _started(bench, job)
        try:
            return _latencies(client, table, changes)
        finally:
            query.stop()


def _latencies(client: Client, table: str, number: int) -> list[float]:
    times = []
    chance = random.Random(9)
    for at in range(number + WARM):
        time.sleep(chance.uniform(0.05, 0.35))  # so that changes meet the micro-batches at any moment
        begun = time.perf_counter()
        client.send_changes(table, [{"op": "insert", "key": {"id": at}, "after": {"id": at}}])
        page = client.diff(f"{table}.out", at, limit=1, wait_ms=30_000)
        while not page.records:
            if time.perf_counter() - begun > PATIENCE_SECONDS:
                raise RuntimeError("a change never came")
            page = client.diff(f"{table}.out", at, limit=1, wait_ms=30_000)
        times.append(1000 * (time.perf_counter() - begun))
    return times[WARM:]


def _share(times: list[float], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))]


def _delta(bench: Bench) -> Iterator[Row]:
    """A Delta table into its change topic: the snapshot, and one commit that updates every row."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    from topics.spark.delta.feed import DeltaFeed

    rows = bench.rows // 5
    uri = os.path.join(bench.directory, "lake")
    made = pa.table({"id": pa.array(range(rows), pa.int64()), "text": ["x" * 80] * rows})
    write_deltalake(uri, made, configuration={"delta.enableChangeDataFeed": "true"})
    query = _started(bench, DeltaFeed("lake.bench", uri, ("id",), "changes:lake.bench"))
    try:
        snapshot = _progress_until(query, rows)
        DeltaTable(uri).update(updates={"text": "'y'"})
        followed = _progress_until(query, 2 * rows)[len(snapshot) :]
    finally:
        query.stop()
    yield at_least("Delta table, snapshot to changes", _rate(snapshot), 50_000, 0.0, "rows/s", "for comparison")
    yield at_least(
        "Delta table, a commit of updates to changes", _rate(followed), 50_000, 0.0, "rows/s", "for comparison"
    )


SECTIONS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "connector": _connector,
    "routing": _routing,
    "routes": _routes,
    "backlog": _backlog,
    "archive": _archive,
    "latency": _latency,
    "delta": _delta,
}


def _session() -> Any:
    """As `topics pipeline run` makes it."""
    from topics.spark.pipeline.session import build_session

    settings = {"spark.driver.memory": "2g", "spark.ui.enabled": "false"}
    return build_session("local[2]", "bench", settings, logs=False)


def _best_of(rows: int, **actions: Callable[[], object]) -> dict[str, float]:
    """The best of a few runs of each, in turns: what disturbs the machine for a while disturbs all of them."""
    fastest = dict.fromkeys(actions, 0.0)
    for _ in range(RUNS):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            fastest[name] = max(fastest[name], rows / (time.perf_counter() - started))
    return fastest


def _drain(frame: Any) -> None:
    """Every value is looked at and none is kept."""
    frame.selectExpr("sum(length(data))").collect()


def _read(spark: Any, url: str, transport: str) -> Any:
    reader = spark.read.format("topics").option("url", url).option("subscribe", "bulk")
    return reader.option("transport", transport).load()


def _write(frame: Any, url: str, topic: str, transport: str) -> None:
    writer = frame.write.format("topics").mode("append").option("url", url).option("topic", topic)
    writer.option("transport", transport).save()


def _copy(spark: Any, url: str, checkpoint: str) -> None:
    reader = spark.readStream.format("topics").option("url", url).option("subscribe", "bulk")
    frame = reader.option("startingOffsets", "earliest").load().select("data", "partition")
    writer = frame.writeStream.format("topics").option("url", url).option("topic", "copy")
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
