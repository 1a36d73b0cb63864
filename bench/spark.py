"""The connector, the jobs of the pipeline and a cluster, measured in one session of Spark on one machine.

Every figure is the median of some rounds in a warm session; the first round does not count. Contenders of one comparison take
turns, so that what disturbs the machine for a while disturbs all of them.

Sections, for `--only=`: connector, structs, wide (many partitions and topics), sizes (of records), routing, before (with --before=DIR),
routes (how cost grows with them), backlog, memory, latency, load, archive, delta, cluster.
"""

import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import spark_cluster, spark_routing
from bench.servers import need, topics_server
from bench.spark_rows import Row
from bench.spark_tools import PAYLOAD, Bench, drain, in_turns, rates, ratios, read, session, write
from topics.client import Client

STRUCT = "named_struct('id', id, 'text', repeat('x', 40), 'price', id / 8, 'at', timestamp_seconds(id), 'tags', array('a', 'b'))"
WIDE = 256
TOPICS = 400
RECORD_BYTES = (10, 1_000, 100_000)
# Bytes that are written and read for each record size.
SIZE_BYTES = 100_000_000


def main(quick: bool, only: list[str], before: str | None) -> Iterator[Row]:
    need("java")
    unknown = set(only) - {*SECTIONS, "cluster"}
    if unknown:
        sys.exit(f"no section {min(unknown)}; there are {', '.join([*SECTIONS, 'cluster'])}")
    rows = 200_000 if quick else 1_000_000
    directory = tempfile.mkdtemp(prefix="topics-bench-spark-")
    try:
        with topics_server() as server:
            chosen = [name for name in SECTIONS if not only or name in only]
            if chosen:
                spark = session("local[2]")
                try:
                    for name in chosen:
                        yield from SECTIONS[name](Bench(spark, server, directory, rows, quick, before))
                finally:
                    spark.stop()
            if not only or "cluster" in only:
                with spark_cluster.running(directory) as master:
                    spark = session(master, spark_cluster.SETTINGS)
                    try:
                        yield from _cluster(Bench(spark, server, directory, rows, quick))
                    finally:
                        spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


# The connector


def _connector(bench: Bench) -> Iterator[Row]:
    spark, server, directory, rows, url = bench.spark, bench.server, bench.directory, bench.rows, bench.url
    for name in ("bulk", "json", "arrow", "copy"):
        server.must("PUT", f"/v0/topics/{name}", {"partitions": 2})
    made = spark.range(0, rows, 1, 2).selectExpr(f"{PAYLOAD} AS data", "CAST(id % 2 AS INT) AS partition")
    parquet = os.path.join(directory, "rows")
    made.select("data").write.parquet(parquet)
    write(made, url, "bulk", "arrow")

    found = rates(
        bench.rounds,
        rows,
        parquet=lambda: drain(spark.read.parquet(parquet)),
        arrow=lambda: drain(read(spark, url, "bulk", "arrow")),
        json=lambda: drain(read(spark, url, "bulk", "json")),
    )
    yield Row("read Parquet, for comparison", "rows/s", found["parquet"])
    yield Row("bulk read, Arrow", "rows/s", found["arrow"], 1_500_000)
    yield Row("bulk read, Arrow, of Parquet", "times", ratios(found["arrow"], found["parquet"]), 0.6)
    yield Row("bulk read, JSON", "rows/s", found["json"], 800_000)

    staged = made.select("data", "partition")
    found = rates(
        bench.rounds,
        rows,
        parquet=lambda: staged.write.mode("overwrite").parquet(os.path.join(directory, "out")),
        arrow=lambda: write(staged, url, "arrow", "arrow"),
        json=lambda: write(staged, url, "json", "json"),
    )
    yield Row("write Parquet, for comparison", "rows/s", found["parquet"])
    yield Row("write, Arrow", "rows/s", found["arrow"], 600_000)
    yield Row("write, JSON", "rows/s", found["json"], 250_000)

    found = rates(bench.rounds, rows, copy=lambda: _copy(spark, url, tempfile.mkdtemp(dir=directory)))
    yield Row("topic to topic stream", "rows/s", found["copy"], 250_000)


def _structs(bench: Bench) -> Iterator[Row]:
    """Rows with a struct as `data`, encoded by the sink, beside `to_json`, encoded by Spark before the sink."""
    rows = bench.rows // 2
    for name in ("structs", "texts"):
        bench.server.must("PUT", f"/v0/topics/{name}", {"partitions": 2})
    made = bench.spark.range(0, rows, 1, 2).selectExpr(f"{STRUCT} AS data")
    found = rates(
        bench.rounds,
        rows,
        structs=lambda: write(made, bench.url, "structs", "arrow"),
        texts=lambda: write(made.selectExpr("to_json(data) AS data"), bench.url, "texts", "arrow"),
    )
    yield Row("write, a struct of 5 columns", "rows/s", found["structs"])
    yield Row("write, the same by to_json", "rows/s", found["texts"])
    yield Row("write, a struct, of to_json", "times", ratios(found["structs"], found["texts"]), 0.8)


def _wide(bench: Bench) -> Iterator[Row]:
    with Client(bench.url) as client:
        client.create("wide", partitions=WIDE)
        for number in range(WIDE):
            client.append("wide", [{"n": number}], partition=number)
        for number in range(TOPICS):
            client.append(f"many.{number}", [{"n": number}])

    def count(wanted: int, **options: str) -> Callable[[], float]:
        reader = bench.spark.read.format("topics").option("url", bench.url).options(**options)

        def measure() -> float:
            started = time.perf_counter()
            found = reader.load().selectExpr("sum(length(data))", "count(1)").collect()[0][1]
            assert found == wanted, found
            return time.perf_counter() - started

        return measure

    actions = {"wide": count(WIDE, subscribe="wide"), "many": count(TOPICS, subscribePattern=r"many\..*")}
    found = in_turns(bench.rounds, actions)
    yield Row(f"read {WIDE} partitions of one record", "s", found["wide"], 1, at_most=True)
    yield Row(f"read {TOPICS} topics of one record", "s", found["many"], 1, at_most=True)


def _sizes(bench: Bench) -> Iterator[Row]:
    for size in RECORD_BYTES:
        total = SIZE_BYTES // 10 if bench.quick or size < 100 else SIZE_BYTES
        rows = total // size
        name = f"sized.{size}"
        bench.server.must("PUT", f"/v0/topics/{name}", {"partitions": 2})
        text = f"concat('\"', repeat('x', {size - 2}), '\"')"
        made = bench.spark.range(0, rows, 1, 2).selectExpr(f"{text} AS data", "CAST(id % 2 AS INT) AS partition")
        numbers = itertools.count()

        def fill(made: Any = made, name: str = name, numbers: Iterator[int] = numbers) -> None:
            write(made, bench.url, f"{name}.{next(numbers)}", "arrow")

        write(made, bench.url, name, "arrow")
        found = rates(
            min(3, bench.rounds),
            rows,
            write=fill,
            read=lambda name=name: drain(read(bench.spark, bench.url, name, "arrow")),
        )
        for what in ("write", "read"):
            yield Row(f"{what}, records of {size:,} bytes", "MB/s", [rate * size / 1e6 for rate in found[what]])


def _archive(bench: Bench) -> Iterator[Row]:
    from topics.spark.archive.job import archive_jobs

    made = bench.spark.range(0, bench.rows, 1, 2).selectExpr(f"{PAYLOAD} AS data", "CAST(id % 2 AS INT) AS partition")
    found = []
    with Client(bench.url) as client:
        for number in range(min(3, bench.rounds)):
            topic = f"archived{number}"
            client.create(topic, partitions=2)
            write(made, bench.url, topic, "arrow")
            client.set_archive(topic, os.path.join(bench.directory, topic))
            (job,) = [job for job in archive_jobs(client) if job.name == f"archive {topic}"]
            query = spark_routing.started(bench, job)
            try:
                spark_routing.wait(query, lambda topic=topic: _archived(client, topic) >= bench.rows)
                found.append(bench.rows / (time.time() - spark_routing.first_batch(query)))
            finally:
                query.stop()
            client.clear_archive(topic)
    yield Row("archive to Delta", "rows/s", found, 150_000)


def _archived(client: Client, topic: str) -> int:
    found = client.archive(topic)
    return 0 if found is None else sum([each.next_seq - 1 for each in found.archived])


def _delta(bench: Bench) -> Iterator[Row]:
    """A Delta table into its change topic: the snapshot, and one commit that updates every row."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    from topics.spark.delta.feed import DeltaFeed

    rows = bench.rows // 5
    snapshots, commits = [], []
    for number in range(min(3, bench.rounds)):
        uri = os.path.join(bench.directory, f"lake{number}")
        made = pa.table({"id": pa.array(range(rows), pa.int64()), "text": ["x" * 80] * rows})
        write_deltalake(uri, made, configuration={"delta.enableChangeDataFeed": "true"})
        table = f"lake.bench{number}"
        query = spark_routing.started(bench, DeltaFeed(table, uri, ("id",), f"changes:{table}"))
        try:
            snapshot = spark_routing.progress_until(query, rows)
            DeltaTable(uri).update(updates={"text": "'y'"})
            followed = spark_routing.progress_until(query, 2 * rows)[len(snapshot) :]
        finally:
            query.stop()
        snapshots.append(spark_routing.rate_of(snapshot))
        commits.append(spark_routing.rate_of(followed))
    yield Row("Delta table, snapshot to changes", "rows/s", snapshots)
    yield Row("Delta table, a commit of updates to changes", "rows/s", commits)


def _cluster(bench: Bench) -> Iterator[Row]:
    rows = bench.rows // 2
    bench.server.must("PUT", "/v0/topics/cluster", {"partitions": 2})
    made = bench.spark.range(0, rows, 1, 2).selectExpr(f"{PAYLOAD} AS data", "CAST(id % 2 AS INT) AS partition")
    write(made, bench.url, "cluster", "arrow")
    found = rates(
        min(3, bench.rounds),
        rows,
        write=lambda: write(made, bench.url, "cluster.out", "arrow"),
        read=lambda: drain(read(bench.spark, bench.url, "cluster", "arrow")),
    )
    yield Row("cluster of two workers, write, Arrow", "rows/s", found["write"])
    yield Row("cluster of two workers, bulk read, Arrow", "rows/s", found["read"])
    routed = [spark_routing.routed(bench, rows // 2, spark_routing.FIVE_ROUTES) for _ in range(min(3, bench.rounds))]
    yield Row("cluster of two workers, routing, 5 routes", "changes/s", routed)


SECTIONS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "connector": _connector,
    "structs": _structs,
    "wide": _wide,
    "sizes": _sizes,
    "routing": spark_routing.routing,
    "before": spark_routing.before,
    "routes": spark_routing.routes,
    "backlog": spark_routing.backlog,
    "memory": spark_routing.memory,
    "latency": spark_routing.latency,
    "load": spark_routing.load,
    "archive": _archive,
    "delta": _delta,
}


def _copy(spark: Any, url: str, checkpoint: str) -> None:
    reader = spark.readStream.format("topics").option("url", url).option("subscribe", "bulk")
    frame = reader.option("startingOffsets", "earliest").load().select("data", "partition")
    writer = frame.writeStream.format("topics").option("url", url).option("topic", "copy")
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
