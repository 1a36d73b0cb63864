"""Checkpoints: hot records become sealed segments, the state becomes a snapshot, and the log behind them is trimmed.

Sealing is triggered by size: a hot segment that has grown to `segment_bytes`, or the largest ones when all hot records
together pass `hot_bytes`. A checkpoint is triggered by the log having grown by `checkpoint_bytes`:

    seal what is large -> rotate the log -> wait until all that stands in the old files is applied ->
    take the image of each topic, some per turn -> aside: write delete flags, write the snapshot ->
    remove old snapshots, and the log files that neither of the two kept snapshots needs

Files of dropped segments are removed only when the fact that dropped them is safe on disk and neither of the two kept
snapshots names them: recovery begins with a snapshot as it was written, before anything that happened since.

Copies that routers make are rebuilt from their sources in recovery, so no copy may be on its way while topics that
routers connect are taken (see `forward.py`): `hold_copies` is called before the cut, `release_copies` behind them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from topics.broker.committer import Commit, Committer, Lane
from topics.broker.image import (
    HeaderImage,
    SectionImage,
    TopicImage,
    encode_image,
    named_segments,
    section_images,
    topic_image,
)
from topics.broker.runtime import Runtime
from topics.broker.state import State
from topics.engine.partition import Partition
from topics.engine.segment import HotSegment
from topics.engine.tags import TagIndex
from topics.engine.topic import Topic
from topics.model.errors import CorruptStorage, TopicsError
from topics.model.facts import Sealed, SegmentInfo
from topics.model.page import Page
from topics.storage.fs import FileSystem
from topics.storage.segment import ROOT as SEGMENTS
from topics.storage.segment import remove_segment, segment_base, write_segment
from topics.storage.snapshot import KEPT, remove_snapshots_but, write_snapshot
from topics.storage.wal import WalShard, remove_files_below

if TYPE_CHECKING:
    from topics.broker.recovery import Recovered

# Hot segments below this stay in memory and go into the snapshot: a file each would cost more than it saves.
SEAL_LEAST = 1 << 20
# Topics whose image is taken in one turn of the loop.
IMAGES_PER_TURN = 64


class StorageSettings(Struct, frozen=True):
    """How the data directory is used. Sizes in bytes."""

    shards: int = 1
    wal_file_bytes: int = 64 << 20
    segment_bytes: int = 16 << 20
    hot_bytes: int = 64 << 20
    cache_bytes: int = 32 << 20
    checkpoint_bytes: int = 64 << 20
    sync_interval_ms: int = 1000
    # How many records may be readable without being synced; also how many seqs a power cut costs a disk topic.
    margin: int = 1 << 20
    # How often topics that nobody touches are looked at for what has outlived its time; 0 for never.
    retention_interval_ms: int = 5000


class Doomed(Struct):
    """A segment to remove once the shard's log is safe up to `lsn`."""

    lane: Lane
    lsn: int
    base: str


class SealCommit(Commit):
    """A segment is written and synced; when the log says so, readers change over to it."""

    __slots__ = ("_keeper", "_sealed")

    def __init__(self, keeper: "Keeper", sealed: Sealed) -> None:
        super().__init__([sealed])
        self._keeper = keeper
        self._sealed = sealed

    def apply(self) -> None:
        self._keeper.sealed(self._sealed, self.lsn)

    def fail(self, error: TopicsError) -> None:
        self._keeper.seal_failed(self._sealed)


class Keeper:
    """Keeps memory and log within their bounds. All on the loop, but for the writing of files."""

    def __init__(
        self, fs: FileSystem, runtime: Runtime, state: State, committer: Committer, settings: StorageSettings
    ) -> None:
        self.settings = settings
        self.snapshots_total = 0
        self.seals_total = 0
        self.failures_total = 0
        self.last_error: str | None = None
        # Stops routers before a cut; then lets those go on that were there before it, at last all of them.
        self.hold_copies: Callable[[], None] = _nothing
        self.release_copies: Callable[[bool], None] = _no_matter
        self._fs = fs
        self._runtime = runtime
        self._state = state
        self._committer = committer
        self._wal_bytes = 0
        # Writes come faster than segments can be sealed: new ones wait, so that memory keeps its bound.
        self.full = False
        self.on_room: Callable[[], None] = _nothing
        self._hot_bytes = 0
        self._sealing: set[tuple[int, int, int]] = set()
        self._after_seals: list[Callable[[], None]] = []
        self._doomed: list[Doomed] = []
        self._checkpointing = False
        # A last one was asked for while another was under way.
        self._checkpoint_again = False
        self._after_checkpoint: list[Callable[[bool], None]] = []
        # Of the checkpoint that is being taken.
        self._clean = False
        self._cut: dict[int, int] = {}
        self._lsns: dict[int, int] = {}
        self._awaited: list[tuple[Lane, int]] | None = None
        self._ids: list[int] = []
        # How many topics are left when all that routers connect are taken.
        self._connected_until: int | None = None
        self._images: list[TopicImage | SectionImage] = []
        self._preparing: set[int] = set()
        # Shards of an earlier shard count: read at recovery, written no more. Number behind the last file, last lsn.
        self._retired: dict[int, int] = {}
        self._retired_lsns: dict[int, int] = {}
        # The newest whole snapshot, and the number for the next one.
        self._snapshot = 0
        self._next_snapshot = 1
        # The cut of the newest snapshot: log files below it are still needed by no other than the one before.
        self._last_cut: dict[int, int] = {}
        # Segments that the kept snapshots name, newest last; the one being written counts already.
        self._named: list[set[str]] = []

    def start(self, recovered: "Recovered") -> None:
        """Go on from where recovery left off."""
        dropped = recovered.dropped_segments
        if recovered.next_snapshot > 1:
            # Which of the two kept snapshots names which segment is not known, so each counts as naming all.
            named = {segment.base for each in self._partitions() for segment in each.segments if segment.sealed}  # type: ignore[attr-defined]
            self._named = [named.union(dropped)] * KEPT
        self._doomed = [Doomed(self._committer.lanes[0], 0, base) for base in dropped]
        written = {lane.shard.number for lane in self._committer.lanes}
        retired = {number: each for number, each in recovered.shards.items() if number not in written}
        self._retired = {number: next_file for number, (_, next_file) in retired.items()}
        self._retired_lsns = {number: last_lsn for number, (last_lsn, _) in retired.items()}
        self._snapshot = recovered.snapshot
        self._next_snapshot = recovered.next_snapshot
        self._last_cut = recovered.cut
        self._wal_bytes = recovered.wal_bytes
        self._hot_bytes = sum([each.hot_bytes for each in self._partitions()])
        self._committer.on_written = self.written
        self._committer.on_synced = self.synced

    def _aside(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Have the storage thread do it. Syncs of the log are left to their thread meanwhile: they wait for the same disk."""
        committer = self._committer
        committer.disk_busy += 1

        def over(result: Any, error: BaseException | None) -> None:
            committer.disk_busy -= 1
            done(result, error)

        self._runtime.run_aside("storage", work, over)

    # Sealing

    def appended(self, topic: Topic, partition: Partition, size: int) -> None:
        """Called for every append that was applied: counts, and seals when a bound is reached."""
        settings = self.settings
        hot_bytes = self._hot_bytes + size
        self._hot_bytes = hot_bytes
        if self._sealing and hot_bytes > 2 * settings.hot_bytes:
            self.full = True
        segments = partition.segments
        if segments and isinstance(hot := segments[-1], HotSegment) and hot.held_bytes >= settings.segment_bytes:
            self.seal(topic, partition)
        elif hot_bytes > settings.hot_bytes and not self._sealing:
            self._seal_largest()

    def seal(self, topic: Topic, partition: Partition) -> None:
        """Close the partition's hot segment and write it to disk, aside. Ephemeral records never leave memory.

        A closed segment whose sealing failed before is tried again.
        """
        if topic.config.durability == "ephemeral":
            return
        partition.close_hot()
        for segment in partition.segments:
            if isinstance(segment, HotSegment) and not segment.open and segment.live:
                key = (topic.id, partition.number, segment.pages[0].first_seq)
                if key not in self._sealing:
                    self._start_sealing(key, list(segment.pages), segment.tags)

    def _start_sealing(self, key: tuple[int, int, int], pages: list[Page], tags: TagIndex) -> None:
        topic_id, partition, first_seq = key
        base = segment_base(topic_id, partition, first_seq)
        self._sealing.add(key)

        def work() -> SegmentInfo:
            return write_segment(self._fs, base, pages, tags.entries())

        def done(info: SegmentInfo, error: BaseException | None) -> None:
            if error is not None:
                self._failed("sealing a segment", error)
                self._seal_over(key)
                return
            sealed = Sealed(topic_id, partition, info)
            self._committer.submit(self._committer.lane_of(topic_id), SealCommit(self, sealed))

        self._aside(work, done)

    def sealed(self, fact: Sealed, lsn: int) -> None:
        self._state.apply(fact)
        self.seals_total += 1
        partition = self._state.partition(fact.topic_id, fact.partition)
        if partition is None:
            base = segment_base(fact.topic_id, fact.partition, fact.segment.first_seq)
            self._doomed.append(Doomed(self._committer.lane_of(fact.topic_id), lsn, base))
        else:
            self.collect_dropped(fact.topic_id, partition, lsn)
        self._hot_bytes -= fact.segment.size
        self._seal_over((fact.topic_id, fact.partition, fact.segment.first_seq))

    def seal_failed(self, fact: Sealed) -> None:
        """The records stay hot; they are in the log and will be sealed another time, or go into the snapshot."""
        self._seal_over((fact.topic_id, fact.partition, fact.segment.first_seq))

    def collect_dropped(self, topic_id: int, partition: Partition, lsn: int) -> None:
        """Segments that the fact at `lsn` has emptied may go once that fact is safe."""
        if partition.dropped:
            lane = self._committer.lane_of(topic_id)
            for segment in partition.dropped:
                self._doomed.append(Doomed(lane, lsn, segment.base))  # type: ignore[attr-defined]
            partition.dropped = []

    def _seal_over(self, key: tuple[int, int, int]) -> None:
        self._sealing.discard(key)
        if self.full and (not self._sealing or self._hot_bytes <= 2 * self.settings.hot_bytes):
            self.full = False
            self.on_room()
        if not self._sealing:
            waiting, self._after_seals = self._after_seals, []
            for callback in waiting:
                # In the next turn: this one may still have commits that are written and not yet true, and those which a
                # flush would write now must not become true before them.
                self._runtime.call_soon(callback)

    def _seal_largest(self) -> None:
        # Counted afresh: what left by eviction or deletion was not followed.
        candidates = [
            (partition.segments[-1].held_bytes, topic, partition)
            for topic in self._state.by_id.values()
            if topic.config.durability != "ephemeral"
            for partition in topic.partitions
            if partition.segments and isinstance(partition.segments[-1], HotSegment)
        ]
        self._hot_bytes = sum([size for size, _, _ in candidates])
        if self._hot_bytes <= self.settings.hot_bytes:
            return
        candidates.sort(key=lambda each: each[0], reverse=True)
        left = self._hot_bytes
        for size, topic, partition in candidates:
            if left <= self.settings.hot_bytes // 2:
                break
            self.seal(topic, partition)
            left -= size

    # Checkpoints

    def written(self, shard: WalShard, size: int) -> None:
        settings = self.settings
        self._wal_bytes += size
        if self._wal_bytes >= settings.checkpoint_bytes and not self._checkpointing:
            self.checkpoint()
        if shard.offset * 2 > settings.wal_file_bytes and not shard.has_spare:
            self._prepare(shard)

    def checkpoint(self, *, clean: bool = False, done: Callable[[bool], None] | None = None) -> None:
        """Take a snapshot of everything and trim the log. `clean`: nothing will be written after it."""
        if done is not None:
            self._after_checkpoint.append(done)
        if self._checkpointing:
            if clean:
                # The one under way does not cover what was written since it began.
                self._checkpoint_again = True
            return
        self._checkpointing = True
        self._clean = clean
        for topic in list(self._state.by_id.values()):
            for partition in topic.partitions:
                segment = partition.segments[-1] if partition.segments else None
                if isinstance(segment, HotSegment) and segment.held_bytes >= SEAL_LEAST:
                    self.seal(topic, partition)
        if self._sealing:
            self._after_seals.append(self._rotate)
        else:
            self._rotate()

    def synced(self) -> None:
        """Remove what may go now."""
        self._remove_doomed()
        if self._awaited is not None and self._committer.read_only:
            self._awaited = None
            self._finish(False)
        if self._awaited is None:
            return
        if all([lane.settled_lsn >= lsn for lane, lsn in self._awaited]):
            self._awaited = None
            self._runtime.call_soon(self._take_images)
        else:
            # The sync that has just ended may have begun before the last of it was written.
            self._committer.sync_all()

    def _remove_doomed(self) -> None:
        if self._images:
            return  # those taken so far may name any of them; `_write_snapshot` knows which
        bases = []
        waiting = []
        for each in self._doomed:
            if each.lane.shard.synced_lsn < each.lsn or any([each.base in named for named in self._named]):
                waiting.append(each)
            else:
                bases.append(each.base)
        if bases:
            self._doomed = waiting
            for base in bases:
                self._state.shelf.forget(base)
            self._aside(lambda: self._remove(bases), self._removed)

    def _rotate(self) -> None:
        # Before the flush, so that every copy on its way stands in the old files and is awaited with them.
        self.hold_copies()
        self._committer.flush()
        try:
            for lane in self._committer.lanes:
                lane.shard.rotate()
        except OSError as error:
            self._failed("rotating the log", error)
            self._finish(False)
            return
        shards = [lane.shard for lane in self._committer.lanes]
        self._cut = self._retired | {shard.number: shard.file_number for shard in shards}
        self._lsns = self._retired_lsns | {shard.number: shard.last_lsn for shard in shards}
        self._wal_bytes = 0
        self._awaited = [(lane, lane.shard.last_lsn) for lane in self._committer.lanes]
        self._committer.sync_all()
        self.synced()

    def _take_images(self) -> None:
        self._images = list(section_images(self._state))
        connected = self._state.routers.topic_ids()
        others = [topic_id for topic_id in self._state.by_id if topic_id not in connected]
        self._ids = [*connected, *others]
        self._connected_until = len(others)
        self._runtime.call_soon(self._take_some)

    def _take_some(self) -> None:
        now_ms = self._runtime.now_ms()
        for topic_id in self._ids[:IMAGES_PER_TURN]:
            topic = self._state.by_id.get(topic_id)
            if topic is not None:
                self._images.append(topic_image(topic, now_ms))
        del self._ids[:IMAGES_PER_TURN]
        if self._connected_until is not None and len(self._ids) <= self._connected_until:
            self._connected_until = None
            self.release_copies(False)
        if self._ids:
            self._runtime.call_later(0, self._take_some)
        else:
            self.release_copies(True)
            self._write_snapshot()

    def _write_snapshot(self) -> None:
        header = HeaderImage(
            self._cut,
            self._committer.next_lsn,
            self._state.next_topic_id,
            self._runtime.now_ms(),
            self._clean,
            self._state.versions.routes.now,
            self._lsns,
            [lane.shard.number for lane in self._committer.lanes],
            self._state.versions.tables.now,
            self._state.versions.archives.now,
        )
        images, self._images = self._images, []
        self._named.append(named_segments(images))
        dirty = self._state.shelf.take_dirty()
        number, previous = self._next_snapshot, self._snapshot

        def work() -> None:
            for segment in dirty:
                segment.save_flags()
            # Always: flags that an earlier process wrote may still wait for it.
            self._fs.sync_directory(SEGMENTS)
            write_snapshot(self._fs, number, (encode_image(each) for each in [header, *images]))
            remove_snapshots_but(self._fs, number, previous)

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                self._state.shelf.dirty.update(dirty)
                # It may stand there under its name all the same, so what it names is held with the one before.
                unfinished = self._named.pop()
                self._named[-1:] = [unfinished.union(*self._named[-1:])]
                self._failed("writing a snapshot", error)
                self._finish(False)
                return
            self._snapshot = number
            self._next_snapshot = number + 1
            self.snapshots_total += 1
            del self._named[:-KEPT]
            self._remove_doomed()
            trim, self._last_cut = self._last_cut, self._cut
            self._aside(lambda: self._trim(trim), lambda _, error: self._finish(error is None))

        self._aside(work, done)

    def _trim(self, cut: dict[int, int]) -> None:
        for shard, below in cut.items():
            remove_files_below(self._fs, shard, below)

    def _finish(self, worked: bool) -> None:
        self.release_copies(True)
        self._checkpointing = False
        if self._checkpoint_again:
            self._checkpoint_again = False
            self.checkpoint(clean=True)
            return
        waiting, self._after_checkpoint = self._after_checkpoint, []
        for callback in waiting:
            callback(worked)

    def _prepare(self, shard: WalShard) -> None:
        """Have the next log file ready before it is needed: making one takes milliseconds."""
        if shard.number in self._preparing:
            return
        self._preparing.add(shard.number)

        def done(_: None, error: BaseException | None) -> None:
            self._preparing.discard(shard.number)
            if error is not None:
                self._failed("preparing a log file", error)

        self._aside(shard.prepare, done)

    def _remove(self, bases: list[str]) -> None:
        for base in bases:
            remove_segment(self._fs, base)
        self._fs.sync_directory(SEGMENTS)

    def _removed(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._failed("removing segments", error)

    def damaged(self, error: CorruptStorage, what: str = "evicting records") -> None:
        """Records that should be worked on cannot be read, and nobody is there to be told."""
        self._failed(what, error)

    def _failed(self, what: str, error: BaseException) -> None:
        self.failures_total += 1
        self.last_error = f"{what}: {error}"

    def is_behind(self) -> bool:
        """Far more is hot than should be: whoever can wait should let the sealing catch up."""
        if self._hot_bytes <= 4 * self.settings.hot_bytes:
            return False
        if not self._sealing:
            self._seal_largest()
        return self._hot_bytes > 4 * self.settings.hot_bytes

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self._state.by_id.values() for partition in topic.partitions]


def _nothing() -> None:
    pass


def _no_matter(_: bool) -> None:
    pass
