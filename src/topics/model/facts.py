"""Facts: what has happened, as the log keeps it and as the state applies it.

A fact means one thing, live or replayed: `broker.state` has one `apply` for each. Facts carry outcomes (the seqs that
were deleted, the floor that was reached), never conditions to be judged again. Fields are only ever added at the end,
with a default, so that an older log is still readable.
"""

from msgspec import Struct

from topics.model.config import TopicConfig
from topics.model.records.page import Page
from topics.model.router import RouterOptions
from topics.model.tables.archive import ArchivedTo, ArchiveOptions
from topics.model.tables.route import Route
from topics.model.tables.table import Table

# Why records below a floor are gone; bits, because both can be true.
CAP = 1
TTL = 2
RESTART = 4
SOURCE_TRIM = 8
DAMAGE = 16


class SegmentInfo(Struct, array_like=True, frozen=True):
    """A sealed segment, as the log and the snapshot name it. Its files are named after topic, partition and first seq, and
    after `generation` when a repair has written them in place of damaged ones.

    The batches of rows are from byte `body_start` to `body_end` of the file and each carry a checksum in the file's
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
    generation: int = 0


class PackedInfo(Struct, array_like=True, frozen=True, gc=False):
    """A packed segment, as the log and the snapshot name it: an entry of the pack with this number.

    The entry begins at byte `offset`; its body is `length` bytes long.
    """

    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    size: int
    tagged: bool
    pack: int
    offset: int
    length: int
    checksum: int


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
    """Records that became readable together. `key` is the idempotency key of the write in logs of version 1."""

    topic_id: int
    partition: int
    page: Page
    key: str | None = None


class KeysKept(Struct, array_like=True, tag=13):
    """Idempotency keys of writes to a partition at the time `ts`: first seq, number of records and key of each write."""

    topic_id: int
    partition: int
    ts: int
    writes: list[tuple[int, int, str]]


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
    """Records below `floor` were evicted by a cap or by their age; readers get a tombstone."""

    topic_id: int
    partition: int
    floor: int
    reasons: int


class Sealed(Struct, array_like=True, tag=8):
    """A run of records is now in a sealed segment, synced before this fact was written."""

    topic_id: int
    partition: int
    segment: SegmentInfo


class Packed(Struct, array_like=True, tag=11):
    """The records of a small segment are now in a pack, synced before this fact was written.

    The packed segment replaces the hot segment and the older packed segments whose records it holds.
    """

    topic_id: int
    partition: int
    entry: PackedInfo


class HeadMoved(Struct, array_like=True, tag=9):
    """An ephemeral log handed out seqs up to `head`; their payloads never reach the disk, so a restart loses them."""

    topic_id: int
    partition: int
    head: int


class Lost(Struct, array_like=True, tag=10):
    """Seqs first..last may have been assigned but their records are lost; readers get a tombstone."""

    topic_id: int
    partition: int
    first: int
    last: int
    reasons: int


# Instead of a generation: the segment has no files of its own.
PACKED = -1


class Repaired(Struct, array_like=True, tag=12):
    """A repair has replaced the damaged records first..last by those in `segments`. Readers get a tombstone for each range of
    `lost`, whose records could not be read. `first`, `last` and `generation` name the segment that is replaced; `generation`
    is PACKED for one in a pack.
    """

    topic_id: int
    partition: int
    first: int
    last: int
    generation: int
    segments: list[SegmentInfo]
    lost: list[tuple[int, int]]


class GroupMoved(Struct, array_like=True, tag=40):
    """A consumer group has this position in a partition from now on, whatever it was before.

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
    """These jobs are not leased any more: nacked, released or expired. Claimable from `due` on; None means at once."""

    topic_id: int
    partition: int
    seqs: bytes
    deliveries: list[int]
    due: int | None


class DeadLettered(Struct, array_like=True, tag=22):
    """The number of jobs that were moved from this partition to a dead-letter topic since it was created."""

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
    """Records are kept for a topic and are not readable until a commit names the stage.

    `producer` is the one that will commit the stage, if it was named: it can renew all of its stages with one request.
    """

    stage_id: str
    topic_id: int
    parts: list[StagedPart]
    ts: int
    producer: str | None = None

    @property
    def size(self) -> int:
        return sum([part.page.size for part in self.parts])


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
    """The partition and the seqs of the records of one stage or write of a commit."""

    stage_id: str | None
    topic: str
    partition: int
    first_seq: int
    count: int


class Fenced(Struct, array_like=True, tag=53):
    """A producer has committed up to this batch; an equal or smaller one is a repeat.

    It belongs to keys with these prefixes, those of the key that used it first; empty: all names; None: no key yet.
    `digest` identifies the contents of the batch, if the client sent one.
    """

    producer: str
    batch: int
    placed: list[Placed]
    ts: int
    prefixes: list[str] | None = None
    digest: str | None = None


class RouterCreated(Struct, array_like=True, tag=30):
    """A router forwards the records after `cursors` (one per partition of the source) from now on.

    Up to `known_to` its dest may hold copies of an earlier router with the same name.
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

    Their texts are those of the source's records; `chosen` says which (a bit for each seq of the run, None for all) and
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
    """The last position that a source of a table's changes has sent; `digests` (8 bytes each) identify the events at it."""

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
    """The topic is not archived any more. Records in the table stay there."""

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
    | KeysKept
    | Deleted
    | DeletedRuns
    | DeletedBelow
    | Evicted
    | Sealed
    | Packed
    | HeadMoved
    | Lost
    | Repaired
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

_FREEING = (
    ArchiveCleared,
    Deleted,
    DeletedBelow,
    DeletedRuns,
    Evicted,
    GroupDropped,
    Packed,
    RouterDeleted,
    Sealed,
    StagesDropped,
    TableDropped,
    TopicDeleted,
)


def frees_space(facts: list[Fact]) -> bool:
    """Whether these facts only remove something, so that they may be written on a full disk."""
    return all([isinstance(fact, _FREEING) or (isinstance(fact, RoutesSet) and not fact.routes) for fact in facts])
