"""Orders that are paid, from the topic `orders` to the topic `orders.paid`."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
URL = os.environ.get("TOPICS_URL", "http://127.0.0.1:4000")

dp.create_sink("paid", "topics", {"url": URL, "topic": "orders.paid"})


@dp.append_flow(target="paid")
def paid_orders() -> DataFrame:
    orders = (
        spark.readStream.format("topics")
        .option("url", URL)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    return orders.where("get_json_object(data, '$.paid') = 'true'").selectExpr(
        "data", "named_struct('src_topic', topic, 'src_seq', seq) AS meta"
    )
