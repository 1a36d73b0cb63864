"""The streaming query that keeps a materialised table up to date: by `topics table materialize`, and as a job of a pipeline.

Spark reads the change topic (and its archive, if it has one) and the driver applies each micro-batch to the Delta table.
The position is in the table only: each start begins there, and Spark's checkpoint is a temporary directory. A
driver that is killed at any moment is therefore followed by one that neither repeats nor skips a change.
"""

import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.streaming.query import StreamingQuery

from topics.client import Client, TopicDescription
from topics.client.values import TableInfo
from topics.model.errors import NotFound
from topics.model.tables.change import change_topic
from topics.spark import register
from topics.spark.connector.archive_reader import Histories
from topics.spark.connector.planning import has_lost
from topics.spark.materialize.table import Applied, Change, MaterializedTable, MaterializeError
from topics.spark.materialize.versions import decode_event
from topics.spark.pipeline.job import Job, JobContext, NotYet
from topics.spark.pipeline.progress import observe_records
from topics.spark.pipeline.session import activate

DEFAULT_MAX_CHANGES = 100_000
# A commit to a Delta table writes files and takes a few tenths of a second.
MIN_TRIGGER_MS = 1000


class Materializer:
    """Materialises one table. `on_applied` is called after each batch, in a thread of Spark."""

    def __init__(
        self,
        client: Client,
        table: str,
        uri: str,
        mode: str,
        *,
        token: str | None = None,
        max_changes: int = DEFAULT_MAX_CHANGES,
        ignore_loss: bool = False,
        on_applied: Callable[[Applied], None] = lambda applied: None,
    ) -> None:
        """`ignore_loss`: begin behind changes that are gone. Raises MaterializeError when the table at the URI cannot be used."""
        self._client = client
        self._token = token
        self._name = table
        self._topic = change_topic(table)
        self._max_changes = max_changes
        self._ignore_loss = ignore_loss
        self._on_applied = on_applied
        try:
            declared = client.table(table).columns
        except NotFound:
            declared = {}
        self._table = MaterializedTable(uri, mode, self._topic, declared)

    def start(self, spark: Any, **trigger: Any) -> "RunningQuery":
        """Start the query at the table's position. `availableNow=True` ends it when all present changes are applied.

        Raises MaterializeError when there is no change topic, or when changes from that position on are gone.
        """
        description = self._client.describe([self._topic])[self._topic]
        if description is None:
            raise MaterializeError(f'topic "{self._topic}" does not exist: no changes of the table have been sent yet')
        epoch = description.epoch
        offsets = {str(number): seq for number, seq in self._positions(description).items()}
        checkpoint = tempfile.mkdtemp(prefix="topics-materialize-")
        reader = spark.readStream.format("topics").option("url", self._client.url).option("subscribe", self._topic)
        if self._token:
            reader = reader.option("token", self._token)
        reader = reader.option("startingOffsets", json.dumps({self._topic: offsets}))
        frame = reader.option("history", "all").option("maxOffsetsPerTrigger", self._max_changes).load()
        frame = observe_records(frame, F.col("ts")).select("partition", "seq", "data")

        def apply(batch: Any, _: int) -> None:
            changes = [
                Change(partition, seq, decode_event(data))
                for columns in batch.toArrow().to_batches()
                for partition, seq, data in zip(*[column.to_pylist() for column in columns.columns], strict=True)
            ]
            if changes:
                self._on_applied(self._table.apply(epoch, changes))

        writer = frame.writeStream.foreachBatch(apply).option("checkpointLocation", checkpoint)
        return RunningQuery(writer.queryName(f"materialize {self._name}").trigger(**trigger).start(), checkpoint)

    def _positions(self, description: TopicDescription) -> dict[int, int]:
        """The next seq of each partition. A new table begins at the first change, not at the oldest one that is left."""
        positions = self._table.positions(description.epoch, description.heads)
        histories = Histories([self._client])
        for number, seq in positions.items():
            live = description.earliest[number]
            floor = histories.earliest(self._topic, description.epoch, number, live, 0) if seq < live else live
            if not has_lost(self._client, self._topic, number, seq, floor):
                continue
            if not self._ignore_loss:
                raise MaterializeError(
                    f"changes {seq} to {floor - 1} of {self._name}, partition {number}, are gone: neither the server nor an "
                    f'archive has them, and the table would lack their rows. Delete the topic "{self._topic}" and send the '
                    "whole table again, or leave them out: topics table materialize ... --ignore-loss"
                )
            positions[number] = floor
        return positions


@dataclass(frozen=True)
class MaterializeJob:
    """Materialises one table for a pipeline."""

    table: str
    uri: str
    mode: str
    # The declared columns: with others the job starts again.
    columns: tuple[tuple[str, str], ...] = ()
    kind: str = "materialize"

    @property
    def name(self) -> str:
        return f"materialize {self.table}"

    def start(self, context: JobContext) -> StreamingQuery:
        """Raises NotYet while the table has no changes, MaterializeError when the Delta table cannot be used."""
        return self.start_with(context, processingTime=f"{max(context.trigger_ms, MIN_TRIGGER_MS)} milliseconds")

    def start_with(self, context: JobContext, **trigger: Any) -> StreamingQuery:
        """As `start`, with another trigger."""
        with Client(context.url, context.token) as client:
            topic = change_topic(self.table)
            if client.describe([topic])[topic] is None:
                raise NotYet(f'topic "{topic}" does not exist: no changes of {self.table} were sent')

            def show(applied: Applied) -> None:
                context.set_status_fields({"table_version": applied.version})

            materializer = Materializer(client, self.table, self.uri, self.mode, token=context.token, on_applied=show)
            context.set_status_fields({"uri": self.uri, "mode": self.mode})
            register(context.spark)
            activate(context.spark)
            running = materializer.start(context.spark, **trigger)
        query: StreamingQuery = running.query
        weakref.finalize(query, shutil.rmtree, running.checkpoint, ignore_errors=True)
        return query


def materialize_jobs(tables: Iterable[TableInfo]) -> list[Job]:
    """A job for each table that is set to be materialised."""
    return [
        MaterializeJob(
            table.table, table.materialized.uri, table.materialized.mode, tuple(sorted(table.columns.items()))
        )
        for table in tables
        if table.materialized is not None
    ]


class RunningQuery:
    """A query and its temporary checkpoint, which goes with it."""

    def __init__(self, query: Any, checkpoint: str) -> None:
        self.query = query
        self.checkpoint = checkpoint

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the query has ended. Raises what ended it."""
        ended = self.query.awaitTermination() if timeout_s is None else self.query.awaitTermination(timeout_s)
        if timeout_s is None or ended:
            self._remove()
        return ended is not False

    def stop(self) -> None:
        self.query.stop()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)
