"""A stream joined with a topic that changes: each micro-batch sees the names that are there at its moment.

A data frame that is read before the stream starts is read once (docs/spark-freezing.md). Inside `foreachBatch` it is read
for every micro-batch.
"""

import os
import sys
from typing import Any

from topics.client import Client


def enriched_orders(spark: Any, url: str, orders: str, shops: str, target: str, checkpoint: str) -> Any:
    """Start the query. It runs until it is stopped."""
    from pyspark.sql.functions import max_by

    def join(batch: Any, batch_id: int) -> None:
        known = batch.sparkSession.read.format("topics").options(url=url, subscribe=shops)
        named = known.schema("shop STRING, name STRING, _seq BIGINT").load()
        # The newest record of a shop is its name.
        names = named.groupBy("shop").agg(max_by("name", "_seq").alias("name"))
        joined = batch.join(names, "shop", "left").selectExpr("struct(id, shop, name) AS data")
        writer = joined.write.format("topics").mode("append").options(url=url, topic=target)
        # Spark's own id of the query: another one with a new checkpoint, where batches begin at 0 again.
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        # Each batch once, also when Spark runs it again. A name may have changed in between, so rows are not compared.
        writer.options(queryId=query_id, batchId=batch_id, checkRepeats="false").save()

    source = spark.readStream.format("topics").options(url=url, subscribe=orders, startingOffsets="earliest")
    stream = source.schema("id INT, shop STRING").load()
    return stream.writeStream.foreachBatch(join).option("checkpointLocation", checkpoint).start()


def main() -> None:
    from pyspark.sql import SparkSession

    url = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")
    with Client(url) as client:
        for name in ("example.orders", "example.shops", "example.enriched"):
            client.create(name)
        client.append("example.shops", [{"shop": "a", "name": "Antwerp"}])
        client.append("example.orders", [{"id": 1, "shop": "a"}])
        spark = SparkSession.builder.getOrCreate()
        query = enriched_orders(spark, url, "example.orders", "example.shops", "example.enriched", sys.argv[1])
        query.processAllAvailable()
        client.append("example.shops", [{"shop": "b", "name": "Berlin"}])
        client.append("example.orders", [{"id": 2, "shop": "b"}])
        query.processAllAvailable()
        query.stop()
        for record in client.read("example.enriched"):
            print(record)


if __name__ == "__main__":
    main()
