"""Checkpoints: hot records are sealed, a snapshot of the state is written, and the log is trimmed.

Sealing is triggered by size: a hot segment that has grown to `segment_bytes`, or the largest ones when all hot records
together pass `hot_bytes`. A checkpoint is triggered by the log having grown by `checkpoint_bytes`:

    seal what is large -> rotate the log -> wait until the old files are synced and everything in them is applied ->
    take the image of each topic, some per turn -> sync the log, so that it covers every image ->
    write delete flags and the snapshot -> remove old snapshots, and log files that neither kept snapshot needs

While disk space is low (`disk_space.py`) only the newest snapshot is kept, so that a checkpoint needs no more space than the
snapshot it writes and ends with more space than it began with:

    remove what only the older snapshot needs -> ... write the snapshot -> remove everything that it replaces

Then nothing is sealed: a segment would take space and free none. Hot records stay in the log and in the snapshot.

A snapshot is never ahead of the log: images are taken over several turns, so a commit over two topics may be in one
image and not in the other, and only its frame in the log completes it. The same holds for delete flags.

Files of dropped segments are removed only when the fact that dropped them is safe on disk and neither of the two kept
snapshots names them: recovery begins with a snapshot as it was written, before anything that happened since.

Copies that routers make are rebuilt from their sources in recovery, so no copy may be in flight while the images of topics that
routers connect are taken (see `routers/forwarder.py`): `hold_copies` is called before the cut, `release_copies` after them.
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from topics.broker.durability.disk_space import DiskSpace, Need
from topics.broker.durability.packer import Packer, PackLimits, SealKey
from topics.broker.durability.snapshot_image import (
    HeaderImage,
    SectionImage,
    encode_image,
    named_segments,
    section_images,
    topic_image,
)
from topics.broker.log.commit import Commit, FactCommit
from topics.broker.log.committer import Committer
from topics.broker.segments.packed_segments import PackedSegment
from topics.broker.segments.segment_cache import FlaggedSegment
from topics.broker.state import State
from topics.engine.partition import Partition
from topics.engine.segment import HotSegment
from topics.engine.topic import Topic
from topics.model.errors import TopicsError, Unavailable
from topics.model.facts import Sealed, SegmentInfo
from topics.runtime.backoff import Backoff
from topics.runtime.health import Health
from topics.runtime.interface import Runtime
from topics.runtime.replies import call
from topics.storage.fs import FileSystem
from topics.storage.kept import remove_log_below, remove_spare, spare_bytes
from topics.storage.segment_format import ROOT as SEGMENTS
from topics.storage.segment_format import remove_segment, segment_base
from topics.storage.segment_writer import write_segment
from topics.storage.snapshot import KEPT, remove_snapshots_but, snapshot_size, write_snapshot
from topics.storage.wal import LOG

if TYPE_CHECKING:
    from topics.broker.durability.recovery import Recovered

# Time for one step of measuring what is hot.
STEP_SECONDS = 0.002
# Topics whose image is taken in one turn of the loop, at about 8 us each.
IMAGES_PER_TURN = 256


class StorageSettings(Struct, frozen=True):
    """Settings of the data directory. Sizes in bytes."""

    wal_file_bytes: int = 64 << 20
    segment_bytes: int = 16 << 20
    hot_bytes: int = 64 << 20
    cache_bytes: int = 32 << 20
    checkpoint_bytes: int = 64 << 20
    sync_interval_ms: int = 1000
    # A larger write to the log runs in a thread: 2 MiB take 1 to 2 ms, 64 MiB more than 50.
    max_loop_write_bytes: int = 2 << 20
    # How many records may be readable without being synced; also how many seqs a power cut skips in a disk topic.
    margin: int = 1 << 20
    # Disk space kept for deletes, in addition to what the next snapshot needs on a full disk; 0 for none.
    reserve_bytes: int = 16 << 20
    # How often all topics are visited for expired records; 0 for never.
    retention_interval_ms: int = 5000
    # Smaller segments get no files of their own: they are packed with others, or stay hot and go into the snapshot.
    min_segment_bytes: int = 1 << 20
    # How large packs become, and how many small packs, or packed segments of a partition, are merged: see `packer.py`.
    pack_bytes: int = 16 << 20
    pack_merge_count: int = 8


def need_of(fs: FileSystem, settings: StorageSettings, snapshot: int, cut: dict[int, int]) -> Need:
    """What the next snapshot needs on disk if this is the newest one. Raises OSError."""
    # A checkpoint begins when the log has grown by `checkpoint_bytes`, and writes wait while more than twice `hot_bytes` are hot.
    growth_bytes = min(settings.checkpoint_bytes, 2 * settings.hot_bytes)
    return Need(snapshot_size(fs, snapshot) + growth_bytes, spare_bytes(fs, snapshot, cut))


class CheckpointState(Enum):
    """The step that a checkpoint is in. Every step may end with IDLE: then it failed, and is repeated after a delay."""

    IDLE = "idle"
    # Hot segments that are too large for the snapshot are sealed; on a full disk, spare files are removed first.
    SEALING = "sealing"
    # Routers are held, what is queued is written, and a new log file begins: the cut.
    ROTATING = "rotating"
    # Everything before the cut is being synced and applied.
    SYNCING_LOG = "syncing_log"
    # The images of the topics are taken, some per turn of the loop.
    TAKING_IMAGES = "taking_images"
    # Delete flags are copied, and the log is synced up to the newest image.
    SYNCING_IMAGES = "syncing_images"
    # Flags and snapshot are written and synced, by the storage thread.
    WRITING = "writing"
    # Log files that neither kept snapshot needs are removed.
    TRIMMING = "trimming"


NEXT_STATE = {
    CheckpointState.IDLE: CheckpointState.SEALING,
    CheckpointState.SEALING: CheckpointState.ROTATING,
    CheckpointState.ROTATING: CheckpointState.SYNCING_LOG,
    CheckpointState.SYNCING_LOG: CheckpointState.TAKING_IMAGES,
    CheckpointState.TAKING_IMAGES: CheckpointState.SYNCING_IMAGES,
    CheckpointState.SYNCING_IMAGES: CheckpointState.WRITING,
    CheckpointState.WRITING: CheckpointState.TRIMMING,
    CheckpointState.TRIMMING: CheckpointState.IDLE,
}


class PendingRemoval(Struct):
    """A segment or a pack to remove once the log is synced up to `lsn`."""

    lsn: int
    base: str


class Sweep:
    """Measures what is hot, some topics per turn: partitions by the bit length of their hot bytes."""

    def __init__(self, state: State) -> None:
        self._state = state
        # The next one last.
        self._left = list(reversed(state.by_id))
        self._by_bits: dict[int, list[Partition]] = {}
        self._bytes_by_bits: dict[int, int] = {}

    def run(self, perf: Callable[[], float], seconds: float) -> bool:
        """Measure for this long. True when all topics are measured."""
        until = perf() + seconds
        while self._left:
            if perf() > until:
                return False
            topic = self._state.by_id.get(self._left.pop())
            if topic is not None and topic.config.durability != "ephemeral":
                for partition in topic.partitions:
                    self._add(partition)
        return True

    def _add(self, partition: Partition) -> None:
        partition.drop_dead_hot()
        size = partition.hot_bytes
        if size:
            bits = size.bit_length()
            self._by_bits.setdefault(bits, []).append(partition)
            self._bytes_by_bits[bits] = self._bytes_by_bits.get(bits, 0) + size

    @property
    def bytes(self) -> int:
        return sum(self._bytes_by_bits.values())

    def at_least(self, size: int) -> list[Partition]:
        """The partitions with this many hot bytes, and perhaps some with fewer."""
        chosen = [bits for bits in self._by_bits if bits >= size.bit_length()]
        return [each for bits in chosen for each in self._by_bits[bits]]

    def largest(self, wanted: int) -> list[Partition]:
        """Partitions that hold about `wanted` bytes together, the larger ones first."""
        chosen: list[Partition] = []
        for bits in sorted(self._by_bits, reverse=True):
            partitions, size = self._by_bits[bits], self._bytes_by_bits[bits]
            if size >= wanted:
                return chosen + partitions[: -(-wanted * len(partitions) // size)]
            chosen += partitions
            wanted -= size
        return chosen


class Checkpointer:
    """Keeps memory and log within their limits. Runs on the loop, except for reading and writing files."""

    def __init__(
        self,
        fs: FileSystem,
        runtime: Runtime,
        state: State,
        committer: Committer,
        settings: StorageSettings,
        health: Health,
        space: DiskSpace,
    ) -> None:
        self.settings = settings
        self.snapshots_total = 0
        self.seals_total = 0
        # The first stops routers before a cut; the second lets those continue that existed before it, and finally all.
        self.hold_copies: Callable[[], None] = _nothing
        self.release_copies: Callable[[bool], None] = _no_matter
        self._fs = fs
        self._runtime = runtime
        self._state = state
        self._committer = committer
        self._health = health
        self._space = space
        space.on_low = self._low
        health.declare("seal", "snapshot", "log_rotation", "log_trim", "log_file", "segment_removal")
        self._wal_bytes = 0
        # Memory is at its bound because records come faster than they are sealed, or because sealing fails. New writes wait,
        # or are refused when it fails.
        self.full = False
        self.on_room: Callable[[], None] = _nothing
        self._hot_bytes = 0
        self._sealing: set[SealKey] = set()
        # Closed segments that could not be sealed, until the next attempt.
        self._unsealed: dict[SealKey, HotSegment] = {}
        self._seal_backoff = Backoff(runtime, self._retry_seals)
        # What is hot is being measured, to seal or pack the largest.
        self._sweeping = False
        self.packer = Packer(
            fs,
            runtime,
            state,
            committer,
            health,
            self,
            PackLimits(settings.pack_bytes, settings.min_segment_bytes, settings.pack_merge_count),
        )
        # The seals that the checkpoint under way waits for.
        self._awaited_seals: set[SealKey] | None = None
        self._pending_removals: list[PendingRemoval] = []
        self._removal_backoff = Backoff(runtime, self._remove_pending)
        self._prepare_backoff = Backoff(runtime, self._prepare_file)
        self.state = CheckpointState.IDLE
        self._checkpoint_backoff = Backoff(runtime, self.checkpoint)
        # A last one was asked for while another was under way.
        self._checkpoint_again = False
        self._stopping = False
        self._after_checkpoint: list[Callable[[bool], None]] = []
        # Of the checkpoint that is being taken.
        self._clean = False
        self._cut: dict[int, int] = {}
        self._lsns: dict[int, int] = {}
        # The lsn up to which the log must be synced and applied before the checkpoint continues, and how it continues then.
        self._awaited: int | None = None
        self._when_reached: Callable[[], None] = _nothing
        self._when_sync_failed: Callable[[], None] = _nothing
        self._ids: list[int] = []
        # How many topics are left when all that routers connect are taken.
        self._connected_until: int | None = None
        self._images: list[bytes | SectionImage] = []
        # Segments and packs that these images name.
        self._naming: set[str] = set()
        # Partitions whose hot records are those of the last snapshot, and the bytes of those records.
        self._idle: list[Partition] = []
        self._idle_bytes = 0
        self._preparing = False
        # Shards that an earlier version wrote. Number behind the last file, last lsn.
        self._retired: dict[int, int] = {}
        self._retired_lsns: dict[int, int] = {}
        # The newest whole snapshot, and the number for the next one.
        self._snapshot = 0
        self._next_snapshot = 1
        # The first log file that the newest snapshot needs. Older files serve only the previous snapshot.
        self._last_cut: dict[int, int] = {}
        # Segments that the kept snapshots name, newest last; the one being written counts already.
        self._named: list[set[str]] = []

    def start(self, recovered: "Recovered") -> None:
        """Go on from where recovery left off."""
        dropped = recovered.dropped_segments
        if recovered.next_snapshot > 1:
            # Which of the two kept snapshots names which segment is not known, so each counts as naming all.
            self._named = [recovered.contents.bases().union(dropped)] * KEPT
        self._pending_removals = [PendingRemoval(0, base) for base in dropped]
        retired = {number: each for number, each in recovered.shards.items() if number != LOG}
        self._retired = {number: next_file for number, (_, next_file) in retired.items()}
        self._retired_lsns = {number: last_lsn for number, (last_lsn, _) in retired.items()}
        self._snapshot = recovered.snapshot
        self._next_snapshot = recovered.next_snapshot
        self._last_cut = recovered.cut
        self._wal_bytes = recovered.wal_bytes
        self._hot_bytes = recovered.contents.hot_bytes
        self.packer.start(recovered.contents.packs)
        self._committer.on_written = self.written
        self._committer.on_synced = self.synced

    def run_storage(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run work in the storage thread. Meanwhile syncs of the log run in their own thread: they wait for the same disk."""
        committer = self._committer
        committer.disk_busy += 1

        def over(result: Any, error: BaseException | None) -> None:
            committer.disk_busy -= 1
            done(result, error)

        self._runtime.run_in_thread("storage", work, over)

    def run_storage_write(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """As `run_storage`, for records that leave memory. Fails with ENOSPC if space is low by then."""

        def checked() -> Any:
            self._space.check_growth()
            return work()

        self.run_storage(checked, done)

    # Sealing

    def appended(self, topic: Topic, partition: Partition, size: int) -> None:
        """Called for every append that was applied: counts, and seals when a bound is reached."""
        settings = self.settings
        hot_bytes = self._hot_bytes + size
        self._hot_bytes = hot_bytes
        failing = self._seal_backoff.waiting
        if hot_bytes > 2 * settings.hot_bytes and (failing or self._is_relieving):
            self.full = True
        if failing:
            return
        segments = partition.segments
        if segments and isinstance(hot := segments[-1], HotSegment) and hot.held_bytes >= settings.segment_bytes:
            self._seal_segment(topic, partition, hot)
        elif hot_bytes > settings.hot_bytes and not self._is_relieving:
            self._seal_largest()

    @property
    def _is_relieving(self) -> bool:
        """Whether hot records are leaving memory, or what should leave is being looked for."""
        return bool(self._sealing) or self._sweeping or self.packer.busy

    def check_sealing(self) -> None:
        """Raises Unavailable when memory is full and segments cannot be written."""
        if self._seal_backoff.waiting:
            if self._space.low:
                raise Unavailable("the disk is full; nothing was written", code="storage_full")
            raise Unavailable("memory is full and segments cannot be written; see /v0/ready", code="storage_error")

    def seal(self, topic: Topic, partition: Partition) -> None:
        """Write all hot segments of the partition to disk, aside. Ephemeral records never leave memory."""
        for segment in list(partition.segments):
            if isinstance(segment, HotSegment):
                self._seal_segment(topic, partition, segment)

    def _seal_segment(self, topic: Topic, partition: Partition, segment: HotSegment) -> None:
        # On a full disk segments would take the space that is kept for deletes.
        if topic.config.durability == "ephemeral" or not segment.live or self._space.low:
            return
        if segment.open:
            segment.close()
        key = (topic.id, partition.number, segment.pages[0].first_seq)
        if self.begin_seal(key):
            self._start_sealing(key, segment)

    def begin_seal(self, key: SealKey) -> bool:
        """Reserve a closed hot segment. False when it is being sealed or packed already, or the disk is full."""
        if key in self._sealing or self._space.low:
            return False
        self._sealing.add(key)
        return True

    def _start_sealing(self, key: SealKey, segment: HotSegment) -> None:
        topic_id, partition, first_seq = key
        base = segment_base(topic_id, partition, first_seq)
        pages, tags = list(segment.pages), segment.tags

        def work() -> SegmentInfo:
            return write_segment(self._fs, base, pages, tags.entries(first_seq))

        def done(info: SegmentInfo, error: BaseException | None) -> None:
            if error is not None:
                self.seal_failed({key: segment}, base, error)
                return
            self._commit_seal(Sealed(topic_id, partition, info), segment)

        self.run_storage_write(work, done)

    def _commit_seal(self, fact: Sealed, hot: HotSegment) -> None:
        """The segment is written and synced: when the log says so, readers use it instead of the hot one."""
        key = (fact.topic_id, fact.partition, fact.segment.first_seq)
        base = segment_base(*key)

        def applied(commit: Commit) -> None:
            self.seals_total += 1
            partition = self._state.partition(fact.topic_id, fact.partition)
            if partition is None:
                self.remove_later(base, commit.lsn)
            else:
                self.collect_dropped(partition, commit.lsn)
            self.end_seal(key, fact.segment.size)

        def decided(error: TopicsError | None) -> None:
            if error is not None:
                # The records stay hot. The files are removed unless the fact may be in the log: then recovery needs them.
                if not commit.is_logged and not self._committer.read_only:
                    self.run_storage(lambda: self._remove([base]), _ignored)
                self.seal_failed({key: hot}, base, error)

        commit = FactCommit([fact], decided, sync=False, after_apply=applied)
        self._committer.submit(commit)

    def end_seal(self, key: SealKey, freed_bytes: int) -> None:
        """The hot segment is sealed or packed, and `freed_bytes` left memory."""
        self._hot_bytes -= freed_bytes
        self._unsealed.pop(key, None)
        if not self._unsealed:
            self._health.clear("seal")
            self._seal_backoff.succeeded()
        self._seal_over(key)

    def seal_failed(self, segments: dict[SealKey, HotSegment], base: str, error: BaseException) -> None:
        """These segments, which were to be written together, stay hot. The backoff tries again."""
        self._health.fail("seal", f"cannot seal {base}: {error}; its records stay in memory and in the log")
        self._unsealed |= segments
        self._seal_backoff.failed()
        self._space.run_out(error)
        for key in segments:
            self._seal_over(key)

    def _retry_seals(self) -> None:
        """Seal or pack again what could not be sealed and is still there."""
        if self._space.low:
            self._seal_backoff.failed()
            return
        unsealed, self._unsealed = self._unsealed, {}
        small: list[Partition] = []
        for (topic_id, number, _), segment in unsealed.items():
            partition = self._state.partition(topic_id, number)
            if partition is None or segment not in partition.segments:
                continue
            if segment.held_bytes < self._min_sealed_bytes:
                small.append(partition)
            else:
                self._seal_segment(self._state.by_id[topic_id], partition, segment)
        self.packer.pack(small)
        if not self._is_relieving:
            # All of it was deleted or evicted meanwhile.
            self._health.clear("seal")
            self._seal_backoff.succeeded()
        self._seal_largest()

    def collect_dropped(self, partition: Partition, lsn: int) -> None:
        """Remove segments that the fact at `lsn` has emptied, once that fact is durable."""
        if partition.dropped:
            for segment in partition.dropped:
                if isinstance(segment, PackedSegment):
                    self.packer.entry_dropped(segment.info, lsn)
                    self._state.segment_cache.forget_damage(segment.damage_key)
                else:
                    self.remove_later(segment.base, lsn)  # type: ignore[attr-defined]
            partition.dropped = []

    def remove_later(self, base: str, lsn: int) -> None:
        """Remove the files of a base when the log is synced up to `lsn` and no kept snapshot names it."""
        self._pending_removals.append(PendingRemoval(lsn, base))
        self._state.segment_cache.forget_damage(base)

    def packing_over(self) -> None:
        """The packer has nothing left to do."""
        self._check_full()
        self._check_awaited()

    def _seal_over(self, key: SealKey) -> None:
        self._sealing.discard(key)
        if self._awaited_seals is not None:
            self._awaited_seals.discard(key)
        self._check_full()
        self._check_awaited()

    def _check_awaited(self) -> None:
        """Continue the checkpoint when the seals that it waits for are over."""
        awaited = self._awaited_seals
        # The last checkpoint waits for every seal and pack: one that ends behind it would be written to the log.
        if awaited is not None and not (self._sealing or self.packer.busy if self._clean else awaited):
            self._awaited_seals = None
            # In the next turn: commits of this one may be written and not yet applied, and `_rotate` flushes later ones, which
            # must not be applied before them.
            self._runtime.call_soon(self._rotate)

    def _check_full(self) -> None:
        """Let waiting writes go on when there is room again, or be refused while sealing fails."""
        if self.full:
            failing = self._seal_backoff.waiting
            over = self._hot_bytes > 2 * self.settings.hot_bytes
            self.full = over and (failing or self._is_relieving)
            if not self.full or failing:
                self.on_room()

    @property
    def _min_sealed_bytes(self) -> int:
        """Smaller segments are packed."""
        return min(self.settings.min_segment_bytes, self.settings.segment_bytes)

    def _sweep(self, sweep: Sweep, done: Callable[[Sweep], None]) -> None:
        """Measure what is hot, some topics per turn unless the server stops."""
        if sweep.run(self._runtime.perf, 60.0 if self._stopping else STEP_SECONDS):
            done(sweep)
        else:
            self._runtime.call_soon(lambda: self._sweep(sweep, done))

    def _seal_largest(self) -> None:
        """Measure what is hot, and seal or pack the largest until only half of `hot_bytes` is hot."""
        if not self._sweeping:
            self._sweeping = True
            self._sweep(Sweep(self._state), self._relieve)

    def _relieve(self, sweep: Sweep) -> None:
        self._sweeping = False
        # Eviction and deletion do not update the sum.
        self._hot_bytes = sweep.bytes
        if self._hot_bytes > self.settings.hot_bytes and not self._space.low:
            largest = sweep.largest(self._hot_bytes - self.settings.hot_bytes // 2)
            for index, partition in enumerate(largest):
                topic = self._state.by_id.get(partition.topic_id)
                if topic is not None:
                    if partition.hot_bytes < self._min_sealed_bytes:
                        # So are the rest.
                        self.packer.pack(largest[index:])
                        break
                    self.seal(topic, partition)
        self._check_full()

    # Checkpoints

    def written(self, size: int) -> None:
        settings = self.settings
        self._wal_bytes += size
        if self._space.low:
            # What was written frees space, and that needs a checkpoint.
            self._free_space()
            return
        if (
            self._wal_bytes >= settings.checkpoint_bytes
            and self.state is CheckpointState.IDLE
            and not self._checkpoint_backoff.waiting
        ):
            self.checkpoint()
        wal = self._committer.wal
        if wal.offset * 2 > settings.wal_file_bytes and not wal.has_spare and not self._prepare_backoff.waiting:
            self._prepare_file()

    def checkpoint(self, *, clean: bool = False, done: Callable[[bool], None] | None = None) -> None:
        """Take a snapshot of everything and trim the log. `clean`: nothing will be written after it."""
        if done is not None:
            self._after_checkpoint.append(done)
        if clean:
            self._stopping = True
            self.packer.stop()
        if self.state is not CheckpointState.IDLE:
            if clean:
                # The one under way does not cover what was written since it began.
                self._checkpoint_again = True
            return
        self._enter(CheckpointState.SEALING)
        self._clean = clean
        self._checkpoint_backoff.stop()
        if self._space.low:
            self._remove_spare()
        else:
            self._sweep(Sweep(self._state), self._seal_large)

    def _enter(self, state: CheckpointState) -> None:
        assert NEXT_STATE[self.state] is state, f"a checkpoint cannot go from {self.state.value} to {state.value}"
        self.state = state

    def _remove_spare(self) -> None:
        """Remove what only the older snapshot needs, then rotate the log."""
        snapshot, cut = self._snapshot, self._last_cut

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                self._trim_failed(error)
                return
            del self._named[:-1]
            self._remove_pending()
            self._sweep(Sweep(self._state), self._seal_large)

        self.run_storage(lambda: remove_spare(self._fs, snapshot, cut), done)

    def _seal_large(self, sweep: Sweep) -> None:
        """Seal what is too large for the snapshot, then rotate the log."""
        for partition in sweep.at_least(self.settings.min_segment_bytes):
            topic = self._state.by_id.get(partition.topic_id)
            if topic is not None:
                for segment in list(partition.segments):
                    if isinstance(segment, HotSegment) and segment.held_bytes >= self.settings.min_segment_bytes:
                        self._seal_segment(topic, partition, segment)
        if self._sealing or (self._clean and self.packer.busy):
            # Not for those that begin from here on: under constant load there is always one.
            self._awaited_seals = set(self._sealing)
        else:
            self._rotate()

    def synced(self) -> None:
        """Remove what may go now."""
        self._remove_pending()
        if self._awaited is not None and self._committer.read_only:
            self._awaited = None
            self._when_sync_failed()
        if self._awaited is None:
            return
        if self._committer.settled_lsn >= self._awaited:
            self._awaited = None
            self._runtime.call_soon(self._when_reached)
        else:
            # The sync that has just ended may have begun before the last of it was written.
            self._committer.sync()

    def _when_synced(self, then: Callable[[], None], failed: Callable[[], None]) -> None:
        """Call `then` when everything written so far is synced and applied, or `failed` when a sync fails."""
        self._when_reached = then
        self._when_sync_failed = failed
        self._awaited = self._committer.wal.last_lsn
        self._committer.sync()
        self.synced()

    def _remove_pending(self) -> None:
        if self._images:
            return  # those taken so far may name any of them; `_write_snapshot` knows which
        if self._removal_backoff.waiting:
            return
        removed: list[PendingRemoval] = []
        waiting = []
        for each in self._pending_removals:
            if self._committer.wal.synced_lsn < each.lsn or any([each.base in named for named in self._named]):
                waiting.append(each)
            else:
                removed.append(each)
        if removed:
            self._pending_removals = waiting
            for each in removed:
                self._state.segment_cache.forget(each.base)

            def done(_: None, error: BaseException | None) -> None:
                if error is None:
                    if self._space.low:
                        self._space.recheck()
                    self._health.clear("segment_removal")
                    self._removal_backoff.succeeded()
                else:
                    self._pending_removals += removed
                    self._health.fail("segment_removal", f"cannot remove files of dropped segments: {error}")
                    self._removal_backoff.failed()

            self.run_storage(lambda: self._remove([each.base for each in removed]), done)

    def _rotate(self) -> None:
        self._enter(CheckpointState.ROTATING)
        if self._committer.wal.has_spare:
            self._flush_and_rotate()
        else:
            # Beside the loop: making a file takes two syncs. If it fails, `rotate` tries again and reports it.
            self.run_storage(self._committer.wal.prepare, lambda _, __: self._flush_and_rotate())

    def _flush_and_rotate(self) -> None:
        # Before the flush, so that every copy in flight is in the old files and is awaited with them.
        self.hold_copies()
        self._committer.when_written(self._rotate_now)

    def _rotate_now(self) -> None:
        wal = self._committer.wal
        try:
            wal.rotate()
        except OSError as error:
            self._health.fail(
                "log_rotation", f"cannot begin a log file for a checkpoint: {error}; the log keeps growing"
            )
            self._space.run_out(error)
            self._finish(False)
            return
        self._health.clear("log_rotation")
        self._cut = self._retired | {LOG: wal.file_number}
        self._lsns = self._retired_lsns | {LOG: wal.last_lsn}
        self._wal_bytes = 0
        self._enter(CheckpointState.SYNCING_LOG)
        self._when_synced(self._take_images, lambda: self._finish(False))

    def _take_images(self) -> None:
        self._enter(CheckpointState.TAKING_IMAGES)
        self._images = list(section_images(self._state))
        connected = self._state.routers.topic_ids()
        others = [topic_id for topic_id in self._state.by_id if topic_id not in connected]
        # Taken from the end: those that routers connect first.
        self._ids = [*reversed(others), *connected]
        self._connected_until = len(others)
        self._naming = set()
        self._runtime.call_soon(self._take_some)

    def _take_some(self) -> None:
        now_ms = self._runtime.now_ms()
        # A server that stops has nothing else to do.
        count = len(self._ids) if self._stopping else IMAGES_PER_TURN
        for topic_id in reversed(self._ids[-count:]):
            topic = self._state.by_id.get(topic_id)
            if topic is not None:
                image = topic_image(topic, now_ms)
                self._naming |= named_segments([image])
                # Encoded here, at 2 us: hundreds of thousands of objects would have the garbage collector look at all
                # objects of the process several times, and each time stop the loop for as long as a second.
                self._images.append(encode_image(image))
                self._note_idle(topic)
        del self._ids[-count:]
        if self._connected_until is not None and len(self._ids) <= self._connected_until:
            self._connected_until = None
            self.release_copies(False)
        if self._ids:
            self._runtime.call_later(0, self._take_some)
        else:
            self.release_copies(True)
            self._write_snapshot()

    def _note_idle(self, topic: Topic) -> None:
        """Remember partitions whose hot records the last snapshot has already: writing them again and again is waste."""
        if topic.config.durability == "ephemeral":
            return
        for partition in topic.partitions:
            hot = partition.segments[-1] if partition.segments else None
            if isinstance(hot, HotSegment) and hot.live:
                if hot.snapshot_seq == hot.last_seq:
                    self._idle.append(partition)
                    self._idle_bytes += hot.held_bytes
                hot.snapshot_seq = hot.last_seq

    def _write_snapshot(self) -> None:
        self._enter(CheckpointState.SYNCING_IMAGES)
        header = HeaderImage(
            self._cut,
            self._committer.next_lsn,
            self._state.next_topic_id,
            self._runtime.now_ms(),
            self._clean,
            self._state.versions.routes.now,
            self._lsns,
            [LOG],
            self._state.versions.tables.now,
            self._state.versions.archives.now,
            self._state.next_pack,
            [*self._naming],
        )
        images, self._images = self._images, []
        self._named.append(self._naming)
        dirty = self._state.segment_cache.take_dirty()

        def copied(flags: list[tuple[FlaggedSegment, bytes]], error: BaseException | None) -> None:
            if error is not None:
                self._snapshot_failed(dirty, error)
                return
            # After the copy: the log must cover each delete that a flag shows.
            self._when_synced(
                lambda: self._store_snapshot([header, *images], flags),
                lambda: self._snapshot_failed(dirty, OSError("a sync of the log failed")),
            )

        # Aside: all flags together can be large.
        self.run_storage(lambda: [(segment, segment.copy_flags()) for segment in dirty], copied)

    def _store_snapshot(
        self, images: list[HeaderImage | SectionImage | bytes], flags: list[tuple[FlaggedSegment, bytes]]
    ) -> None:
        self._enter(CheckpointState.WRITING)
        number, previous, cut = self._next_snapshot, self._snapshot, self._cut
        keeps_previous = not self._space.low

        def work() -> None:
            for segment, each in flags:
                segment.save_flags(each)
            # Always: flags that an earlier process wrote may still wait for it.
            self._fs.sync_directory(SEGMENTS)
            write_snapshot(
                self._fs, number, (each if isinstance(each, bytes) else encode_image(each) for each in images)
            )
            if keeps_previous:
                remove_snapshots_but(self._fs, number, previous)
            else:
                remove_spare(self._fs, number, cut)

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                self._snapshot_failed([segment for segment, _ in flags], error)
                return
            self._snapshot = number
            self._next_snapshot = number + 1
            self.snapshots_total += 1
            self._health.clear("snapshot")
            # Only this one, and perhaps the one before, are left.
            self._health.clear_all("damaged_snapshot")
            del self._named[: -KEPT if keeps_previous else -1]
            self._remove_pending()
            self._enter(CheckpointState.TRIMMING)
            trim, self._last_cut = self._last_cut, cut
            self.run_storage(lambda: remove_log_below(self._fs, trim), self._trimmed)

        self.run_storage(work, done)

    def _snapshot_failed(self, dirty: list[FlaggedSegment], error: BaseException) -> None:
        self._state.segment_cache.dirty.update(dirty)
        # The file may exist under its name all the same, so its segments are kept with those of the snapshot before.
        unfinished = self._named.pop()
        self._named[-1:] = [unfinished.union(*self._named[-1:])]
        self._health.fail("snapshot", f"cannot write a snapshot: {error}; the log is not trimmed")
        self._space.run_out(error)
        self._finish(False)

    def _trimmed(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._trim_failed(error)
            return
        self._health.clear("log_trim")
        self._finish(True)

    def _trim_failed(self, error: BaseException) -> None:
        self._health.fail("log_trim", f"cannot remove old log files: {error}; the next checkpoint tries again")
        self._finish(False)

    def _finish(self, worked: bool) -> None:
        self.release_copies(True)
        self.state = CheckpointState.IDLE
        if worked:
            self._checkpoint_backoff.succeeded()
        elif not self._clean and not self._committer.read_only:
            self._checkpoint_backoff.failed()
        if self._checkpoint_again:
            self._checkpoint_again = False
            self.checkpoint(clean=True)
            return
        idle, self._idle = self._idle, []
        idle_bytes, self._idle_bytes = self._idle_bytes, 0
        if worked and not self._stopping and not self._space.low:
            if idle_bytes >= self.settings.min_segment_bytes:
                self.packer.pack(idle)
            self.packer.clean()
        waiting, self._after_checkpoint = self._after_checkpoint, []
        for callback in waiting:
            call(callback, worked)
        if worked and not self._stopping:
            # The next snapshot may be larger than this one was expected to be.
            self._space.recheck(self._free_space)

    def _low(self) -> None:
        """Space is low: take the checkpoint that frees some. If none does, see whether there is enough space again.

        Not before that checkpoint: its own attempts may have returned the space that it needs.
        """
        if not self._checkpoint_frees_space:
            self._space.recheck()
        else:
            self._free_space()

    def _free_space(self) -> None:
        if (
            self._space.low
            and self._checkpoint_frees_space
            and self.state is CheckpointState.IDLE
            and not self._checkpoint_backoff.waiting
        ):
            self.checkpoint()

    @property
    def _checkpoint_frees_space(self) -> bool:
        """Whether the log has frames behind the last cut, which may be deletes, or there are spare files."""
        return not self._committer.read_only and (self._wal_bytes > 0 or len(self._named) > 1)

    def measure_need(self) -> Need:
        """What the next snapshot needs. Any thread."""
        return need_of(self._fs, self.settings, self._snapshot, self._last_cut)

    def _prepare_file(self) -> None:
        """Create the next log file before it is needed: that takes milliseconds."""
        if self._preparing:
            return
        self._preparing = True

        def done(_: None, error: BaseException | None) -> None:
            self._preparing = False
            if error is not None:
                self._health.fail("log_file", f"cannot reserve space for the next log file: {error}")
                self._prepare_backoff.failed()
                self._space.run_out(error)
            else:
                self._health.clear("log_file")
                self._prepare_backoff.succeeded()

        self.run_storage(self._committer.wal.prepare, done)

    def _remove(self, bases: list[str]) -> None:
        for base in bases:
            remove_segment(self._fs, base)
        self._fs.sync_directory(SEGMENTS)

    def is_behind(self) -> bool:
        """Whether far too much is hot, so that work that can wait should wait for the sealing."""
        if self._hot_bytes <= 4 * self.settings.hot_bytes:
            return False
        if not self._is_relieving and not self._seal_backoff.waiting:
            self._seal_largest()
        return self._hot_bytes > 4 * self.settings.hot_bytes


def _nothing() -> None:
    pass


def _no_matter(_: bool) -> None:
    pass


def _ignored(_: Any, _error: BaseException | None) -> None:
    pass
