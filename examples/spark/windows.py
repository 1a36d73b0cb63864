"""Windows with a watermark: orders of each shop in each minute, written when no more records for the minute are accepted."""

import os
import sys
from typing import Any

from topics.client import Client

ORDER = "shop STRING, cents BIGINT, at TIMESTAMP"


def order_windows(spark: Any, url: str, source: str, target: str, checkpoint: str) -> Any:
    """Start the query. It ends when all records there are now are read."""
    from pyspark.sql.functions import window

    reader = spark.readStream.format("topics").options(url=url, subscribe=source, startingOffsets="earliest")
    orders = reader.schema(ORDER).load()
    minutes = (
        orders.withWatermark("at", "10 minutes")  # a record that is older than that is dropped
        .groupBy("shop", window("at", "1 minute"))
        .agg({"cents": "sum"})
        .selectExpr("shop AS tag", "struct(shop, window.start AS minute, `sum(cents)` AS cents) AS data")
    )
    writer = minutes.writeStream.format("topics").options(url=url, topic=target, checkpointLocation=checkpoint)
    return writer.trigger(availableNow=True).start()


def main() -> None:
    from pyspark.sql import SparkSession

    url = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
    with Client(url) as client:
        client.create("example.orders")
        client.create("example.orders.minutes")
        client.append(
            "example.orders",
            [
                {"shop": "a", "cents": 5, "at": "2026-01-01T10:00:01Z"},
                {"shop": "a", "cents": 6, "at": "2026-01-01T10:00:59Z"},
                {"shop": "a", "cents": 7, "at": "2026-01-01T11:00:00Z"},
            ],
        )
        spark = SparkSession.builder.getOrCreate()
        order_windows(spark, url, "example.orders", "example.orders.minutes", sys.argv[1]).awaitTermination()
        for record in client.read("example.orders.minutes"):
            print(record)


if __name__ == "__main__":
    main()
