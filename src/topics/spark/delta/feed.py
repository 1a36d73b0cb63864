"""Change events of Delta tables: one job for each table that is bound to a Delta URI and used by a route.

The first start sends all rows of the table, as inserts with `"snapshot": true` in their source, and then the changes of each
version. The events go through the exactly-once sink: a batch is a range of versions, which never change, and the batch number
is the fence. So a driver that is killed at any moment causes no repeated event. The rows of a version have no fixed order.

A new checkpoint is a first start. When the change topic already has events, a truncate precedes the rows: a reader that
applies the events in order gets the table, and no row twice.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.streaming.query import StreamingQuery

from topics.client import Client, TopicInfo
from topics.client.values import TableInfo
from topics.model.errors import NotFound
from topics.spark import register
from topics.spark.delta.log import FeedError
from topics.spark.delta.source import BATCH_ROWS, NAME, SLICE_ROWS, DeltaFeedSource
from topics.spark.pipeline.job import Job, JobContext
from topics.spark.pipeline.progress import observe_records
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

    def start(self, context: JobContext) -> StreamingQuery:
        """Start the query. Raises FeedError for a table without a key; the query raises every other error."""
        if not self.key_columns:
            raise FeedError(
                f"{self.table} has no key columns: name them with `topics table add {self.table} --delta URI --key COLUMNS`"
            )
        with Client(context.url, context.token) as client:
            info = _change_topic(client, self.topic)
        context.set_status_fields({"table": self.table, "uri": self.uri})
        context.spark.dataSource.register(DeltaFeedSource)
        register(context.spark)
        activate(context.spark)
        reader = context.spark.readStream.format(NAME).option("uri", self.uri).option("table", self.table)
        reader = reader.option("key", json.dumps(self.key_columns))
        reader = reader.option("sliceRows", self.sizes[0]).option("batchRows", self.sizes[1])
        frame = reader.option("truncatePartitions", max(1, len(info.partitions)) if info.head_seq else 0).load()
        # The encoder writes `op` and `ts` first, so the first match is the time of the change.
        changed_ms = F.regexp_extract("data", '"ts":(-?[0-9]+)', 1).try_cast("bigint")
        frame = observe_records(frame, F.timestamp_millis(changed_ms))
        writer = frame.writeStream.queryName(self.name).format("topics").option("url", context.url)
        if context.token is not None:
            writer = writer.option("token", context.token)
        # A new epoch has a new checkpoint: a change topic that was created again receives the whole table.
        checkpoint = f"{context.checkpoint.rstrip('/')}/epoch-{info.epoch}"
        writer = writer.option("topic", self.topic).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime=f"{context.trigger_ms} milliseconds").start()


def feed_jobs(client: Client, tables: Iterable[TableInfo] | None = None) -> list[Job]:
    """Return a job for each table of kind delta that a route uses or that is materialised."""
    tables = list(client.tables() if tables is None else tables)
    used = {route.table_id for route in client.routes().routes}
    used |= {table.table for table in tables if table.materialized is not None}
    return [
        DeltaFeed(table.table, table.location, tuple(table.key_columns), table.topic)
        for table in tables
        if table.kind == "delta" and table.location is not None and table.table in used
    ]


def _change_topic(client: Client, topic: str) -> TopicInfo:
    """Return the change topic. If it does not exist, create it with the durability that the server uses for pushed changes."""
    try:
        return client.info(topic, touch=False)
    except NotFound:
        client.create(topic, durability="fsync")
        return client.info(topic, touch=False)
