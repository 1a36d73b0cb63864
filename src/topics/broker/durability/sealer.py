"""Sealing: hot segments are written to files of their own, or packed with others, and leave memory.

It is triggered by size: a hot segment that has grown to `segment_bytes`, or the largest ones when all hot records together pass
`hot_bytes`. A checkpoint seals what is too large for the snapshot.

    close the segment -> write its files and sync them (storage thread) -> commit `Sealed`: readers use the files

Segments smaller than `min_segment_bytes` are packed instead (`packer.py`). When sealing fails the records stay hot, writes are
refused once memory is full, and the sealing is tried again after a delay. While disk space is low nothing is sealed: a segment
would take space and free none.
"""

from collections.abc import Callable

from topics.broker.durability.packer import Packer
from topics.broker.durability.segment_removal import SegmentRemoval
from topics.broker.durability.storage_thread import StorageContext
from topics.broker.log.commit import Commit, FactCommit
from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.partition import Partition
from topics.engine.topics.hot_sizes import HotSizes
from topics.engine.topics.packing import PackLimits, SealKey
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError, Unavailable
from topics.model.facts import Sealed, SegmentInfo
from topics.runtime.backoff import Backoff
from topics.runtime.replies import ignore
from topics.storage.segments.segment_format import segment_base
from topics.storage.segments.segment_writer import write_segment

# Time for one step of measuring what is hot.
STEP_SECONDS = 0.002


class Sealer:
    """Keeps the memory of hot records within its limits. Runs on the loop, except for reading and writing files."""

    def __init__(self, context: StorageContext, removal: SegmentRemoval) -> None:
        self.settings = settings = context.settings
        self.seals_total = 0
        # Memory is at its limit because records come faster than they are sealed, or because sealing fails. New writes wait,
        # or are refused when it fails.
        self.full = False
        self.on_room: Callable[[], None] = ignore
        # Called when a segment is sealed or packed or has failed, and with None when the packer has nothing left to do.
        self.on_over: Callable[[SealKey | None], None] = ignore
        self.hot_bytes = 0
        # Segments that are being sealed or packed.
        self.sealing: set[SealKey] = set()
        self._fs, self._runtime, self._state = context.fs, context.runtime, context.state
        self._committer, self._health = context.committer, context.health
        self._space, self._storage = context.space, context.storage
        self._removal = removal
        self._health.declare("seal")
        # Closed segments that could not be sealed, until the next attempt.
        self._unsealed: dict[SealKey, HotSegment] = {}
        self._backoff = Backoff(context.runtime, self._retry_seals)
        # What is hot is being measured, to seal or pack the largest.
        self._measuring = False
        self._stopping = False
        limits = PackLimits(settings.pack_bytes, settings.min_segment_bytes, settings.pack_merge_count)
        self.packer = Packer(context, self, removal, limits)
        removal.on_entry_dropped = self.packer.entry_dropped

    def stop(self) -> None:
        """Start no further pack; measure without pauses."""
        self._stopping = True
        self.packer.stop()

    def appended(self, topic: Topic, partition: Partition, size: int) -> None:
        """Called for every append that was applied: counts, and seals when a bound is reached."""
        settings = self.settings
        hot_bytes = self.hot_bytes + size
        self.hot_bytes = hot_bytes
        failing = self._backoff.waiting
        if hot_bytes > 2 * settings.hot_bytes and (failing or self.is_relieving):
            self.full = True
        if failing:
            return
        segments = partition.segments
        if segments and isinstance(hot := segments[-1], HotSegment) and hot.held_bytes >= settings.segment_bytes:
            self.seal_segment(topic, partition, hot)
        elif hot_bytes > settings.hot_bytes and not self.is_relieving:
            self._seal_largest()

    @property
    def is_relieving(self) -> bool:
        """Whether hot records are leaving memory, or what should leave is being looked for."""
        return bool(self.sealing) or self._measuring or self.packer.busy

    def check_sealing(self) -> None:
        """Raises Unavailable when memory is full and segments cannot be written."""
        if self._backoff.waiting:
            if self._space.low:
                raise Unavailable("the disk is full; nothing was written", code="storage_full")
            raise Unavailable("memory is full and segments cannot be written; see /v0/ready", code="storage_error")

    def seal(self, topic: Topic, partition: Partition) -> None:
        """Write all hot segments of the partition to disk, aside. Ephemeral records never leave memory."""
        for segment in list(partition.segments):
            if isinstance(segment, HotSegment):
                self.seal_segment(topic, partition, segment)

    def seal_segment(self, topic: Topic, partition: Partition, segment: HotSegment) -> None:
        """Close the segment and write it to disk, unless that is under way already."""
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
        if key in self.sealing or self._space.low:
            return False
        self.sealing.add(key)
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

        self._storage.write(work, done)

    def _commit_seal(self, fact: Sealed, hot: HotSegment) -> None:
        """The segment is written and synced: when the log says so, readers use it instead of the hot one."""
        key = (fact.topic_id, fact.partition, fact.segment.first_seq)
        base = segment_base(*key)

        def applied(commit: Commit) -> None:
            self.seals_total += 1
            partition = self._state.partition(fact.topic_id, fact.partition)
            if partition is None:
                self._removal.remove_later(base, commit.lsn)
            else:
                self._removal.collect_dropped(partition, commit.lsn)
            self.end_seal(key, fact.segment.size)

        def decided(error: TopicsError | None) -> None:
            if error is not None:
                # The records stay hot. The files are removed unless the fact may be in the log: then recovery needs them.
                if not commit.is_logged and not self._committer.read_only:
                    self._removal.remove_now(base)
                self.seal_failed({key: hot}, base, error)

        commit = FactCommit([fact], decided, sync=False, after_apply=applied)
        self._committer.submit(commit)

    def end_seal(self, key: SealKey, freed_bytes: int) -> None:
        """The hot segment is sealed or packed, and `freed_bytes` left memory."""
        self.hot_bytes -= freed_bytes
        self._unsealed.pop(key, None)
        if not self._unsealed:
            self._health.clear("seal")
            self._backoff.succeeded()
        self._seal_over(key)

    def seal_failed(self, segments: dict[SealKey, HotSegment], base: str, error: BaseException) -> None:
        """These segments, which were to be written together, stay hot. The backoff tries again."""
        self._health.fail("seal", f"cannot seal {base}: {error}; its records stay in memory and in the log")
        self._unsealed |= segments
        self._backoff.failed()
        self._space.run_out(error)
        for key in segments:
            self._seal_over(key)

    def _retry_seals(self) -> None:
        """Seal or pack again what could not be sealed and is still there."""
        if self._space.low:
            self._backoff.failed()
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
                self.seal_segment(self._state.by_id[topic_id], partition, segment)
        self.packer.pack(small)
        if not self.is_relieving:
            # All of it was deleted or evicted meanwhile.
            self._health.clear("seal")
            self._backoff.succeeded()
        self._seal_largest()

    def packing_over(self) -> None:
        """The packer has nothing left to do."""
        self._check_full()
        self.on_over(None)

    def _seal_over(self, key: SealKey) -> None:
        self.sealing.discard(key)
        self._check_full()
        self.on_over(key)

    def _check_full(self) -> None:
        """Let waiting writes continue when memory is free again, or be refused while sealing fails."""
        if self.full:
            failing = self._backoff.waiting
            over = self.hot_bytes > 2 * self.settings.hot_bytes
            self.full = over and (failing or self.is_relieving)
            if not self.full or failing:
                self.on_room()

    @property
    def _min_sealed_bytes(self) -> int:
        """Smaller segments are packed."""
        return min(self.settings.min_segment_bytes, self.settings.segment_bytes)

    def measure(self, done: Callable[[HotSizes], None]) -> None:
        """Measure what is hot, some topics per turn unless the server stops."""
        self._measure(HotSizes(self._state.by_id), done)

    def _measure(self, sizes: HotSizes, done: Callable[[HotSizes], None]) -> None:
        if sizes.run(self._runtime.perf, 60.0 if self._stopping else STEP_SECONDS):
            done(sizes)
        else:
            self._runtime.call_soon(lambda: self._measure(sizes, done))

    def _seal_largest(self) -> None:
        """Measure what is hot, and seal or pack the largest until only half of `hot_bytes` is hot."""
        if not self._measuring:
            self._measuring = True
            self.measure(self._relieve)

    def _relieve(self, sizes: HotSizes) -> None:
        self._measuring = False
        # Eviction and deletion do not update the sum.
        self.hot_bytes = sizes.bytes
        if self.hot_bytes > self.settings.hot_bytes and not self._space.low:
            largest = sizes.largest(self.hot_bytes - self.settings.hot_bytes // 2)
            for index, partition in enumerate(largest):
                topic = self._state.by_id.get(partition.topic_id)
                if topic is not None:
                    if partition.hot_bytes < self._min_sealed_bytes:
                        # So are the rest.
                        self.packer.pack(largest[index:])
                        break
                    self.seal(topic, partition)
        self._check_full()

    def is_behind(self) -> bool:
        """Whether far too much is hot, so that work that can wait should wait for the sealing."""
        if self.hot_bytes <= 4 * self.settings.hot_bytes:
            return False
        if not self.is_relieving and not self._backoff.waiting:
            self._seal_largest()
        return self.hot_bytes > 4 * self.settings.hot_bytes
