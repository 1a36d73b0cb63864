"""POST /api/sql: statements about topics, groups and routes, and SELECT over the system tables.

    {"sql": "...", "params": [...]}  ->  {"columns": [...], "rows": [[...], ...], "message": "...", "performance": {...}}

A statement requires what the operation that it corresponds to requires (`topics.api.sql`), and calls the same functions as its handler. Statements that change something are answered when the change is durable, as that operation is.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from topics.api.sql import STATEMENTS, SqlBody
from topics.broker.broker import Configured, RecordsGone, Topic, TopicGone
from topics.broker.groups.groups import Fetched, fetch
from topics.broker.tables.archives import ArchiveChanged, clear_archive, set_archive
from topics.broker.tables.tables import set_materialized
from topics.engine.groups.group_requests import EARLIEST, LATEST, Offset, Seek, Timestamp, check_group
from topics.model.config import ConfigChange
from topics.model.errors import InvalidRequest, NotFound, TopicsError, topic_not_found
from topics.server.auth.permissions import Access, Permission
from topics.server.groups.actions import GroupPoll, acknowledge, move_group, remove_group
from topics.server.groups.groups import parse_time, seek_fields
from topics.server.groups.messages import COLUMNS, message_rows
from topics.server.limits import consumed_messages
from topics.server.operations import Call, handles
from topics.server.responses import send, send_error
from topics.server.sql.system_tables import TABLES, gather, route_fields, visible_routes
from topics.server.tables.archives import archive_fields, archive_options
from topics.server.tables.sources import add_source, drop_source
from topics.server.tables.tables import materialized_options
from topics.sql.parser import parse
from topics.sql.select import Reply, Table
from topics.sql.select import Request as SelectRequest
from topics.sql.statements import (
    Ack,
    AddSource,
    AtOffset,
    AtTime,
    ClearArchive,
    ClearMaterialized,
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
    SetMaterialized,
    SetRetention,
    ShowGroups,
    ShowTopics,
    Statement,
)

_RETENTION = {"retention_seconds", "retention_max_bytes"}


class Result(Struct):
    """The outcome of a statement."""

    columns: list[str] = []
    rows: list[Any] = []
    message: str = ""
    # Further fields of the response.
    more: dict[str, Any] = {}


Done = Callable[[Result | TopicsError], None]

# By the name of the statement's class.
PERMISSIONS = {name: Permission(command.rule) for name, command in STATEMENTS.items()}


@handles("run_sql")
def run_sql(call: Call[SqlBody, None]) -> None:
    request, body = call.request, call.body

    def done(outcome: Result | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {"columns": outcome.columns, "rows": outcome.rows, "message": outcome.message}
        send(request, 200, {**fields, **outcome.more})

    Execution(call, done).run(parse(body.sql, body.params or []))


class Execution:
    """One statement while it is executed."""

    def __init__(self, call: Call[SqlBody, None], done: Done) -> None:
        self._access: Access = call
        self._request = call.request
        self._service = call.service
        self._broker = call.broker
        self._caller = call.caller
        self._done = done

    def run(self, statement: Statement) -> None:
        """Raises the error that refuses the statement, or calls `done` once, now or later."""
        permission = PERMISSIONS[type(statement).__name__]
        permission.check_scope(self._caller)
        permission.check_names(self._access, _fields(statement))
        run: Callable[[Any], None] = getattr(self, _METHODS[type(statement)])
        run(statement)

    # Topics

    def _create_topic(self, statement: CreateTopic) -> None:
        name = statement.topic
        change, alias = _config_change(statement.options)
        if statement.partitions is not None:
            change.partitions = statement.partitions

        def reply(outcome: Configured | TopicsError) -> None:
            if isinstance(outcome, Configured):
                self._send(f'topic "{name}" created' if outcome.created else f'topic "{name}" exists already')
            else:
                self._done(outcome)

        self._broker.create_topic(name, change, alias, if_absent=statement.if_not_exists, reply=reply)

    def _drop_topic(self, statement: DropTopic) -> None:
        name = statement.topic

        def reply(outcome: TopicGone | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                self._done(outcome)
            elif not outcome.deleted and not statement.if_exists:
                self._done(topic_not_found(name))
            else:
                self._send(f'topic "{name}" dropped' if outcome.deleted else f'topic "{name}" does not exist')

        self._broker.delete_topic(name, if_empty=False, may_touch=self._caller.may_touch, reply=reply)

    def _clear_topic(self, statement: ClearTopic) -> None:
        """Partition by partition: records appended meanwhile stay."""
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
        # Not left to `configure`: when the topic is gone after the wait, that would create it.
        if self._broker.parked(name, lambda: self._configure(name, change), self._done):
            return
        self._broker.topic(name)
        self._broker.configure(name, change, self._altered(name))

    def _set_alias(self, statement: SetAlias) -> None:
        self._broker.set_alias(statement.topic, statement.alias, self._altered(statement.topic))

    def _set_archive(self, statement: SetArchive) -> None:
        name = self._access.name
        options = archive_options(dict(statement.options))
        set_archive(self._broker, name, options, self._archived(name))

    def _clear_archive(self, statement: ClearArchive) -> None:
        name = self._access.name
        clear_archive(self._broker, name, self._archived(name))

    def _archived(self, name: str) -> Callable[[ArchiveChanged | TopicsError], None]:
        def reply(outcome: ArchiveChanged | TopicsError) -> None:
            self._done(Result(message=f'topic "{name}" altered') if isinstance(outcome, ArchiveChanged) else outcome)

        return reply

    # Tables

    def _set_materialized(self, statement: SetMaterialized) -> None:
        options = materialized_options(dict(statement.options))
        set_materialized(self._broker, statement.table, options, self._altered_table(statement.table))

    def _clear_materialized(self, statement: ClearMaterialized) -> None:
        set_materialized(self._broker, statement.table, None, self._altered_table(statement.table))

    def _altered_table(self, name: str) -> Callable[[TopicsError | None], None]:
        return lambda error: self._done(Result(message=f'table "{name}" altered') if error is None else error)

    # Routes

    def _add_source(self, statement: AddSource) -> None:
        add_source(self._broker, statement, self._altered(statement.topic))

    def _drop_source(self, statement: DropSource) -> None:
        drop_source(self._broker, statement, self._altered(statement.topic))

    # Groups

    def _consume(self, statement: Consume) -> None:
        broker = self._broker
        topic = self._topic()
        partition = broker.partition(topic, statement.partition)
        limit = consumed_messages(statement.limit, broker.limits)
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
            fetched = fetch(broker, topic, partition, first, limit, broker.limits.answer_bytes)
            broker.counts.count_read(len(fetched.messages), fetched.tombstone is not None)
            self._send_messages(topic, fetched)
            return
        check_group(statement.group)

        def answer(fetched: Fetched | None) -> None:
            self._send_messages(topic, fetched or Fetched(partition.number, [], 0, False, None))

        GroupPoll(
            broker, self._request, topic, statement.group, start, limit, partition.number, answer, self._done
        ).begin()

    def _ack(self, statement: Ack) -> None:
        topic = self._topic()

        def reply(outcome: int | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                self._done(outcome)
            else:
                self._done(Result(["acknowledged_offset"], [[outcome]], f"acknowledged up to offset {outcome}"))

        acknowledge(self._broker, topic, statement.group, statement.partition, statement.offset, reply)

    def _reset_group(self, statement: ResetGroup) -> None:
        topic = self._topic()
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

        move_group(self._broker, topic, statement.group, statement.partition, target, reply, dry_run=statement.dry_run)

    def _drop_group(self, statement: DropGroup) -> None:
        topic = self._topic()

        def reply(error: TopicsError | None) -> None:
            self._done(Result(message=f'consumer group "{statement.group}" dropped') if error is None else error)

        try:
            remove_group(self._broker, topic, statement.group, reply)
        except NotFound:
            if not statement.if_exists:
                raise
            self._send(f'consumer group "{statement.group}" does not exist')

    # Reads

    def _show_topics(self, _statement: ShowTopics) -> None:
        self._show("topics")

    def _show_groups(self, statement: ShowGroups) -> None:
        if statement.topic is None:
            self._show("consumer_groups")
            return
        name = self._topic().name
        self._show("consumer_groups", lambda row: row[0] == name)

    def _show(self, table: str, wanted: Callable[[Any], bool] | None = None) -> None:
        def gathered(tables: list[Table] | TopicsError) -> None:
            if isinstance(tables, TopicsError):
                self._done(tables)
                return
            rows = [row for row in tables[0].rows if wanted is None or wanted(row)]
            self._done(Result([column.name for column in TABLES[table].columns], rows, _rows_message(len(rows))))

        gather(self._service, self._broker, self._caller, (table,), gathered)

    def _describe_topic(self, statement: DescribeTopic) -> None:
        topic = self._topic()
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
        rows += [["route", route_fields(route)] for route in visible_routes(topic, self._caller)]
        if topic.archive is not None:
            rows.append(["archive", archive_fields(topic)])
        self._done(Result(["property", "value"], rows, _rows_message(len(rows))))

    def _select(self, statement: Select) -> None:
        service, broker = self._service, self._broker
        slot = service.selects.reserve()

        def gathered(tables: list[Table] | TopicsError) -> None:
            if isinstance(tables, TopicsError):
                slot.release()
                self._done(tables)
                return
            request = SelectRequest(statement.text, list(statement.params), tables)
            service.selects.run(broker.runtime, slot, request, ran)

        def ran(outcome: Reply | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                self._done(outcome)
            else:
                self._done(Result(outcome.columns, outcome.rows, _rows_message(len(outcome.rows))))

        try:
            gather(service, broker, self._caller, statement.tables, gathered)
        except BaseException:
            slot.release()
            raise

    # Shared by several statements

    def _topic(self) -> Topic:
        """The topic that the statement names, by its name or its alias: the permission check has found its name."""
        return self._broker.topic(self._access.name)

    def _altered(self, name: str) -> Callable[[Configured | TopicsError], None]:
        def reply(outcome: Configured | TopicsError) -> None:
            self._done(Result(message=f'topic "{name}" altered') if isinstance(outcome, Configured) else outcome)

        return reply

    def _send(self, message: str) -> None:
        self._done(Result(message=message))

    def _send_messages(self, topic: Topic, fetched: Fetched) -> None:
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
    SetMaterialized: "_set_materialized",
    ClearMaterialized: "_clear_materialized",
    Consume: "_consume",
    Ack: "_ack",
    ResetGroup: "_reset_group",
    DropGroup: "_drop_group",
    ShowTopics: "_show_topics",
    ShowGroups: "_show_groups",
    DescribeTopic: "_describe_topic",
    Select: "_select",
}


def _fields(statement: Statement) -> dict[str, Any]:
    """The fields of a statement by name; its options are a mapping."""
    fields = msgspec.structs.asdict(statement)
    if "options" in fields:
        fields["options"] = dict(fields["options"])
    return fields


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
