"""The system tables: the state of the server as rows. Only the tables that a query names are made.

Rows come from generators: a table of many topics is collected in slices, one in each loop turn. A caller sees what it may touch. The
slices of a table show different moments.
"""

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from topics.broker.broker import Broker, Topic
from topics.broker.groups.groups import end_sessions, group_lag
from topics.model.errors import NotFound, TopicsError
from topics.model.tables.change import CHANGES
from topics.model.tables.route import Route
from topics.model.tables.table import Table as KnownTable
from topics.server.auth.authorization import Caller
from topics.server.lag import total_lag
from topics.server.ops.options import OPTIONS
from topics.server.responses import encode
from topics.server.service import Service
from topics.sql.select import Column, Table
from topics.sql.statements import Value

log = logging.getLogger("topics.server")

Row = tuple[Value, ...]
Rows = Callable[[Service, Broker, Caller], Iterator[Row]]
# Topics whose rows are made in one turn of the loop: about a millisecond.
ROWS_PER_TURN = 200
MAX_ROWS = 1_000_000


class SystemTable(msgspec.Struct, frozen=True):
    """The columns of a table, and what makes its rows for a caller. What a query requires is in `topics.api.sql`."""

    columns: list[Column]
    rows: Rows


def gather(
    service: Service,
    broker: Broker,
    caller: Caller,
    names: tuple[str, ...],
    done: Callable[[list[Table] | TopicsError], None],
) -> None:
    """Collect the named tables, ROWS_PER_TURN rows per loop turn, and call `done` once with them or with an error.

    Raises NotFound for a table that does not exist.
    """
    for name in names:
        if name not in TABLES:
            known = ", ".join([f"system.{each}" for each in TABLES])
            raise NotFound(f"there is no table system.{name[:100]}", code="not_found", detail={"tables": known})
    gathered = [Table(name, TABLES[name].columns, []) for name in names]
    sources = [TABLES[name].rows(service, broker, caller) for name in names]

    def turn() -> None:
        while sources:
            try:
                some = list(islice(sources[0], ROWS_PER_TURN))
            except TopicsError as error:
                done(error)
                return
            except Exception:
                # A later turn has no caller that would answer the request.
                log.exception("exception while collecting system.%s", names[len(names) - len(sources)])
                done(TopicsError("internal error"))
                return
            rows = gathered[len(gathered) - len(sources)].rows
            rows += some
            if len(some) < ROWS_PER_TURN or len(rows) >= MAX_ROWS:
                sources.pop(0)
            else:
                broker.runtime.call_later(0, turn)
                return
        done(gathered)

    turn()


def _columns(**types: str) -> list[Column]:
    return [Column(name, kind) for name, kind in types.items()]


def _topics(broker: Broker, caller: Caller) -> Iterator[Topic]:
    for name in list(broker.state.names):
        topic = broker.state.topics.get(name)
        if topic is not None and caller.may_touch(name):
            yield topic


def topic_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for topic in _topics(broker, caller):
        config = topic.config
        yield (
            topic.name,
            topic.name,
            topic.alias,
            config.type,
            len(topic.partitions),
            config.ttl_ms / 1000 if config.ttl_ms % 1000 else config.ttl_ms // 1000 or None,
            config.cap_bytes or None,
            config.durability,
            encode([route_fields(route) for route in visible_routes(topic, caller)]).decode(),
            len(topic.groups),
            topic.count,
            topic.bytes,
            topic.created_ts,
            topic.last_write_ts,
        )


def route_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for topic in _topics(broker, caller):
        for route in visible_routes(topic, caller):
            fields = route_fields(route)
            keys = ",".join(route.key_columns) or None
            starts_at = None if route.starts_at is None else encode(fields["starts_at"]).decode()
            yield (
                topic.name,
                *[fields[name] for name in ROUTE_FIELDS],
                keys,
                len(topic.partitions),
                route.version,
                route.start,
                starts_at,
            )


ROUTE_FIELDS = ("table_id", "op", "payload_mode", "filter_expr", "partition_key_expr")


def visible_routes(topic: Topic, caller: Caller) -> list[Route]:
    """The topic's routes from tables that the caller may touch."""
    return [route for route in topic.routes if caller.may_touch_table(route.table)]


def route_fields(route: Route) -> dict[str, Any]:
    return {
        "table_id": route.table,
        "op": route.op,
        "payload_mode": route.payload_mode,
        "filter_expr": route.filter_expr,
        "partition_key_expr": route.partition_key_expr,
        "key_columns": list(route.key_columns),
        "version": route.version,
        "start": route.start,
        "starts_at": None if route.starts_at is None else msgspec.structs.asdict(route.starts_at),
    }


def offset_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for topic in _topics(broker, caller):
        for group in list(topic.groups.values()):
            for number, position in sorted(group.positions.items()):
                partition = topic.partitions[number]
                broker.evict(topic, partition)
                lag = group_lag(broker, partition, position)
                yield (
                    topic.name,
                    group.name,
                    number,
                    position.acked,
                    position.next_offset,
                    partition.head_seq,
                    lag.records,
                    lag.seconds,
                    group.owners.get(number),
                    position.ts,
                )


def group_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for topic in _topics(broker, caller):
        for group in list(topic.groups.values()):
            if not group.positions:
                continue
            end_sessions(broker, topic, group)
            lag = total_lag(broker, topic, group)
            yield (
                topic.name,
                group.name,
                len(group.positions),
                len(group.members),
                lag.records,
                lag.seconds,
                max([each.ts for each in group.positions.values()]),
            )


def router_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for router in list(broker.state.routers.by_name.values()):
        source, dest = broker.state.by_id.get(router.source_id), broker.state.by_id.get(router.dest_id)
        if source is None or dest is None or not broker.routers.reached(router, caller.may_touch):
            continue
        behind = sum(
            [
                max(0, partition.head_seq - cursor)
                for partition, cursor in zip(source.partitions, router.cursors, strict=False)
            ]
        )
        yield (
            router.name,
            source.name,
            dest.name,
            router.options.guarantee,
            router.forwarded_total,
            behind,
            router.created_ts,
        )


def queue_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for topic in _topics(broker, caller):
        if topic.config.type == "queue":
            counters = broker.queues.stats(topic)
            config = topic.config
            yield (
                topic.name,
                counters.ready,
                counters.in_flight,
                counters.dead_lettered,
                config.lease_ms,
                config.max_deliveries,
                config.dead_letter,
            )


def table_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    """Registered tables, and unregistered ones, inferred from their change topics."""
    known = broker.state.tables.by_name
    sent = {name.removeprefix(CHANGES) for name in broker.names(CHANGES, "")}
    for name in sorted(known.keys() | sent):
        table = known.get(name) or KnownTable(name, "push", None, (), {}, 0)
        topic = broker.state.topics.get(CHANGES + name)
        if not caller.may_touch_table(name):
            continue
        marks = {} if topic is None else broker.state.source_positions.by_topic.get(topic.id, {})
        yield (
            name,
            table.kind,
            table.location,
            ",".join(table.key_columns) or None,
            encode(table.columns).decode() if table.columns else None,
            CHANGES + name,
            0 if topic is None else topic.count,
            encode({source: list(mark.position) for source, mark in marks.items()}).decode(),
            None if topic is None else topic.last_write_ts,
            table.created_ts or None,
            None if table.materialized is None else table.materialized.uri,
            None if table.materialized is None else table.materialized.mode,
        )


def archive_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for topic in _topics(broker, caller):
        archive = topic.archive
        if archive is not None:
            known = {place.partition: place.next_seq for place in archive.archived if place.epoch == topic.epoch}
            behind = [
                max(0, partition.head_seq + 1 - max(known.get(partition.number, 1), partition.earliest_seq))
                for partition in topic.partitions
            ]
            yield (
                topic.name,
                archive.options.uri,
                archive.options.freshness_ms,
                archive.options.compact_interval_ms,
                archive.options.vacuum_hours,
                encode([msgspec.structs.asdict(place) for place in archive.archived]).decode(),
                sum(behind),
                archive.table_version,
                archive.set_ts,
                archive.updated_ts,
            )


def pipeline_rows(service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    """A row for each job; one without a job for a pipeline that has none."""
    now_ms = broker.runtime.now_ms()
    for pipeline in service.pipelines.shown_to(caller):
        report = pipeline.report
        about = (pipeline.name, pipeline.state(now_ms), report.master, report.started_ts, pipeline.reported_ms)
        if not report.jobs:
            yield (*about, *[None] * len(JOB_COLUMNS))
        for job in report.jobs:
            yield (
                *about,
                job.name,
                job.kind,
                job.state,
                job.rows,
                job.rows_per_s,
                job.lag,
                job.last_batch,
                job.batch_ms,
                job.lag_s,
                job.bytes,
                job.latency_ms,
                job.restarts,
                job.error,
                encode(job.notes).decode() if job.notes else None,
            )


JOB_COLUMNS = {
    "job": "VARCHAR",
    "kind": "VARCHAR",
    "job_state": "VARCHAR",
    "rows": "UBIGINT",
    "rows_per_s": "DOUBLE",
    "lag_records": "UBIGINT",
    "last_batch": "UBIGINT",
    "batch_ms": "DOUBLE",
    "lag_s": "DOUBLE",
    "bytes": "UBIGINT",
    "latency_ms": "DOUBLE",
    "restarts": "UBIGINT",
    "error": "VARCHAR",
    "notes": "VARCHAR",
}


def setting_rows(service: Service, _broker: Broker, _caller: Caller) -> Iterator[Row]:
    settings = service.settings
    for option in OPTIONS:
        holder = settings if option.group == "server" else getattr(settings, option.group)
        value = getattr(holder, option.field)
        shown = None if value is None else "***" if option.secret else encode(value).decode().strip('"')
        yield option.variable, f"{option.section}.{option.key}", shown


TABLES: dict[str, SystemTable] = {
    "topics": SystemTable(
        _columns(
            topic_id="VARCHAR",
            name="VARCHAR",
            alias="VARCHAR",
            type="VARCHAR",
            partitions="UINTEGER",
            retention_seconds="DOUBLE",
            retention_max_bytes="UBIGINT",
            durability="VARCHAR",
            routes="VARCHAR",
            groups="UINTEGER",
            count="UBIGINT",
            bytes="UBIGINT",
            created_at="BIGINT",
            last_write_at="BIGINT",
        ),
        topic_rows,
    ),
    "topic_routes": SystemTable(
        _columns(
            topic_id="VARCHAR",
            table_id="VARCHAR",
            op="VARCHAR",
            payload_mode="VARCHAR",
            filter_expr="VARCHAR",
            partition_key_expr="VARCHAR",
            key_columns="VARCHAR",
            partitions="UINTEGER",
            version="UBIGINT",
            start="VARCHAR",
            starts_at="VARCHAR",
        ),
        route_rows,
    ),
    "topic_offsets": SystemTable(
        _columns(
            topic_id="VARCHAR",
            group_id="VARCHAR",
            partition_id="UINTEGER",
            last_acked_offset="UBIGINT",
            next_offset="UBIGINT",
            last_offset="UBIGINT",
            lag_records="UBIGINT",
            lag_seconds="DOUBLE",
            consumer_id="VARCHAR",
            updated_at="BIGINT",
        ),
        offset_rows,
    ),
    "consumer_groups": SystemTable(
        _columns(
            topic_id="VARCHAR",
            group_id="VARCHAR",
            partitions="UINTEGER",
            members="UINTEGER",
            lag_records="UBIGINT",
            lag_seconds="DOUBLE",
            updated_at="BIGINT",
        ),
        group_rows,
    ),
    "routers": SystemTable(
        _columns(
            router="VARCHAR",
            source="VARCHAR",
            dest="VARCHAR",
            guarantee="VARCHAR",
            forwarded_total="UBIGINT",
            lag_records="UBIGINT",
            created_at="BIGINT",
        ),
        router_rows,
    ),
    "queues": SystemTable(
        _columns(
            topic_id="VARCHAR",
            ready="UBIGINT",
            in_flight="UBIGINT",
            dead_lettered="UBIGINT",
            lease_ms="UBIGINT",
            max_deliveries="UBIGINT",
            dead_letter="VARCHAR",
        ),
        queue_rows,
    ),
    "tables": SystemTable(
        _columns(
            table_id="VARCHAR",
            kind="VARCHAR",
            location="VARCHAR",
            key_columns="VARCHAR",
            columns="VARCHAR",
            topic_id="VARCHAR",
            count="UBIGINT",
            positions="VARCHAR",
            last_write_at="BIGINT",
            created_at="BIGINT",
            materialized_uri="VARCHAR",
            materialized_mode="VARCHAR",
        ),
        table_rows,
    ),
    "archives": SystemTable(
        _columns(
            topic_id="VARCHAR",
            uri="VARCHAR",
            freshness_ms="UBIGINT",
            compact_interval_ms="UBIGINT",
            vacuum_hours="UBIGINT",
            archived="VARCHAR",
            lag_records="UBIGINT",
            table_version="UBIGINT",
            set_at="BIGINT",
            updated_at="BIGINT",
        ),
        archive_rows,
    ),
    "pipelines": SystemTable(
        _columns(
            pipeline="VARCHAR",
            state="VARCHAR",
            master="VARCHAR",
            started_at="BIGINT",
            reported_at="BIGINT",
            **JOB_COLUMNS,
        ),
        pipeline_rows,
    ),
    "settings": SystemTable(_columns(name="VARCHAR", place="VARCHAR", value="VARCHAR"), setting_rows),
}
