"""Facts: what has happened, as the log keeps it and as the state applies it.

A fact means one thing, live or replayed: `broker.state` has one `apply` for each. Facts carry outcomes (the seqs that
were deleted, the floor that was reached), never conditions to be judged again. Fields are only ever added at the end,
with a default, so that an older log is still readable.
"""

from msgspec import Struct

from topics.model.archive import ArchivedTo, ArchiveOptions
from topics.model.config import TopicConfig
from topics.model.page import Page
from topics.model.route import Route
from topics.model.router import RouterOptions
from topics.model.table import Table

# Why records below a floor are gone; bits, because both can be true.
CAP = 1
TTL = 2
RESTART = 4
SOURCE_TRIM = 8


class SegmentInfo(Struct, array_like=True, frozen=True):
    """A sealed segment, as the log and the snapshot name it. Its files are named after topic, partition and first seq.

    The batches of rows stand from byte `body_start` to `body_end` of the file and each carry a checksum in the file's
    footer; `checksum` covers what is before and behind them, the footer included. `tags_checksum` covers the tag index.
    """

    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    size: int
    tagged: bool
    body_start: int = 0
    body_end: int = 0
    checksum: int = 0
    tags_checksum: int = 0


class TopicCreated(Struct, array_like=True, tag=1):
    topic_id: int
    name: str
    config: TopicConfig
    partitions: int
    ts: int


class TopicConfigured(Struct, array_like=True, tag=2):
    topic_id: int
    config: TopicConfig


class TopicDeleted(Struct, array_like=True, tag=3):
    topic_id: int


class Appended(Struct, array_like=True, tag=4):
    """One write. Its records became readable together; `key` is its idempotency key."""

    topic_id: int
    partition: int
    page: Page
    key: str | None = None


class Deleted(Struct, array_like=True, tag=5):
    """These seqs (little-endian u64 each) are gone for good."""

    topic_id: int
    partition: int
    seqs: bytes


class DeletedRuns(Struct, array_like=True, tag=24):
    """These runs of seqs (first and first behind, little-endian u64 each) are gone for good: jobs that are done."""

    topic_id: int
    partition: int
    runs: bytes


class DeletedBelow(Struct, array_like=True, tag=6):
    """Every record with a seq below `bound` is gone for good."""

    topic_id: int
    partition: int
    bound: int


class Evicted(Struct, array_like=True, tag=7):
    """Records below `floor` were lost to a cap or to their age; readers are told."""

    topic_id: int
    partition: int
    floor: int
    reasons: int


class Sealed(Struct, array_like=True, tag=8):
    """A run of records now stands in a sealed segment, synced before this fact was written."""

    topic_id: int
    partition: int
    segment: SegmentInfo


class HeadMoved(Struct, array_like=True, tag=9):
    """An ephemeral log handed out seqs up to `head`; their payloads never reach the disk, so a restart loses them."""

    topic_id: int
    partition: int
    head: int


class Lost(Struct, array_like=True, tag=10):
    """Seqs first..last may have been handed out but their records are gone; readers are told."""

    topic_id: int
    partition: int
    first: int
    last: int
    reasons: int


class GroupMoved(Struct, array_like=True, tag=40):
    """A consumer group stands here in a partition from now on, wherever it stood before.

    `start` is where it was pinned or put; everything up to `acked` is done (0: nothing yet).
    """

    topic_id: int
    partition: int
    group: str
    start: int
    acked: int
    ts: int


class GroupDropped(Struct, array_like=True, tag=41):
    """A consumer group and all its positions are forgotten."""

    topic_id: int
    group: str


class AliasSet(Struct, array_like=True, tag=42):
    """The topic answers to this second name, or to none any more."""

    topic_id: int
    alias: str | None


class RoutesSet(Struct, array_like=True, tag=43):
    """These are all routes of the topic; `version` is that of all routes of the server together."""

    topic_id: int
    routes: list[Route]
    version: int


class Leased(Struct, array_like=True, tag=20):
    """These jobs are with `node` until `deadline`. A later one about the same job replaces it, as an extension does.

    `deliveries` says of each job how often it was delivered by now.
    """

    topic_id: int
    partition: int
    node: str
    token: bytes
    deadline: int
    seqs: bytes
    deliveries: list[int]


class Returned(Struct, array_like=True, tag=21):
    """These jobs are with nobody any more: nacked, released or expired. Claimable from `due` on; None means at once."""

    topic_id: int
    partition: int
    seqs: bytes
    deliveries: list[int]
    due: int | None


class DeadLettered(Struct, array_like=True, tag=22):
    """So many jobs have gone from this log to a dead-letter topic since it began."""

    topic_id: int
    partition: int
    total: int


class Delayed(Struct, array_like=True, tag=23):
    """Jobs appended from `first_seq` on are not claimable before their moment; 0 for those that are at once."""

    topic_id: int
    partition: int
    first_seq: int
    dues: list[int]


class StagedPart(Struct, array_like=True):
    """Records of a stage for one partition; the page's seqs mean nothing yet."""

    partition: int
    page: Page


class Staged(Struct, array_like=True, tag=50):
    """Records are kept for a topic, readable by nobody until a commit names the stage."""

    stage_id: str
    topic_id: int
    parts: list[StagedPart]
    ts: int


class StagesDropped(Struct, array_like=True, tag=51):
    """These stages are given up; nothing of them was ever readable."""

    stage_ids: list[str]


class StageApplied(Struct, array_like=True, tag=52):
    """The records of a stage became readable; `first_seqs` has one entry for each of its parts."""

    stage_id: str
    topic_id: int
    first_seqs: list[int]
    ts: int


class Placed(Struct, array_like=True, frozen=True):
    """Where the records of one stage or write of a commit stand."""

    stage_id: str | None
    topic: str
    partition: int
    first_seq: int
    count: int


class Fenced(Struct, array_like=True, tag=53):
    """A producer has committed up to this batch; an equal or smaller one is a repeat.

    It belongs to keys with these prefixes, those of the key that used it first; empty is for every name, None nobody's yet.
    """

    producer: str
    batch: int
    placed: list[Placed]
    ts: int
    prefixes: list[str] | None = None


class RouterCreated(Struct, array_like=True, tag=30):
    """A router forwards what stands behind `cursors` (one per partition of the source) from here on.

    Up to `known_to` its dest may hold copies from an earlier life of the router.
    """

    router_id: int
    name: str
    source_id: int
    dest_id: int
    options: RouterOptions
    cursors: list[int]
    known_to: list[int]
    ts: int


class RouterConfigured(Struct, array_like=True, tag=31):
    router_id: int
    options: RouterOptions


class RouterDeleted(Struct, array_like=True, tag=32):
    router_id: int


class Copy(Struct, array_like=True, gc=False):
    """What one router made of a run of its source: `count` records from `first_seq` on in its dest.

    Their texts are those of the source's records; `chosen` tells which (a bit for each seq of the run, None for all) and
    `how` what was changed. Where the source's records are not in the log, `pages` holds the copies themselves.
    """

    router_id: int
    topic_id: int
    partition: int
    first_seq: int
    count: int
    how: int
    # How much later than the fact's `ts` the copies' is, so that times never fall in the dest.
    late_ms: int = 0
    chosen: bytes | None = None
    # How often the records have been forwarded around a cycle: all the same, or a byte for each. 0 outside cycles.
    hops: int | bytes = 0
    pages: list[Page] | None = None


class Forwarded(Struct, array_like=True, tag=33):
    """Routers have looked at first..last of a partition of their source, and these are the copies they made."""

    topic_id: int
    partition: int
    first: int
    last: int
    ts: int
    copies: list[Copy]


class ChangesMarked(Struct, array_like=True, tag=60):
    """A source of a table's changes has come this far; `digests` (8 bytes each) tell the events at this very position."""

    topic_id: int
    source: str
    position: list[int | str]
    digests: bytes
    ts: int


class TableSet(Struct, array_like=True, tag=61):
    """This is what is known about the table from here on; `version` is that of all tables of the server together."""

    table: Table
    version: int = 0


class TableDropped(Struct, array_like=True, tag=62):
    """The table of this name is not known any more."""

    name: str
    version: int = 0


class ArchiveSet(Struct, array_like=True, tag=63):
    """The topic's records go to this table from here on; `version` is that of all archives of the server together.

    `begun` is the version with which the topic came to this table: other options for the same table keep it, and with it
    how far the table has come.
    """

    topic_id: int
    options: ArchiveOptions
    begun: int
    version: int
    ts: int


class ArchiveCleared(Struct, array_like=True, tag=64):
    """The topic's records go nowhere any more. What stands in the table stays there."""

    topic_id: int
    version: int


class ArchiveProgressed(Struct, array_like=True, tag=65):
    """The table that was `begun` then has come this far."""

    topic_id: int
    begun: int
    places: list[ArchivedTo]
    table_version: int | None
    ts: int


Fact = (
    TopicCreated
    | TopicConfigured
    | TopicDeleted
    | Appended
    | Deleted
    | DeletedRuns
    | DeletedBelow
    | Evicted
    | Sealed
    | HeadMoved
    | Lost
    | Leased
    | Returned
    | DeadLettered
    | Delayed
    | GroupMoved
    | GroupDropped
    | AliasSet
    | RoutesSet
    | Staged
    | StagesDropped
    | StageApplied
    | Fenced
    | RouterCreated
    | RouterConfigured
    | RouterDeleted
    | Forwarded
    | ChangesMarked
    | TableSet
    | TableDropped
    | ArchiveSet
    | ArchiveCleared
    | ArchiveProgressed
)
