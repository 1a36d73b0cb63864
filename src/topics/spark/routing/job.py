"""A routing job: one streaming query that turns the changes of a table into messages, as its routes say.

    ChangeSource ──▶ RoutePlan (Spark SQL) ──▶ MessageSink

The query has one plan for one set of routes. Its source plans no batch that holds changes newer than a route the plan does not
know, and the pipeline starts the query again with the new routes: on the same checkpoint, so that no change is left out or
routed twice.

A route starts with the changes made after it was created: the server keeps that position with the route (`starts_at`), and
the plan leaves out older changes. A route with `start = 'earliest'` has a job of its own, which starts with the oldest change.
"""

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from topics.client import Client
from topics.client.values import RouteInfo, TopicInfo
from topics.model.errors import NotFound
from topics.model.tables.change import change_topic
from topics.spark.connector.source import TopicsDataSource
from topics.spark.pipeline.job import Job, JobContext, NotYet
from topics.spark.pipeline.session import activate, parallelism
from topics.spark.routing import change_source, message_sink
from topics.spark.routing.change_source import ChangeSource
from topics.spark.routing.message_sink import MessageSink
from topics.spark.routing.plan import RoutePlan, broken_ones, first_line
from topics.spark.routing.report import Totals, read_totals
from topics.spark.routing.routes import EARLIEST, declared_columns, own_routes, signature, starting_offsets

# Maximum changes in one micro-batch.
MAX_OFFSETS = 50_000
RETRY_ATTEMPTS = 12
MAX_TROUBLES_SHOWN = 20
SETTINGS = {
    # An expression that fails must be NULL, so that one row of one route cannot stop the others.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # A repeated name in a row is read like elsewhere: the last one counts.
    "spark.sql.variant.allowDuplicateKeys": "true",
}
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_settings_lock = threading.RLock()


@dataclass(frozen=True)
class RouteJob:
    """Runs the routes of one table: all that start at their creation, or the one with this version, from the earliest change.

    `routes` is their signature: a job whose routes have changed replaces the running one.
    """

    table: str
    version: int | None = None
    routes: str = ""
    kind: str = "route"

    @property
    def name(self) -> str:
        return f"route {self.table}" if self.version is None else f"route {self.table} #{self.version}"

    def start(self, context: JobContext) -> StreamingQuery:
        """Raises NotYet while the table has no changes."""
        return self.start_with(context, processingTime=f"{context.trigger_ms} milliseconds")

    def start_with(self, context: JobContext, **trigger: Any) -> StreamingQuery:
        """As `start`, with another trigger: `availableNow=True` ends when the changes there are now are routed."""
        topic = change_topic(self.table)
        with Client(context.url, context.token) as client:
            try:
                info = client.info(topic, touch=False)
            except NotFound:
                raise NotYet(f'topic "{topic}" does not exist: no changes of {self.table} were sent') from None
            # Read after the heads: a route that is created later starts behind them.
            found = client.routes(table=self.table)
            routes = own_routes(found.routes, self.version)
            columns = declared_columns(client, self.table)
        activate(context.spark)
        for source in (TopicsDataSource, ChangeSource, MessageSink):
            context.spark.dataSource.register(source)
        with routing_settings(context.spark):
            query, watched = self._started(context, info, routes, columns, trigger)
        hidden = found.hidden if self.version is None else 0
        context.set_status_source(lambda: status_notes(*watched(), hidden))
        return query

    def _started(
        self,
        context: JobContext,
        info: TopicInfo,
        routes: list[RouteInfo],
        columns: dict[str, str],
        trigger: dict[str, Any],
    ) -> tuple[StreamingQuery, Callable[[], tuple[RoutePlan, Totals]]]:
        session = context.spark
        plan = RoutePlan(session, self.table, routes, columns)
        if context.failure is not None and _is_of_spark(context.failure):
            plan = self._without_failing_routes(context, session, plan, info)
        if plan.is_interpreted:
            for name, value in INTERPRETED.items():
                session.conf.set(name, value)
        portions = is_stages_full(context.failure)
        source = self._options(context, session, info, starting_offsets(info, routes), signature(routes, columns))
        if portions:
            # Portions of a partition are committed in order, by one task.
            source["tasks"] = "1"
        changes = session.readStream.format(change_source.NAME).options(**source).load()
        report = ReportFile()
        sink = {"url": context.url, "targets": plan.targets.encoded(), "report": report.path}
        if context.token is not None:
            sink["token"] = context.token
        if portions:
            sink["portions"] = "true"
        # A change topic that is deleted and created again has seqs of its own, and so a checkpoint of its own.
        checkpoint = f"{context.checkpoint.rstrip('/')}/epoch-{info.epoch}"
        writer = plan.messages(changes).writeStream.queryName(self.name).format(message_sink.NAME).options(**sink)
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        return query, lambda: (plan, report.totals())

    def _options(
        self, context: JobContext, session: SparkSession, info: TopicInfo, start: str, routes: str
    ) -> dict[str, str]:
        options = {
            "url": context.url,
            "subscribe": info.topic,
            "startingOffsets": start,
            "onDataLoss": "emit",
            "maxOffsetsPerTrigger": str(MAX_OFFSETS),
            "numRetries": str(RETRY_ATTEMPTS),
            "table": self.table,
            "routes": routes,
            "tasks": str(parallelism(session)),
        }
        if self.version is not None:
            options["route"] = str(self.version)
        if context.token is not None:
            options["token"] = context.token
        return options

    def _without_failing_routes(
        self, context: JobContext, session: SparkSession, plan: RoutePlan, info: TopicInfo
    ) -> RoutePlan:
        """The plan without the routes over which Spark itself fails, found by running them over the changes not yet routed."""
        reader = session.read.format("topics").option("url", context.url).option("subscribe", info.topic)
        reader = reader.option("onDataLoss", "emit").option("startingOffsets", context.position or "earliest")
        if context.token is not None:
            reader = reader.option("token", context.token)
        changes = reader.load().limit(MAX_OFFSETS).selectExpr("*", "1 AS tasks")

        def problem(routes: Iterable[RouteInfo]) -> str | None:
            return _error_of(plan.only(list(routes)).messages(changes))

        broken = {route.version: why for route, why in broken_ones(plan.routes, problem)}
        return RoutePlan(session, self.table, plan.all_routes, plan.declared, {**plan.broken, **broken})


def route_jobs(routes: Iterable[RouteInfo], columns: Mapping[str, Mapping[str, str]] | None = None) -> list[Job]:
    """A job for every table that a route names, and one for every route that starts with the earliest change."""
    routes = list(routes)
    found = dict.fromkeys([(route.table_id, route.version if route.start == EARLIEST else None) for route in routes])
    jobs: list[Job] = []
    for table, version in found:
        own = own_routes([route for route in routes if route.table_id == table], version)
        jobs.append(RouteJob(table, version, signature(own, (columns or {}).get(table, {}))))
    return jobs


def status_notes(plan: RoutePlan, totals: Totals, hidden: int) -> dict[str, Any]:
    """What the status of the job shows in addition to its figures."""
    routes = {route.version: route for route in plan.all_routes}
    troubles = [_trouble(routes[version], "broken", None, why) for version, why in plan.broken.items()]
    counted = [(version, "refused", each.count, each.message) for version, each in totals.refused.items()]
    for what, counts in (("not_evaluated", totals.failed), ("column_missing", totals.missing)):
        counted += [(version, what, count, routes[version].filter_expr or "") for version, count in counts.items()]
    counted.sort(key=lambda each: -each[2])
    troubles += [_trouble(routes[version], what, count, message) for version, what, count, message in counted]
    if hidden:
        text = "routes whose topics the key of this pipeline may not touch: they are not run"
        troubles.insert(0, {"topic": None, "op": None, "what": "hidden", "count": hidden, "message": text})
    return {
        "messages": totals.messages,
        **{name: totals.events.get(name, 0) for name in ("truncates", "unreadable", "lost")},
        "refused": sum([each.count for each in totals.refused.values()]),
        "routes": len(plan.all_routes),
        "evaluated_conditions": plan.evaluated_conditions,
        "trouble": troubles[:MAX_TROUBLES_SHOWN],
        "troubles": len(troubles) + max(0, hidden - 1),
    }


def _trouble(route: RouteInfo, what: str, count: int | None, message: str) -> dict[str, Any]:
    return {"topic": route.topic_id, "op": route.op, "what": what, "count": count, "message": message[:300]}


def is_stages_full(error: BaseException | None) -> bool:
    """Whether a query failed because the server has no space for its stages."""
    return "StagesFull" in str(error or "")


class ReportFile:
    """The file in which the process that commits batches adds up their reports. Removed with this object."""

    def __init__(self) -> None:
        directory = tempfile.mkdtemp(prefix="topics-routing-")
        self.path = os.path.join(directory, "totals")
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    def totals(self) -> Totals:
        return read_totals(self.path)


@contextmanager
def routing_settings(spark: SparkSession, more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Set what a routing plan depends on while its query is made. A query keeps a copy of the settings it was started with."""
    with _settings_lock:
        names = (*SETTINGS, *INTERPRETED)
        before = {name: spark.conf.get(name, None) for name in names}
        try:
            for name, value in {**SETTINGS, **(more or {})}.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name, known in before.items():
                if known is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, known)


def _error_of(frame: DataFrame) -> str | None:
    try:
        frame.write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        return first_line(error)
    return None


def _is_of_spark(error: BaseException) -> bool:
    """Whether an expression failed inside Spark: not our Python code, nor the server."""
    return isinstance(error, PySparkException) and "Traceback (most recent call last)" not in str(error)
