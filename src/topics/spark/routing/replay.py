"""Replay: route a range of a table's changes again, through the routes that there are now.

Messages are appended to the topics again, behind what is there. They have the `message_id` of their first time, so that a consumer can
recognise them. Changes that the server no longer has are read from the archive of the change topic.

Changes are routed in steps of up to MAX_STEP_CHANGES changes of one partition, each with one commit. Its producer is the replay id with the
partition, its batch the seq of the step's last change. A replay that is started again with its id continues behind the last commit of
each partition, whatever the boundaries of its steps are, and so sends every message once.

The id belongs to one table, range and set of routes: the first run commits their digest under the id, and a run with others is
refused. A range without an end reaches up to the last change there is at each start.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from topics.client import Client
from topics.client.values import RouteInfo, TopicInfo
from topics.model.errors import Conflict, InvalidRequest
from topics.model.tables.change import change_topic
from topics.spark.connector.archive_reader import Histories
from topics.spark.connector.planning import PartitionState, first_at_or_after, has_lost
from topics.spark.connector.reading import DataLoss
from topics.spark.connector.source import TopicsDataSource
from topics.spark.pipeline.session import activate
from topics.spark.routing import message_sink
from topics.spark.routing.job import INTERPRETED, ReportFile, is_stages_full, routing_settings, status_notes
from topics.spark.routing.message_sink import MessageSink
from topics.spark.routing.plan import RoutePlan
from topics.spark.routing.report import Totals
from topics.spark.routing.routes import declared_columns, signature
from topics.spark.routing.task import portion_producer

MAX_STEP_CHANGES = 50_000


class ReplayRange(Struct, frozen=True):
    """From `first` to `last`, both included: seqs of every partition, or times in milliseconds."""

    first: int
    last: int | None = None
    by_ts: bool = False


class Step(Struct, frozen=True):
    """Seqs of one partition of the change topic."""

    partition: int
    first: int
    last: int

    @property
    def changes(self) -> int:
        return self.last - self.first + 1

    def cut(self) -> "Iterator[Step]":
        """The same seqs in steps of at most MAX_STEP_CHANGES."""
        for first in range(self.first, self.last + 1, MAX_STEP_CHANGES):
            yield Step(self.partition, first, min(self.last, first + MAX_STEP_CHANGES - 1))


class Replay:
    """The changes of a range and the routes that they go through.

    `lost` is the number of seqs of the range that neither the server nor an archive has; always 0 without `ignore_loss`.
    """

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        token: str | None,
        table: str,
        wanted: ReplayRange,
        topics: Sequence[str] = (),
        *,
        ignore_loss: bool = False,
    ) -> None:
        """`topics`: only the routes to these.

        Raises InvalidRequest when a topic, or the table, has no routes, DataLoss when changes of the range are gone and
        `ignore_loss` is not set, and what the client raises.
        """
        self._spark = spark
        self._url = url
        self._token = token
        self._table = table
        self._wanted = wanted
        self._topic = change_topic(table)
        self._ignore_loss = ignore_loss
        self._portions = False
        self.lost = 0
        activate(spark)
        for source in (TopicsDataSource, MessageSink):
            spark.dataSource.register(source)
        with Client(url, token) as client:
            found = client.routes(table=table)
            self.hidden = 0 if topics else found.hidden
            routes = _chosen(table, found.routes, topics)
            columns = declared_columns(client, table)
            info = client.info(self._topic, touch=False)
            self._epoch = info.epoch
            self._ranges = [each for each in self._resolved(client, info) if each.changes > 0]
        self.routes = routes
        with routing_settings(spark):
            self._plan = RoutePlan(spark, table, routes, columns)

    @property
    def changes(self) -> int:
        """Seqs in the range; some of them may have been deleted."""
        return sum([each.changes for each in self._ranges])

    def count(self) -> dict[str, int]:
        """How many messages each topic would get. Writes nothing."""
        counts = dict.fromkeys([route.topic_id for route in self._plan.routes], 0)
        for step in [step for each in self._ranges for step in each.cut()]:
            with self._settings():
                rows = self._messages(step).where("route > 0").groupBy("route").count().collect()
            for row in rows:
                counts[self._plan.routes[row.route - 1].topic_id] += row["count"]
        return counts

    def run(self, replay_id: str, done: Callable[[int], None] = lambda changes: None) -> dict[str, Any]:
        """Append the messages that no run with this id has appended. Returns notes as in the status of a routing job.

        `done` is called with the number of changes that are routed, after each step and for what was routed before. Raises
        InvalidRequest when the id was used for something else. Two runs of one id must not run at the same time.
        """
        query_id = f"replay-{replay_id}"
        report = ReportFile()
        with Client(self._url, self._token) as client:
            self._claim(client, replay_id, query_id)
            number = 0
            for each in self._ranges:
                known = client.last_commit(portion_producer(query_id, each.partition))
                first = each.first if known is None else min(each.last + 1, max(each.first, known.batch + 1))
                if first > each.first:
                    done(first - each.first)
                for step in Step(each.partition, first, each.last).cut():
                    self._write(step, {"queryId": query_id, "step": str(number), "report": report.path})
                    number += 1
                    done(step.changes)
        return self.notes(report.totals())

    def notes(self, totals: Totals | None = None) -> dict[str, Any]:
        """As in the status of a routing job: routes that Spark refuses or the key may not use, and what was counted."""
        notes = status_notes(self._plan, totals or Totals(), self.hidden)
        return {**notes, "lost": notes["lost"] + self.lost}

    def _claim(self, client: Client, replay_id: str, query_id: str) -> None:
        """Bind the id to this table, range and routes."""
        what = [self._table, self._epoch, self._wanted, signature(self.routes, self._plan.declared)]
        digest = hashlib.sha256(msgspec.json.encode(what)).hexdigest()
        try:
            client.commit(producer=query_id, batch=0, digest=digest)
        except Conflict as error:
            if error.code != "batch_differs":
                raise
            raise InvalidRequest(
                f'the replay id "{replay_id}" was used with another table or range, or the routes have changed since: '
                "choose another id, which sends all messages of the range again"
            ) from error

    def _write(self, step: Step, options: dict[str, str]) -> None:
        try:
            self._save(step, options)
        except Exception as error:
            if self._portions or not is_stages_full(error):
                raise
            self._portions = True
            self._save(step, options)

    def _save(self, step: Step, options: dict[str, str]) -> None:
        options = {**options, "url": self._url, "targets": self._plan.targets.encoded()}
        options |= {"srcPartition": str(step.partition), "lastSeq": str(step.last)}
        if self._token is not None:
            options["token"] = self._token
        with self._settings():
            messages = self._messages(step)
            if self._portions:
                options["portions"] = "true"
                # One task, in order: see `task.py`.
                messages = messages.coalesce(1).sortWithinPartitions("src_seq")
            messages.write.format(message_sink.NAME).mode("append").options(**options).save()

    def _settings(self) -> Any:
        return routing_settings(self._spark, INTERPRETED if self._plan.is_interpreted else {})

    def _messages(self, step: Step) -> DataFrame:
        reader: Any = self._spark.read.format("topics").option("url", self._url).option("history", "all")
        if self._token is not None:
            reader = reader.option("token", self._token)
        place = msgspec.json.encode({self._topic: [step.partition]}).decode()
        first, last = [
            msgspec.json.encode({self._topic: {str(step.partition): seq}}).decode()
            for seq in (step.first, step.last + 1)
        ]
        reader = reader.option("assign", place).option("startingOffsets", first).option("endingOffsets", last)
        changes = reader.option("onDataLoss", "emit" if self._ignore_loss else "fail").load()
        # 0: the driver commits, whatever the number of tasks.
        return self._plan.messages(changes.selectExpr("*", "0 AS tasks"))

    def _resolved(self, client: Client, info: TopicInfo) -> Iterator[Step]:
        """The seqs of each partition that are in the range."""
        histories = Histories([client])
        bounds = [(each.partition, each.earliest_seq, each.head_seq) for each in info.partitions]
        for partition, earliest, head in bounds or [(0, info.earliest_seq, info.head_seq)]:
            state = PartitionState(self._topic, partition, info.epoch, earliest, head)
            floor = histories.earliest(self._topic, info.epoch, partition, earliest, state.server)
            wanted = self._wanted
            if wanted.by_ts:
                first = first_at_or_after(client, state, wanted.first, histories)
                last = head if wanted.last is None else first_at_or_after(client, state, wanted.last + 1, histories) - 1
                # Times of removed changes are not known: any of them may be in the range.
                self._check_loss(client, partition, 1 if first <= floor else floor, floor)
            else:
                first, last = max(1, wanted.first), head if wanted.last is None else min(head, wanted.last)
                self._check_loss(client, partition, first, min(floor, last + 1))
            yield Step(partition, max(first, floor), last)

    def _check_loss(self, client: Client, partition: int, first: int, floor: int) -> None:
        """Raise DataLoss, or count, if changes from `first` up to `floor` were lost."""
        if not has_lost(client, self._topic, partition, first, floor):
            return
        if not self._ignore_loss:
            raise DataLoss(
                f"changes {first} to {floor - 1} of {self._table}, partition {partition}, are gone: neither the server nor an "
                f"archive has them, and they may be in the range. Start behind them (seq {floor})."
            )
        self.lost += floor - first


def _chosen(table: str, routes: Sequence[RouteInfo], topics: Sequence[str]) -> list[RouteInfo]:
    """The routes to these topics, or all. Raises InvalidRequest when there are none."""
    unknown = sorted(set(topics) - {route.topic_id for route in routes})
    if unknown:
        raise InvalidRequest(f"table {table} has no routes to {', '.join(unknown)}")
    if not routes:
        raise InvalidRequest(f"table {table} has no routes")
    # Replayed changes are older than the routes.
    return [
        msgspec.structs.replace(route, starts_at=None) for route in routes if not topics or route.topic_id in topics
    ]
