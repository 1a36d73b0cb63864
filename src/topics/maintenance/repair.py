"""Repair: give up the records that damaged files hold, so that the rest of a data directory is whole again.

For each damaged segment:

    write what can be read to new segment files -> commit a `Repaired` fact, synced -> move the damaged files to `damaged/`

The fact replaces the segment by the new files and reports the lost ranges to readers as gaps (`cause: "damage"`). Before
the fact is durable the segment is damaged as before, and the new files are left over; after it the segment is repaired,
and a recovery that replays the fact moves the files that are still in the way. So a power cut at any step leaves either
of the two, and repairing again goes on from there. Nothing is repaired unless asked for: `topics repair`.

What can be read of a segment:

    batches of rows are damaged   the other batches
    the tag index is damaged      everything; the index is made again
    the rest of the file          nothing: without its footer no batch can be found
    the delete flags              nothing: deleted records would come back
    an entry of a pack            nothing; the other entries of the pack are not touched, and its file stays. A copy is kept

A damaged snapshot next to a whole one is moved to `damaged/` as well, and new snapshots are taken.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, structs

from topics.broker.core import Core
from topics.broker.durability.recovery import move_replaced_files
from topics.broker.log.commit import FactCommit
from topics.broker.state import State
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.segment import Segment
from topics.engine.topics.topic import Topic
from topics.model.errors import CorruptStorage, TopicsError
from topics.model.facts import PACKED, PackedInfo, Repaired, SegmentInfo
from topics.model.records.page import Page, column
from topics.segments.packed_segments import PackedSegment
from topics.segments.sealed_segments import SealedSegment
from topics.storage.damaged_files import copy_to_damaged, move_to_damaged
from topics.storage.fs import FileSystem
from topics.storage.segments.pack import SUFFIX, PackFile
from topics.storage.segments.segment_format import ROOT, segment_base, write_flags
from topics.storage.segments.segment_reader import SegmentFile
from topics.storage.segments.segment_writer import write_segment
from topics.storage.segments.verify import entry_damage, segment_damage

Range = tuple[int, int]

# Rows taken out of a damaged file at a time.
PAGE_ROWS = 1024


class DamagedSegment(Struct, frozen=True):
    """A damaged segment: what is wrong with it, which records can be kept, and which are lost.

    `kept` and `lost` are ranges of seqs. A lost range begins and ends with a record that was not deleted, as far as that
    is known; `lost_records` counts these records.
    """

    topic: str
    topic_id: int
    partition: int
    info: SegmentInfo | PackedInfo
    damage: list[CorruptStorage]
    kept: list[Range]
    lost: list[Range]
    lost_records: int
    # The delete flags are damaged: some of the lost records may have been deleted before.
    flags_damaged: bool

    def lines(self) -> Iterator[str]:
        """What is damaged and what a repair does about it, in plain words."""
        for error in self.damage:
            yield f"damaged: {error.path} at byte {error.offset}: {error.what}"
        where = f'topic "{self.topic}", partition {self.partition}'
        for first, last in self.lost:
            yield f"lost: {where}: records {first} to {last}"
        if self.lost:
            most = "at most " if self.flags_damaged else ""
            yield f"      {most}{self.lost_records} records; readers get a tombstone for each range"
        else:
            yield f"nothing lost: {where}: records {self.info.first_seq} to {self.info.last_seq}"


def find_damage(fs: FileSystem, state: State) -> list[DamagedSegment]:
    """Read every byte of every segment in use. Changes nothing."""
    found = []
    packs: dict[int, PackFile | CorruptStorage] = {}
    for topic in state.by_id.values():
        for partition in topic.partitions:
            for segment in partition.segments:
                if isinstance(segment, SealedSegment):
                    damage = segment_damage(fs, segment.base, segment.info)
                elif isinstance(segment, PackedSegment):
                    error = entry_damage(fs, packs, (topic.id, partition.number, segment.info))
                    damage = [] if error is None else [error]
                else:
                    continue
                if damage:
                    found.append(_damaged(topic, partition, segment, damage))
    return found


def _damaged(
    topic: Topic, partition: Partition, segment: SealedSegment | PackedSegment, damage: list[CorruptStorage]
) -> DamagedSegment:
    info = segment.info
    whole = (info.first_seq, info.last_seq)
    unreadable = [error.records or whole for error in damage if not error.path.endswith(".tags")]
    kept, lost = [], []
    for readable, (first, last) in _split(whole, unreadable):
        first_live, last_live = segment.next_live(first), segment.last_live_below(last + 1)
        if first_live is not None and last_live is not None and first_live <= last_live:
            if readable:
                kept.append((first, last))
            else:
                lost.append((first_live, last_live))
    return DamagedSegment(
        topic.name,
        topic.id,
        partition.number,
        info,
        damage,
        kept,
        lost,
        sum([_live_between(segment, *each) for each in lost]),
        any([error.path.endswith(".dead") for error in damage]),
    )


def _split(whole: Range, unreadable: Sequence[Range]) -> list[tuple[bool, Range]]:
    """The range in order, cut where what is readable begins or ends."""
    parts: list[tuple[bool, Range]] = []
    seq = whole[0]
    for first, last in sorted(unreadable):
        if first > seq:
            parts.append((True, (seq, first - 1)))
        if last >= seq:
            parts.append((False, (max(first, seq), last)))
            seq = last + 1
    if seq <= whole[1]:
        parts.append((True, (seq, whole[1])))
    return parts


def _live_between(segment: Segment, first: int, last: int) -> int:
    flags = segment.flags_between(first, last)
    return last - first + 1 if flags is None else flags.count(0)


class Repair:
    """Repairs all damaged segments of a started broker, one after the other; then calls `done` with the error, if any.

    Reads and writes files on the loop: nothing else may be served meanwhile.
    """

    def __init__(
        self,
        core: Core,
        fs: FileSystem,
        report: Callable[[str], None],
        done: Callable[[Exception | None], None],
    ) -> None:
        self._core = core
        self._fs = fs
        self._report = report
        self._done = done
        self._damaged: list[DamagedSegment] = []
        # How many segments were repaired, and the records that are lost with them.
        self.repaired = 0
        self.lost_records = 0

    def start(self) -> None:
        try:
            self._damaged = find_damage(self._fs, self._core.state)
            for error in self._core.recovered.bad_snapshots:
                self._report(f"damaged: {error}; an older snapshot holds the same")
                if self._fs.exists(error.path):
                    self._report(f"kept aside: {move_to_damaged(self._fs, error.path)}")
        except OSError as error:
            self._done(error)
            return
        self._next()

    def _next(self) -> None:
        if not self._damaged:
            try:
                self._copy_packs()
            except (OSError, CorruptStorage) as error:
                self._done(error)
                return
            # Besides the one of the stop that follows: then no kept snapshot names what was replaced.
            self._core.checkpointer.checkpoint(done=lambda _: self._done(None))
            return
        damaged = self._damaged.pop(0)
        for line in damaged.lines():
            self._report(line)
        try:
            fact = self._written(damaged)
        except (OSError, CorruptStorage) as error:
            self._done(error)
            return
        partition = self._partition(damaged)
        commit = FactCommit(
            [fact], self._committed, partition=partition, after_apply=lambda commit: self._applied(damaged, commit.lsn)
        )
        self._core.committer.submit(commit)

    def _committed(self, error: TopicsError | None) -> None:
        if error is not None:
            self._done(error)

    def _partition(self, damaged: DamagedSegment) -> Partition:
        partition = self._core.state.partition(damaged.topic_id, damaged.partition)
        assert partition is not None
        return partition

    def _written(self, damaged: DamagedSegment) -> Repaired:
        """Write what can be kept to files of its own."""
        info = damaged.info
        key = (damaged.topic_id, damaged.partition)
        if isinstance(info, PackedInfo):
            return Repaired(*key, info.first_seq, info.last_seq, PACKED, [], damaged.lost)
        segments: list[SegmentInfo] = []
        if damaged.kept:
            file = SegmentFile(self._fs, segment_base(*key, info.first_seq, info.generation), info)
            flags = self._flags_of(damaged)
            for first, last in damaged.kept:
                base = segment_base(*key, first, info.generation + 1)
                pages = list(_pages(file, first, last))
                written = write_segment(self._fs, base, pages, _tags(pages))
                segments.append(structs.replace(written, generation=info.generation + 1))
                if flags is not None:
                    write_flags(self._fs, base, first, flags[first - info.first_seq : last - info.first_seq + 1])
                    self._fs.sync_directory(ROOT)
        return Repaired(*key, info.first_seq, info.last_seq, info.generation, segments, damaged.lost)

    def _flags_of(self, damaged: DamagedSegment) -> bytes | None:
        flags = self._partition(damaged).segment_at(damaged.info.first_seq).flags()
        return None if flags is None else bytes(flags)

    def _applied(self, damaged: DamagedSegment, lsn: int) -> None:
        """The fact is durable: move the damaged files."""
        self._core.removal.collect_dropped(self._partition(damaged), lsn)
        self.repaired += 1
        self.lost_records += damaged.lost_records
        try:
            for path in move_replaced_files(self._fs, self._core.state):
                self._report(f"kept aside: {path}")
        except OSError as error:
            self._done(error)
            return
        self._core.runtime.call_soon(self._next)

    def _copy_packs(self) -> None:
        """Keep a copy of damaged packs that are still in use: they go when their entries are written elsewhere."""
        for base in sorted(self._core.state.replaced_segments):
            self._report(f"kept aside: {copy_to_damaged(self._fs, base + SUFFIX)} (a copy)")
        self._core.state.replaced_segments.clear()


def _pages(file: SegmentFile, first: int, last: int) -> Iterator[Page]:
    """The records first..last, which are whole batches."""
    while first <= last:
        page = file.page(first, PAGE_ROWS)
        yield page
        first = page.last_seq + 1


def _tags(pages: Sequence[Page]) -> list[tuple[bytes, list[int]]]:
    tagged: dict[bytes, list[int]] = {}
    for page in pages:
        for seq, tag in enumerate(column(page.tags, page.count), page.first_seq):
            if tag:
                tagged.setdefault(tag, []).append(seq)
    return list(tagged.items())
