"""Repeats are dropped: of events with the same id within an hour the first one is written.

Spark keeps the ids it has seen in its state and forgets those that the watermark has passed.
"""

import os
import sys
from typing import Any

from topics.client import Client


def unique_events(spark: Any, url: str, source: str, target: str, checkpoint: str) -> Any:
    """Start the query. It ends when all records there are now are read."""
    events = (
        spark.readStream.format("topics")
        .option("url", url)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .schema("id STRING, at TIMESTAMP, _data STRING")
        .load()
    )
    unique = events.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"]).selectExpr("_data AS data")
    return (
        unique.writeStream.format("topics")
        .option("url", url)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    from pyspark.sql import SparkSession

    url = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
    with Client(url) as client:
        client.create("example.events")
        client.create("example.events.unique")
        client.append("example.events", [{"id": "a", "at": "2026-01-01T10:00:00Z"}] * 2)
        spark = SparkSession.builder.getOrCreate()
        unique_events(spark, url, "example.events", "example.events.unique", sys.argv[1]).awaitTermination()
        for record in client.read("example.events.unique"):
            print(record)


if __name__ == "__main__":
    main()
