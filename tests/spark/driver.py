"""A Spark driver in a process of its own, for tests that kill it or need a session of another kind.

    python driver.py '{"master": "local[2]", "do": "stream", "url": ..., "source": ..., "target": ..., "checkpoint": ...}'

`remote` in place of `master` makes it a Spark Connect client. Prints one line of JSON when it is done.
"""

import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any


def session(job: dict[str, Any]) -> Any:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.remote(job["remote"]) if "remote" in job else builder.master(job["master"])
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        **job.get("settings", {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if "remote" not in job:
        spark.sparkContext.setLogLevel("OFF")
    return spark


def stream(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Copy source to target with everything that is there now, then end."""
    reader = spark.readStream.format("topics").option("url", job["url"]).option("subscribe", job["source"])
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", job.get("batch", 250_000))
    frame = reader.option("minPartitions", job.get("min_partitions", 0)).load()
    frame = frame.selectExpr("data", "named_struct('src_topic', topic, 'src_seq', seq) AS meta")
    writer = frame.writeStream.format("topics").option("url", job["url"]).option("topic", job["target"])
    query = writer.option("checkpointLocation", job["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    return {"id": str(query.id)}


def archive(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Archive a topic with everything that is there now, in batches of that many seqs, then end."""
    from topics.client import Client
    from topics.spark.archive import job as module
    from topics.spark.pipeline.job import JobContext

    module.MAX_SEQS_PER_MS = job.get("seqs_per_ms", module.MAX_SEQS_PER_MS)
    with Client(job["url"]) as client:
        (found,) = [each for each in module.archive_jobs(client) if each.name == f"archive {job['topic']}"]
    assert isinstance(found, module.ArchiveJob)
    around = JobContext(spark, job["url"], None, job["checkpoint"], 1000, lambda progress: None)
    found.start_with(around, availableNow=True).awaitTermination()
    return {}


def materialize(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Apply all changes of a table that there are now, then end."""
    from topics.client import Client
    from topics.spark.materialize.job import Materializer

    with Client(job["url"]) as client:
        found = Materializer(client, job["table"], job["uri"], job["mode"], max_changes=job["max_changes"])
        found.start(spark, availableNow=True).wait()
    return {}


def route(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Route the changes of the table with the name of the source, then end."""
    from topics.spark.pipeline.job import JobContext
    from topics.spark.routing.job import RouteJob

    watched: list[Any] = []
    context = JobContext(spark, job["url"], None, job["checkpoint"] + "-routed", 0, set_status_source=watched.append)
    query = RouteJob(job["source"]).start_with(context, availableNow=True)
    query.awaitTermination()
    notes = watched[0]()
    return {"messages": notes["messages"], "trouble": notes["trouble"]}


def batch(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Read the source whole, count it, and write it to the target."""
    reader = spark.read.format("topics").option("url", job["url"]).option("subscribe", job["source"])
    frame = reader.option("minPartitions", job.get("min_partitions", 0)).load()
    writer = frame.select("data").write.format("topics").option("url", job["url"]).option("topic", job["written"])
    writer.mode("append").save()
    return {"rows": frame.count()}


def delta(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Follow a Delta table in small batches until its change topic has the given number of events."""
    from topics.client import Client
    from topics.spark.delta.feed import DeltaFeed
    from topics.spark.pipeline.job import JobContext

    feed = DeltaFeed(job["table"], job["uri"], ("id",), f"changes:{job['table']}", tuple(job["sizes"]))
    query = feed.start(JobContext(spark, job["url"], None, job["checkpoint"], 0, lambda fields: None))
    with Client(job["url"]) as client:
        while client.info(f"changes:{job['table']}").count < job["until"] and query.isActive:
            time.sleep(0.05)
    return {"error": str(query.exception() or "")}


def shipped(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Send the package to the executors and say where they import it from, and which executors there are."""
    from topics.spark import ship

    ship(spark)

    def where(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        import topics.spark

        for _ in batches:
            pass
        time.sleep(0.5)  # long enough that no executor gets both tasks
        context = TaskContext.get()
        assert context is not None
        host = os.environ.get("SPARK_EXECUTOR_DIRS", "") + str(os.getppid())
        yield pa.RecordBatch.from_pydict({"path": [topics.spark.__file__], "executor": [host]})

    found = spark.range(0, 4, 1, 4).mapInArrow(where, "path STRING, executor STRING").collect()
    return {"paths": sorted({row.path for row in found}), "executors": len({row.executor for row in found})}


def speculate(spark: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Copy with one task that hangs on its first attempt after it has read its rows: a second attempt overtakes it."""

    def attempt(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for rows in batches:
            tags = pa.array([f"attempt-{context.attemptNumber()}"] * rows.num_rows)
            yield pa.RecordBatch.from_arrays([rows.column(0), tags], names=["data", "tag"])
        if context.partitionId() == 3 and context.attemptNumber() == 0:
            time.sleep(20)

    reader = spark.readStream.format("topics").option("url", job["url"]).option("subscribe", job["source"])
    frame = reader.option("startingOffsets", "earliest").option("minPartitions", 4).load().select("data")
    writer = frame.mapInArrow(attempt, "data STRING, tag STRING").writeStream.format("topics").option("url", job["url"])
    writer = writer.option("topic", job["speculated"]).option("checkpointLocation", job["checkpoint"] + "-speculated")
    writer.trigger(availableNow=True).start().awaitTermination()
    return {}


def main() -> None:
    job = json.loads(sys.argv[1])
    spark = session(job)
    for name in job["do"].split(","):
        print(json.dumps({"did": name, **globals()[name](spark, job)}), flush=True)
    # A clean stop takes seconds and no test depends on it; the test ends the whole process group.
    os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # noqa: BLE001 - report it and exit at once: the JVM may not answer any more
        traceback.print_exc()
        os._exit(1)
