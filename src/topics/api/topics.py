"""Topics and their records: create, append, read, delete."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from topics.api.common import MAX_NODES, Count, PageQuery, Record, Response, Tombstone, TopicName, about
from topics.api.operation import (
    ADMIN,
    ARROW,
    DELETE,
    JSON,
    READ,
    WRITE,
    WRITE_ERRORS,
    Example,
    FieldScope,
    Header,
    MaxEntries,
    Name,
    Operation,
)
from topics.model.config import ConfigChange, TopicConfig
from topics.model.records.batch import AppendBody

TOPIC = Name("path", "topic", "topic", "topic")
ALIASED_TOPIC = Name("path", "topic", "aliased_topic")
CHECKED_ALIASED_TOPIC = Name("path", "topic", "aliased_topic", "topic")
TOPIC_PATH = "/v0/topics/{topic}"
# Watching one topic takes about a microsecond, and so does comparing its heads.
MAX_HEADS_TOPICS = 10_000


class Config(TopicConfig, frozen=True):
    """The configuration of a topic, complete. Fields can also be read as `config["ttl_ms"]`."""

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)


class Configured(Response):
    """The topic after a PUT."""

    topic: Annotated[str, about("Name of the topic.")]
    created: Annotated[bool, about("Whether the topic is new.")]
    config: Config
    dry_run: Annotated[bool, about("Only with `dry_run`.")] = False
    evicts_records: Annotated[int, about("Only with `dry_run`: records that the change drops at once.")] = 0
    evicts_bytes: Annotated[int, about("Only with `dry_run`: their bytes.")] = 0


class JobCounts(Struct):
    """Jobs of a queue by state."""

    ready: Annotated[int, about("Jobs that can be claimed.")]
    delayed: Annotated[int, about("Jobs that can be claimed later.")]
    in_flight: Annotated[int, about("Jobs with a lease.")]
    dead_lettered: Annotated[int, about("Jobs moved to the dead-letter topic since the start.")]
    dead_letters: Annotated[int, about("Records of the dead-letter topic now.")]
    oldest_age_ms: Annotated[int | None, about("Age of the oldest job; null when there is none.")]


class QueueCounts(Struct):
    """Jobs of a queue."""

    ready: Annotated[int, about("Jobs that can be claimed.")]
    in_flight: Annotated[int, about("Jobs with a lease.")]
    dead_lettered: Annotated[int, about("Jobs moved to the dead-letter topic since the start.")]


class PartitionInfo(Struct):
    """One partition of a topic with several."""

    partition: Annotated[int, about("Number of the partition.")]
    head_seq: Annotated[int, about("Highest seq that was assigned.")]
    earliest_seq: Annotated[int, about("Lowest seq that can be read.")]
    count: Annotated[int, about("Number of records.")]
    bytes: Annotated[int, about("Bytes of the records.")]


class TopicInfo(Response):
    """The state of a topic."""

    topic: Annotated[str, about("Name of the topic.")]
    head_seq: Annotated[int, about("Highest seq that was assigned in partition 0.")]
    earliest_seq: Annotated[int, about("Lowest seq that can be read in partition 0.")]
    next_seq: Annotated[int, about("Seq of the next record in partition 0.")]
    count: Annotated[int, about("Records of all partitions.")]
    bytes: Annotated[int, about("Bytes of all partitions.")]
    config: Config
    effective_priority: Annotated[int, about("Priority under load: the fixed one, or that from the last read.")]
    type: Annotated[str, about("log or queue.")] = "log"
    epoch: Annotated[int, about("Distinguishes this topic from earlier ones of the same name.")] = 0
    last_write_ts: Annotated[int | None, about("Last append, in Unix milliseconds.")] = None
    last_read_ts: Annotated[int | None, about("Last read, in Unix milliseconds.")] = None
    queue: Annotated[QueueCounts | None, about("Only of queues: counts of its jobs.")] = None
    partitions: Annotated[list[PartitionInfo], about("Only for topics with several partitions.")] = field(
        default_factory=list
    )


class TopicSummary(Struct):
    """A topic in a list."""

    topic: Annotated[str, about("Name of the topic.")]
    head_seq: Annotated[int, about("Highest seq that was assigned.")]
    earliest_seq: Annotated[int, about("Lowest seq that can be read.")]
    count: Annotated[int, about("Number of records.")]
    bytes: Annotated[int, about("Bytes of the records.")]
    durable: Annotated[bool, about("Whether an acknowledged write survives a power cut.")]
    effective_priority: Annotated[int, about("Priority under load: the fixed one, or that from the last read.")]


class TopicRow(Struct):
    """A topic in the result of a search."""

    topic: Annotated[str, about("Name of the topic.")]
    type: Annotated[str, about("log or queue.")]
    durability: Annotated[str, about("Where a write is stored when it is acknowledged.")]
    partitions: Annotated[int, about("Number of partitions.")]
    count: Annotated[int, about("Number of records.")]
    bytes: Annotated[int, about("Bytes of the records.")]
    append_per_s: Annotated[float | None, about("Records appended a second; null until two samples are there.")]
    remove_per_s: Annotated[
        float | None, about("Records removed a second: finished jobs, deleted and dropped records.")
    ]
    groups: Annotated[int, about("Consumer groups.")]
    lag_records: Annotated[int, about("Lag of the group that is farthest behind.")]
    lag_seconds: Annotated[float, about("The same in seconds.")]
    lost: Annotated[int, about("Seqs whose records were lost to a cap, their age, a power cut or damage.")]
    last_write_ts: Annotated[int | None, about("Last append, in Unix milliseconds.")]
    queue: Annotated[JobCounts | None, about("Only of queues.")] = None


class TopicSearch(Response):
    """A part of all topics that match, in the order that was asked for."""

    total: Annotated[int, about("Topics that match.")]
    offset: Annotated[int, about("Position of the first entry.")]
    topics: Annotated[list[TopicRow], about("The topics of the page.")]


class SeqRange(Struct):
    """Seqs with the same fate."""

    kind: Annotated[str, about("live, evicted (by a cap or age), lost (by a power cut or damage) or deleted.")]
    first_seq: Annotated[int, about("First seq.")]
    last_seq: Annotated[int, about("Last seq.")]
    reason: Annotated[str | None, about("cap, ttl, mixed, restart, damage or source.")] = None
    since_ts: Annotated[int | None, about("When the first live record was appended.")] = None
    until_ts: Annotated[int | None, about("They are older than this.")] = None


class SeqRanges(Response):
    """All seqs of a partition that were ever assigned, as ranges in order."""

    topic: Annotated[str, about("Name of the topic.")]
    partition: Annotated[int, about("Number of the partition.")]
    head_seq: Annotated[int, about("Highest seq that was assigned.")]
    ranges: Annotated[list[SeqRange], about("Ranges of seqs that can be read, in order.")]
    truncated: Annotated[bool, about("Whether there are older ranges that are not listed.")] = False


class TopicPage(Response):
    """A page of topics, by name."""

    topics: Annotated[list[TopicSummary], about("The topics.")]
    next_cursor: Annotated[str | None, about("Cursor of the next page; absent on the last one.")] = None


class Dropped(Response):
    """The outcome of deleting a topic."""

    topic: Annotated[str, about("Name of the topic.")]
    deleted: Annotated[bool, about("False when there was no such topic.")]
    routers_removed: Annotated[list[str], about("Routers from and to the topic, which are deleted with it.")] = field(
        default_factory=list
    )


class Appended(Response):
    """The seqs of appended records."""

    topic: Annotated[str, about("Name of the topic.")]
    first_seq: Annotated[int, about("Seq of the first record.")]
    last_seq: Annotated[int, about("Seq of the last record.")]
    head_seq: Annotated[int, about("Highest seq of the partition.")]
    count: Annotated[int, about("Number of records that were appended.")]
    created: Annotated[bool, about("Whether this write created the topic.")]
    deduped: Annotated[bool, about("True when the idempotency key was known: nothing was appended.")]
    seqs: Annotated[list[int], about("Absent with `return_seqs=false`.")] = field(default_factory=list)


class Page(Response):
    """One page of records. `caught_up`, not an empty list, says that there is no more for now."""

    topic: Annotated[str, about("Name of the topic.")]
    records: Annotated[list[Record], about("The records, in order of their seqs.")]
    next_from_seq: Annotated[int, about("`from_seq` of the next page.")]
    head_seq: Annotated[int, about("Highest seq that was assigned.")]
    earliest_seq: Annotated[int, about("Lowest seq that can be read.")]
    caught_up: Annotated[bool, about("Whether the reader has everything up to the head.")]
    tombstone: Annotated[Tombstone | None, about("Set when records before this page were lost.")]
    lag: Annotated[int, about("Seqs between the cursor and the head.")]
    epoch: Annotated[int, about("Send it back to notice that the topic was created again.")] = 0
    from_seq: Annotated[int, about("With `to_seq`: where the page begins.")] | UnsetType = UNSET
    records_live: Annotated[int, about("With `to_seq`: live records in the covered range.")] | UnsetType = UNSET


class Deleted(Response):
    """The partition after a delete."""

    topic: Annotated[str, about("Name of the topic.")]
    deleted: Annotated[int, about("How many records were deleted.")]
    earliest_seq: Annotated[int, about("Lowest seq that can be read.")]
    head_seq: Annotated[int, about("Highest seq that was assigned.")]
    count: Annotated[int, about("Number of records.")]
    bytes: Annotated[int, about("Bytes of the records.")]


class TopicHeads(Struct):
    """How far the partitions of a topic are; null for one that does not exist."""

    epoch: Annotated[int, about("Distinguishes the topic from earlier ones of the same name.")]
    heads: Annotated[dict[int, int | None], about("By partition, its last seq; null for one that does not exist.")]
    type: Annotated[Literal["log", "queue"] | None, about("With `describe`.")] = None
    earliest: Annotated[dict[int, int] | None, about("With `describe`: the first seq of each partition.")] = None


class Heads(Response):
    """By topic; null for one that does not exist."""

    topics: Annotated[dict[str, TopicHeads | None], about("By topic, its heads; null for one that does not exist.")]


# Requests


class TopicQuery(Struct):
    touch: Annotated[bool, about("Count this as a read, for the automatic priority.")] = True


class TopicsQuery(PageQuery):
    touch: Annotated[bool, about("Count this as a read of the listed topics.")] = False


class DropQuery(Struct):
    if_empty: Annotated[bool, about("Answer 409 `topic_not_empty` instead of deleting records.")] = False


class AppendQuery(Struct):
    return_seqs: Annotated[bool, about("Whether the response lists all seqs.")] = True
    partition: Annotated[int, about("Partition for an Arrow body.", ge=0)] = 0


class DiffBody(Struct):
    """Where to read from, and what of each record."""

    from_seq: Annotated[int, about("Read records after this seq; 0 from the beginning.", ge=0)] = 0
    limit: Annotated[int, about("Most records in the page; 0 for the default of 256, at most 1000.", ge=0)] = 0
    node: Annotated[str | list[str] | None, about("Leave out records of these nodes; at most 1000.")] = None
    include_tags: Annotated[bool, about("Include `$tag`.")] = False
    include_meta: Annotated[bool, about("Include `meta`.")] = True
    wait_ms: Annotated[int, about("Wait this long for records if there are none; at most 30,000.", ge=0)] = 0
    max_batch_bytes: Annotated[int, about("Bytes of the page; 0 for the default of 1 MiB, at most 8 MiB.", ge=0)] = 0
    from_ts: Annotated[int, about("Begin at the first record at or after this Unix time in ms.", ge=0)] | None = None
    epoch: (
        Annotated[int, about("`epoch` of an earlier page: a topic created again answers a tombstone.", ge=0)] | None
    ) = None
    to_seq: Annotated[int, about("Last seq to read. Allows pages of up to 10,000 records.", ge=0)] | None = None
    filter: Annotated[
        Any, about("Only records whose tag matches, as in a delete. Answered at once; `node` has no effect then.")
    ] = None
    partition: Annotated[int, about("Partition to read.", ge=0, le=2**31)] = 0


class DeleteBody(Struct):
    """Which records to delete: those that meet all conditions given, at least one."""

    before_seq: Annotated[int, about("Records with a smaller seq.", ge=0)] | None = None
    match: (
        Annotated[Any, about('Records by tag: a text, `["tag","Eq",text]` or `["tag","Glob","prefix*"]`.')] | UnsetType
    ) = UNSET
    partition: Annotated[int, about("Partition to delete from.", ge=0, le=2**31)] = 0
    dry_run: Annotated[bool, about("Answer how many records match, and delete nothing.")] = False


class PutQuery(Struct):
    dry_run: Annotated[bool, about("Answer what the change would drop, and change nothing.")] = False


SortKey = Literal["topic", "rate", "count", "bytes", "lag", "lost", "last_write_ts"]
MAX_SEARCH_ROWS = 500


class SearchQuery(Struct):
    q: Annotated[str, about("Only topics whose name contains this.")] = ""
    type: Annotated[Literal["", "log", "queue"], about("Only topics of this type.")] = ""
    sort: Annotated[SortKey, about("Order of the topics; equal ones by name.")] = "topic"
    order: Literal["asc", "desc"] = "asc"
    offset: Annotated[int, about("How many topics to pass over.", ge=0)] = 0
    limit: Annotated[int, about(f"Most topics in the response; at most {MAX_SEARCH_ROWS}.", ge=1)] = 100


class RangesQuery(Struct):
    partition: Annotated[int, about("Partition to describe.", ge=0, le=2**31)] = 0


class HeadsBody(Struct):
    """What the reader knows."""

    topics: Annotated[
        dict[TopicName, dict[Count, Count]],
        about("By topic and partition, the last seq that is known; at most 10,000 topics."),
    ]
    wait_ms: Annotated[int, about("Wait this long until one is further; at most 30,000.", ge=0)] = 0
    describe: Annotated[
        bool,
        about("Answer with the type, all partitions and their first seqs, of at most 500 topics; not with `wait_ms`."),
    ] = False


OPERATIONS = (
    Operation(
        name="list_topics", noun="topics", method="GET", path="/v0/topics",
        summary="List topics by name.",
        description="A key with prefixes sees the topics that it may touch.",
        scope=READ, query=TopicsQuery, response=TopicPage,
        example=Example("/v0/topics?prefix=chat.", response={
            "topics": [{"topic": "chat.messages", "head_seq": 12, "earliest_seq": 1, "count": 12, "bytes": 1440, "durable": False,
                        "effective_priority": 0}],
            "performance": {"server_total_ms": 0.11}}),
    ),
    Operation(
        name="put_topic", noun="topics", method="PUT", path=TOPIC_PATH,
        summary="Create a topic, or change the named fields of its configuration.",
        description="A body that is absent creates a topic with defaults.",
        scope=ADMIN, names=(TOPIC, Name("body", "dead_letter")), query=PutQuery, body=ConfigChange, body_optional=True,
        names_first=True,
        response=Configured, statuses=(200, 201), errors=("topic_exists_incompatible", *WRITE_ERRORS),
        example=Example("/v0/topics/jobs", {"type": "queue", "max_deliveries": 5, "dead_letter": "jobs.dead"}, {
            "topic": "jobs", "created": True, "config": {"type": "queue", "max_deliveries": 5, "dead_letter": "jobs.dead"},
            "performance": {"server_total_ms": 0.4}}),
    ),
    Operation(
        name="get_topic", noun="topics", method="GET", path=TOPIC_PATH,
        summary="Show the state of a topic, named by its name or its alias.",
        scope=READ, names=(CHECKED_ALIASED_TOPIC,), query=TopicQuery, response=TopicInfo, errors=("topic_not_found",),
        example=Example("/v0/topics/chat.messages", response={
            "topic": "chat.messages", "type": "log", "head_seq": 12, "earliest_seq": 1, "next_seq": 13, "count": 12, "bytes": 1440,
            "epoch": 7, "config": {"durability": "disk"}, "effective_priority": 0, "last_write_ts": 1767225600000,
            "last_read_ts": None, "performance": {"server_total_ms": 0.05}}),
    ),
    Operation(
        name="delete_topic", noun="topics", method="DELETE", path=TOPIC_PATH,
        summary="Delete a topic with all its records, groups, routes and routers.",
        description="A key with prefixes gets 403 when a router connects the topic with one that it may not touch.",
        scope=DELETE, names=(TOPIC,), query=DropQuery, response=Dropped, errors=("topic_not_empty", *WRITE_ERRORS),
        example=Example("/v0/topics/chat.messages", response={
            "topic": "chat.messages", "deleted": True, "routers_removed": [], "performance": {"server_total_ms": 0.5}}),
    ),
    Operation(
        name="append", noun="topics", method="POST", path=TOPIC_PATH,
        summary="Append records, all or none.",
        description="Creates the topic if it does not exist, unless `create` is false. `config` then requires the scope admin.",
        scope=WRITE, names=(TOPIC, Name("body", "config.dead_letter")),
        field_scopes=(FieldScope("config", ADMIN, on_creation=True),),
        query=AppendQuery, body=AppendBody, decoded="dedicated", arrow_body=True, max_body_bytes=0,
        headers=(Header("Idempotency-Key", "Used when the body has no `idempotency_key`."),),
        response=Appended, statuses=(200, 201),
        errors=("topic_not_found", "topic_full", "batch_too_large", "record_too_large", "topic_exists_incompatible",
                "corrupt_storage", *WRITE_ERRORS),
        safe_to_retry=False, retry_note="Safe with an idempotency key, which the Python clients add.",
        example=Example("/v0/topics/chat.messages", {"records": [{"data": {"text": "hello"}, "tag": "room-1"}]}, {
            "topic": "chat.messages", "first_seq": 13, "last_seq": 13, "seqs": [13], "head_seq": 13, "count": 1, "created": False,
            "deduped": False,
            "performance": {"server_total_ms": 0.2, "wal_append_ms": 0.1, "fsync_ms": 0.0, "throttle_wait_ms": 0.0}}),
    ),
    Operation(
        name="diff", noun="topics", method="POST", path=TOPIC_PATH + "/diff",
        summary="Read records after a cursor, at once or as soon as there are some.",
        description=f"With `Accept: {ARROW}` the page is an Arrow stream; its cursor fields are in the metadata of the schema.",
        scope=READ, names=(ALIASED_TOPIC,), body=DiffBody, body_optional=True, decoded="dedicated",
        max_entries=(MaxEntries("node", MAX_NODES),),
        headers=(Header("Accept", f"`{ARROW}` for an Arrow stream."),),
        response=Page, media=(JSON, ARROW), errors=("topic_not_found", "corrupt_storage"),
        example=Example("/v0/topics/chat.messages/diff", {"from_seq": 12, "wait_ms": 1000}, {
            "topic": "chat.messages", "records": [{"$seq": 13, "$ts": 1767225600000, "data": {"text": "hello"}}],
            "next_from_seq": 13, "head_seq": 13, "earliest_seq": 1, "caught_up": True, "tombstone": None, "lag": 0, "epoch": 7,
            "performance": {"server_total_ms": 0.1, "records_scanned": 1}}),
    ),
    Operation(
        name="delete_records", noun="topics", method="POST", path=TOPIC_PATH + "/delete",
        summary="Delete records for good, by seq, by tag, or both.",
        scope=DELETE, names=(TOPIC,), body=DeleteBody, response=Deleted, errors=("topic_not_found", "corrupt_storage", *WRITE_ERRORS),
        example=Example("/v0/topics/chat.messages/delete", {"match": ["tag", "Eq", "room-1"]}, {
            "topic": "chat.messages", "deleted": 1, "earliest_seq": 1, "head_seq": 13, "count": 12, "bytes": 1440,
            "performance": {"server_total_ms": 0.3, "fsync_ms": 0.0}}),
    ),
    Operation(
        name="get_ranges", noun="topics", method="GET", path=TOPIC_PATH + "/ranges",
        summary="Show which seqs of a partition are live, were lost, or were deleted.",
        scope=READ, names=(ALIASED_TOPIC,), query=RangesQuery, response=SeqRanges, errors=("topic_not_found", "corrupt_storage"),
        example=Example("/v0/topics/chat.messages/ranges", response={
            "topic": "chat.messages", "partition": 0, "head_seq": 13, "truncated": False,
            "ranges": [{"kind": "evicted", "first_seq": 1, "last_seq": 4, "reason": "cap", "until_ts": 1767225600000},
                       {"kind": "live", "first_seq": 5, "last_seq": 13, "since_ts": 1767225600000}],
            "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="search_topics", noun="topics", method="GET", path="/v0/topic-search",
        summary="Search all topics by name and sort them by name, rate, size, lag or losses.",
        description="A key with prefixes sees the topics that it may touch. The order is kept for a few seconds, so that pages fit together.",
        scope=READ, query=SearchQuery, response=TopicSearch,
        example=Example("/v0/topic-search?q=chat&sort=rate&order=desc&limit=20", response={
            "total": 1, "offset": 0, "topics": [{
                "topic": "chat.messages", "type": "log", "durability": "disk", "partitions": 1, "count": 12, "bytes": 1440,
                "append_per_s": 0.5, "remove_per_s": 0.0, "groups": 1, "lag_records": 3, "lag_seconds": 1.2, "lost": 0,
                "last_write_ts": 1767225600000, "queue": None}],
            "performance": {"server_total_ms": 0.3}}),
    ),
    Operation(
        name="post_heads", noun="topics", method="POST", path="/v0/heads",
        summary="Show how far the partitions of many topics are; waits, if wanted, until one is further.",
        scope=READ, names=(Name("body", "topics{}", "topic", "topic"),), body=HeadsBody, response=Heads,
        max_entries=(MaxEntries("topics", MAX_HEADS_TOPICS),),
        example=Example("/v0/heads", {"topics": {"orders": {"0": 12, "1": 40}}, "wait_ms": 500}, {
            "topics": {"orders": {"epoch": 7, "heads": {"0": 12, "1": 41}}}, "performance": {"server_total_ms": 12.5}}),
    ),
)  # fmt: skip
