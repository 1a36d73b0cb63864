"""Spark beside itself: the same rows through the connector and through Parquet, in one session on one machine.

Every figure is the best of a few runs in a warm session, so that neither the start of Spark nor a disturbed run counts.
Targets are those of the connector's design: reads and writes in rows/s, and reading at least 0.6 of Parquet.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.tools import Row, TopicsServer, at_least, need, topics_server

PAYLOAD = "concat('{\"id\":', id, ',\"text\":\"', repeat('x', 80), '\"}')"
RUNS = 4


def main(quick: bool) -> Iterator[Row]:
    need("java")
    rows = 200_000 if quick else 1_000_000
    directory = tempfile.mkdtemp(prefix="topics-bench-spark-")
    try:
        with topics_server() as server:
            spark = _session()
            try:
                yield from _all(spark, server, directory, rows)
            finally:
                spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _all(spark: Any, server: TopicsServer, directory: str, rows: int) -> Iterator[Row]:
    url = server.url("")
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


def _session() -> Any:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    spark = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


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
