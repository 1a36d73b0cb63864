"""What calls answer and take, as values. Generated from the declarations in topics.api by `make generate`; do not edit.

Unknown fields of a response are ignored, so an older client understands a newer server.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal

from msgspec import UNSET, Struct, UnsetType

from topics.model.tables.route import ChangePosition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    D = TypeVar("D", default=Any)
else:
    from typing import TypeVar

    D = TypeVar("D")

__all__ = [
    "Acked",
    "Appended",
    "ArchiveGone",
    "ArchiveInfo",
    "ArchiveList",
    "ArchivedTo",
    "ChangePlace",
    "ChangePosition",
    "ChangesSent",
    "Claimed",
    "CommitWrite",
    "Committed",
    "ConfigChange",
    "Configured",
    "ConnectionList",
    "ConnectionTopic",
    "Consumed",
    "D",
    "DegradedReason",
    "Deleted",
    "Disconnected",
    "Dropped",
    "Extended",
    "GroupAcked",
    "GroupInfo",
    "GroupList",
    "GroupMember",
    "GroupMessage",
    "GroupPartition",
    "Heads",
    "Health",
    "Job",
    "JobCounts",
    "JobStatus",
    "LastCommit",
    "Left",
    "LiveConnection",
    "LoggedIn",
    "MaterializedTo",
    "Metrics",
    "Nacked",
    "OffsetStart",
    "OpenApi",
    "Overview",
    "OverviewWarning",
    "Page",
    "PartitionInfo",
    "PipelineGone",
    "PipelineInfo",
    "PipelineList",
    "PipelineOrders",
    "Placed",
    "QueueCounts",
    "QueuedJob",
    "QueuedJobs",
    "Ready",
    "Record",
    "RecordIn",
    "Redriven",
    "RefusedChange",
    "Root",
    "RouteInfo",
    "RouteList",
    "RouterDropped",
    "RouterInfo",
    "RouterPage",
    "Sample",
    "SeekResult",
    "SeekTarget",
    "SeqRange",
    "SeqRanges",
    "Sought",
    "SqlResult",
    "StageDropped",
    "Staged",
    "StagesRenewed",
    "Start",
    "TableGone",
    "TableInfo",
    "TablePage",
    "Tombstone",
    "TopicConfig",
    "TopicHeads",
    "TopicInfo",
    "TopicPage",
    "TopicRow",
    "TopicSearch",
    "TopicSummary",
    "WatchSession",
    "WatchStart",
    "WhoAmI",
]


class TopicSummary(Struct):
    """A topic in a list.

    topic: Name of the topic.
    head_seq: Highest seq that was assigned.
    earliest_seq: Lowest seq that can be read.
    count: Number of records.
    bytes: Bytes of the records.
    durable: Whether an acknowledged write survives a power cut.
    effective_priority: Priority under load: the fixed one, or that from the last read.
    """

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class TopicPage(Struct):
    """A page of topics, by name.

    topics: The topics.
    next_cursor: Cursor of the next page; absent on the last one.
    """

    topics: list[TopicSummary]
    next_cursor: str | None = None


class TopicConfig(Struct):
    """The configuration of a topic, complete. Fields can also be read as `config["ttl_ms"]`.

    ttl_ms: Records expire this long after their append; 0 for never.
    cap_records: Most records that are kept; 0 for no cap.
    cap_bytes: Most bytes that are kept; 0 for no cap.
    durable: Whether an acknowledged write survives a power cut.
    priority: Fixed priority; null for the automatic one.
    auto_priority: Whether the priority is derived from the last read, if none is fixed.
    auto_create: Whether a write may create the topic.
    idempotency_window_ms: How long idempotency keys are remembered.
    dedupe_node: Whether reads may leave out records by `node`.
    lease_ms: Queues: default lease of a claim.
    claim_jitter_ms: Queues: claims wait this long and share the jobs evenly.
    max_deliveries: Queues: deliveries before a job becomes a dead letter; 0 for no limit.
    dead_letter: Queues: topic for jobs over `max_deliveries`; null for none.
    leases_durable: Queues: whether leases survive a restart.
    """

    type: Literal["log", "queue"] = "log"
    ttl_ms: int = 0
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    durable: bool = False
    durability: Literal["ephemeral", "memory", "disk", "fsync"] = "disk"
    priority: int | None = None
    auto_priority: bool = True
    auto_create: bool = True
    idempotency_window_ms: int = 120000
    dedupe_node: bool = True
    lease_ms: int = 30000
    claim_jitter_ms: int = 0
    max_deliveries: int = 0
    dead_letter: str | None = None
    leases_durable: bool = False

    def __getitem__(self, name: str) -> Any:
        """The field of this name, as in a mapping."""
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_fields__)


class Configured(Struct):
    """The topic after a PUT.

    topic: Name of the topic.
    created: Whether the topic is new.
    dry_run: Only with `dry_run`.
    evicts_records: Only with `dry_run`: records that the change drops at once.
    evicts_bytes: Only with `dry_run`: their bytes.
    """

    topic: str
    created: bool
    config: TopicConfig
    dry_run: bool = False
    evicts_records: int = 0
    evicts_bytes: int = 0


class QueueCounts(Struct):
    """Jobs of a queue.

    ready: Jobs that can be claimed.
    in_flight: Jobs with a lease.
    dead_lettered: Jobs moved to the dead-letter topic since the start.
    """

    ready: int
    in_flight: int
    dead_lettered: int


class PartitionInfo(Struct):
    """One partition of a topic with several.

    partition: Number of the partition.
    head_seq: Highest seq that was assigned.
    earliest_seq: Lowest seq that can be read.
    count: Number of records.
    bytes: Bytes of the records.
    """

    partition: int
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int


class TopicInfo(Struct):
    """The state of a topic.

    topic: Name of the topic.
    head_seq: Highest seq that was assigned in partition 0.
    earliest_seq: Lowest seq that can be read in partition 0.
    next_seq: Seq of the next record in partition 0.
    count: Records of all partitions.
    bytes: Bytes of all partitions.
    effective_priority: Priority under load: the fixed one, or that from the last read.
    type: log or queue.
    epoch: Distinguishes this topic from earlier ones of the same name.
    last_write_ts: Last append, in Unix milliseconds.
    last_read_ts: Last read, in Unix milliseconds.
    queue: Only of queues: counts of its jobs.
    partitions: Only for topics with several partitions.
    """

    topic: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    effective_priority: int
    type: str = "log"
    epoch: int = 0
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueCounts | None = None
    partitions: list[PartitionInfo] = []


class Dropped(Struct):
    """The outcome of deleting a topic.

    topic: Name of the topic.
    deleted: False when there was no such topic.
    routers_removed: Routers from and to the topic, which are deleted with it.
    """

    topic: str
    deleted: bool
    routers_removed: list[str] = []


class Appended(Struct):
    """The seqs of appended records.

    topic: Name of the topic.
    first_seq: Seq of the first record.
    last_seq: Seq of the last record.
    head_seq: Highest seq of the partition.
    count: Number of records that were appended.
    created: Whether this write created the topic.
    deduped: True when the idempotency key was known: nothing was appended.
    seqs: Absent with `return_seqs=false`.
    """

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] = []


class Record(Struct, Generic[D], rename={"seq": "$seq", "ts": "$ts", "node": "$node", "tag": "$tag"}):
    """One record. `data` and `meta` are the JSON that was appended.

    seq: Position in the partition.
    ts: When it was appended, in Unix milliseconds.
    data: The payload: the JSON that was appended.
    node: Who appended it.
    tag: For deletes and filters.
    meta: Small metadata beside the payload.
    """

    seq: int
    ts: int
    data: D = None  # type: ignore[assignment]
    node: str | None = None
    tag: str | None = None
    meta: dict[str, Any] | None = None


class Tombstone(Struct):
    """Records gap_from..gap_to are lost: this reader has not seen them and never will.

    gap_from: First lost seq.
    gap_to: Last lost seq.
    reason: cap, ttl, mixed or recreated.
    missed_estimate: How many records were lost, at most.
    earliest_seq: Lowest seq that can be read.
    head_seq: Highest seq that was assigned.
    cause: For mixed losses: restart or damage.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int = 0
    earliest_seq: int = 0
    head_seq: int = 0
    cause: str | None = None


class Page(Struct):
    """One page of records. `caught_up`, not an empty list, says that there is no more for now.

    topic: Name of the topic.
    records: The records, in order of their seqs.
    next_from_seq: `from_seq` of the next page.
    head_seq: Highest seq that was assigned.
    earliest_seq: Lowest seq that can be read.
    caught_up: Whether the reader has everything up to the head.
    tombstone: Set when records before this page were lost.
    lag: Seqs between the cursor and the head.
    epoch: Send it back to notice that the topic was created again.
    from_seq: With `to_seq`: where the page begins.
    records_live: With `to_seq`: live records in the covered range.
    """

    topic: str
    records: list[Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    epoch: int = 0
    from_seq: int | None = None
    records_live: int | None = None


class Deleted(Struct):
    """The partition after a delete.

    topic: Name of the topic.
    deleted: How many records were deleted.
    earliest_seq: Lowest seq that can be read.
    head_seq: Highest seq that was assigned.
    count: Number of records.
    bytes: Bytes of the records.
    """

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


class SeqRange(Struct):
    """Seqs with the same fate.

    kind: live, evicted (by a cap or age), lost (by a power cut or damage) or deleted.
    first_seq: First seq.
    last_seq: Last seq.
    reason: cap, ttl, mixed, restart, damage or source.
    since_ts: When the first live record was appended.
    until_ts: They are older than this.
    """

    kind: str
    first_seq: int
    last_seq: int
    reason: str | None = None
    since_ts: int | None = None
    until_ts: int | None = None


class SeqRanges(Struct):
    """All seqs of a partition that were ever assigned, as ranges in order.

    topic: Name of the topic.
    partition: Number of the partition.
    head_seq: Highest seq that was assigned.
    ranges: Ranges of seqs that can be read, in order.
    truncated: Whether there are older ranges that are not listed.
    """

    topic: str
    partition: int
    head_seq: int
    ranges: list[SeqRange]
    truncated: bool = False


class JobCounts(Struct):
    """Jobs of a queue by state.

    ready: Jobs that can be claimed.
    delayed: Jobs that can be claimed later.
    in_flight: Jobs with a lease.
    dead_lettered: Jobs moved to the dead-letter topic since the start.
    dead_letters: Records of the dead-letter topic now.
    oldest_age_ms: Age of the oldest job; null when there is none.
    """

    ready: int
    delayed: int
    in_flight: int
    dead_lettered: int
    dead_letters: int
    oldest_age_ms: int | None


class TopicRow(Struct):
    """A topic in the result of a search.

    topic: Name of the topic.
    type: log or queue.
    durability: Where a write is stored when it is acknowledged.
    partitions: Number of partitions.
    count: Number of records.
    bytes: Bytes of the records.
    append_per_s: Records appended a second; null until two samples are there.
    remove_per_s: Records removed a second: finished jobs, deleted and dropped records.
    groups: Consumer groups.
    lag_records: Lag of the group that is farthest behind.
    lag_seconds: The same in seconds.
    lost: Seqs whose records were lost to a cap, their age, a power cut or damage.
    last_write_ts: Last append, in Unix milliseconds.
    queue: Only of queues.
    """

    topic: str
    type: str
    durability: str
    partitions: int
    count: int
    bytes: int
    append_per_s: float | None
    remove_per_s: float | None
    groups: int
    lag_records: int
    lag_seconds: float
    lost: int
    last_write_ts: int | None
    queue: JobCounts | None = None


class TopicSearch(Struct):
    """A part of all topics that match, in the order that was asked for.

    total: Topics that match.
    offset: Position of the first entry.
    topics: The topics of the page.
    """

    total: int
    offset: int
    topics: list[TopicRow]


class TopicHeads(Struct):
    """How far the partitions of a topic are; null for one that does not exist.

    epoch: Distinguishes the topic from earlier ones of the same name.
    heads: By partition, its last seq; null for one that does not exist.
    type: With `describe`.
    earliest: With `describe`: the first seq of each partition.
    """

    epoch: int
    heads: dict[int, int | None]
    type: Literal["log", "queue"] | None = None
    earliest: dict[int, int] | None = None


class Heads(Struct):
    """By topic; null for one that does not exist.

    topics: By topic, its heads; null for one that does not exist.
    """

    topics: dict[str, TopicHeads | None]


class Job(Record[D], Generic[D], kw_only=True):
    """A leased job. Ack it before `deadline`, or extend the lease.

    lease_id: The lease, for ack, nack and extend.
    deadline: When the lease ends, in Unix milliseconds.
    deliveries: How often the job was delivered, this time included.
    topic: Name of the topic.
    """

    lease_id: str
    deadline: int
    deliveries: int
    topic: str = ""


class Claimed(Struct):
    """Leased jobs, oldest first; none when there are none to claim.

    topic: Name of the topic.
    claimed: The jobs.
    count: Number of jobs.
    ready: Jobs that can still be claimed.
    """

    topic: str
    claimed: list[Job]
    count: int
    ready: int


class Acked(Struct):
    """Finished jobs.

    topic: Name of the topic.
    skipped: Jobs that this worker does not hold.
    acked: Jobs that were finished.
    ready: Jobs that can be claimed.
    in_flight: Jobs that are leased.
    """

    topic: str
    skipped: list[int]
    acked: int = 0
    ready: int = 0
    in_flight: int = 0


class Nacked(Struct):
    """Returned jobs.

    topic: Name of the topic.
    skipped: Jobs that this worker does not hold.
    nacked: Jobs that were returned.
    ready: Jobs that can be claimed.
    in_flight: Jobs that are leased.
    """

    topic: str
    skipped: list[int]
    nacked: int = 0
    ready: int = 0
    in_flight: int = 0


class Extended(Struct):
    """Jobs with longer leases.

    topic: Name of the topic.
    skipped: Jobs that this worker does not hold.
    extended: Leases that were extended.
    deadlines: By seq, when the lease ends, in Unix milliseconds.
    """

    topic: str
    skipped: list[int]
    extended: int = 0
    deadlines: dict[str, int] = {}


class QueuedJob(Struct):
    """A job as an operator sees it. Looking at it leases nothing.

    seq: Seq of the record.
    partition: Number of the partition.
    ts: When it was appended, in Unix milliseconds.
    data: The payload: the JSON that was appended.
    deliveries: How often it was delivered; with the current delivery, for a leased job.
    tag: Tag of the record.
    node: In flight: who holds it.
    lease_id: In flight: the lease, for ack, nack and extend.
    deadline: In flight: when the lease ends, in Unix milliseconds.
    due_ts: Delayed: when it can be claimed, in Unix milliseconds.
    """

    seq: int
    partition: int
    ts: int
    data: Any
    deliveries: int
    tag: str | None = None
    node: str | None = None
    lease_id: str | None = None
    deadline: int | None = None
    due_ts: int | None = None


class QueuedJobs(Struct):
    """Jobs in one state: ready ones in the order of delivery, leased ones by deadline, delayed ones by time.

    topic: Name of the topic.
    state: State of the listed jobs.
    total: Jobs in this state.
    jobs: The jobs.
    """

    topic: str
    state: str
    total: int
    counts: JobCounts
    jobs: list[QueuedJob]


class Redriven(Struct):
    """Dead letters that are jobs again.

    topic: Name of the topic.
    moved: Jobs that were moved, or would be.
    queues: By queue, how many went there.
    skipped: Records that did not come from a queue, or whose queue is gone or full.
    remaining: More than one request moves: send it again.
    dry_run: Whether nothing was changed.
    """

    topic: str
    moved: int
    queues: dict[str, int]
    skipped: int = 0
    remaining: int = 0
    dry_run: bool = False


class WatchStart(Struct):
    """Where a topic begins, and what it holds now.

    from_seq: Records after this seq follow.
    head_seq: Highest seq that was assigned.
    earliest_seq: Lowest seq that can be read.
    epoch: Distinguishes the topic from earlier ones of the same name.
    """

    from_seq: int
    head_seq: int
    earliest_seq: int
    epoch: int


class WatchSession(Struct):
    """A session. Open `stream_url` to read; again after a lost connection.

    wid: Id of the session.
    stream_url: Path of the stream.
    session_ttl_ms: How long the session lives without a stream.
    topics: By topic, where it begins.
    """

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchStart]


class ConnectionTopic(Struct):
    """One topic of a live connection.

    topic: Name of the topic.
    partition: Number of the partition.
    cursor: Seq up to which records were sent; null for a work stream.
    lag: Seqs behind the cursor.
    """

    topic: str
    partition: int
    cursor: int | None
    lag: int


class LiveConnection(Struct):
    """A connection that stays open, or a watch session without one.

    id: Id of the connection.
    kind: watch, socket, work, or session for a watch session without a stream.
    caller: Name of the key or the user.
    since_ts: When it was opened, in Unix milliseconds.
    topics: At most 100.
    lag: Of all topics together.
    jobs: Work stream: jobs that it holds.
    node: Work stream: name of the worker.
    peer: Address of the client.
    buffered_bytes: Bytes that the client has not accepted yet.
    sent_bytes: Bytes that were sent.
    """

    id: str
    kind: str
    caller: str
    since_ts: int
    topics: list[ConnectionTopic]
    lag: int
    jobs: int = 0
    node: str | None = None
    peer: str | None = None
    buffered_bytes: int = 0
    sent_bytes: int = 0


class ConnectionList(Struct):
    """Live connections.

    total: Number of all entries.
    connections: The first 500.
    """

    total: int
    connections: list[LiveConnection]


class Disconnected(Struct):
    """Whether a connection was ended.

    id: Id of the connection.
    disconnected: False when there was no such connection.
    """

    id: str
    disconnected: bool


class GroupMessage(Struct):
    """One message of a consumer group; `payload` is base64 of its JSON bytes.

    offset: Offset of the message.
    partition_id: Number of the partition.
    ts: When it was appended, in Unix milliseconds.
    payload: Base64 of the JSON bytes.
    topic_id: Name of the topic.
    message_id: Id of the message; always the same for the same record.
    source_table: Table of a routed change.
    op: Insert, Update or Delete.
    payload_mode: Key, Full or Diff.
    """

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
    """Messages of one partition.

    messages: The messages.
    next_offset: Offset of the next message.
    has_more: Whether there are more messages in the partition.
    tombstone: Set when messages before these were lost.
    partition_id: null for a member without a partition.
    """

    messages: list[GroupMessage]
    next_offset: int
    has_more: bool
    tombstone: Tombstone | None = None
    partition_id: int | None = None


class GroupAcked(Struct):
    """The position of a group after an ack.

    success: Always true.
    acknowledged_offset: The group has acknowledged everything up to here.
    """

    success: bool
    acknowledged_offset: int


class SeekResult(Struct):
    """The position of one partition.

    partition_id: Number of the partition.
    previous_offset: Position before; null when there was none.
    next_offset: Position after.
    lag_records: Records that are not acknowledged.
    lag_seconds: Age of the next record that is not acknowledged.
    """

    partition_id: int
    previous_offset: int | None
    next_offset: int
    lag_records: int
    lag_seconds: float | None


class Sought(Struct):
    """The positions of a group after a seek.

    topic_id: Name of the topic.
    group_id: Name of the consumer group.
    dry_run: Whether nothing was changed.
    partitions: The positions, by partition.
    """

    topic_id: str
    group_id: str
    dry_run: bool
    partitions: list[SeekResult]


class GroupMember(Struct):
    """A live member of a group.

    consumer_id: Name of the member.
    partitions: Partitions that it owns.
    polling: Whether one of its polls waits now.
    expires_in_ms: When its session ends without another poll.
    """

    consumer_id: str
    partitions: list[int]
    polling: bool
    expires_in_ms: int


class GroupPartition(Struct):
    """How far a group is in one partition.

    partition_id: Number of the partition.
    next_offset: Offset of the next message.
    last_offset: Highest offset of the partition.
    lag_records: Records that are not acknowledged.
    lag_seconds: Age of the next record that the group has not acknowledged.
    consumer_id: Member that owns the partition.
    """

    partition_id: int
    next_offset: int
    last_offset: int
    lag_records: int
    lag_seconds: float
    consumer_id: str | None = None


class GroupInfo(Struct):
    """A consumer group of a topic.

    topic: Name of the topic.
    group_id: Name of the consumer group.
    lag_records: Records of all partitions that are not acknowledged.
    lag_seconds: The largest of its partitions.
    updated_ts: When it acknowledged last, in Unix milliseconds.
    members: Live members.
    partitions: Its positions.
    """

    topic: str
    group_id: str
    lag_records: int
    lag_seconds: float
    updated_ts: int
    members: list[GroupMember]
    partitions: list[GroupPartition]


class GroupList(Struct):
    """Consumer groups, those with the largest lag first.

    total: Groups that match.
    groups: The groups.
    """

    total: int
    groups: list[GroupInfo]


class Left(Struct):
    """The end of a member's session.

    success: False when there was no such member.
    """

    success: bool


class SqlResult(Struct):
    """What a statement answers. CONSUME also has the fields of a poll.

    columns: Names of the columns.
    rows: The rows, each with one value for every column.
    message: What was done, for people.
    next_offset: CONSUME: offset of the next message.
    has_more: CONSUME: whether there are more messages.
    tombstone: CONSUME: set when messages were lost.
    partitions: RESET CONSUMER GROUP: the positions.
    """

    columns: list[str]
    rows: list[list[Any]]
    message: str | None = None
    next_offset: int | None = None
    has_more: bool | None = None
    tombstone: Tombstone | None | None = None
    partitions: Any | None = None


class RouterInfo(Struct):
    """A router. A list leaves out the options, and a PUT the counters.

    router: Name of the router.
    source: Topic that is read.
    dest: Topic that is written.
    guarantee: at_least_once or exactly_once.
    preserve_node: Whether records keep their node.
    preserve_tag: Whether records keep their tag.
    filter: The tag predicate, or null.
    allow_cycle: Whether the router may close a cycle.
    created: PUT only: whether the router is new.
    forwarded_total: Records forwarded so far.
    lag: Seqs of the source that the router has yet to examine; in a list with `details`.
    state: running, blocked or backoff; GET, and in a list with `details`.
    """

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
    """A page of routers, by name.

    routers: The routers.
    next_cursor: Cursor of the next page; absent on the last one.
    """

    routers: list[RouterInfo]
    next_cursor: str | None = None


class RouterDropped(Struct):
    """A router that was deleted.

    router: Name of the router.
    deleted: False when there was no such router.
    """

    router: str
    deleted: bool


class Staged(Struct):
    """A stage: records that cannot be read until a commit names it.

    stage_id: Id of the stage.
    topic: Name of the topic.
    count: Number of records.
    bytes: Bytes of the records.
    expires_at: When the stage expires, in Unix milliseconds.
    ttl_ms: How long a stage lives unless it is renewed.
    """

    stage_id: str
    topic: str
    count: int
    bytes: int
    expires_at: int
    ttl_ms: int = 0


class StageDropped(Struct):
    """A stage that was deleted.

    stage_id: Id of the stage.
    deleted: False when there was no such stage.
    """

    stage_id: str
    deleted: bool


class Placed(Struct):
    """Where records were placed.

    topic: Name of the topic.
    partition: Number of the partition.
    first_seq: First seq.
    last_seq: Last seq.
    count: Number of records.
    stage_id: Absent for `writes`.
    """

    topic: str
    partition: int
    first_seq: int
    last_seq: int
    count: int
    stage_id: str | None = None


class Committed(Struct):
    """`deduped`: the producer had committed this batch before, and nothing was done.

    deduped: Whether the batch was committed before: nothing was done.
    count: Number of records that were appended.
    results: Where the records are.
    producer: Absent without a producer, as are `batch` and `fence`.
    batch: Number of the batch.
    fence: Last batch of the producer.
    """

    deduped: bool
    count: int
    results: list[Placed]
    producer: str | None = None
    batch: int | None = None
    fence: int | None = None


class LastCommit(Struct):
    """What a producer committed last.

    producer: Name of the producer.
    batch: Number of the batch.
    ts: When it committed, in Unix milliseconds.
    results: Where the records are.
    """

    producer: str
    batch: int
    ts: int
    results: list[Placed] = []


class StagesRenewed(Struct):
    """Stages of a producer that live longer.

    producer: Name of the producer.
    renewed: How many stages were renewed.
    expires_at: When the stages expire, in Unix milliseconds.
    ttl_ms: How long stages live.
    """

    producer: str
    renewed: int
    expires_at: int
    ttl_ms: int


class MaterializedTo(Struct):
    """The Delta table that the pipeline keeps equal to a table.

    uri: Where the Delta table is.
    mode: `scd1`: the rows as they are now; `scd2`: all versions of each row.
    """

    uri: str
    mode: str


class TableInfo(Struct):
    """A table that is known to the server.

    table: Name of the table.
    kind: Kind of the table.
    location: Where the table is; null if it is not known.
    key_columns: Columns of the key.
    columns: Types of the columns, by name; empty if they are not known.
    topic: Topic that holds its changes.
    created_at: Unix time in milliseconds.
    materialized: Set by `ALTER TABLE ... SET MATERIALIZED`.
    created: PUT only: whether the table is new.
    """

    table: str
    kind: str
    location: str | None
    key_columns: list[str]
    columns: dict[str, str]
    topic: str
    created_at: int
    materialized: MaterializedTo | None = None
    created: bool = False


class TablePage(Struct):
    """A page of tables. `version` rises whenever one of all tables changes.

    tables: The tables.
    next_cursor: Cursor of the next page; absent on the last one.
    version: Version of all tables.
    """

    tables: list[TableInfo]
    next_cursor: str | None = None
    version: int = 0


class TableGone(Struct):
    """A table that was deleted.

    table: Name of the table.
    deleted: False when there was no such table.
    """

    table: str
    deleted: bool


class RefusedChange(Struct):
    """An event that was not kept, by its place in the request.

    index: Position in the request.
    message: Why it was refused.
    """

    index: int
    message: str


class ChangePlace(Struct):
    """Where events were placed in the change topic.

    partition: Number of the partition.
    first_seq: First seq.
    last_seq: Last seq.
    count: Number of records.
    """

    partition: int
    first_seq: int
    last_seq: int
    count: int


class ChangesSent(Struct):
    """What became of change events: those in `refused` were not kept.

    topic: Topic that holds the changes.
    appended: Changes that were appended.
    duplicates: Events whose position was known: kept once.
    tombstones: Events that say only that a key is gone; not kept.
    refused: Changes that were refused.
    last_seq: Highest seq of the appended changes.
    table: Name of the table.
    results: Where the records are.
    """

    topic: str
    appended: int
    duplicates: int
    tombstones: int
    refused: list[RefusedChange]
    last_seq: int | None = None
    table: str = ""
    results: list[ChangePlace] = []


class RouteInfo(Struct):
    """One source of a topic; `version` names it.

    topic_id: Name of the topic.
    partitions: Number of partitions of the topic.
    table_id: Name of the table.
    op: Insert, Update or Delete.
    payload_mode: Key, Full or Diff.
    version: Version of the routes when it was added.
    filter_expr: Condition on a change; null for all changes.
    partition_key_expr: Expression whose hash selects the partition; null for the key.
    key_columns: Columns of the key.
    start: Latest, or Earliest for a route that replays the change topic.
    starts_at: First changes that are routed; null for all.
    """

    topic_id: str
    partitions: int
    table_id: str
    op: str
    payload_mode: str
    version: int
    filter_expr: str | None = None
    partition_key_expr: str | None = None
    key_columns: list[str] = []
    start: str = "Latest"
    starts_at: ChangePosition | None = None


class RouteList(Struct):
    """All routes, and their version: it rises whenever one of them changes.
    `hidden` counts routes from tables that the key may touch to topics that it may not.

    version: Version of all routes.
    routes: The routes.
    hidden: Routes from tables that the key may touch to topics that it may not.
    """

    version: int
    routes: list[RouteInfo]
    hidden: int = 0


class ArchivedTo(Struct):
    """Every record of the partition below `next_seq` is in the table, or was lost before it could be copied.

    partition: Number of the partition.
    epoch: Epoch of the topic.
    next_seq: First seq that is not copied yet.
    """

    partition: int
    epoch: int
    next_seq: int


class ArchiveInfo(Struct):
    """The table that a topic is copied to, and how far that is.

    topic: Name of the topic.
    uri: Where the table is.
    freshness_ms: How old a record may be before it is in the table.
    compact_interval_ms: How often small files are merged; 0 for never.
    vacuum_hours: Age at which unused files are removed; 0 for never.
    set_ts: When the archive was set, in Unix milliseconds.
    archived: By partition, how far the copy is.
    table_version: Version of the table after the last report.
    updated_ts: Last report, in Unix milliseconds.
    created: PUT only: whether the archive is new.
    """

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


class ArchiveGone(Struct):
    """An archive that was cleared.

    topic: Name of the topic.
    deleted: False when there was none.
    """

    topic: str
    deleted: bool


class ArchiveList(Struct):
    """All archives, and their version: it rises when one is set, changed or cleared, not with progress.

    version: Version of all archives.
    archives: The archives.
    """

    version: int
    archives: list[ArchiveInfo]


class JobStatus(Struct):
    """One job of a pipeline as it was reported; what is not known is null.

    name: Name of the job.
    kind: What the job does.
    state: starting, running, waiting, failed or stopped.
    rows: Rows that were processed.
    rows_per_s: Rows a second.
    lag: Records behind.
    last_batch: Number of the last batch.
    batch_ms: Duration of the last batch.
    restarts: Restarts after failures.
    error: Last error.
    notes: Further figures.
    lag_s: Age in seconds of what the job has yet to read.
    bytes: Bytes that were read.
    latency_ms: From a change to its routed record.
    """

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
    lag_s: float | None = None
    bytes: int | None = None
    latency_ms: float | None = None


class PipelineInfo(Struct):
    """A pipeline as it reported last; its state is `lost` when that is more than 15 s ago.

    pipeline: Name of the pipeline.
    state: starting, running, stopping, stopped or lost.
    master: Spark master.
    started_ts: Start, in Unix milliseconds.
    reported_ts: Last report, in Unix milliseconds.
    stop: Whether it was asked to stop.
    jobs: Its jobs.
    """

    pipeline: str
    state: str
    master: str | None
    started_ts: int | None
    reported_ts: int
    stop: bool
    jobs: list[JobStatus]


class PipelineList(Struct):
    """Pipelines.

    pipelines: The pipelines.
    """

    pipelines: list[PipelineInfo]


class PipelineOrders(Struct):
    """Whether the pipeline is asked to stop.

    pipeline: Name of the pipeline.
    stop: Whether it is asked to stop.
    state: Only in the response to a stop.
    """

    pipeline: str
    stop: bool
    state: str | None = None


class PipelineGone(Struct):
    """A pipeline that was forgotten.

    pipeline: Name of the pipeline.
    deleted: False when there was no such pipeline.
    """

    pipeline: str
    deleted: bool


class LoggedIn(Struct):
    """A token to send as `Authorization: Bearer ...`.

    access_token: The token.
    token_type: bearer.
    expires_in: Seconds.
    role: Role of the user.
    """

    access_token: str
    token_type: str
    expires_in: int
    role: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}(access_token='***', expires_in={self.expires_in}, role={self.role!r})"


class Health(Struct):
    """The process answers.

    status: ok.
    version: Version of the server.
    uptime_ms: Since the start of the server.
    """

    status: str
    version: str
    uptime_ms: int


class DegradedReason(Struct):
    """Something of the server's own work that fails.

    condition: What fails.
    reason: Why.
    since_ms: How long it has failed.
    failures: How often it has failed.
    subject: File concerned; absent when there is none.
    """

    condition: str
    reason: str
    since_ms: int
    failures: int
    subject: str | None = None


class Ready(Struct):
    """The server serves. It does its work even when it is degraded.

    status: ready.
    wal_replay_complete: Whether recovery is complete.
    topics: Number of topics.
    degraded: Whether some of the server's own work fails.
    reasons: Absent unless the server is degraded; at most 100.
    """

    status: str
    wal_replay_complete: bool
    topics: int
    degraded: bool = False
    reasons: list[DegradedReason] = []


class Metrics(Struct):
    """Every metric by name. Those with labels are objects; `topics` lists the topics one by one.

    topics: The topics, one by one, up to a limit.
    """

    topics: list[dict[str, Any]]


class WhoAmI(Struct):
    """The caller and what it may do.

    name: Name of the key or the user.
    scopes: read, write, delete, admin, consume.
    prefixes: Names that it may touch begin with one of these; empty for all names.
    credentials_required: False when the server has no keys and no users.
    """

    name: str
    scopes: list[str]
    prefixes: list[str]
    credentials_required: bool


class OverviewWarning(Struct):
    """Something that needs attention.

    kind: degraded, disk, dead_letters, lagging_group, pipeline or router.
    severity: critical, warning or info.
    message: What needs attention.
    topic: The topic, if it is about one.
    group: Name of the group, if it is about one.
    pipeline: The pipeline, if it is about one.
    router: The router, if it is about one.
    """

    kind: str
    severity: str
    message: str
    topic: str | None = None
    group: str | None = None
    pipeline: str | None = None
    router: str | None = None


class Sample(Struct):
    """Figures of one moment; rates are those since the sample before.

    ts: Time of the sample, in Unix milliseconds.
    appended_per_s: Records appended a second.
    read_per_s: Records read a second.
    wal_bytes_per_s: Bytes written to the log a second.
    loop_lag_ms: Delay of the event loop.
    sync_ms: Mean duration of the syncs since the sample before; null without any.
    connections: Open connections.
    streams: Streams and WebSockets.
    """

    ts: int
    appended_per_s: float
    read_per_s: float
    wal_bytes_per_s: float
    loop_lag_ms: float
    sync_ms: float | None
    connections: int
    streams: int


class Overview(Struct):
    """How the server is doing.

    version: Version of the server.
    uptime_ms: Since the start of the server.
    topics: Number of topics.
    records: Number of records.
    bytes: Bytes of the records.
    records_appended_total: Records appended since the start.
    records_read_total: Records read since the start.
    disk_free_bytes: Free bytes of the disk.
    disk_total_bytes: Size of the disk.
    memory_bytes: Resident memory of the process.
    loop_lag_ms: Delay of the event loop.
    loop_lag_max_ms: Largest delay of the event loop.
    connections: Open connections.
    streams: Streams and WebSockets among them.
    warnings: At most 100, the most severe first.
    history: The last five minutes.
    """

    version: str
    uptime_ms: int
    topics: int
    records: int
    bytes: int
    records_appended_total: int
    records_read_total: int
    disk_free_bytes: int
    disk_total_bytes: int
    memory_bytes: int
    loop_lag_ms: float
    loop_lag_max_ms: float
    connections: int
    streams: int
    warnings: list[OverviewWarning]
    history: list[Sample]


class Root(Struct):
    """What this server is, for clients that want JSON.

    name: topics.
    version: Version of the server.
    docs: Path of the reference.
    openapi: Path of the OpenAPI document.
    health: Path of the health check.
    console: null when the console is off (TOPICS_CONSOLE=0).
    """

    name: str
    version: str
    docs: str
    openapi: str
    health: str
    console: str | None


class OpenApi(Struct):
    """This API as an OpenAPI 3.1 document.

    openapi: Version of OpenAPI.
    info: Title and version.
    paths: The operations, by path and method.
    """

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]


class RecordIn(Struct, omit_defaults=True):
    """One record of a write.

    data: The payload: any JSON. Kept byte for byte.
    tag: For deletes and filters; up to 256 bytes.
    node: Who writes it; overrides `node` of the batch. Up to 128 bytes.
    meta: Small metadata: an object of up to 64 keys and 16 KiB.
    delay_ms: Queues: the job becomes claimable after this long; at most 24 hours.
    """

    data: Any
    tag: str | None = None
    node: str | None = None
    meta: Any | UnsetType = UNSET
    delay_ms: int | None = None


class ConfigChange(Struct, omit_defaults=True):
    """The fields of a topic's configuration that a request names. Unknown fields are ignored.

    type: `queue` for jobs with leases. Fixed when the topic is created.
    ttl_ms: Records expire this long after their append; 0 for never.
    cap_records: Most records that are kept; 0 for no cap.
    cap_bytes: Most bytes that are kept; 0 for no cap.
    discard: At a cap, drop the oldest records or reject the write (422 `topic_full`).
    durable: Short for `durability` fsync (true) or disk (false).
    durability: Where a write is stored when it is acknowledged. Can be changed.
    priority: Fixed priority, clamped to -1000..1000; null for the automatic one.
    auto_priority: Derive the priority from the last read, if none is fixed.
    auto_create: Whether a write may create the topic.
    idempotency_window_ms: How long idempotency keys are remembered.
    dedupe_node: Whether reads may leave out records by `node`.
    lease_ms: Queues: default lease of a claim, clamped to 100..86400000.
    claim_jitter_ms: Queues: claims wait this long and share the jobs evenly; at most 5000.
    max_deliveries: Queues: deliveries before a job becomes a dead letter; 0 for no limit.
    dead_letter: Queues: topic for jobs over `max_deliveries`; null for none.
    leases_durable: Queues: leases survive a restart.
    partitions: Number of logs. Fixed when the topic is created; not in `config`.
    """

    type: Literal["log", "queue"] | UnsetType = UNSET
    ttl_ms: int | UnsetType = UNSET
    cap_records: int | UnsetType = UNSET
    cap_bytes: int | UnsetType = UNSET
    discard: Literal["old", "reject"] | UnsetType = UNSET
    durable: bool | UnsetType = UNSET
    durability: Literal["ephemeral", "memory", "disk", "fsync"] | UnsetType = UNSET
    priority: int | None | UnsetType = UNSET
    auto_priority: bool | UnsetType = UNSET
    auto_create: bool | UnsetType = UNSET
    idempotency_window_ms: int | UnsetType = UNSET
    dedupe_node: bool | UnsetType = UNSET
    lease_ms: int | UnsetType = UNSET
    claim_jitter_ms: int | UnsetType = UNSET
    max_deliveries: int | UnsetType = UNSET
    dead_letter: str | None | UnsetType = UNSET
    leases_durable: bool | UnsetType = UNSET
    partitions: int | UnsetType = UNSET


class Start(Struct, omit_defaults=True):
    """Where to begin in one topic.

    from_seq: Records after this seq.
    tail: Only records appended from now on.
    partition: Partition to read.
    epoch: `epoch` of the topic that `from_seq` belongs to.
    """

    from_seq: int = 0
    tail: bool = False
    partition: int = 0
    epoch: int | None = None


class OffsetStart(Struct, omit_defaults=True):
    """Begin at this offset.

    Offset: Offset of the first message.
    """

    Offset: int


class SeekTarget(Struct, omit_defaults=True):
    """An offset or a time; one of the two.

    Offset: Offset of the next message.
    Timestamp: Unix milliseconds.
    """

    Offset: int | None = None
    Timestamp: int | str | None = None


class CommitWrite(Struct, kw_only=True, omit_defaults=True):
    """Records of a commit that were not staged.

    records: 1 to 10,000 records, appended in this order: all of them or none.
    node: Who writes: default for the records. Up to 128 bytes.
    idempotency_key: A repeat with the same key appends nothing and answers as the first. Up to 256 characters.
    create: Whether to create the topic if it does not exist; false answers 404 instead.
    config: Configuration for a topic that this write creates; requires `admin`. Ignored if the topic exists.
    disable_backpressure: Wait under load instead of getting 429.
    partition: Partition to append to.
    partition_key: Text whose hash selects the partition; not together with `partition`.
    topic: Topic to append to.
    """

    records: list[RecordIn]
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: ConfigChange | None = None
    disable_backpressure: bool = False
    partition: int | None = None
    partition_key: str | None = None
    topic: str
