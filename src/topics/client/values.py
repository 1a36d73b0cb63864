"""What calls answer, as values. Unknown fields of an answer are ignored, so an older client understands a newer server."""

from typing import Any

from msgspec import Struct


class Record(Struct, rename={"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}):
    """One record. `data` and `meta` are decoded JSON."""

    seq: int
    ts: int
    data: Any = None
    node: str | None = None
    tag: str | None = None
    meta: dict[str, Any] | None = None


class Tombstone(Struct):
    """Records gap_from..gap_to are lost: this reader has not seen them and never will."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int = 0
    earliest_seq: int = 0
    head_seq: int = 0
    cause: str | None = None


class Page(Struct):
    """One answer to a diff. `caught_up`, not an empty list, says that there is no more for now."""

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    epoch: int = 0


class Appended(Struct):
    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] = []


class QueueCounts(Struct):
    ready: int
    in_flight: int
    dead_lettered: int


class PartitionInfo(Struct):
    partition: int
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int


class TopicInfo(Struct):
    """The state of a topic."""

    topic: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: dict[str, Any]
    effective_priority: int
    type: str = "log"
    epoch: int = 0
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueCounts | None = None
    partitions: list[PartitionInfo] = []


class TopicHeads(Struct):
    """How far each partition that was asked for has come; None for one that does not exist."""

    epoch: int
    heads: dict[int, int | None]


class Heads(Struct):
    """By topic; None for one that does not exist."""

    topics: dict[str, TopicHeads | None]


class TopicSummary(Struct):
    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class TopicPage(Struct):
    topics: list[TopicSummary]
    next_cursor: str | None = None


class Configured(Struct):
    topic: str
    created: bool
    config: dict[str, Any]


class Dropped(Struct):
    topic: str
    deleted: bool
    routers_removed: list[str] = []


class Deleted(Struct):
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class Job(Record, kw_only=True):
    """A leased job. Ack it before `deadline`, or extend the lease."""

    lease_id: str
    deadline: int
    deliveries: int
    topic: str = ""


class Claimed(Struct):
    topic: str
    claimed: list[Job]
    count: int
    ready: int


class Acked(Struct):
    """What ack, nack and extend answer; of the three counts the one that was asked for is set."""

    topic: str
    skipped: list[int]
    acked: int = 0
    nacked: int = 0
    extended: int = 0
    ready: int = 0
    in_flight: int = 0
    deadlines: dict[str, int] = {}


class RouterInfo(Struct):
    router: str
    source: str
    dest: str
    guarantee: str = "at_least_once"
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: Any = None
    allow_cycle: bool = False
    created: bool = False
    forwarded_total: int = 0
    lag: int = 0
    state: str = ""


class RouterPage(Struct):
    routers: list[RouterInfo]
    next_cursor: str | None = None


class RouterDropped(Struct):
    router: str
    deleted: bool


class Staged(Struct):
    stage_id: str
    topic: str
    count: int
    bytes: int
    expires_at: int


class Placed(Struct):
    topic: str
    partition: int
    first_seq: int
    last_seq: int
    count: int
    stage_id: str | None = None


class Committed(Struct):
    """`deduped`: the producer had committed this batch before, and nothing was done."""

    deduped: bool
    count: int
    results: list[Placed]
    producer: str | None = None
    batch: int | None = None
    fence: int | None = None


class Producer(Struct):
    producer: str
    batch: int
    ts: int
    results: list[Placed] = []


class StageDropped(Struct):
    stage_id: str
    deleted: bool


class Message(Struct):
    """One message of a consumer group; `payload` is base64 of its JSON bytes."""

    offset: int
    partition_id: int
    ts: int
    payload: str
    topic_id: str = ""
    message_id: str | None = None
    source_table: str | None = None
    op: str | None = None
    payload_mode: str | None = None


class Consumed(Struct):
    messages: list[Message]
    next_offset: int
    has_more: bool
    tombstone: Tombstone | None = None
    partition_id: int | None = None


class GroupAcked(Struct):
    success: bool
    acknowledged_offset: int


class RefusedChange(Struct):
    index: int
    message: str


class ChangesSent(Struct):
    """What became of change events: those in `refused` were not taken, by their place in the request."""

    topic: str
    appended: int
    duplicates: int
    tombstones: int
    refused: list[RefusedChange]
    last_seq: int | None = None


class TableInfo(Struct):
    table: str
    kind: str
    location: str | None
    key_columns: list[str]
    columns: dict[str, str]
    topic: str
    created_at: int
    created: bool = False


class TablePage(Struct):
    """`version` is that of all tables together: it rises whenever one of them changes."""

    tables: list[TableInfo]
    next_cursor: str | None = None
    version: int = 0


class TableGone(Struct):
    table: str
    deleted: bool


class RouteInfo(Struct):
    """One source of a topic; `version` names it."""

    topic_id: str
    partitions: int
    table_id: str
    op: str
    payload_mode: str
    version: int
    filter_expr: str | None = None
    partition_key_expr: str | None = None
    key_columns: list[str] = []


class RouteList(Struct):
    """All routes, and their version: it rises whenever one of them changes.

    `hidden` is how many more there are, of tables that the key may touch to topics that it may not.
    """

    version: int
    routes: list[RouteInfo]
    hidden: int = 0


class ArchivedTo(Struct):
    """Every record of the partition below `next_seq` stands in the table, or was gone before it could."""

    partition: int
    epoch: int
    next_seq: int


class ArchiveInfo(Struct):
    """The table that a topic is copied to, and how far that has come."""

    topic: str
    uri: str
    freshness_ms: int
    compact_interval_ms: int
    vacuum_hours: int
    set_ts: int
    archived: list[ArchivedTo] = []
    table_version: int | None = None
    updated_ts: int | None = None
    created: bool = False


class ArchiveList(Struct):
    """All archives, and their version: it rises when one is set, changed or cleared, not when one has come further."""

    version: int
    archives: list[ArchiveInfo]


class ArchiveGone(Struct):
    topic: str
    deleted: bool


class JobStatus(Struct):
    """One job of a pipeline. `lag` are the records it has yet to take; what is not known is None."""

    name: str
    kind: str
    state: str
    rows: int = 0
    rows_per_s: float = 0.0
    lag: int | None = None
    last_batch: int | None = None
    batch_ms: float | None = None
    restarts: int = 0
    error: str | None = None
    notes: dict[str, Any] = {}


class PipelineInfo(Struct):
    """A pipeline as it said last; its state is `lost` when that is too long ago."""

    pipeline: str
    state: str
    master: str | None
    started_ts: int | None
    reported_ts: int
    stop: bool
    jobs: list[JobStatus]


class PipelineList(Struct):
    pipelines: list[PipelineInfo]


class PipelineOrders(Struct):
    """What a pipeline is told: whether it is to stop."""

    pipeline: str
    stop: bool
    state: str | None = None


class PipelineGone(Struct):
    pipeline: str
    deleted: bool


class SqlResult(Struct):
    columns: list[str]
    rows: list[list[Any]]
    message: str | None = None


class Health(Struct):
    status: str
    version: str
    uptime_ms: int


class Ready(Struct):
    status: str
    wal_replay_complete: bool
    topics: int


class WatchSession(Struct):
    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, dict[str, int]]


# What a watch yields.


class WatchedRecord(Struct):
    topic: str
    record: Record


class WatchedTombstone(Struct):
    topic: str
    tombstone: Tombstone


class CaughtUp(Struct):
    """Everything the topic held has been delivered; from here on records are live."""

    topic: str
    head_seq: int


class TopicDeleted(Struct):
    topic: str
    head_seq: int


Watched = WatchedRecord | WatchedTombstone | CaughtUp | TopicDeleted
