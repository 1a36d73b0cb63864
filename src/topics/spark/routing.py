"""Routing: the changes of one table become messages of topics, as the routes say.

A micro-batch is a set of ranges of the change topic. For each there are three steps, in one Spark job without a shuffle:

    events      read the ranges, take out the columns that the routes' expressions name      Python, `events.py`
    conditions  which routes match, and which partition PARTITION BY means                   Spark SQL, `conditions.py`
    messages    the payloads for the matching routes, staged or handed back                  Python, `payloads.py`, `outbox.py`

and then one commit of the driver under (query id, batch id). A batch that is run again, by whatever end of the driver,
after whatever change of the routes, finds its commit made or makes it: its messages are there once.

The plan of the job is made once for a set of routes and run again for every batch: which ranges are meant goes along as a
property of the job. Routes are asked for when a batch begins, after its ranges are fixed: a change that was sent
after a route was made finds the route.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BooleanType, DecimalType, StringType

from topics.client import Client, RetryPolicy
from topics.client.values import RouteInfo
from topics.model.change import change_topic
from topics.model.errors import NotFound
from topics.model.placing import hashed_partition
from topics.spark import conditions
from topics.spark.change_ranges import NAME, ChangeRanges, shared_out
from topics.spark.conditions import Columns, Compiled
from topics.spark.events import COLUMNS, OPS, read_events
from topics.spark.job import Job, NotYet, Surroundings
from topics.spark.outbox import Cap, NoRoom, Outbox, Outcome, OverCap, Piece, Refused, commit, drop_stages
from topics.spark.payloads import NoPayload, Payloads
from topics.spark.portions import Portion, whole_batch
from topics.spark.ranges import SeqRange
from topics.sql.tokens import SqlError

# Changes in one micro-batch.
MAX_OFFSETS = 50_000
# Above so many conditions Spark takes longer to write and compile Java for them than to evaluate them as they are.
CODEGEN_MOST = 200
RETRY_ATTEMPTS = 12
TROUBLES_SHOWN = 20
_BATCH = "topics.routing.batch"
# Marks a condition that could not be evaluated because a column is not there.
_MISSING = 1_000_000


@dataclass(frozen=True)
class RouteJob:
    """Runs all routes of one table. Which these are it learns by itself, batch by batch."""

    table: str
    kind: str = "route"

    @property
    def name(self) -> str:
        return f"route {self.table}"

    def start(self, around: Surroundings) -> StreamingQuery:
        """Raises NotYet while the table has no changes."""
        return self.start_with(around, processingTime=f"{around.trigger_ms} milliseconds")

    def start_with(self, around: Surroundings, **trigger: Any) -> StreamingQuery:
        """As `start`, with another trigger: `availableNow=True` ends when the changes there are now are routed."""
        topic = change_topic(self.table)
        with Client(around.url, around.token) as client:
            try:
                info = client.info(topic, touch=False)
            except NotFound:
                raise NotYet(f'topic "{topic}" does not exist: nobody has sent changes of {self.table}') from None
        around.spark.dataSource.register(ChangeRanges)
        reader = around.spark.readStream.format(NAME).option("url", around.url).option("subscribe", topic)
        if around.token is not None:
            reader = reader.option("token", around.token)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", MAX_OFFSETS)
        frame = reader.option("numRetries", RETRY_ATTEMPTS).load()
        batches = Batches(self.table, around)
        # A change topic that is deleted and created again begins anew, and so does what is known about it.
        checkpoint = f"{around.checkpoint.rstrip('/')}/epoch-{info.epoch}"
        writer = frame.writeStream.queryName(self.name).foreachBatch(batches.route)
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        batches.belong_to(str(query.id))
        return query


def route_jobs(routes: Iterable[RouteInfo]) -> list[Job]:
    """A job for every table that a route names."""
    return [RouteJob(table) for table in dict.fromkeys([route.table_id for route in routes])]


class Report(Struct):
    """What one task did."""

    task: int
    pieces: list[Piece] = []
    refused: dict[int, Refused] = {}
    events: int = 0
    unreadable: int = 0
    truncates: int = 0
    lost: int = 0
    # By condition, how often it could not be evaluated.
    failed: dict[int, int] = {}
    missing: dict[int, int] = {}
    # The server had no room for its messages, and they were given up.
    no_room: str | None = None


_decode_report = msgspec.msgpack.Decoder(Report).decode


class Batches:
    """The driver's side of each micro-batch of one table."""

    def __init__(self, table: str, around: Surroundings) -> None:
        self._table = table
        self._around = around
        self._query_id = ""
        self._known = threading.Event()
        self._wanted: tuple[Any, ...] = ()
        self._plan: Plan | None = None
        self._unusable: dict[int, str] = {}
        # Routes to topics that the key may not touch.
        self._hidden = 0
        self._totals = Totals()
        # Which portions are done is asked once: of later batches it is known.
        self._fence: int | None = None
        # How finely batches are divided from the beginning, since larger portions found no room.
        self._depth = 0

    def belong_to(self, query_id: str) -> None:
        """The first batch may begin before the query is known to whoever started it."""
        self._query_id = query_id
        self._known.set()

    def route(self, frame: DataFrame, batch_id: int) -> None:
        ranges = [SeqRange(*row) for row in frame.collect()]
        with Client(
            self._around.url, self._around.token, timeout_s=60.0, retry=RetryPolicy(attempts=RETRY_ATTEMPTS)
        ) as client:
            self._plan = self._newest(client, frame.sparkSession)
            if not self._known.wait(60):
                raise RuntimeError("the query does not know its own id")
            if self._fence is None:
                last = client.producer(self._producer)
                self._fence = -1 if last is None else last.batch
            waiting = [whole_batch(batch_id, ranges)]
            while waiting:
                portion = waiting.pop(0)
                if portion.number <= self._fence:
                    continue
                if portion.begins <= self._fence or portion.depth < self._depth:
                    waiting[:0] = portion.parts()
                    continue
                try:
                    self._route(client, portion)
                except NoRoom:
                    parts = portion.parts()
                    if not parts:
                        raise
                    waiting[:0] = parts
                    self._depth = portion.depth + 1
        self._around.tell(self._totals.shown(self._plan, self._hidden))

    @property
    def _producer(self) -> str:
        return f"route-{self._query_id}"

    def _route(self, client: Client, portion: Portion) -> None:
        """The messages of the portion are readable, once. Raises NoRoom."""
        caps: dict[str, Cap] = {}
        while True:
            plan, reports = self._evaluated(client, portion.ranges, caps)
            pieces = [piece for report in reports for piece in report.pieces]
            try:
                for report in reports:
                    if report.no_room is not None:
                        raise NoRoom(report.no_room)
                outcome = commit(client, pieces, self._producer, portion.number, caps=caps)
                break
            except NoRoom:
                drop_stages(client, pieces)
                raise
            except OverCap as over:
                # Once for each such topic at most: with its cap it is not refused for it again.
                drop_stages(client, pieces)
                caps[over.topic] = over.cap
        self._fence = portion.number
        if not outcome.deduped:
            self._totals.add(plan, reports, outcome)

    def _newest(self, client: Client, session: SparkSession) -> "Plan":
        found = client.routes(table=self._table)
        routes, self._hidden = found.routes, found.hidden
        try:
            columns = client.table(self._table).columns
        except NotFound:
            columns = {}
        wanted = (tuple([msgspec.structs.astuple(route) for route in routes]), tuple(columns.items()))
        if self._plan is None or repr(wanted) != repr(self._wanted):
            known = {route.version for route in routes}
            self._unusable = {version: why for version, why in self._unusable.items() if version in known}
            self._wanted = wanted
            return Plan(session, self._around, self._table, routes, columns, self._unusable)
        return self._plan

    def _evaluated(self, client: Client, ranges: list[SeqRange], caps: dict[str, Cap]) -> "tuple[Plan, list[Report]]":
        """What the tasks report, and the plan that their numbers are about."""
        assert self._plan is not None
        plan = self._plan
        try:
            return plan, plan.run(ranges, caps)
        except PythonException:
            raise
        except PySparkException:
            # Spark itself, over some row: find the route by running them without each other.
            def runs(some: Sequence[RouteInfo]) -> str | None:
                try:
                    reports = plan.only(some).run(ranges, caps)
                except PythonException:
                    raise
                except PySparkException as error:
                    return first_line(error)
                drop_stages(client, [piece for report in reports for piece in report.pieces])
                return None

            broken = broken_ones(plan.routes, runs)
            if not broken:
                raise
            self._unusable |= {route.version: why for route, why in broken}
            # All of them, so that those which are left out are told.
            self._plan = rest = plan.only(plan.all_routes, self._unusable)
            return rest, rest.run(ranges, caps)


class Target(Struct, frozen=True):
    """A route as its messages are made."""

    topic: str
    mode: str
    key_columns: tuple[str, ...]
    partitions: int
    # Which of the places that Spark computes; None for the hash of the row's key.
    place: int | None
    # What stands in the meta of every message, and the end of its id.
    meta: str
    version: int


class Plan:
    """A Spark job for a set of routes, made once."""

    def __init__(
        self,
        session: SparkSession,
        around: Surroundings,
        table: str,
        routes: Sequence[RouteInfo],
        columns: dict[str, str],
        unusable: dict[int, str],
    ) -> None:
        # Also where somebody turned it on for the whole pipeline: an expression that fails must be NULL, see `session.py`.
        session.conf.set("spark.sql.ansi.enabled", "false")
        self._made_of = (session, around, table, columns, unusable)
        self.unusable = dict(unusable)
        self.routes = self._usable(session, [route for route in routes if route.version not in unusable], columns)
        self.all_routes = list(routes)
        self._columns = Columns(columns)
        # Routes with the same condition share it.
        self.routes_of: list[list[int]] = []
        self._condition_of: dict[tuple[str, str | None], int] = {}
        self._texts: dict[str, list[str]] = {op: [] for op in OPS}
        self._places: list[str] = []
        self.targets = [self._target(session, index, route) for index, route in enumerate(self.routes)]
        self._tasks = max(1, session.sparkContext.defaultParallelism)
        self._session = session
        self._frame = self._job(session, around, table)

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The columns that its expressions read."""
        return self._columns.paths

    def only(self, routes: Sequence[RouteInfo], unusable: dict[int, str] | None = None) -> "Plan":
        """A plan for these routes, less those that are known to be unusable."""
        session, around, table, columns, known = self._made_of
        return Plan(session, around, table, list(routes), columns, known if unusable is None else unusable)

    def run(self, ranges: list[SeqRange], caps: dict[str, Cap]) -> list[Report]:
        """What the tasks report, in their order."""
        if not self.targets or not ranges:
            return []
        blocks = [[msgspec.structs.astuple(each) for each in some] for some in shared_out(ranges, self._tasks)]
        context = self._session.sparkContext
        context.setLocalProperty(_BATCH, json.dumps({"blocks": blocks, "caps": caps}))
        many = len(self.routes_of) > CODEGEN_MOST
        self._session.conf.set("spark.sql.codegen.wholeStage", "false" if many else "true")
        self._session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if many else "FALLBACK")
        reports = [_decode_report(bytes(row[0])) for row in self._frame.collect()]
        return sorted(reports, key=lambda report: report.task)

    def _usable(self, session: SparkSession, routes: Sequence[RouteInfo], columns: dict[str, str]) -> list[RouteInfo]:
        def analysed(some: Sequence[RouteInfo]) -> str | None:
            try:
                return _check(session, some, columns)
            except (AnalysisException, PySparkException, SqlError) as error:
                return first_line(error)
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                return f"{type(error).__name__}: {error}"

        broken = broken_ones(routes, analysed)
        self.unusable |= {route.version: why for route, why in broken}
        return [route for route in routes if route.version not in self.unusable]

    def _target(self, session: SparkSession, index: int, route: RouteInfo) -> Target:
        condition = self._condition(route)
        self.routes_of[condition].append(index)
        place = None
        if route.partition_key_expr is not None and route.partitions > 1:
            compiled = self._columns.compiled(route.partition_key_expr, "text")
            text = compiled.text if compiled.bare else _as_text(session, self._columns, compiled)
            sql = f"CAST(pmod(xxhash64(COALESCE({text}, '')), {route.partitions}) AS INT)"
            if sql not in self._places:
                self._places.append(sql)
            place = self._places.index(sql)
        meta = {"source_table": route.table_id, "op": route.op, "payload_mode": route.payload_mode}
        return Target(
            route.topic_id,
            route.payload_mode.lower(),
            tuple(route.key_columns),
            route.partitions,
            place,
            json.dumps(meta)[1:-1],
            route.version,
        )

    def _condition(self, route: RouteInfo) -> int:
        """The place of the route's condition among all; added when no other route has it."""
        op = route.op.lower()
        key = (op, route.filter_expr)
        known = self._condition_of
        if key not in known:
            number = known[key] = len(self.routes_of)
            self.routes_of.append([])
            self._texts[op].append(self._code(route.filter_expr, number + 1))
        return known[key]

    def _code(self, expression: str | None, number: int) -> str:
        """SQL: the number for a match, 0 for none, negative when the expression could not be evaluated."""
        if expression is None:
            return str(number)
        compiled = self._columns.compiled(expression, "boolean")
        raws = ", ".join(dict.fromkeys([raw[1:] for raw, _ in compiled.reads]))
        cases = f"WHEN {conditions.trouble(compiled)} THEN -{number}"
        if raws:
            cases = f"WHEN arrays_overlap(missing, array({raws})) THEN -{number + _MISSING} {cases}"
        # Multiplied rather than asked about twice: the condition is evaluated once.
        return f"COALESCE(CAST(({compiled.text}) AS INT) * {number}, CASE {cases} ELSE 0 END)"

    def _job(self, session: SparkSession, around: Surroundings, table: str) -> DataFrame:
        columns = self._columns
        schema = COLUMNS + "".join([f", r{index} STRING" for index in range(len(columns.paths))])
        reading = Reading(around.url, around.token, list(columns.paths))
        events = session.range(0, self._tasks, 1, self._tasks).mapInArrow(reading, schema)
        staging = Staging(around.url, around.token, table, self.targets, self.routes_of)
        return self.found(events).mapInArrow(staging, "report BINARY")

    def found(self, events: DataFrame) -> DataFrame:
        """Which routes each event is for (`hits`), and the partitions that PARTITION BY means (`places`)."""
        columns = self._columns
        typed = events.selectExpr("*", *[f"{sql} AS {name}" for name, sql in columns.typed.items()])
        cases = [f"WHEN '{op}' THEN array({', '.join(texts)})" for op, texts in self._texts.items() if texts]
        hits = f"array_remove(CASE op {' '.join(cases)} END, 0)" if cases else "CAST(NULL AS ARRAY<INT>)"
        places = f"array({', '.join(self._places)})" if self._places else "CAST(NULL AS ARRAY<INT>)"
        return typed.selectExpr("partition", "seq", "epoch", "op", "data", f"{hits} AS hits", f"{places} AS places")


def broken_ones(
    routes: Sequence[RouteInfo], trouble: Callable[[Sequence[RouteInfo]], str | None]
) -> list[tuple[RouteInfo, str]]:
    """Those that make trouble by themselves, found by halves: nothing is tried one by one while all is well."""
    why = trouble(routes) if routes else None
    if why is None:
        return []
    if len(routes) == 1:
        return [(routes[0], why)]
    middle = len(routes) // 2
    return broken_ones(routes[:middle], trouble) + broken_ones(routes[middle:], trouble)


def first_line(error: BaseException) -> str:
    """What an error of Spark says, without its plans and stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:500]


def _check(session: SparkSession, routes: Sequence[RouteInfo], columns: dict[str, str]) -> str | None:
    """Whether Spark takes the expressions of these routes. Raises Spark's errors, or says what else is wrong."""
    found = Columns(columns)
    texts: list[tuple[str, bool]] = []
    for route in routes:
        if route.filter_expr is not None:
            texts.append((found.compiled(route.filter_expr, "boolean").text, True))
        if route.partition_key_expr is not None:
            texts.append((found.compiled(route.partition_key_expr, "text").text, False))
    schema = _analysed(session, found, [text for text, _ in texts])
    for (text, is_filter), field in zip(texts, schema, strict=True):
        if is_filter and not isinstance(field.dataType, BooleanType):
            return f"WHERE ({text}) is {field.dataType.simpleString()}, not true or false"
    return None


def _analysed(session: SparkSession, columns: Columns, texts: list[str]) -> Any:
    raw = session.range(0).selectExpr(*[f"'' AS r{index}" for index in range(len(columns.paths))], "1 AS one")
    typed = raw.selectExpr("*", *[f"{sql} AS {name}" for name, sql in columns.typed.items()])
    return typed.selectExpr(*[f"({text}) AS x{index}" for index, text in enumerate(texts)]).schema


def _as_text(session: SparkSession, columns: Columns, compiled: Compiled) -> str:
    """The expression as the text that is hashed: numbers as people write them, 5 and not 5.000."""
    (field,) = _analysed(session, columns, [compiled.text])
    if isinstance(field.dataType, StringType):
        return f"({compiled.text})"
    value = f"({compiled.text})"
    if isinstance(field.dataType, DecimalType) and field.dataType.scale > 0:
        # Spark writes a decimal zero as 0E-18.
        whole = f"CAST(CAST({value} AS DECIMAL(38, 0)) AS STRING)"
        return f"IF({value} = FLOOR({value}), {whole}, RTRIM('0', CAST({value} AS STRING)))"
    return f"CAST({value} AS STRING)"


class Reading:
    """The first step of a task: the events of its ranges."""

    def __init__(self, url: str, token: str | None, paths: list[tuple[str, ...]]) -> None:
        self._url = url
        self._token = token
        self._paths = paths

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            pass
        blocks = _batch()["blocks"]
        with worker_client(self._url, self._token) as client:
            for block in blocks[_context().partitionId()]:
                yield from read_events(client, SeqRange(*block), self._paths)


class Staging:
    """The last step of a task: the messages of the matching routes."""

    def __init__(
        self, url: str, token: str | None, table: str, targets: list[Target], routes_of: list[list[int]]
    ) -> None:
        self._url = url
        self._token = token
        self._table = table
        self._targets = targets
        self._routes_of = routes_of

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        report = Report(_context().partitionId())
        with worker_client(self._url, self._token) as client:
            outbox = Outbox(client, {topic: (most[0], most[1]) for topic, most in _batch()["caps"].items()})
            try:
                for batch in batches:
                    self._take(batch, report, outbox)
                outbox.finish()
                report.pieces, report.refused = outbox.pieces, outbox.refused
            except NoRoom as error:
                outbox.drop()
                report = Report(report.task, no_room=str(error))
            except BaseException:
                outbox.drop()
                raise
        encoded = msgspec.msgpack.encode(report)
        yield pa.RecordBatch.from_arrays([pa.array([encoded], pa.binary())], names=["report"])

    def _take(self, batch: Any, report: Report, outbox: Outbox) -> None:
        columns = [batch.column(index).to_pylist() for index in range(7)]
        report.events += batch.num_rows
        for partition, seq, epoch, op, data, hits, places in zip(*columns, strict=True):
            if hits:
                self._messages((partition, seq, epoch), data, hits, places, report, outbox)
            elif op not in OPS:
                self._other(op, report)

    def _other(self, op: str | None, report: Report) -> None:
        if op == "truncate":
            report.truncates += 1
        elif op == "lost":
            report.lost += 1
        else:
            report.unreadable += 1

    def _messages(
        self,
        at: tuple[int, int, int],
        data: str,
        hits: list[int],
        places: list[int] | None,
        report: Report,
        outbox: Outbox,
    ) -> None:
        payloads: Payloads | None = None
        partition, seq, epoch = at
        for hit in hits:
            if hit < 0:
                counts = report.missing if hit < -_MISSING else report.failed
                number = -hit - 1 - (_MISSING if hit < -_MISSING else 0)
                counts[number] = counts.get(number, 0) + 1
                continue
            if payloads is None:
                payloads = Payloads(data)
            for index in self._routes_of[hit - 1]:
                target = self._targets[index]
                try:
                    payload = payloads.get(target.mode, target.key_columns)
                    place = 0
                    if target.partitions > 1:
                        place = (
                            hashed_partition(payloads.key_text(), target.partitions)
                            if target.place is None or places is None
                            else places[target.place]
                        )
                except (NoPayload, msgspec.MsgspecError) as error:
                    outbox.refuse({index: 1}, str(error))
                    continue
                meta = (
                    f'{{"message_id":"{self._table}:{epoch}:{partition}:{seq}:{target.version}",{target.meta},'
                    f'"ts":{"null" if payloads.ts is None else payloads.ts},"src_topic":"changes:{self._table}",'
                    f'"src_partition":{partition},"src_seq":{seq}}}'
                )
                outbox.add(index, target.topic, place, payload, meta.encode())


class Totals:
    """What a job has done since it was started, as its status shows it."""

    def __init__(self) -> None:
        self._numbers = dict.fromkeys(["rows", "messages", "truncates", "unreadable", "lost", "refused"], 0)
        # (route, what) -> how often, and what was said last.
        self._troubles: dict[tuple[int, str], tuple[int, str]] = {}

    def add(self, plan: Plan, reports: list[Report], outcome: Outcome) -> None:
        self._numbers["messages"] += outcome.messages
        for report in reports:
            self._numbers["rows"] += report.events
            self._numbers["truncates"] += report.truncates
            self._numbers["unreadable"] += report.unreadable
            self._numbers["lost"] += report.lost
            for what, counts in (("not_evaluated", report.failed), ("column_missing", report.missing)):
                for condition, count in counts.items():
                    for route in plan.routes_of[condition]:
                        self._count(plan, route, what, count, plan.routes[route].filter_expr or "")
            for route, each in report.refused.items():
                self._refused(plan, route, each)
        for route, each in outcome.refused.items():
            self._refused(plan, route, each)

    def _refused(self, plan: Plan, route: int, refused: Refused) -> None:
        self._numbers["refused"] += refused.count
        self._count(plan, route, "refused", refused.count, refused.message)

    def _count(self, plan: Plan, route: int, what: str, count: int, message: str) -> None:
        key = (plan.routes[route].version, what)
        self._troubles[key] = (self._troubles.get(key, (0, ""))[0] + count, message)

    def shown(self, plan: Plan, hidden: int) -> dict[str, Any]:
        routes = {route.version: route for route in plan.all_routes}
        self._troubles = {key: value for key, value in self._troubles.items() if key[0] in routes}
        troubles = [
            _trouble(routes[version], "broken", None, why)
            for version, why in plan.unusable.items()
            if version in routes
        ]
        troubles += [
            _trouble(routes[version], what, count, message)
            for (version, what), (count, message) in sorted(self._troubles.items(), key=lambda each: -each[1][0])
        ]
        if hidden:
            text = "the key of this pipeline may not touch the topics of so many routes: they are not run"
            troubles.insert(0, {"topic": None, "op": None, "what": "hidden", "count": hidden, "message": text})
        return {
            **self._numbers,
            "routes": len(plan.all_routes),
            "trouble": troubles[:TROUBLES_SHOWN],
            "troubles": len(troubles) + max(0, hidden - 1),
        }


def _trouble(route: RouteInfo, what: str, count: int | None, message: str) -> dict[str, Any]:
    return {"topic": route.topic_id, "op": route.op, "what": what, "count": count, "message": message[:300]}


def worker_client(url: str, token: str | None) -> Client:
    return Client(url, token, timeout_s=60.0, retry=RetryPolicy(attempts=RETRY_ATTEMPTS))


def _batch() -> Any:
    """What the driver says about this batch."""
    return json.loads(_context().getLocalProperty(_BATCH))


def _context() -> Any:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context
