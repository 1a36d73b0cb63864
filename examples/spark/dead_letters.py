"""Records that do not fit a schema go to a topic of their own, with the reason, exactly once, in the same query."""

import os
import sys
from typing import Any

from topics.client import Client


def sorted_orders(spark: Any, url: str, source: str, good: str, bad: str, checkpoint: str) -> Any:
    """Start the query. It ends when all records there are now are read."""
    from pyspark.sql.functions import expr

    orders = (
        spark.readStream.format("topics")
        .option("url", url)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .schema("id INT, cents BIGINT, _seq BIGINT, _data STRING, _corrupt STRING, _corrupt_reason STRING")
        .load()
    )
    rows = orders.select(
        expr(f"if(_corrupt IS NULL, '{good}', '{bad}')").alias("topic"),
        expr(
            "if(_corrupt IS NULL, _data, to_json(struct(_seq AS seq, _corrupt AS record, _corrupt_reason AS reason)))"
        ).alias("data"),
    )
    writer = rows.writeStream.format("topics").option("url", url).option("checkpointLocation", checkpoint)
    return writer.trigger(availableNow=True).start()


def main() -> None:
    from pyspark.sql import SparkSession

    url = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
    with Client(url) as client:
        for name in ("example.raw", "example.good", "example.bad"):
            client.create(name)
        client.append("example.raw", [{"id": 1, "cents": 5}, {"id": "one"}])
        spark = SparkSession.builder.getOrCreate()
        query = sorted_orders(spark, url, "example.raw", "example.good", "example.bad", sys.argv[1])
        query.awaitTermination()
        for record in client.read("example.bad"):
            print(record)


if __name__ == "__main__":
    main()
