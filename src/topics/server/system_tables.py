"""The system tables: what the server knows, as rows. Made when a query names them, and only those it names.

Rows come from generators, so that a table of many topics is gathered a slice per turn of the loop. Everybody sees what
they may touch. A table is what the broker holds at the time of each slice, not one moment of it.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from topics.broker.broker import Broker, Topic
from topics.broker.groups import NO_LAG, group_lag
from topics.model.change import CHANGES
from topics.model.errors import NotFound
from topics.model.table import Table as KnownTable
from topics.server.access import ADMIN, READ, Caller
from topics.server.answers import encode
from topics.server.options import OPTIONS
from topics.server.service import Service
from topics.sql.select import Column, Table
from topics.sql.statements import Value

Row = tuple[Value, ...]
Rows = Callable[[Service, Broker, Caller], Iterator[Row]]
# Topics whose rows are made in one turn of the loop: about a millisecond.
ROWS_PER_TURN = 200
ROWS_MOST = 1_000_000


class SystemTable(msgspec.Struct, frozen=True):
    columns: list[Column]
    rows: Rows
    scope: int = READ


def gather(
    service: Service,
    broker: Broker,
    caller: Caller,
    names: tuple[str, ...],
    done: Callable[[list[Table]], None],
) -> None:
    """The named tables, some rows per turn. Raises NotFound and Forbidden before anything is done."""
    for name in names:
        if name not in TABLES:
            known = ", ".join([f"system.{each}" for each in TABLES])
            raise NotFound(f"there is no table system.{name[:100]}", code="not_found", detail={"tables": known})
        caller.check_scope(TABLES[name].scope)
    gathered = [Table(name, TABLES[name].columns, []) for name in names]
    sources = [TABLES[name].rows(service, broker, caller) for name in names]

    def turn() -> None:
        while sources:
            some = list(islice(sources[0], ROWS_PER_TURN))
            rows = gathered[len(gathered) - len(sources)].rows
            rows += some
            if len(some) < ROWS_PER_TURN or len(rows) >= ROWS_MOST:
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
            encode([route_fields(route) for route in topic.routes]).decode(),
            len(topic.groups),
            topic.count,
            topic.bytes,
            topic.created_ts,
            topic.last_write_ts,
        )


def route_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for topic in _topics(broker, caller):
        for route in topic.routes:
            fields = route_fields(route)
            keys = ",".join(route.key_columns) or None
            yield (topic.name, *[fields[name] for name in ROUTE_FIELDS], keys, len(topic.partitions), route.version)


ROUTE_FIELDS = ("table_id", "op", "payload_mode", "filter_expr", "partition_key_expr")


def route_fields(route: Any) -> dict[str, Any]:
    return {
        "table_id": route.table,
        "op": route.op,
        "payload_mode": route.payload_mode,
        "filter_expr": route.filter_expr,
        "partition_key_expr": route.partition_key_expr,
        "key_columns": list(route.key_columns),
        "version": route.version,
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
            group.expire(broker.runtime.now_ms())
            lags = [group_lag(broker, topic.partitions[number], each) for number, each in group.positions.items()]
            yield (
                topic.name,
                group.name,
                len(group.positions),
                len(group.members),
                sum([each.records for each in lags]),
                max([each.seconds for each in lags], default=NO_LAG.seconds),
                max([each.ts for each in group.positions.values()]),
            )


def router_rows(_service: Service, broker: Broker, caller: Caller) -> Iterator[Row]:
    for router in list(broker.state.routers.by_name.values()):
        source, dest = broker.state.by_id.get(router.source_id), broker.state.by_id.get(router.dest_id)
        if source is None or dest is None or not (caller.may_touch(source.name) and caller.may_touch(dest.name)):
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
            counters = broker.queues.counters(topic)
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
    """The tables that are known, and those whose changes have come without a word about them."""
    known = broker.state.tables.by_name
    sent = {name.removeprefix(CHANGES) for name in broker.names(CHANGES, "")}
    for name in sorted(known.keys() | sent):
        table = known.get(name) or KnownTable(name, "push", None, (), {}, 0)
        topic = broker.state.topics.get(CHANGES + name)
        if not caller.may_touch(CHANGES + name):
            continue
        marks = {} if topic is None else broker.state.marks.by_topic.get(topic.id, {})
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
    "settings": SystemTable(_columns(name="VARCHAR", place="VARCHAR", value="VARCHAR"), setting_rows, ADMIN),
}
