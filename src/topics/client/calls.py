"""Calls: the request of each method as a value. Generated from the declarations in topics.api by `make generate`; do not edit.

Both clients run these. No sockets here.
"""

from __future__ import annotations  # keeps the import quick

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from topics.client.call import ARROW, Call, new_key, path, query, record_bodies
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
    CommitWrite,
    ConfigChange,
    Configured,
    ConnectionList,
    Consumed,
    Deleted,
    Disconnected,
    Dropped,
    Extended,
    GroupAcked,
    GroupList,
    Heads,
    Health,
    JobStatus,
    LastCommit,
    Left,
    LoggedIn,
    Nacked,
    OffsetStart,
    Overview,
    Page,
    PipelineGone,
    PipelineInfo,
    PipelineList,
    PipelineOrders,
    QueuedJobs,
    Ready,
    RecordIn,
    Redriven,
    Root,
    RouteList,
    RouterDropped,
    RouterInfo,
    RouterPage,
    SeekTarget,
    SeqRanges,
    Sought,
    SqlResult,
    Staged,
    StageDropped,
    StagesRenewed,
    Start,
    TableGone,
    TableInfo,
    TablePage,
    TopicInfo,
    TopicPage,
    TopicSearch,
    WatchSession,
    WhoAmI,
)

__all__ = [
    "Call",
    "RecordIn",
    "ack",
    "ack_group",
    "append",
    "append_arrow",
    "archive_progress",
    "archives",
    "claim",
    "clear_archive",
    "commit",
    "consume",
    "create",
    "create_watch",
    "delete",
    "delete_connection",
    "diff",
    "diff_arrow",
    "drop",
    "drop_pipeline",
    "drop_router",
    "drop_stage",
    "drop_table",
    "extend",
    "get_archive",
    "get_overview",
    "get_producer",
    "get_ranges",
    "get_root",
    "get_whoami",
    "heads",
    "health",
    "info",
    "leave_group",
    "list_connections",
    "list_groups",
    "list_jobs",
    "list_pipelines",
    "list_routers",
    "list_tables",
    "list_topics",
    "metrics",
    "nack",
    "openapi",
    "pipeline",
    "put_router",
    "put_table",
    "ready",
    "redrive",
    "renew_stages",
    "report_pipeline",
    "request_token",
    "router",
    "routes",
    "run_sql",
    "search_topics",
    "seek_group",
    "send_changes",
    "set_archive",
    "stage",
    "stage_arrow",
    "stop_pipeline",
    "table",
]


def list_topics(
    *, prefix: str | None = None, cursor: str | None = None, page_size: int | None = None, touch: bool = False
) -> Call[TopicPage]:
    """GET /v0/topics: list topics by name."""
    fields: dict[str, Any] = {}
    if prefix is not None:
        fields["prefix"] = prefix
    if cursor is not None:
        fields["cursor"] = cursor
    if page_size is not None:
        fields["page_size"] = page_size
    if touch:
        fields["touch"] = touch
    return Call("GET", query("/v0/topics", fields), TopicPage)


def create(
    topic: str,
    *,
    type: Literal["log", "queue"] | None = None,
    ttl_ms: int | None = None,
    cap_records: int | None = None,
    cap_bytes: int | None = None,
    discard: Literal["old", "reject"] | None = None,
    durable: bool | None = None,
    durability: Literal["ephemeral", "memory", "disk", "fsync"] | None = None,
    priority: int | None | UnsetType = UNSET,
    auto_priority: bool | None = None,
    auto_create: bool | None = None,
    idempotency_window_ms: int | None = None,
    dedupe_node: bool | None = None,
    lease_ms: int | None = None,
    claim_jitter_ms: int | None = None,
    max_deliveries: int | None = None,
    dead_letter: str | None | UnsetType = UNSET,
    leases_durable: bool | None = None,
    partitions: int | None = None,
    dry_run: bool = False,
) -> Call[Configured]:
    """PUT /v0/topics/{topic}: create a topic, or change the named fields of its configuration."""
    fields: dict[str, Any] = {}
    if dry_run:
        fields["dry_run"] = dry_run
    body: dict[str, Any] = {}
    if type is not None:
        body["type"] = type
    if ttl_ms is not None:
        body["ttl_ms"] = ttl_ms
    if cap_records is not None:
        body["cap_records"] = cap_records
    if cap_bytes is not None:
        body["cap_bytes"] = cap_bytes
    if discard is not None:
        body["discard"] = discard
    if durable is not None:
        body["durable"] = durable
    if durability is not None:
        body["durability"] = durability
    if priority is not UNSET:
        body["priority"] = priority
    if auto_priority is not None:
        body["auto_priority"] = auto_priority
    if auto_create is not None:
        body["auto_create"] = auto_create
    if idempotency_window_ms is not None:
        body["idempotency_window_ms"] = idempotency_window_ms
    if dedupe_node is not None:
        body["dedupe_node"] = dedupe_node
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    if claim_jitter_ms is not None:
        body["claim_jitter_ms"] = claim_jitter_ms
    if max_deliveries is not None:
        body["max_deliveries"] = max_deliveries
    if dead_letter is not UNSET:
        body["dead_letter"] = dead_letter
    if leases_durable is not None:
        body["leases_durable"] = leases_durable
    if partitions is not None:
        body["partitions"] = partitions
    return Call("PUT", query(path("/v0/topics/", topic), fields), Configured, body)


def info(topic: str, *, touch: bool = True) -> Call[TopicInfo]:
    """GET /v0/topics/{topic}: show the state of a topic, named by its name or its alias."""
    fields: dict[str, Any] = {}
    if not touch:
        fields["touch"] = touch
    return Call("GET", query(path("/v0/topics/", topic), fields), TopicInfo)


def drop(topic: str, *, if_empty: bool = False) -> Call[Dropped]:
    """DELETE /v0/topics/{topic}: delete a topic with all its records, groups, routes and routers."""
    fields: dict[str, Any] = {}
    if if_empty:
        fields["if_empty"] = if_empty
    return Call("DELETE", query(path("/v0/topics/", topic), fields), Dropped)


def append(
    topic: str,
    records: Sequence[Any],
    *,
    node: str | None = None,
    idempotency_key: str | None = None,
    create: bool | None = None,
    config: ConfigChange | Mapping[str, Any] | None = None,
    disable_backpressure: bool = False,
    partition: int | None = None,
    partition_key: str | None = None,
    return_seqs: bool = True,
) -> Call[Appended]:
    """POST /v0/topics/{topic}: append records, all or none."""
    fields: dict[str, Any] = {}
    if not return_seqs:
        fields["return_seqs"] = return_seqs
    body: dict[str, Any] = {"records": record_bodies(records), "idempotency_key": idempotency_key or new_key()}
    if node is not None:
        body["node"] = node
    if create is not None:
        body["create"] = create
    if config is not None:
        body["config"] = config
    if disable_backpressure:
        body["disable_backpressure"] = disable_backpressure
    if partition is not None:
        body["partition"] = partition
    if partition_key is not None:
        body["partition_key"] = partition_key
    return Call("POST", query(path("/v0/topics/", topic), fields), Appended, body)


def append_arrow(
    topic: str, stream: bytes, *, return_seqs: bool = True, partition: int | None = None
) -> Call[Appended]:
    """POST /v0/topics/{topic}: append records, all or none."""
    fields: dict[str, Any] = {}
    if not return_seqs:
        fields["return_seqs"] = return_seqs
    if partition is not None:
        fields["partition"] = partition
    return Call(
        "POST", query(path("/v0/topics/", topic), fields), Appended, stream, content_type=ARROW, repeatable=False
    )


def diff(
    topic: str,
    from_seq: int = 0,
    *,
    limit: int | None = None,
    node: str | Sequence[str] | None = None,
    include_tags: bool = True,
    include_meta: bool = True,
    wait_ms: int | None = None,
    max_batch_bytes: int | None = None,
    from_ts: int | None = None,
    epoch: int | None = None,
    to_seq: int | None = None,
    partition: int | None = None,
) -> Call[Page]:
    """POST /v0/topics/{topic}/diff: read records after a cursor, at once or as soon as there are some."""
    body: dict[str, Any] = {}
    if from_seq:
        body["from_seq"] = from_seq
    if limit is not None:
        body["limit"] = limit
    if node is not None:
        body["node"] = node
    if include_tags:
        body["include_tags"] = include_tags
    if not include_meta:
        body["include_meta"] = include_meta
    if wait_ms is not None:
        body["wait_ms"] = wait_ms
    if max_batch_bytes is not None:
        body["max_batch_bytes"] = max_batch_bytes
    if from_ts is not None:
        body["from_ts"] = from_ts
    if epoch is not None:
        body["epoch"] = epoch
    if to_seq is not None:
        body["to_seq"] = to_seq
    if partition is not None:
        body["partition"] = partition
    return Call("POST", path("/v0/topics/", topic, "/diff"), Page, body, wait_s=(wait_ms or 0) / 1000)


def diff_arrow(
    topic: str,
    from_seq: int = 0,
    *,
    limit: int | None = None,
    node: str | Sequence[str] | None = None,
    include_tags: bool = True,
    include_meta: bool = True,
    max_batch_bytes: int | None = None,
    from_ts: int | None = None,
    epoch: int | None = None,
    to_seq: int | None = None,
    match: Any = None,
    partition: int | None = None,
) -> Call[bytes]:
    """POST /v0/topics/{topic}/diff: read records after a cursor, at once or as soon as there are some."""
    body: dict[str, Any] = {}
    if from_seq:
        body["from_seq"] = from_seq
    if limit is not None:
        body["limit"] = limit
    if node is not None:
        body["node"] = node
    if include_tags:
        body["include_tags"] = include_tags
    if not include_meta:
        body["include_meta"] = include_meta
    if max_batch_bytes is not None:
        body["max_batch_bytes"] = max_batch_bytes
    if from_ts is not None:
        body["from_ts"] = from_ts
    if epoch is not None:
        body["epoch"] = epoch
    if to_seq is not None:
        body["to_seq"] = to_seq
    if match is not None:
        body["filter"] = match
    if partition is not None:
        body["partition"] = partition
    return Call("POST", path("/v0/topics/", topic, "/diff"), bytes, body, accept=ARROW)


def delete(
    topic: str,
    *,
    before_seq: int | None = None,
    match: Any | UnsetType = UNSET,
    partition: int | None = None,
    dry_run: bool = False,
) -> Call[Deleted]:
    """POST /v0/topics/{topic}/delete: delete records for good, by seq, by tag, or both."""
    body: dict[str, Any] = {}
    if before_seq is not None:
        body["before_seq"] = before_seq
    if match is not UNSET:
        body["match"] = match
    if partition is not None:
        body["partition"] = partition
    if dry_run:
        body["dry_run"] = dry_run
    return Call("POST", path("/v0/topics/", topic, "/delete"), Deleted, body)


def get_ranges(topic: str, *, partition: int | None = None) -> Call[SeqRanges]:
    """GET /v0/topics/{topic}/ranges: show which seqs of a partition are live, were lost, or were deleted."""
    fields: dict[str, Any] = {}
    if partition is not None:
        fields["partition"] = partition
    return Call("GET", query(path("/v0/topics/", topic, "/ranges"), fields), SeqRanges)


def search_topics(
    *,
    q: str | None = None,
    type: Literal["", "log", "queue"] | None = None,
    sort: Literal["topic", "rate", "count", "bytes", "lag", "lost", "last_write_ts"] = "topic",
    order: Literal["asc", "desc"] = "asc",
    offset: int | None = None,
    limit: int | None = None,
) -> Call[TopicSearch]:
    """GET /v0/topic-search: search all topics by name and sort them by name, rate, size, lag or losses."""
    fields: dict[str, Any] = {}
    if q is not None:
        fields["q"] = q
    if type is not None:
        fields["type"] = type
    if sort != "topic":
        fields["sort"] = sort
    if order != "asc":
        fields["order"] = order
    if offset is not None:
        fields["offset"] = offset
    if limit is not None:
        fields["limit"] = limit
    return Call("GET", query("/v0/topic-search", fields), TopicSearch)


def heads(known: Mapping[str, Mapping[int, int]], *, wait_ms: int | None = None) -> Call[Heads]:
    """POST /v0/heads: show how far the partitions of many topics are; waits, if wanted, until one is further."""
    body: dict[str, Any] = {"topics": dict(known)}
    if wait_ms is not None:
        body["wait_ms"] = wait_ms
    return Call("POST", "/v0/heads", Heads, body, wait_s=(wait_ms or 0) / 1000)


def claim(
    topic: str,
    node: str,
    max: int = 1,
    *,
    lease_ms: int | None = None,
    wait_ms: int | None = None,
    partition: int | None = None,
) -> Call[Claimed]:
    """POST /v0/topics/{topic}/claim: lease jobs of a queue, at once or as soon as there are some."""
    body: dict[str, Any] = {"node": node}
    if max != 1:
        body["max"] = max
    if lease_ms is not None:
        body["lease_ms"] = lease_ms
    if wait_ms is not None:
        body["wait_ms"] = wait_ms
    if partition is not None:
        body["partition"] = partition
    return Call(
        "POST", path("/v0/topics/", topic, "/claim"), Claimed, body, repeatable=False, wait_s=(wait_ms or 0) / 1000
    )


def ack(
    topic: str, node: str, seqs: Sequence[int], *, lease_ids: Sequence[str] | None = None, partition: int | None = None
) -> Call[Acked]:
    """POST /v0/topics/{topic}/ack: finish jobs: they are deleted."""
    body: dict[str, Any] = {"node": node, "seqs": list(seqs)}
    if lease_ids is not None:
        body["lease_ids"] = lease_ids
    if partition is not None:
        body["partition"] = partition
    return Call("POST", path("/v0/topics/", topic, "/ack"), Acked, body)


def nack(
    topic: str,
    node: str,
    seqs: Sequence[int],
    *,
    lease_ids: Sequence[str] | None = None,
    partition: int | None = None,
    delay_ms: int | None = None,
    reason: str | None = None,
) -> Call[Nacked]:
    """POST /v0/topics/{topic}/nack: return jobs to the queue, at once or after a delay."""
    body: dict[str, Any] = {"node": node, "seqs": list(seqs)}
    if lease_ids is not None:
        body["lease_ids"] = lease_ids
    if partition is not None:
        body["partition"] = partition
    if delay_ms is not None:
        body["delay_ms"] = delay_ms
    if reason is not None:
        body["reason"] = reason
    return Call("POST", path("/v0/topics/", topic, "/nack"), Nacked, body)


def extend(
    topic: str,
    node: str,
    seqs: Sequence[int],
    lease_ms: int,
    *,
    lease_ids: Sequence[str] | None = None,
    partition: int | None = None,
) -> Call[Extended]:
    """POST /v0/topics/{topic}/extend: extend the leases of jobs."""
    body: dict[str, Any] = {"node": node, "seqs": list(seqs), "lease_ms": lease_ms}
    if lease_ids is not None:
        body["lease_ids"] = lease_ids
    if partition is not None:
        body["partition"] = partition
    return Call("POST", path("/v0/topics/", topic, "/extend"), Extended, body)


def list_jobs(
    topic: str, *, state: Literal["ready", "delayed", "in_flight"] = "ready", limit: int | None = None
) -> Call[QueuedJobs]:
    """GET /v0/topics/{topic}/jobs: show jobs that are ready, delayed or leased, without leasing them."""
    fields: dict[str, Any] = {}
    if state != "ready":
        fields["state"] = state
    if limit is not None:
        fields["limit"] = limit
    return Call("GET", query(path("/v0/topics/", topic, "/jobs"), fields), QueuedJobs)


def redrive(
    topic: str, *, queue: str | None = None, seqs: Sequence[int] | None = None, match: Any = None, dry_run: bool = False
) -> Call[Redriven]:
    """POST /v0/topics/{topic}/redrive: move dead letters back to the queues they came from."""
    body: dict[str, Any] = {}
    if queue is not None:
        body["queue"] = queue
    if seqs is not None:
        body["seqs"] = seqs
    if match is not None:
        body["match"] = match
    if dry_run:
        body["dry_run"] = dry_run
    return Call("POST", path("/v0/topics/", topic, "/redrive"), Redriven, body)


def create_watch(
    topics: Mapping[str, Start | Mapping[str, Any]],
    *,
    node: str | Sequence[str] | None = None,
    limit: int | None = None,
    max_batch_bytes: int | None = None,
    include_meta: bool = True,
    include_tags: bool = False,
    include_data: bool = True,
    consistency: Literal["eventual", "strong"] = "eventual",
    cursor: str | None = None,
    heartbeat_ms: int | None = None,
    event_names: Literal["sse", "websocket"] = "sse",
    lenient: bool = False,
) -> Call[WatchSession]:
    """POST /v0/watch: make a watch session for up to 256 topics."""
    fields: dict[str, Any] = {}
    if lenient:
        fields["lenient"] = lenient
    body: dict[str, Any] = {"topics": dict(topics)}
    if node is not None:
        body["node"] = node
    if limit is not None:
        body["limit"] = limit
    if max_batch_bytes is not None:
        body["max_batch_bytes"] = max_batch_bytes
    if not include_meta:
        body["include_meta"] = include_meta
    if include_tags:
        body["include_tags"] = include_tags
    if not include_data:
        body["include_data"] = include_data
    if consistency != "eventual":
        body["consistency"] = consistency
    if cursor is not None:
        body["cursor"] = cursor
    if heartbeat_ms is not None:
        body["heartbeat_ms"] = heartbeat_ms
    if event_names != "sse":
        body["event_names"] = event_names
    return Call("POST", query("/v0/watch", fields), WatchSession, body)


def list_connections() -> Call[ConnectionList]:
    """GET /v0/connections: list watch streams, WebSockets, work streams and idle watch sessions."""
    return Call("GET", "/v0/connections", ConnectionList)


def delete_connection(connection: str) -> Call[Disconnected]:
    """DELETE /v0/connections/{connection}: end a live connection or an idle watch session."""
    return Call("DELETE", path("/v0/connections/", connection), Disconnected)


def consume(
    topic: str,
    group: str,
    *,
    start: Literal["Earliest", "Latest", "earliest", "latest", "EARLIEST", "LATEST"]
    | OffsetStart
    | Mapping[str, Any]
    | None = None,
    limit: int | None = None,
    partition: int | None = None,
    timeout_seconds: int | None = None,
    consumer: str | None = None,
    received: Mapping[int, int] | None = None,
) -> Call[Consumed]:
    """POST /api/topics/consume: fetch the next messages of a consumer group, at once or as soon as there are some."""
    body: dict[str, Any] = {"topic": topic, "group_id": group}
    if start is not None:
        body["start"] = start
    if limit is not None:
        body["limit"] = limit
    if partition is not None:
        body["partition_id"] = partition
    if timeout_seconds is not None:
        body["timeout_seconds"] = timeout_seconds
    if consumer is not None:
        body["consumer_id"] = consumer
    if received is not None:
        body["received"] = received
    return Call(
        "POST",
        "/api/topics/consume",
        Consumed,
        body,
        wait_s=30.0 if timeout_seconds is None else float(timeout_seconds),
    )


def ack_group(
    topic: str, group: str, upto_offset: int, *, partition: int | None = None, consumer: str | None = None
) -> Call[GroupAcked]:
    """POST /api/topics/ack: acknowledge all messages of a partition up to an offset."""
    body: dict[str, Any] = {"topic": topic, "group_id": group, "upto_offset": upto_offset}
    if partition is not None:
        body["partition_id"] = partition
    if consumer is not None:
        body["consumer_id"] = consumer
    return Call("POST", "/api/topics/ack", GroupAcked, body)


def seek_group(
    topic: str,
    group: str,
    to: Literal["Earliest", "Latest", "earliest", "latest", "EARLIEST", "LATEST"] | SeekTarget | Mapping[str, Any],
    *,
    partition: int | None = None,
    dry_run: bool = False,
) -> Call[Sought]:
    """POST /api/topics/seek: move the position of a consumer group."""
    body: dict[str, Any] = {"topic": topic, "group_id": group, "to": to}
    if partition is not None:
        body["partition_id"] = partition
    if dry_run:
        body["dry_run"] = dry_run
    return Call("POST", "/api/topics/seek", Sought, body)


def list_groups(
    *, topic: str | None = None, group: str | None = None, q: str | None = None, limit: int | None = None
) -> Call[GroupList]:
    """GET /api/groups: list consumer groups with their members, partitions and lag."""
    fields: dict[str, Any] = {}
    if topic is not None:
        fields["topic"] = topic
    if group is not None:
        fields["group"] = group
    if q is not None:
        fields["q"] = q
    if limit is not None:
        fields["limit"] = limit
    return Call("GET", query("/api/groups", fields), GroupList)


def leave_group(topic: str, group: str, consumer: str) -> Call[Left]:
    """POST /api/topics/leave: end the session of a member; its partitions go to the others."""
    body: dict[str, Any] = {"topic": topic, "group_id": group, "consumer_id": consumer}
    return Call("POST", "/api/topics/leave", Left, body)


def run_sql(statement: str, *, params: Sequence[str | int | float | bool | None] | None = None) -> Call[SqlResult]:
    """POST /api/sql: run one SQL statement."""
    body: dict[str, Any] = {"sql": statement}
    if params is not None:
        body["params"] = params
    return Call("POST", "/api/sql", SqlResult, body, repeatable=False)


def list_routers(
    *,
    prefix: str | None = None,
    cursor: str | None = None,
    page_size: int | None = None,
    source: str | None = None,
    dest: str | None = None,
    details: bool = False,
) -> Call[RouterPage]:
    """GET /v0/routers: list routers by name."""
    fields: dict[str, Any] = {}
    if prefix is not None:
        fields["prefix"] = prefix
    if cursor is not None:
        fields["cursor"] = cursor
    if page_size is not None:
        fields["page_size"] = page_size
    if source is not None:
        fields["source"] = source
    if dest is not None:
        fields["dest"] = dest
    if details:
        fields["details"] = details
    return Call("GET", query("/v0/routers", fields), RouterPage)


def put_router(
    router: str,
    source: str,
    dest: str,
    *,
    preserve_node: bool | None = None,
    preserve_tag: bool | None = None,
    create_dest: bool = True,
    filter: Any | UnsetType = UNSET,
    allow_cycle: bool | None = None,
    guarantee: Literal["at_least_once", "exactly_once"] | None = None,
    from_: Literal["latest", "earliest"] = "latest",
) -> Call[RouterInfo]:
    """PUT /v0/routers/{router}: create a router, or change the named options of one."""
    body: dict[str, Any] = {"source": source, "dest": dest}
    if preserve_node is not None:
        body["preserve_node"] = preserve_node
    if preserve_tag is not None:
        body["preserve_tag"] = preserve_tag
    if not create_dest:
        body["create_dest"] = create_dest
    if filter is not UNSET:
        body["filter"] = filter
    if allow_cycle is not None:
        body["allow_cycle"] = allow_cycle
    if guarantee is not None:
        body["guarantee"] = guarantee
    if from_ != "latest":
        body["from"] = from_
    return Call("PUT", path("/v0/routers/", router), RouterInfo, body)


def router(router: str) -> Call[RouterInfo]:
    """GET /v0/routers/{router}: show a router."""
    return Call("GET", path("/v0/routers/", router), RouterInfo)


def drop_router(router: str) -> Call[RouterDropped]:
    """DELETE /v0/routers/{router}: delete a router. What it has forwarded stays."""
    return Call("DELETE", path("/v0/routers/", router), RouterDropped)


def stage(
    topic: str,
    records: Sequence[Any],
    *,
    node: str | None = None,
    partition: int | None = None,
    partition_key: str | None = None,
    producer: str | None = None,
) -> Call[Staged]:
    """POST /v0/stages: stage records: write them without making them readable."""
    fields: dict[str, Any] = {"topic": topic}
    if producer is not None:
        fields["producer"] = producer
    body: dict[str, Any] = {"records": record_bodies(records)}
    if node is not None:
        body["node"] = node
    if partition is not None:
        body["partition"] = partition
    if partition_key is not None:
        body["partition_key"] = partition_key
    return Call("POST", query("/v0/stages", fields), Staged, body)


def stage_arrow(
    topic: str, stream: bytes, *, partition: int | None = None, producer: str | None = None
) -> Call[Staged]:
    """POST /v0/stages: stage records: write them without making them readable."""
    fields: dict[str, Any] = {"topic": topic}
    if partition is not None:
        fields["partition"] = partition
    if producer is not None:
        fields["producer"] = producer
    return Call("POST", query("/v0/stages", fields), Staged, stream, content_type=ARROW)


def drop_stage(stage_id: str) -> Call[StageDropped]:
    """DELETE /v0/stages/{stage_id}: drop a stage."""
    return Call("DELETE", path("/v0/stages/", stage_id), StageDropped)


def commit(
    stages: Sequence[str] = (),
    *,
    writes: Sequence[CommitWrite | Mapping[str, Any]] = (),
    producer: str | None = None,
    batch: int | None = None,
    digest: str | None = None,
) -> Call[Committed]:
    """POST /v0/commits: make stages and writes readable together, at most once for each batch of a producer."""
    body: dict[str, Any] = {}
    if stages:
        body["stages"] = list(stages)
    if writes:
        body["writes"] = list(writes)
    if producer is not None:
        body["producer"] = producer
    if batch is not None:
        body["batch"] = batch
    if digest is not None:
        body["digest"] = digest
    return Call("POST", "/v0/commits", Committed, body, repeatable=producer is not None)


def get_producer(producer: str) -> Call[LastCommit]:
    """GET /v0/producers/{producer}: show the last batch of a producer."""
    return Call("GET", path("/v0/producers/", producer), LastCommit)


def renew_stages(producer: str) -> Call[StagesRenewed]:
    """POST /v0/producers/{producer}/renew: renew the stages that were made for a producer, as far as the key may touch their topics."""
    return Call("POST", path("/v0/producers/", producer, "/renew"), StagesRenewed)


def list_tables(
    *,
    prefix: str | None = None,
    cursor: str | None = None,
    page_size: int | None = None,
    version: int | None = None,
    wait_ms: int | None = None,
) -> Call[TablePage]:
    """GET /api/tables: list tables by name; waits, if wanted, until one changes."""
    fields: dict[str, Any] = {}
    if prefix is not None:
        fields["prefix"] = prefix
    if cursor is not None:
        fields["cursor"] = cursor
    if page_size is not None:
        fields["page_size"] = page_size
    if version is not None:
        fields["version"] = version
    if wait_ms is not None:
        fields["wait_ms"] = wait_ms
    return Call("GET", query("/api/tables", fields), TablePage, wait_s=(wait_ms or 0) / 1000)


def table(table: str) -> Call[TableInfo]:
    """GET /api/tables/{table}: show a table."""
    return Call("GET", path("/api/tables/", table), TableInfo)


def put_table(
    table: str,
    kind: Literal["push", "delta", "postgres"] = "push",
    location: str | None = None,
    *,
    key_columns: Sequence[str] = (),
    columns: Mapping[str, str] | Sequence[str] | None = None,
) -> Call[TableInfo]:
    """PUT /api/tables/{table}: make a table known, or replace what is known about it."""
    body: dict[str, Any] = {}
    if kind != "push":
        body["kind"] = kind
    if location is not None:
        body["location"] = location
    if key_columns:
        body["key_columns"] = list(key_columns)
    if columns is not None:
        body["columns"] = columns
    return Call("PUT", path("/api/tables/", table), TableInfo, body)


def drop_table(table: str) -> Call[TableGone]:
    """DELETE /api/tables/{table}: forget a table; its change topic stays."""
    return Call("DELETE", path("/api/tables/", table), TableGone)


def send_changes(
    table: str, changes: Sequence[Any], *, source: str | None = None, key_columns: Sequence[str] = ()
) -> Call[ChangesSent]:
    """POST /api/tables/{table}/changes: send change events of a table; each is kept once, by its position."""
    body: dict[str, Any] = {"changes": list(changes)}
    if source is not None:
        body["source"] = source
    if key_columns:
        body["key_columns"] = list(key_columns)
    return Call(
        "POST",
        path("/api/tables/", table, "/changes"),
        ChangesSent,
        body,
        repeatable=all([isinstance(change, Mapping) and change.get("position") is not None for change in changes]),
    )


def routes(
    version: int | None = None, wait_ms: int | None = None, *, table: str | None = None, op: str | None = None
) -> Call[RouteList]:
    """GET /api/routes: list the routes from tables to topics; waits, if wanted, until one changes."""
    fields: dict[str, Any] = {}
    if version is not None:
        fields["version"] = version
    if wait_ms is not None:
        fields["wait_ms"] = wait_ms
    if table is not None:
        fields["table"] = table
    if op is not None:
        fields["op"] = op
    return Call("GET", query("/api/routes", fields), RouteList, wait_s=(wait_ms or 0) / 1000)


def get_archive(topic: str) -> Call[ArchiveInfo]:
    """GET /v0/topics/{topic}/archive: show the archive of a topic."""
    return Call("GET", path("/v0/topics/", topic, "/archive"), ArchiveInfo)


def set_archive(
    topic: str,
    uri: str,
    *,
    freshness_ms: int | None = None,
    compact_interval_ms: int | None = None,
    vacuum_hours: int | None = None,
) -> Call[ArchiveInfo]:
    """PUT /v0/topics/{topic}/archive: copy the records of a topic to a Delta table."""
    body: dict[str, Any] = {"uri": uri}
    if freshness_ms is not None:
        body["freshness_ms"] = freshness_ms
    if compact_interval_ms is not None:
        body["compact_interval_ms"] = compact_interval_ms
    if vacuum_hours is not None:
        body["vacuum_hours"] = vacuum_hours
    return Call("PUT", path("/v0/topics/", topic, "/archive"), ArchiveInfo, body)


def clear_archive(topic: str) -> Call[ArchiveGone]:
    """DELETE /v0/topics/{topic}/archive: stop copying a topic; the table stays."""
    return Call("DELETE", path("/v0/topics/", topic, "/archive"), ArchiveGone)


def archive_progress(
    topic: str, partitions: Sequence[ArchivedTo | Mapping[str, Any]], *, table_version: int | None = None
) -> Call[ArchiveInfo]:
    """POST /v0/topics/{topic}/archive/progress: report how far the table of a topic is; answers how far the server knows it to be."""
    body: dict[str, Any] = {"partitions": list(partitions)}
    if table_version is not None:
        body["table_version"] = table_version
    return Call("POST", path("/v0/topics/", topic, "/archive/progress"), ArchiveInfo, body)


def archives(version: int | None = None, wait_ms: int | None = None) -> Call[ArchiveList]:
    """GET /api/archives: list the archives of all topics; waits, if wanted, until one is set, changed or cleared."""
    fields: dict[str, Any] = {}
    if version is not None:
        fields["version"] = version
    if wait_ms is not None:
        fields["wait_ms"] = wait_ms
    return Call("GET", query("/api/archives", fields), ArchiveList, wait_s=(wait_ms or 0) / 1000)


def list_pipelines() -> Call[PipelineList]:
    """GET /api/pipelines: list the pipelines that have reported since the server was started."""
    return Call("GET", "/api/pipelines", PipelineList)


def pipeline(pipeline: str) -> Call[PipelineInfo]:
    """GET /api/pipelines/{pipeline}: show a pipeline."""
    return Call("GET", path("/api/pipelines/", pipeline), PipelineInfo)


def report_pipeline(
    pipeline: str,
    state: Literal["starting", "running", "stopping", "stopped"],
    jobs: Sequence[JobStatus | Mapping[str, Any]] = (),
    *,
    master: str | None = None,
    started_ts: int | None = None,
) -> Call[PipelineOrders]:
    """PUT /api/pipelines/{pipeline}: report how a pipeline is doing; the response says whether it is asked to stop."""
    body: dict[str, Any] = {"state": state}
    if jobs:
        body["jobs"] = list(jobs)
    if master is not None:
        body["master"] = master
    if started_ts is not None:
        body["started_ts"] = started_ts
    return Call("PUT", path("/api/pipelines/", pipeline), PipelineOrders, body)


def drop_pipeline(pipeline: str) -> Call[PipelineGone]:
    """DELETE /api/pipelines/{pipeline}: forget a pipeline; one that still runs is back with its next report."""
    return Call("DELETE", path("/api/pipelines/", pipeline), PipelineGone)


def stop_pipeline(pipeline: str) -> Call[PipelineOrders]:
    """POST /api/pipelines/{pipeline}/stop: ask a pipeline to stop; does not wait for it."""
    return Call("POST", path("/api/pipelines/", pipeline, "/stop"), PipelineOrders)


def request_token(password: str, *, username: str | None = None) -> Call[LoggedIn]:
    """POST /api/auth/login: exchange a user's name and password for a token."""
    body: dict[str, Any] = {"password": password}
    if username is not None:
        body["username"] = username
    return Call("POST", "/api/auth/login", LoggedIn, body)


def health() -> Call[Health]:
    """GET /v0/health: say that the process is alive."""
    return Call("GET", "/v0/health", Health)


def ready() -> Call[Ready]:
    """GET /v0/ready: say whether the server serves: 503 while the log is replayed."""
    return Call("GET", "/v0/ready", Ready)


def metrics() -> Call[dict[str, Any]]:
    """GET /v0/metrics: metrics, as Prometheus text or as JSON."""
    return Call("GET", "/v0/metrics", dict[str, Any], accept="application/json")


def get_whoami() -> Call[WhoAmI]:
    """GET /v0/whoami: say who the caller is, and what its key may do."""
    return Call("GET", "/v0/whoami", WhoAmI)


def get_overview() -> Call[Overview]:
    """GET /v0/overview: show rates, resources and what needs attention."""
    return Call("GET", "/v0/overview", Overview)


def get_root() -> Call[Root]:
    """GET /: the console for browsers; for `Accept: application/json`, what this server is. Needs no credential."""
    return Call("GET", "/", Root, accept="application/json")


def openapi() -> Call[dict[str, Any]]:
    """GET /openapi.json: this API as an OpenAPI 3.1 document. Needs no credential: it describes the API, not the data."""
    return Call("GET", "/openapi.json", dict[str, Any])
