"""The streaming query that keeps a materialised table up to date.

Spark reads the change topic (and its archive, if it has one) and the driver applies each micro-batch to the Delta table.
The position is in the table only: each start begins there, and Spark's checkpoint is a temporary directory. A
driver that is killed at any moment is therefore followed by one that neither repeats nor skips a change.
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from topics.client import Client
from topics.model.change import change_topic
from topics.model.errors import NotFound
from topics.spark.materialize.table import Applied, Change, MaterializedTable, MaterializeError
from topics.spark.materialize.versions import decode_event

DEFAULT_MAX_CHANGES = 100_000


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
        on_applied: Callable[[Applied], None] = lambda applied: None,
    ) -> None:
        """Raises MaterializeError when the table at the URI cannot be used."""
        self._client = client
        self._token = token
        self._topic = change_topic(table)
        self._max_changes = max_changes
        self._on_applied = on_applied
        try:
            declared = client.table(table).columns
        except NotFound:
            declared = {}
        self._table = MaterializedTable(uri, mode, self._topic, declared)

    def start(self, spark: Any, **trigger: Any) -> "RunningQuery":
        """Start the query at the table's position. `availableNow=True` ends it when all present changes are applied."""
        description = self._client.describe([self._topic])[self._topic]
        if description is None:
            raise MaterializeError(f'topic "{self._topic}" does not exist: no changes of the table have been sent yet')
        epoch = description.epoch
        positions = self._table.positions(epoch, description.heads)
        offsets = {str(number): seq for number, seq in positions.items()}
        checkpoint = tempfile.mkdtemp(prefix="topics-materialize-")
        reader = spark.readStream.format("topics").option("url", self._client.url).option("subscribe", self._topic)
        if self._token:
            reader = reader.option("token", self._token)
        if any([seq > 1 for seq in positions.values()]):
            reader = reader.option("startingOffsets", json.dumps({self._topic: offsets}))
        else:
            reader = reader.option("startingOffsets", "earliest")
        frame = reader.option("history", "all").option("maxOffsetsPerTrigger", self._max_changes).load()
        frame = frame.select("partition", "seq", "data")

        def apply(batch: Any, _: int) -> None:
            changes = [
                Change(partition, seq, decode_event(data))
                for columns in batch.toArrow().to_batches()
                for partition, seq, data in zip(*[column.to_pylist() for column in columns.columns], strict=True)
            ]
            if changes:
                self._on_applied(self._table.apply(epoch, changes))

        writer = frame.writeStream.foreachBatch(apply).option("checkpointLocation", checkpoint)
        return RunningQuery(writer.queryName(f"materialize {self._topic}").trigger(**trigger).start(), checkpoint)


class RunningQuery:
    """A query and its temporary checkpoint, which goes with it."""

    def __init__(self, query: Any, checkpoint: str) -> None:
        self.query = query
        self._checkpoint = checkpoint

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
        shutil.rmtree(self._checkpoint, ignore_errors=True)
