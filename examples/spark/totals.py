"""An aggregate back into a topic: the total of each shop, written again whenever it changes, exactly once.

Spark gives changed results (`outputMode("update")`) to a sink written in Python only through `foreachBatch`. `queryId` and
`batchId` make the server accept each batch once. `queryId` is Spark's own id of the query, which is another one with a new
checkpoint: there, batches begin at 0 again.
"""

import os
import sys
from typing import Any

from topics.client import Client


def shop_totals(spark: Any, url: str, source: str, target: str, checkpoint: str) -> Any:
    """Start the query. It ends when all records there are now are read."""

    def write(frame: Any, batch_id: int) -> None:
        writer = frame.write.format("topics").mode("append").option("url", url).option("topic", target)
        query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        writer.option("queryId", query_id).option("batchId", batch_id).save()

    totals = (
        spark.readStream.format("topics")
        .option("url", url)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .schema("shop STRING, cents BIGINT")
        .load()
        .groupBy("shop")
        .agg({"cents": "sum"})
        .selectExpr("shop AS tag", "struct(shop, `sum(cents)` AS cents) AS data")
    )
    return (
        totals.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .outputMode("update")
        .trigger(availableNow=True)
        .start()
    )


def main() -> None:
    from pyspark.sql import SparkSession

    url = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
    with Client(url) as client:
        client.create("example.orders")
        client.create("example.totals")
        client.append("example.orders", [{"shop": "a", "cents": 5}, {"shop": "a", "cents": 6}])
        spark = SparkSession.builder.getOrCreate()
        shop_totals(spark, url, "example.orders", "example.totals", sys.argv[1]).awaitTermination()
        for record in client.read("example.totals"):
            print(record)


if __name__ == "__main__":
    main()
