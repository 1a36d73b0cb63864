"""Checkpoints: a snapshot of the state is written, and the log is trimmed.

A checkpoint is triggered by the log having grown by `checkpoint_bytes`. `engine/checkpoint_state.py` has the table of its states,
and that of the last checkpoint of a server that stops:

    seal what is large (`sealer.py`) -> rotate the log -> wait until the old files are synced and everything in them is applied ->
    take the image of each topic, some per turn -> sync the log, so that it covers every image ->
    write delete flags and the snapshot -> remove old snapshots, and log files that neither kept snapshot needs

While disk space is low (`log/disk_space.py`) only the newest snapshot is kept, so that a checkpoint needs no more space than the
snapshot it writes and ends with more space than it began with:

    remove what only the older snapshot needs -> ... write the snapshot -> remove everything that it replaces

Then nothing is sealed: a segment would take space and free none. Hot records stay in the log and in the snapshot.

A snapshot is never ahead of the log: images are taken over several turns, so a commit over two topics may be in one
image and not in the other, and only its frame in the log completes it. The same holds for delete flags.

Copies that routers make are rebuilt from their sources in recovery, so no copy may be in flight while the images of topics that
routers connect are taken (see `routers/forwarder.py`): `hold_copies` is called before the cut, `release_copies` after them.
"""

from collections.abc import Callable

from topics.broker.durability.recovery import Recovered
from topics.broker.durability.sealer import Sealer
from topics.broker.durability.segment_removal import SegmentRemoval
from topics.broker.durability.snapshot_image import section_images, topic_image
from topics.broker.durability.storage_thread import StorageContext
from topics.engine.checkpoint_state import CheckpointState, LastCheckpoint, last_transition, transition
from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.partition import Partition
from topics.engine.topics.hot_sizes import HotSizes
from topics.engine.topics.packing import SealKey
from topics.engine.topics.topic import Topic
from topics.runtime.backoff import Backoff
from topics.runtime.replies import call, ignore
from topics.segments.segment_cache import FlaggedSegment
from topics.storage.log.wal import LOG
from topics.storage.segments.segment_format import ROOT as SEGMENTS
from topics.storage.snapshots.kept import Need, need_of, remove_log_below, remove_spare
from topics.storage.snapshots.snapshot import KEPT, remove_snapshots_but, write_snapshot
from topics.storage.snapshots.snapshot_format import HeaderImage, SectionImage, encode_image, named_segments

# Topics whose image is taken in one turn of the loop, at about 8 us each.
IMAGES_PER_TURN = 256


class Checkpointer:
    """Keeps memory and log within their limits. Runs on the loop, except for reading and writing files."""

    def __init__(self, context: StorageContext, removal: SegmentRemoval, sealer: Sealer) -> None:
        self.settings = context.settings
        self.snapshots_total = 0
        # The first stops routers before a cut; the second lets those continue that existed before it, and finally all.
        self.hold_copies: Callable[[], None] = ignore
        self.release_copies: Callable[[bool], None] = ignore
        self._fs, self._state, self._committer = context.fs, context.state, context.committer
        self._health, self._space, self._storage = context.health, context.space, context.storage
        self._runtime = runtime = context.runtime
        self._removal = removal
        self._sealer = sealer
        self._space.on_low = self._low
        sealer.on_over = self._seal_over
        self._health.declare("snapshot", "log_rotation", "log_trim", "log_file")
        self._wal_bytes = 0
        # The seals that the checkpoint under way waits for.
        self._awaited_seals: set[SealKey] | None = None
        self._prepare_backoff = Backoff(runtime, self._prepare_file)
        self.state = CheckpointState.IDLE
        self._checkpoint_backoff = Backoff(runtime, self.checkpoint)
        self._last = LastCheckpoint.NOT_WANTED
        self._after_checkpoint: list[Callable[[bool], None]] = []
        # Of the checkpoint that is being taken.
        self._cut: dict[int, int] = {}
        self._lsns: dict[int, int] = {}
        # The lsn up to which the log must be synced and applied before the checkpoint continues, and how it continues then.
        self._awaited: int | None = None
        self._when_reached: Callable[[], None] = ignore
        self._when_sync_failed: Callable[[], None] = ignore
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

    def start(self, recovered: Recovered) -> None:
        """Continue with what recovery found."""
        dropped = recovered.dropped_segments
        # Which of the two kept snapshots names which segment is not known, so each counts as naming all.
        named = [recovered.contents.bases().union(dropped)] * KEPT if recovered.next_snapshot > 1 else []
        self._removal.start(dropped, named)
        retired = {number: each for number, each in recovered.shards.items() if number != LOG}
        self._retired = {number: next_file for number, (_, next_file) in retired.items()}
        self._retired_lsns = {number: last_lsn for number, (last_lsn, _) in retired.items()}
        self._snapshot = recovered.snapshot
        self._next_snapshot = recovered.next_snapshot
        self._last_cut = recovered.cut
        self._wal_bytes = recovered.wal_bytes
        self._sealer.hot_bytes = recovered.contents.hot_bytes
        self._sealer.packer.start(recovered.contents.packs)
        self._committer.on_written = self.written
        self._committer.on_synced = self.synced

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
        under_way = self.state is not CheckpointState.IDLE
        if clean:
            self._last = last_transition(self._last, LastCheckpoint.WANTED if under_way else LastCheckpoint.BEGUN)
            self._sealer.stop()
        if under_way or (self._stopping and not clean):
            return
        self._transition(CheckpointState.SEALING)
        self._checkpoint_backoff.stop()
        if self._space.low:
            self._remove_spare()
        else:
            self._sealer.measure(self._seal_large)

    def _transition(self, state: CheckpointState) -> None:
        self.state = transition(self.state, state)

    @property
    def _stopping(self) -> bool:
        return self._last is not LastCheckpoint.NOT_WANTED

    @property
    def _clean(self) -> bool:
        """Whether the checkpoint under way is the last one."""
        return self._last is LastCheckpoint.BEGUN

    def _remove_spare(self) -> None:
        """Remove what only the older snapshot needs, then rotate the log."""
        snapshot, cut = self._snapshot, self._last_cut

        def done(_: None, error: BaseException | None) -> None:
            if error is not None:
                self._trim_failed(error)
                return
            self._removal.snapshot_written(1)
            self._sealer.measure(self._seal_large)

        self._storage.run(lambda: remove_spare(self._fs, snapshot, cut), done)

    def _seal_large(self, sizes: HotSizes) -> None:
        """Seal what is too large for the snapshot, then rotate the log."""
        for partition in sizes.at_least(self.settings.min_segment_bytes):
            topic = self._state.by_id.get(partition.topic_id)
            if topic is not None:
                for segment in list(partition.segments):
                    if isinstance(segment, HotSegment) and segment.held_bytes >= self.settings.min_segment_bytes:
                        self._sealer.seal_segment(topic, partition, segment)
        if self._sealer.sealing or (self._clean and self._sealer.packer.busy):
            # Not for those that begin from here on: under constant load there is always one.
            self._awaited_seals = set(self._sealer.sealing)
        else:
            self._rotate()

    def _seal_over(self, key: SealKey | None) -> None:
        """A seal or a pack is over: continue the checkpoint when none that it waits for is left."""
        awaited = self._awaited_seals
        if awaited is None:
            return
        if key is not None:
            awaited.discard(key)
        # The last checkpoint waits for every seal and pack: one that ends behind it would be written to the log.
        if not (self._sealer.sealing or self._sealer.packer.busy if self._clean else awaited):
            self._awaited_seals = None
            # In the next turn: commits of this one may be written and not yet applied, and `_rotate` flushes later ones, which
            # must not be applied before them.
            self._runtime.call_soon(self._rotate)

    def synced(self) -> None:
        """Called after every sync: remove what may go now, and continue the checkpoint if it waited for the sync."""
        self._removal.remove_pending()
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

    def _rotate(self) -> None:
        self._transition(CheckpointState.ROTATING)
        if self._committer.wal.has_spare:
            self._flush_and_rotate()
        else:
            # Beside the loop: making a file takes two syncs. If it fails, `rotate` tries again and reports it.
            self._storage.run(self._committer.wal.prepare, lambda _, __: self._flush_and_rotate())

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
        self._transition(CheckpointState.SYNCING_LOG)
        self._when_synced(self._take_images, lambda: self._finish(False))

    def _take_images(self) -> None:
        self._transition(CheckpointState.TAKING_IMAGES)
        self._removal.begin_images()
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
        self._transition(CheckpointState.SYNCING_IMAGES)
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
        self._removal.images_taken(self._naming)
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
        self._storage.run(lambda: [(segment, segment.copy_flags()) for segment in dirty], copied)

    def _store_snapshot(
        self, images: list[HeaderImage | SectionImage | bytes], flags: list[tuple[FlaggedSegment, bytes]]
    ) -> None:
        self._transition(CheckpointState.WRITING)
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
            self._removal.snapshot_written(KEPT if keeps_previous else 1)
            self._transition(CheckpointState.TRIMMING)
            trim, self._last_cut = self._last_cut, cut
            self._storage.run(lambda: remove_log_below(self._fs, trim), self._trimmed)

        self._storage.run(work, done)

    def _snapshot_failed(self, dirty: list[FlaggedSegment], error: BaseException) -> None:
        self._state.segment_cache.dirty.update(dirty)
        self._removal.snapshot_failed()
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
        self._transition(CheckpointState.IDLE)
        if worked:
            self._checkpoint_backoff.succeeded()
        elif not self._clean and not self._committer.read_only:
            self._checkpoint_backoff.failed()
        if self._last is LastCheckpoint.WANTED:
            self.checkpoint(clean=True)
            return
        idle, self._idle = self._idle, []
        idle_bytes, self._idle_bytes = self._idle_bytes, 0
        if worked and not self._stopping and not self._space.low:
            if idle_bytes >= self.settings.min_segment_bytes:
                self._sealer.packer.pack(idle)
            self._sealer.packer.clean()
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
        return not self._committer.read_only and (self._wal_bytes > 0 or self._removal.older_snapshots)

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

        self._storage.run(self._committer.wal.prepare, done)
