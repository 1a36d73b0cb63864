"""Calls: what each operation sends and how its answer is read. No sockets here; both clients run these."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Struct

from topics.client.errors import WrongAnswer, error_from
from topics.client.values import (
    Acked,
    Appended,
    ArchivedTo,
    ArchiveGone,
    ArchiveInfo,
    ArchiveList,
    ChangesSent,
    Claimed,
    Committed,
    Configured,
    Consumed,
    Deleted,
    Dropped,
    GroupAcked,
    Heads,
    Health,
    JobStatus,
    Page,
    PipelineGone,
    PipelineInfo,
    PipelineList,
    PipelineOrders,
    Producer,
    Ready,
    RouteList,
    RouterDropped,
    RouterInfo,
    RouterPage,
    SqlResult,
    Staged,
    StageDropped,
    TableGone,
    TableInfo,
    TablePage,
    TopicInfo,
    TopicPage,
    WatchSession,
)

T = TypeVar("T")
ARROW = "application/vnd.apache.arrow.stream"
Node = str | Sequence[str] | None


class Call(Generic[T]):
    """One request and the type of its answer.

    `repeatable`: sending it again after an answer that was lost does nothing twice. Without that it is sent again only
    when it certainly was not carried out.
    """

    __slots__ = ("accept", "answer", "body", "content_type", "method", "path", "repeatable", "wait_s")

    def __init__(
        self,
        method: str,
        path: str,
        answer: type[T],
        body: Any = UNSET,
        *,
        repeatable: bool = True,
        wait_s: float = 0.0,
        content_type: str = "application/json",
        accept: str | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.answer = answer
        self.body: bytes | None = None
        if body is not UNSET:
            self.body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.repeatable = repeatable
        # How long the server may take on purpose, beyond the usual time-out.
        self.wait_s = wait_s
        self.content_type = content_type
        self.accept = accept

    def headers(self, token: str | None) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.body is not None:
            headers["Content-Type"] = self.content_type
        if self.accept is not None:
            headers["Accept"] = self.accept
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> T:
        """The answer as a value. Raises the server's error, of the class it has there."""
        if 200 <= status < 300:
            if self.answer is bytes:
                return body  # type: ignore[return-value]
            try:
                return msgspec.json.decode(body, type=self.answer)
            except msgspec.MsgspecError as error:
                raise WrongAnswer(f"{self.method} {self.path}: {error}") from None
        try:
            decoded = msgspec.json.decode(body)
        except msgspec.MsgspecError:
            decoded = None
        retry_after = retry_after_s(headers)
        raise error_from(status, decoded, None if retry_after is None else int(retry_after * 1000))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isdigit() else None


def named(**fields: Any) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name, value in fields.items() if value is not None}


def _path(*parts: str) -> str:
    return "/v0/" + "/".join([quote(part, safe="") for part in parts])


def _query(path: str, **fields: Any) -> str:
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in fields.items()
        if value is not None and value != ""
    }
    return f"{path}?{urlencode(given)}" if given else path


# Topics


def create(topic: str, config: Mapping[str, Any]) -> Call[Configured]:
    return Call("PUT", _path("topics", topic), Configured, dict(config))


def info(topic: str, touch: bool) -> Call[TopicInfo]:
    return Call("GET", _query(_path("topics", topic), touch=touch), TopicInfo)


def heads(known: Mapping[str, Mapping[int, int]], wait_ms: int | None) -> Call[Heads]:
    body = {"topics": {topic: dict(partitions) for topic, partitions in known.items()}, **named(wait_ms=wait_ms)}
    return Call("POST", "/v0/heads", Heads, body, wait_s=(wait_ms or 0) / 1000)


def list_topics(prefix: str, page_size: int, cursor: str | None) -> Call[TopicPage]:
    return Call("GET", _query("/v0/topics", prefix=prefix, page_size=page_size, cursor=cursor), TopicPage)


def drop(topic: str, if_empty: bool) -> Call[Dropped]:
    return Call("DELETE", _query(_path("topics", topic), if_empty=if_empty), Dropped)


# Records


class RecordIn(Struct, omit_defaults=True):
    """A record to be written, with more than its payload."""

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: dict[str, Any] | None = None
    delay_ms: int | None = None


def append(
    topic: str,
    records: Sequence[Any],
    *,
    node: str | None = None,
    idempotency_key: str | None = None,
    create: bool | None = None,
    config: Mapping[str, Any] | None = None,
    partition: int | None = None,
    partition_key: str | None = None,
    return_seqs: bool = True,
    disable_backpressure: bool | None = None,
) -> Call[Appended]:
    """Payloads, or `RecordIn`s where a record has more than a payload. Without a key it gets one, for safe retries."""
    body = {
        "records": [record if isinstance(record, RecordIn) else {"data": record} for record in records],
        "idempotency_key": idempotency_key or uuid.uuid4().hex,
        **named(
            node=node,
            create=create,
            config=None if config is None else dict(config),
            partition=partition,
            partition_key=partition_key,
            disable_backpressure=disable_backpressure,
        ),
    }
    return Call("POST", _query(_path("topics", topic), return_seqs=None if return_seqs else False), Appended, body)


def diff(
    topic: str,
    from_seq: int = 0,
    *,
    limit: int | None = None,
    node: Node = None,
    include_tags: bool = True,
    include_meta: bool = True,
    wait_ms: int | None = None,
    from_ts: int | None = None,
    epoch: int | None = None,
    partition: int | None = None,
    to_seq: int | None = None,
    max_batch_bytes: int | None = None,
) -> Call[Page]:
    """With `to_seq`, the last seq wanted, up to 10,000 records at a time; without, up to 1000."""
    body = _diff_body(from_seq, limit, node, include_tags, include_meta, wait_ms, from_ts, epoch, partition)
    body |= named(to_seq=to_seq, max_batch_bytes=max_batch_bytes)
    return Call("POST", _path("topics", topic, "diff"), Page, body, wait_s=(wait_ms or 0) / 1000)


def diff_arrow(
    topic: str,
    from_seq: int = 0,
    *,
    to_seq: int | None = None,
    limit: int | None = None,
    node: Node = None,
    match: Any = None,
    include_tags: bool = True,
    include_meta: bool = True,
    from_ts: int | None = None,
    epoch: int | None = None,
    partition: int | None = None,
) -> Call[bytes]:
    body = _diff_body(from_seq, limit, node, include_tags, include_meta, None, from_ts, epoch, partition)
    body |= named(to_seq=to_seq, filter=match)
    return Call("POST", _path("topics", topic, "diff"), bytes, body, accept=ARROW)


def _diff_body(
    from_seq: int,
    limit: int | None,
    node: Node,
    include_tags: bool,
    include_meta: bool,
    wait_ms: int | None,
    from_ts: int | None,
    epoch: int | None,
    partition: int | None,
) -> dict[str, Any]:
    nodes = node if node is None or isinstance(node, str) else list(node)
    return {
        "from_seq": from_seq,
        "include_tags": include_tags,
        "include_meta": include_meta,
        **named(limit=limit, node=nodes, wait_ms=wait_ms, from_ts=from_ts, epoch=epoch, partition=partition),
    }


def delete(topic: str, before_seq: int | None, match: Any, partition: int | None) -> Call[Deleted]:
    body = named(before_seq=before_seq, match=match, partition=partition)
    return Call("POST", _path("topics", topic, "delete"), Deleted, body)


# Queues


def claim(
    topic: str, node: str, max: int, lease_ms: int | None, wait_ms: int | None, partition: int | None
) -> Call[Claimed]:
    body = {"node": node, "max": max, **named(lease_ms=lease_ms, wait_ms=wait_ms, partition=partition)}
    # Not repeatable: jobs leased by an answer that was lost come back when their lease runs out.
    path = _path("topics", topic, "claim")
    return Call("POST", path, Claimed, body, repeatable=False, wait_s=(wait_ms or 0) / 1000)


def settle(topic: str, verb: str, node: str, seqs: Sequence[int], **fields: Any) -> Call[Acked]:
    body = {"node": node, "seqs": list(seqs), **named(**fields)}
    return Call("POST", _path("topics", topic, verb), Acked, body)


# Routers


def put_router(router: str, source: str, dest: str, options: Mapping[str, Any]) -> Call[RouterInfo]:
    return Call("PUT", _path("routers", router), RouterInfo, {"source": source, "dest": dest, **options})


def get_router(router: str) -> Call[RouterInfo]:
    return Call("GET", _path("routers", router), RouterInfo)


def list_routers(
    prefix: str, source: str | None, dest: str | None, page_size: int, cursor: str | None
) -> Call[RouterPage]:
    path = _query("/v0/routers", prefix=prefix, source=source, dest=dest, page_size=page_size, cursor=cursor)
    return Call("GET", path, RouterPage)


def drop_router(router: str) -> Call[RouterDropped]:
    return Call("DELETE", _path("routers", router), RouterDropped)


# Stages and commits


def stage(topic: str, records: Sequence[Any], partition: int | None) -> Call[Staged]:
    body = {"records": [record if isinstance(record, RecordIn) else {"data": record} for record in records]}
    return Call("POST", _query("/v0/stages", topic=topic, partition=partition), Staged, body)


def stage_arrow(topic: str, stream: bytes, partition: int | None) -> Call[Staged]:
    return Call("POST", _query("/v0/stages", topic=topic, partition=partition), Staged, stream, content_type=ARROW)


def commit(
    stages: Sequence[str],
    producer: str | None,
    batch: int | None,
    writes: Sequence[Mapping[str, Any]],
) -> Call[Committed]:
    body = {
        "stages": list(stages),
        "writes": [dict(write) for write in writes],
        **named(producer=producer, batch=batch),
    }
    return Call("POST", "/v0/commits", Committed, body, repeatable=producer is not None)


def get_producer(producer: str) -> Call[Producer]:
    return Call("GET", _path("producers", producer), Producer)


def drop_stage(stage_id: str) -> Call[StageDropped]:
    return Call("DELETE", _path("stages", stage_id), StageDropped)


# Consumer groups and SQL


def consume(
    topic: str,
    group: str,
    start: Any,
    limit: int | None,
    partition: int | None,
    timeout_seconds: int | None,
    consumer: str | None,
) -> Call[Consumed]:
    body = {
        "topic": topic,
        "group_id": group,
        **named(
            start=start,
            limit=limit,
            partition_id=partition,
            timeout_seconds=timeout_seconds,
            consumer_id=consumer,
        ),
    }
    wait_s = 30.0 if timeout_seconds is None else float(timeout_seconds)
    return Call("POST", "/api/topics/consume", Consumed, body, wait_s=wait_s)


def ack_group(topic: str, group: str, upto_offset: int, partition: int) -> Call[GroupAcked]:
    body = {"topic": topic, "group_id": group, "partition_id": partition, "upto_offset": upto_offset}
    return Call("POST", "/api/topics/ack", GroupAcked, body)


def sql(statement: str, params: Sequence[Any]) -> Call[SqlResult]:
    return Call(
        "POST", "/api/sql", SqlResult, {"sql": statement, **named(params=list(params) or None)}, repeatable=False
    )


# Tables and their changes


def _table_path(table: str, *more: str) -> str:
    return "/".join(["/api/tables", quote(table, safe=""), *more])


def send_changes(
    table: str, changes: Sequence[Any], source: str | None, key_columns: Sequence[str]
) -> Call[ChangesSent]:
    """Safe to send again when every event has a position."""
    body = {"changes": list(changes), **named(source=source, key_columns=list(key_columns) or None)}
    positioned = all([isinstance(change, Mapping) and change.get("position") is not None for change in changes])
    return Call("POST", _table_path(table, "changes"), ChangesSent, body, repeatable=positioned)


def put_table(
    table: str, kind: str, location: str | None, key_columns: Sequence[str], columns: Mapping[str, str]
) -> Call[TableInfo]:
    body = {"kind": kind, "key_columns": list(key_columns), "columns": dict(columns), **named(location=location)}
    return Call("PUT", _table_path(table), TableInfo, body)


def get_table(table: str) -> Call[TableInfo]:
    return Call("GET", _table_path(table), TableInfo)


def list_tables(prefix: str, page_size: int, cursor: str | None) -> Call[TablePage]:
    return Call("GET", _query("/api/tables", prefix=prefix, page_size=page_size, cursor=cursor), TablePage)


def _versioned(path: str, answer: type[T], version: int | None, wait_ms: int | None, **fields: Any) -> Call[T]:
    """A list with a version that can be waited for."""
    wait_s = (wait_ms or 0) / 1000
    return Call("GET", _query(path, version=version, wait_ms=wait_ms, **fields), answer, wait_s=wait_s)


def tables_version(known: int | None, wait_ms: int | None) -> Call[TablePage]:
    return _versioned("/api/tables", TablePage, known, wait_ms, page_size=1)


def list_routes(version: int | None, wait_ms: int | None, table: str | None) -> Call[RouteList]:
    return _versioned("/api/routes", RouteList, version, wait_ms, table=table)


def drop_table(table: str) -> Call[TableGone]:
    return Call("DELETE", _table_path(table), TableGone)


# Archives


def get_archive(topic: str) -> Call[ArchiveInfo]:
    return Call("GET", _path("topics", topic, "archive"), ArchiveInfo)


def put_archive(
    topic: str,
    uri: str,
    *,
    freshness_ms: int | None = None,
    compact_interval_ms: int | None = None,
    vacuum_hours: int | None = None,
) -> Call[ArchiveInfo]:
    options = named(freshness_ms=freshness_ms, compact_interval_ms=compact_interval_ms, vacuum_hours=vacuum_hours)
    return Call("PUT", _path("topics", topic, "archive"), ArchiveInfo, {"uri": uri, **options})


def drop_archive(topic: str) -> Call[ArchiveGone]:
    return Call("DELETE", _path("topics", topic, "archive"), ArchiveGone)


def archive_progress(topic: str, partitions: Sequence[ArchivedTo], table_version: int | None) -> Call[ArchiveInfo]:
    body = {"partitions": list(partitions), **named(table_version=table_version)}
    return Call("POST", _path("topics", topic, "archive", "progress"), ArchiveInfo, body)


def list_archives(version: int | None, wait_ms: int | None) -> Call[ArchiveList]:
    return _versioned("/api/archives", ArchiveList, version, wait_ms)


# Pipelines


def _pipeline_path(pipeline: str, *more: str) -> str:
    return "/".join(["/api/pipelines", quote(pipeline, safe=""), *more])


def report_pipeline(
    pipeline: str, state: str, master: str | None, started_ts: int | None, jobs: Sequence[JobStatus]
) -> Call[PipelineOrders]:
    body = {"state": state, "master": master, "started_ts": started_ts, "jobs": list(jobs)}
    return Call("PUT", _pipeline_path(pipeline), PipelineOrders, body)


def get_pipeline(pipeline: str) -> Call[PipelineInfo]:
    return Call("GET", _pipeline_path(pipeline), PipelineInfo)


def list_pipelines() -> Call[PipelineList]:
    return Call("GET", "/api/pipelines", PipelineList)


def stop_pipeline(pipeline: str) -> Call[PipelineOrders]:
    return Call("POST", _pipeline_path(pipeline, "stop"), PipelineOrders)


def drop_pipeline(pipeline: str) -> Call[PipelineGone]:
    return Call("DELETE", _pipeline_path(pipeline), PipelineGone)


# The server itself


def health() -> Call[Health]:
    return Call("GET", "/v0/health", Health)


def ready() -> Call[Ready]:
    return Call("GET", "/v0/ready", Ready)


def watch(topics: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any], lenient: bool) -> Call[WatchSession]:
    body = {"topics": {name: dict(start) for name, start in topics.items()}, **options}
    return Call("POST", _query("/v0/watch", lenient=lenient or None), WatchSession, body)
