"""Delta tables whose changes become change events: a job for each table that is bound to a Delta URI and named by a route.

The first start sends the table as it is, as inserts with `"snapshot": true` in their source, and then what every version
changed. The events go through the exactly-once sink: a batch is a range of versions, which never change, and its number is
the fence. So a driver that is killed anywhere repeats nothing, and the rows of a version may come in any order, which they do.

A new checkpoint is a first start. When the change topic has events already, a truncate goes before the rows: whoever applies
the events in order has the table again, not two of each row.
"""

import json
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from topics.client import Client, TopicInfo
from topics.model.errors import NotFound
from topics.spark import register
from topics.spark.delta_log import FeedTrouble
from topics.spark.delta_source import BATCH_ROWS, NAME, SLICE_ROWS, DeltaFeedSource
from topics.spark.job import Job, Surroundings


@dataclass(frozen=True)
class DeltaFeed:
    """Follows one Delta table."""

    table: str
    uri: str
    key_columns: tuple[str, ...]
    topic: str
    # Rows of a task and of a batch.
    sizes: tuple[int, int] = (SLICE_ROWS, BATCH_ROWS)
    kind: str = "delta"

    @property
    def name(self) -> str:
        return f"delta {self.table}"

    def start(self, around: Surroundings) -> StreamingQuery:
        """Raises FeedTrouble for a table without a key; everything else is told by the query."""
        if not self.key_columns:
            raise FeedTrouble(
                f"{self.table} has no key columns: name them with `topics table add {self.table} --delta URI --key COLUMNS`"
            )
        with Client(around.url, around.token) as client:
            info = _change_topic(client, self.topic)
        around.tell({"table": self.table, "uri": self.uri})
        around.spark.dataSource.register(DeltaFeedSource)
        register(around.spark)
        _activate(around.spark)
        reader = around.spark.readStream.format(NAME).option("uri", self.uri).option("table", self.table)
        reader = reader.option("key", json.dumps(self.key_columns))
        reader = reader.option("sliceRows", self.sizes[0]).option("batchRows", self.sizes[1])
        frame = reader.option("told", max(1, len(info.partitions)) if info.head_seq else 0).load()
        writer = frame.writeStream.queryName(self.name).format("topics").option("url", around.url)
        if around.token is not None:
            writer = writer.option("token", around.token)
        # A change topic that was deleted and created again gets the table again.
        checkpoint = f"{around.checkpoint.rstrip('/')}/epoch-{info.epoch}"
        writer = writer.option("topic", self.topic).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=f"{around.trigger_ms} milliseconds").start()


def feed_jobs(client: Client) -> list[Job]:
    """A job for each table of kind delta that some route names."""
    routed = {route.table_id for route in client.routes().routes}
    return [
        DeltaFeed(table.table, table.location, tuple(table.key_columns), table.topic)
        for table in client.tables()
        if table.kind == "delta" and table.location is not None and table.table in routed
    ]


def _activate(spark: SparkSession) -> None:
    """Spark looks for the format of a sink in the active session of the thread, and a new thread has none."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


def _change_topic(client: Client, topic: str) -> TopicInfo:
    """The change topic, created as durable as the server creates it for pushed changes."""
    try:
        return client.info(topic, touch=False)
    except NotFound:
        client.create(topic, durability="fsync")
        return client.info(topic, touch=False)
