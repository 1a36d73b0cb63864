"""POST /api/sql — statements about topics, groups and routes, and SELECT over the system tables.

    {"sql": "...", "params": [...]}  ->  {"columns": [...], "rows": [[...], ...], "message": "...", "performance": {...}}

A statement asks for the same scopes as the request it stands for. Statements that change something answer when the change
is as durable as anywhere else.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from topics.broker.archives import ArchiveChanged, clear_archive, set_archive
from topics.broker.broker import Broker, Configured, RecordsGone, Topic, TopicGone
from topics.broker.groups import (
    EARLIEST,
    LATEST,
    Fetched,
    Offset,
    Seek,
    Timestamp,
    ack,
    check_group,
    drop_group,
    fetch,
    group_of,
    pin,
    seek,
    start_offset,
)
from topics.model.config import ConfigChange
from topics.model.errors import Conflict, InvalidRequest, NotFound, Throttled, TopicsError, topic_not_found
from topics.model.route import Route
from topics.server.access import ADMIN, DELETE, READ, Caller, caller_of, check_consume
from topics.server.answers import send, send_error
from topics.server.archives import archive_fields, archive_options
from topics.server.bodies import decode, require_json
from topics.server.groups import DEFAULT_LIMIT, parse_time, seek_fields
from topics.server.http import Request
from topics.server.messages import COLUMNS, message_rows
from topics.server.service import Service
from topics.server.system_tables import TABLES, gather, route_fields
from topics.sql.expressions import columns_in
from topics.sql.parser import parse
from topics.sql.select import Reply, Table
from topics.sql.select import Request as SelectRequest
from topics.sql.statements import (
    Ack,
    AddSource,
    AtOffset,
    AtTime,
    ClearArchive,
    ClearRetention,
    ClearTopic,
    Consume,
    CreateTopic,
    DescribeTopic,
    DropGroup,
    DropSource,
    DropTopic,
    Earliest,
    Latest,
    Options,
    ResetGroup,
    Select,
    SetAlias,
    SetArchive,
    SetRetention,
    ShowGroups,
    ShowTopics,
    Statement,
)

ROUTES_MOST = 1000
# SELECTs that wait for their turn; each may take seconds.
SELECTS_MOST = 16

_RETENTION = {"retention_seconds", "retention_max_bytes"}


class SqlBody(Struct):
    sql: str
    params: list[str | int | float | bool | None] | None = None


class Result(Struct):
    """What a statement answers."""

    columns: list[str] = []
    rows: list[Any] = []
    message: str = ""
    # What stands beside the rows.
    more: dict[str, Any] = {}


Done = Callable[[Result | TopicsError], None]

_decoder = msgspec.json.Decoder(SqlBody)


def run_sql(service: Service, broker: Broker, request: Request) -> None:
    require_json(request)
    body = decode(request.body, _decoder)

    def done(outcome: Result | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {"columns": outcome.columns, "rows": outcome.rows, "message": outcome.message}
        send(request, 200, {**fields, **outcome.more})

    Execution(service, broker, caller_of(request), done).run(parse(body.sql, body.params or []))


class Execution:
    """One statement under way."""

    def __init__(self, service: Service, broker: Broker, caller: Caller, done: Done) -> None:
        self._service = service
        self._broker = broker
        self._caller = caller
        self._done = done

    def run(self, statement: Statement) -> None:
        """Raises what the statement is refused with, or calls `done` once, now or later."""
        run: Callable[[Any], None] = getattr(self, _METHODS[type(statement)])
        run(statement)

    # Topics

    def _create_topic(self, statement: CreateTopic) -> None:
        name = statement.topic
        self._may(ADMIN, name)
        change, alias = _config_change(statement.options)
        if statement.partitions is not None:
            change.partitions = statement.partitions

        def reply(outcome: Configured | TopicsError) -> None:
            if isinstance(outcome, Configured):
                self._tell(f'topic "{name}" created' if outcome.created else f'topic "{name}" exists already')
            else:
                self._done(outcome)

        if alias is not None:
            self._caller.check_topic(alias)
        self._broker.create_topic(name, change, alias, if_absent=statement.if_not_exists, reply=reply)

    def _drop_topic(self, statement: DropTopic) -> None:
        name = statement.topic
        self._may(DELETE, name)

        def reply(outcome: TopicGone | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                self._done(outcome)
            elif not outcome.deleted and not statement.if_exists:
                self._done(topic_not_found(name))
            else:
                self._tell(f'topic "{name}" dropped' if outcome.deleted else f'topic "{name}" does not exist')

        self._broker.delete_topic(name, if_empty=False, reply=reply)

    def _clear_topic(self, statement: ClearTopic) -> None:
        """Partition by partition: records appended meanwhile stay."""
        self._may(DELETE, statement.topic)
        topic = self._broker.topic(statement.topic)
        waiting = len(topic.partitions)
        deleted = 0
        failed: TopicsError | None = None

        def reply(outcome: RecordsGone | TopicsError) -> None:
            nonlocal waiting, deleted, failed
            waiting -= 1
            if isinstance(outcome, TopicsError):
                failed = outcome
            else:
                deleted += outcome.deleted
            if not waiting:
                self._done(Result(message=f"{deleted} records deleted") if failed is None else failed)

        for partition in topic.partitions:
            self._broker.delete_records(topic.name, partition.head_seq + 1, None, partition.number, reply)

    def _set_retention(self, statement: SetRetention) -> None:
        unknown = [name for name, _ in statement.options if name not in _RETENTION]
        if unknown:
            raise InvalidRequest(f"{unknown[0]} is not a retention option: {', '.join(sorted(_RETENTION))}")
        change, _ = _config_change(statement.options)
        self._configure(statement.topic, change)

    def _clear_retention(self, statement: ClearRetention) -> None:
        self._configure(statement.topic, ConfigChange(ttl_ms=0, cap_bytes=0))

    def _configure(self, name: str, change: ConfigChange) -> None:
        self._may(ADMIN, name)
        # Not left to `configure`: when the topic is gone after the wait, that would create it.
        if self._broker.parked(name, lambda: self._configure(name, change), self._done):
            return
        self._broker.topic(name)
        self._broker.configure(name, change, self._altered(name))

    def _set_alias(self, statement: SetAlias) -> None:
        self._may(ADMIN, statement.topic)
        if statement.alias is not None:
            self._caller.check_topic(statement.alias)
        self._broker.set_alias(statement.topic, statement.alias, self._altered(statement.topic))

    def _set_archive(self, statement: SetArchive) -> None:
        self._caller.check_scope(ADMIN)
        name = self._reached(statement.topic)
        set_archive(self._broker, name, archive_options(dict(statement.options)), self._archived(name))

    def _clear_archive(self, statement: ClearArchive) -> None:
        self._caller.check_scope(DELETE)
        name = self._reached(statement.topic)
        clear_archive(self._broker, name, self._archived(name))

    def _archived(self, name: str) -> Callable[[ArchiveChanged | TopicsError], None]:
        def reply(outcome: ArchiveChanged | TopicsError) -> None:
            self._done(Result(message=f'topic "{name}" altered') if isinstance(outcome, ArchiveChanged) else outcome)

        return reply

    # Routes

    def _add_source(self, statement: AddSource) -> None:
        def added(routes: list[Route], version: int) -> list[Route]:
            self._check_columns(statement)
            route = Route(
                statement.table,
                statement.op,
                statement.payload_mode,
                version,
                statement.filter_expr,
                statement.partition_key_expr,
                statement.key_columns,
            )
            if any([route.same_as(other) for other in routes]):
                raise Conflict(f'topic "{statement.topic}" has this source already', detail={"table": statement.table})
            if len(routes) >= ROUTES_MOST:
                raise Throttled(
                    f"a topic has at most {ROUTES_MOST} sources", detail={"limit": "max_routes", "max": ROUTES_MOST}
                )
            return [*routes, route]

        self._may(ADMIN, statement.topic)
        self._broker.change_routes(statement.topic, added, self._altered(statement.topic))

    def _check_columns(self, statement: AddSource) -> None:
        """Raises InvalidRequest when the source names a column that its table is known not to have."""
        table = self._broker.state.tables.by_name.get(statement.table)
        if table is None or not table.columns:
            return
        named = list(statement.key_columns)
        for expression in (statement.filter_expr, statement.partition_key_expr):
            if expression is not None:
                named += columns_in(expression)
        unknown = table.unknown(named)
        if unknown is not None:
            raise InvalidRequest(
                f"table {table.name} has no column {unknown}",
                detail={"table": table.name, "column": unknown, "columns": list(table.columns)},
            )

    def _drop_source(self, statement: DropSource) -> None:
        def meant(route: Route) -> bool:
            return (
                route.table == statement.table
                and statement.op in (None, route.op)
                and statement.filter_expr in (None, route.filter_expr)
            )

        def left(routes: list[Route], _version: int) -> list[Route]:
            kept = [route for route in routes if not meant(route)]
            if len(kept) == len(routes):
                raise NotFound(
                    f'topic "{statement.topic}" has no such source', code="not_found", detail={"table": statement.table}
                )
            return kept

        self._may(ADMIN, statement.topic)
        self._broker.change_routes(statement.topic, left, self._altered(statement.topic))

    # Groups

    def _consume(self, statement: Consume) -> None:
        check_consume(self._caller)
        broker = self._broker
        topic = self._resolve(statement.topic)
        partition = broker.partition(topic, statement.partition)
        limit = min(statement.limit or DEFAULT_LIMIT, broker.limits.max_limit)
        start: str | Offset = EARLIEST
        if isinstance(statement.start, AtOffset):
            start = Offset(max(1, statement.start.offset))
        elif isinstance(statement.start, Latest):
            start = LATEST
        if statement.group is None:
            if start == EARLIEST:
                broker.evict(topic, partition)
            first = (
                start.offset
                if isinstance(start, Offset)
                else partition.earliest_seq
                if start == EARLIEST
                else partition.head_seq + 1
            )
            self._tell_messages(topic, fetch(broker, topic, partition, first, limit, broker.limits.answer_bytes))
            return
        group = group_of(broker, topic, check_group(statement.group))

        def pinned(error: TopicsError | None) -> None:
            position = group.latest(partition.number)
            if error is not None or position is None:
                self._done(error or topic_not_found(topic.name))
                return
            first = start_offset(partition, position, start)
            try:
                fetched = fetch(broker, topic, partition, first, limit, broker.limits.answer_bytes)
            except TopicsError as refused:
                # Told here: this is called from within a commit, which has others to tell.
                self._done(refused)
                return
            self._tell_messages(topic, fetched)

        pin(broker, topic, group, [partition], start, pinned)

    def _ack(self, statement: Ack) -> None:
        check_consume(self._caller)
        topic = self._resolve(statement.topic)
        partition = self._broker.partition(topic, statement.partition)

        def reply(outcome: int | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                self._done(outcome)
            else:
                self._done(Result(["acknowledged_offset"], [[outcome]], f"acknowledged up to offset {outcome}"))

        ack(self._broker, topic, check_group(statement.group), partition, statement.offset, reply)

    def _reset_group(self, statement: ResetGroup) -> None:
        check_consume(self._caller)
        topic = self._resolve(statement.topic)
        partitions = (
            topic.partitions if statement.partition is None else [self._broker.partition(topic, statement.partition)]
        )
        target: str | Offset | Timestamp
        match statement.target:
            case Earliest():
                target = EARLIEST
            case Latest():
                target = LATEST
            case AtOffset(offset):
                target = Offset(offset)
            case AtTime(time):
                target = Timestamp(parse_time(time) if isinstance(time, str) else time)

        def reply(outcome: list[Seek] | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                self._done(outcome)
                return
            columns = ["topic_id", "group_id", *seek_fields(outcome[0])]
            rows = [[topic.name, statement.group, *seek_fields(each).values()] for each in outcome]
            self._done(Result(columns, rows, "nothing was changed" if statement.dry_run else "consumer group moved"))

        seek(self._broker, topic, statement.group, partitions, target, dry_run=statement.dry_run, reply=reply)

    def _drop_group(self, statement: DropGroup) -> None:
        self._caller.check_scope(DELETE)
        topic = self._resolve(statement.topic)

        def reply(error: TopicsError | None) -> None:
            self._done(Result(message=f'consumer group "{statement.group}" dropped') if error is None else error)

        try:
            drop_group(self._broker, topic, statement.group, reply)
        except NotFound:
            if not statement.if_exists:
                raise
            self._tell(f'consumer group "{statement.group}" does not exist')

    # Looking

    def _show_topics(self, _statement: ShowTopics) -> None:
        self._show("topics")

    def _show_groups(self, statement: ShowGroups) -> None:
        if statement.topic is None:
            self._show("consumer_groups")
            return
        name = self._resolve(statement.topic).name
        self._show("consumer_groups", lambda row: row[0] == name)

    def _show(self, table: str, wanted: Callable[[Any], bool] | None = None) -> None:
        self._caller.check_scope(READ)

        def gathered(tables: list[Table]) -> None:
            rows = [row for row in tables[0].rows if wanted is None or wanted(row)]
            self._done(Result([column.name for column in TABLES[table].columns], rows, _rows_message(len(rows))))

        gather(self._service, self._broker, self._caller, (table,), gathered)

    def _describe_topic(self, statement: DescribeTopic) -> None:
        self._caller.check_scope(READ)
        topic = self._resolve(statement.topic)
        for partition in topic.partitions:
            self._broker.evict(topic, partition)
        fields: dict[str, Any] = {"topic_id": topic.name, "alias": topic.alias, "partitions": len(topic.partitions)}
        fields |= msgspec.structs.asdict(topic.config)
        fields |= {"count": topic.count, "bytes": topic.bytes, "created_at": topic.created_ts}
        for partition in topic.partitions:
            fields[f"partition {partition.number}"] = {
                "first_offset": partition.earliest_seq,
                "last_offset": partition.head_seq,
                "count": partition.count,
                "bytes": partition.bytes,
            }
        rows: list[list[Any]] = [[name, value] for name, value in fields.items()]
        rows += [["route", route_fields(route)] for route in topic.routes]
        if topic.archive is not None:
            rows.append(["archive", archive_fields(topic)])
        self._done(Result(["property", "value"], rows, _rows_message(len(rows))))

    def _select(self, statement: Select) -> None:
        self._caller.check_scope(READ)
        service, broker = self._service, self._broker
        if service.selects_waiting >= SELECTS_MOST:
            raise Throttled(
                f"{SELECTS_MOST} queries are waiting already", detail={"limit": "selects", "max": SELECTS_MOST}
            )

        def gathered(tables: list[Table]) -> None:
            request = SelectRequest(statement.text, list(statement.params), tables)
            broker.runtime.run_aside("sql", lambda: service.selects.run(request), ran)

        def ran(reply: Reply | None, error: BaseException | None) -> None:
            service.selects_waiting -= 1
            if isinstance(error, TopicsError):
                self._done(error)
            elif error is not None or reply is None:
                self._done(InvalidRequest("the query could not be run"))
            else:
                self._done(Result(reply.columns, reply.rows, _rows_message(len(reply.rows))))

        gather(service, broker, self._caller, statement.tables, gathered)
        service.selects_waiting += 1

    # Parts

    def _may(self, scope: int, name: str) -> None:
        self._caller.check_scope(scope)
        self._caller.check_topic(name)

    def _resolve(self, name: str) -> Topic:
        """By name or alias; 403 comes before 404."""
        return self._broker.topic(self._reached(name))

    def _reached(self, name: str) -> str:
        """The name of the topic that has this name or alias, which the caller may touch."""
        topic_name = self._broker.name_of(name)
        self._caller.check_topic(topic_name)
        return topic_name

    def _altered(self, name: str) -> Callable[[Configured | TopicsError], None]:
        def reply(outcome: Configured | TopicsError) -> None:
            self._done(Result(message=f'topic "{name}" altered') if isinstance(outcome, Configured) else outcome)

        return reply

    def _tell(self, message: str) -> None:
        self._done(Result(message=message))

    def _tell_messages(self, topic: Topic, fetched: Fetched) -> None:
        rows = message_rows(topic, fetched)
        more = {
            "next_offset": fetched.next_offset,
            "has_more": fetched.has_more,
            "tombstone": fetched.tombstone,
        }
        self._done(Result(list(COLUMNS), rows, _rows_message(len(rows)), more))


_METHODS: dict[type, str] = {
    CreateTopic: "_create_topic",
    DropTopic: "_drop_topic",
    ClearTopic: "_clear_topic",
    AddSource: "_add_source",
    DropSource: "_drop_source",
    SetRetention: "_set_retention",
    ClearRetention: "_clear_retention",
    SetAlias: "_set_alias",
    SetArchive: "_set_archive",
    ClearArchive: "_clear_archive",
    Consume: "_consume",
    Ack: "_ack",
    ResetGroup: "_reset_group",
    DropGroup: "_drop_group",
    ShowTopics: "_show_topics",
    ShowGroups: "_show_groups",
    DescribeTopic: "_describe_topic",
    Select: "_select",
}


def _config_change(options: Options) -> tuple[ConfigChange, str | None]:
    """Options as a change of the configuration, and the alias among them."""
    fields = dict(options)
    alias = fields.pop("alias", None)
    if alias is not None and not isinstance(alias, str):
        raise InvalidRequest("alias must be a text")
    if "retention_seconds" in fields:
        seconds = fields.pop("retention_seconds")
        if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 0):
            raise InvalidRequest("retention_seconds must be a whole number of at least 0")
        fields["ttl_ms"] = (seconds or 0) * 1000
    if "retention_max_bytes" in fields:
        fields["cap_bytes"] = fields.pop("retention_max_bytes") or 0
    known = set(ConfigChange.__struct_fields__) - {"partitions"}
    for name in fields:
        if name not in known:
            allowed = ", ".join(sorted(known | _RETENTION | {"alias"}))
            raise InvalidRequest(f"{name[:100]} is not an option of a topic: {allowed}")
    try:
        return msgspec.convert(fields, ConfigChange), alias
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error)) from None


def _rows_message(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
