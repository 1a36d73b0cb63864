"""Change events of Delta tables: one job for each table that is bound to a Delta URI and used by a route.

The first start sends all rows of the table, as inserts with `"snapshot": true` in their source, and then the changes of each
version. The events go through the exactly-once sink: a batch is a range of versions, which never change, and the batch number
is the fence. So a driver that is killed at any moment causes no repeated event. The rows of a version have no fixed order.

A new checkpoint is a first start. When the change topic already has events, a truncate precedes the rows: a reader that
applies the events in order gets the table, and no row twice.
"""

import json
from dataclasses import dataclass

from pyspark.sql.streaming.query import StreamingQuery

from topics.client import Client, TopicInfo
from topics.model.errors import NotFound
from topics.spark import register
from topics.spark.delta.log import FeedTrouble
from topics.spark.delta.source import BATCH_ROWS, NAME, SLICE_ROWS, DeltaFeedSource
from topics.spark.pipeline.job import Job, JobContext
from topics.spark.pipeline.session import activate


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

    def start(self, around: JobContext) -> StreamingQuery:
        """Start the query. Raises FeedTrouble for a table without a key; the query raises every other error."""
        if not self.key_columns:
            raise FeedTrouble(
                f"{self.table} has no key columns: name them with `topics table add {self.table} --delta URI --key COLUMNS`"
            )
        with Client(around.url, around.token) as client:
            info = _change_topic(client, self.topic)
        around.tell({"table": self.table, "uri": self.uri})
        around.spark.dataSource.register(DeltaFeedSource)
        register(around.spark)
        activate(around.spark)
        reader = around.spark.readStream.format(NAME).option("uri", self.uri).option("table", self.table)
        reader = reader.option("key", json.dumps(self.key_columns))
        reader = reader.option("sliceRows", self.sizes[0]).option("batchRows", self.sizes[1])
        frame = reader.option("truncatePartitions", max(1, len(info.partitions)) if info.head_seq else 0).load()
        writer = frame.writeStream.queryName(self.name).format("topics").option("url", around.url)
        if around.token is not None:
            writer = writer.option("token", around.token)
        # A new epoch has a new checkpoint: a change topic that was created again receives the whole table.
        checkpoint = f"{around.checkpoint.rstrip('/')}/epoch-{info.epoch}"
        writer = writer.option("topic", self.topic).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=f"{around.trigger_ms} milliseconds").start()


def feed_jobs(client: Client) -> list[Job]:
    """Return a job for each table of kind delta that a route uses."""
    routed = {route.table_id for route in client.routes().routes}
    return [
        DeltaFeed(table.table, table.location, tuple(table.key_columns), table.topic)
        for table in client.tables()
        if table.kind == "delta" and table.location is not None and table.table in routed
    ]


def _change_topic(client: Client, topic: str) -> TopicInfo:
    """Return the change topic. If it does not exist, create it with the durability that the server uses for pushed changes."""
    try:
        return client.info(topic, touch=False)
    except NotFound:
        client.create(topic, durability="fsync")
        return client.info(topic, touch=False)
