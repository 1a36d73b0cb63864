"""Replay: route a range of a table's changes again, through the routes that there are now.

Messages are appended to the topics again, behind what is there. They have the `message_id` of their first time, so that a consumer can
tell them apart from new ones. A replay has an id: one that was interrupted and is started again with the same id and range sends
every message once.

Changes are routed in steps of up to MAX_STEP_CHANGES, each with one commit under (replay id, step).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from topics.client import Client
from topics.client.values import RouteInfo
from topics.model.change import change_topic
from topics.model.errors import InvalidRequest
from topics.spark.connector.source import TopicsDataSource
from topics.spark.pipeline.session import activate
from topics.spark.routing import message_sink
from topics.spark.routing.job import routing_settings
from topics.spark.routing.message_sink import MessageSink
from topics.spark.routing.plan import RoutePlan
from topics.spark.routing.routes import declared_columns

MAX_STEP_CHANGES = 50_000


class ReplayRange(Struct, frozen=True):
    """From `first` to `last`, both included: seqs of every partition, or times in milliseconds."""

    first: int
    last: int | None = None
    by_ts: bool = False


class Step(Struct, frozen=True):
    """Seqs of one partition of the change topic."""

    number: int
    partition: int
    first: int
    last: int

    @property
    def changes(self) -> int:
        return self.last - self.first + 1


class Replay:
    """The changes of a range and the routes that they go through."""

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        token: str | None,
        table: str,
        wanted: ReplayRange,
        topics: Sequence[str] = (),
    ) -> None:
        """`topics`: only the routes to these. Raises InvalidRequest when there are none, and what the client raises."""
        self._spark = spark
        self._url = url
        self._token = token
        self._table = table
        self._topic = change_topic(table)
        activate(spark)
        for source in (TopicsDataSource, MessageSink):
            spark.dataSource.register(source)
        with Client(url, token) as client:
            routes = [
                # Replayed changes are older than the routes.
                msgspec.structs.replace(route, starts_at=None)
                for route in client.routes(table=table).routes
                if not topics or route.topic_id in topics
            ]
            if not routes:
                named = f" to {', '.join(topics)}" if topics else ""
                raise InvalidRequest(f"table {table} has no routes{named}")
            columns = declared_columns(client, table)
            self.steps = list(self._steps(client, wanted))
        self.routes: list[RouteInfo] = routes
        with routing_settings(spark):
            self._plan = RoutePlan(spark, table, routes, columns)

    @property
    def changes(self) -> int:
        """Seqs in the range; some of them may have been deleted."""
        return sum([step.changes for step in self.steps])

    def count(self) -> dict[str, int]:
        """How many messages each topic would get. Writes nothing."""
        counts = dict.fromkeys([route.topic_id for route in self._plan.routes], 0)
        for step in self.steps:
            with routing_settings(self._spark):
                rows = self._messages(step).where("route > 0").groupBy("route").count().collect()
            for row in rows:
                counts[self._plan.routes[row.route - 1].topic_id] += row["count"]
        return counts

    def run(self, replay_id: str, done: Callable[[Step], None] = lambda step: None) -> None:
        """Append the messages. `done` is called after each step."""
        options = {"url": self._url, "targets": self._plan.targets.encoded(), "queryId": f"replay-{replay_id}"}
        if self._token is not None:
            options["token"] = self._token
        for step in self.steps:
            with routing_settings(self._spark):
                writer = self._messages(step).write.format(message_sink.NAME).mode("append").options(**options)
                writer.option("batchId", str(step.number)).save()
            done(step)

    def _messages(self, step: Step) -> DataFrame:
        reader: Any = self._spark.read.format("topics").option("url", self._url)
        if self._token is not None:
            reader = reader.option("token", self._token)
        place = msgspec.json.encode({self._topic: [step.partition]}).decode()
        first, last = [
            msgspec.json.encode({self._topic: {str(step.partition): seq}}).decode()
            for seq in (step.first, step.last + 1)
        ]
        reader = reader.option("assign", place).option("startingOffsets", first).option("endingOffsets", last)
        changes = reader.option("onDataLoss", "emit").load()
        # 0: the driver commits, whatever the number of tasks.
        return self._plan.messages(changes.selectExpr("*", "0 AS tasks"))

    def _steps(self, client: Client, wanted: ReplayRange) -> Iterator[Step]:
        info = client.info(self._topic, touch=False)
        number = 0
        bounds = [(each.partition, each.earliest_seq, each.head_seq) for each in info.partitions]
        for partition, earliest, head in bounds or [(0, info.earliest_seq, info.head_seq)]:
            first, last = self._seqs(client, wanted, partition, earliest, head)
            while first <= last:
                end = min(last, first + MAX_STEP_CHANGES - 1)
                yield Step(number, partition, first, end)
                number += 1
                first = end + 1

    def _seqs(self, client: Client, wanted: ReplayRange, partition: int, earliest: int, head: int) -> tuple[int, int]:
        if not wanted.by_ts:
            return max(earliest, wanted.first), head if wanted.last is None else min(head, wanted.last)
        first = self._seq_at(client, wanted.first, partition, head)
        last = head if wanted.last is None else self._seq_at(client, wanted.last + 1, partition, head) - 1
        return max(earliest, first), min(head, last)

    def _seq_at(self, client: Client, ts_ms: int, partition: int, head: int) -> int:
        """The first seq that was written at or after this time."""
        page = client.diff(self._topic, 0, limit=1, from_ts=ts_ms, partition=partition, include_meta=False)
        return page.records[0].seq if page.records else head + 1
