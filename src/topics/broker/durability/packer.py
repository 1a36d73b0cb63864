"""Packing: small hot segments of many partitions are written to one file, the pack.

A file for each small segment costs several syncs and several names; a pack costs one of each for thousands of segments.
What is packed and when is decided by the `Sealer`; this is how:

    take closed hot segments from the queue, some per turn -> write a pack and sync it (storage thread) ->
    commit `Packed` facts, some per turn: readers change over to the pack -> the next pack, until the queue is empty

One pack is written at a time, so a packed segment is only ever replaced by the pack under way.

Merging. A partition that is packed again and again would end up with very many packed segments. So a hot segment is
packed together with the packed segments before it when seven or more neighbours are of about its size or smaller. Each
record is rewritten about once while the segment grows by a factor of eight, and a partition keeps few of each size.

Cleaning. Entries of a pack die when their records are gone or when they are merged. A pack that is less than half live
is cleaned after a checkpoint: its live entries are copied to a new pack, and the old one is removed like any dropped
segment. So are small packs when there are eight of them.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from topics.broker.durability.segment_removal import SegmentRemoval
from topics.broker.durability.storage_thread import StorageContext
from topics.broker.log.commit import FactCommit
from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.partition import Partition
from topics.engine.topics.packing import PackLimits, PackUse, SealKey
from topics.model.errors import CorruptStorage, TopicsError
from topics.model.facts import Fact, Packed, PackedInfo
from topics.segments.pack_writer import NewEntry, Written, mergeable, write_entries
from topics.segments.packed_segments import PackedSegment
from topics.storage.segments.pack import PackFile, entry_bytes, pack_base

# A pack is written when it has this many entries, however small they are.
MAX_PACK_ENTRIES = 16_384
# Facts in one commit: as many are applied in one step of the loop, at about 10 us each.
FACTS_PER_COMMIT = 128
# Time for one step of taking segments from the queue.
STEP_SECONDS = 0.002


class PackHost(Protocol):
    """What the packer needs of the sealer."""

    def begin_seal(self, key: SealKey) -> bool:
        """Reserve a closed hot segment. False when it is being sealed or packed already."""

    def end_seal(self, key: SealKey, freed_bytes: int) -> None:
        """The hot segment is packed, and `freed_bytes` left memory."""

    def seal_failed(self, segments: dict[SealKey, HotSegment], base: str, error: BaseException) -> None:
        """These hot segments could not be packed and stay hot."""

    def packing_over(self) -> None:
        """The packer has nothing left to do."""


class Packer:
    """Writes packs and knows how much of each is in use. All on the loop, but for reading and writing files."""

    def __init__(self, context: StorageContext, host: PackHost, removal: SegmentRemoval, limits: PackLimits) -> None:
        self.packs_total = 0
        self._fs, self._runtime, self._state = context.fs, context.runtime, context.state
        self._committer, self._health, self._storage = context.committer, context.health, context.storage
        self._health.declare("pack")
        self._host = host
        self._removal = removal
        self._limits = limits
        self._uses: dict[int, PackUse] = {}
        # Partitions with hot segments to pack, and entries to copy: topic, partition, first seq, number of their pack.
        self._queue: deque[Partition] = deque()
        self._copies: deque[tuple[int, int, int, int]] = deque()
        # Packs to clean.
        self._victims: list[int] = []
        # Of the pack that is being made.
        self._jobs: list[NewEntry] = []
        self._jobs_bytes = 0
        self._running = False

    def start(self, uses: dict[int, PackUse]) -> None:
        """Continue with the packs that recovery found."""
        self._uses = uses

    @property
    def busy(self) -> bool:
        return self._running

    @property
    def packs(self) -> int:
        """How many packs hold live records."""
        return len(self._uses)

    def pack(self, partitions: Iterable[Partition]) -> None:
        """Pack the hot segments of these partitions, in the order given."""
        self._queue.extend(partitions)
        self._run()

    def clean(self) -> None:
        """Copy what is live out of packs that are mostly dead, and merge small packs."""
        uses = {number: use for number, use in self._uses.items() if not use.is_damaged}
        victims = {number for number, use in uses.items() if use.live_bytes * 2 < use.size}
        small = {number for number, use in uses.items() if use.size * 4 < self._limits.pack_bytes}
        if len(small) >= self._limits.merge_count:
            victims |= small
        self._victims = sorted(victims)
        self._run()

    def stop(self) -> None:
        """Start no further pack. The one under way is finished."""
        self._queue.clear()
        self._copies.clear()
        self._victims.clear()

    def entry_dropped(self, info: PackedInfo, lsn: int) -> None:
        """The fact at `lsn` made an entry useless. When it was the last one of its pack, the pack is removed."""
        use = self._uses[info.pack]
        use.entries -= 1
        use.live_bytes -= entry_bytes(info.length)
        if not use.entries:
            del self._uses[info.pack]
            self._removal.remove_later(pack_base(info.pack), lsn)

    # One pack after the other

    def _run(self) -> None:
        if not self._running:
            self._running = True
            self._gather()

    def _gather(self) -> None:
        """Take segments from the queues into the next pack, for a short time per turn."""
        perf = self._runtime.perf
        until = perf() + STEP_SECONDS
        while self._jobs_bytes < self._limits.pack_bytes and len(self._jobs) < MAX_PACK_ENTRIES:
            if perf() > until:
                self._runtime.call_soon(self._gather)
                return
            if self._queue:
                self._take_hot(self._queue.popleft())
            elif self._copies:
                self._take_copy(*self._copies.popleft())
            elif self._victims:
                self._list_entries(self._victims.pop())
                return
            else:
                break
        if self._jobs:
            self._write()
        else:
            self._rest()

    def _rest(self) -> None:
        self._running = False
        self._host.packing_over()

    def _take_hot(self, partition: Partition) -> None:
        topic_id, number = partition.topic_id, partition.number
        topic = self._state.by_id.get(topic_id)
        if topic is None or topic.config.durability == "ephemeral":
            return
        for index, segment in enumerate(partition.segments):
            if not isinstance(segment, HotSegment) or not segment.live:
                continue
            if segment.open:
                segment.close()
            key = (topic_id, number, segment.pages[0].first_seq)
            if self._host.begin_seal(key):
                merged = mergeable(partition, index, self._limits)
                size = sum([page.size for page in segment.pages])
                self._jobs.append(NewEntry(topic_id, number, merged, list(segment.pages), key, segment, size))
                self._jobs_bytes += size + sum([each.info.length for each in merged])

    def _take_copy(self, topic_id: int, number: int, first_seq: int, pack: int) -> None:
        partition = self._state.partition(topic_id, number)
        for segment in [] if partition is None else partition.segments:
            if isinstance(segment, PackedSegment) and (segment.first_seq, segment.info.pack) == (first_seq, pack):
                self._jobs.append(NewEntry(topic_id, number, [segment], []))
                self._jobs_bytes += segment.info.length

    def _list_entries(self, pack: int) -> None:
        """Queue the entries of a pack to be copied; those that are not live are left out when they are taken."""

        def work() -> list[tuple[int, int, int, int]]:
            entries = PackFile(self._fs, pack).entries()
            return [(each.topic_id, each.partition, each.first_seq, pack) for _, each in entries]

        def done(found: list[tuple[int, int, int, int]], error: BaseException | None) -> None:
            if error is None:
                self._copies.extend(found)
            elif pack in self._uses:
                self._uses[pack].is_damaged = True
                if isinstance(error, CorruptStorage):
                    self._state.segment_cache.pack_damaged(pack, error, self._uses[pack].entries)
            self._gather()

        self._storage.run(work, done)

    def _write(self) -> None:
        jobs, self._jobs, self._jobs_bytes = self._jobs, [], 0
        number = self._state.next_pack
        self._state.next_pack += 1

        def work() -> Written:
            return write_entries(self._fs, number, jobs)

        def done(written: Written, error: BaseException | None) -> None:
            if error is not None:
                self.stop()
                self._give_up(jobs, pack_base(number), error)
                self._rest()
                return
            for segment, damage in written.damaged:
                # Unless its records went meanwhile, and the file with them.
                if segment.info.pack in self._uses:
                    segment.damaged(damage)
                    self._uses[segment.info.pack].is_damaged = True
            if not written.entries:
                self._gather()
                return
            live_bytes = sum([entry_bytes(info.length) for _, info in written.entries])
            self._health.clear("pack")
            self._uses[number] = PackUse(written.size, len(written.entries), live_bytes)
            self.packs_total += 1
            self._commit(deque(written.entries))

        self._storage.write(work, done)

    def _commit(self, entries: "deque[tuple[NewEntry, PackedInfo]]") -> None:
        """Commit the entries of a pack, some per turn; then go on with the next pack."""
        if not entries:
            self._gather()
            return
        some = [entries.popleft() for _ in range(min(FACTS_PER_COMMIT, len(entries)))]

        def decided(error: TopicsError | None) -> None:
            if error is not None:
                self._not_applied(some, error, logged=commit.is_logged)

        def release() -> None:
            self._runtime.call_soon(lambda: self._commit(entries))

        facts: list[Fact] = [Packed(job.topic_id, job.partition, info) for job, info in some]
        commit = FactCommit(
            facts, decided, sync=False, after_apply=lambda commit: self._applied(some, commit.lsn), release=release
        )
        self._committer.submit(commit)

    def _applied(self, entries: Sequence[tuple[NewEntry, PackedInfo]], lsn: int) -> None:
        """Readers use the entries from now on."""
        for job, info in entries:
            partition = self._state.partition(job.topic_id, job.partition)
            if partition is None:
                self.entry_dropped(info, lsn)
            else:
                self._removal.collect_dropped(partition, lsn)
            if job.key is not None:
                self._host.end_seal(job.key, job.hot_bytes)

    def _not_applied(self, entries: Sequence[tuple[NewEntry, PackedInfo]], error: TopicsError, *, logged: bool) -> None:
        """The facts could not be logged or applied: the records stay where they are.

        The entries count as unused unless the facts may be in the log: then the next recovery needs them.
        """
        base = pack_base(entries[0][1].pack)
        if not logged and not self._committer.read_only:
            for _, info in entries:
                self.entry_dropped(info, 0)
        self._give_up([job for job, _ in entries], base, error)

    def _give_up(self, jobs: Iterable[NewEntry], base: str, error: BaseException) -> None:
        hot = {job.key: job.hot for job in jobs if job.key is not None and job.hot is not None}
        if hot:
            self._host.seal_failed(hot, base, error)
        else:
            self._health.fail("pack", f"cannot copy entries of packs to {base}: {error}; they stay where they are")
