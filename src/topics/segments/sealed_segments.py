"""Sealed segments: segments whose records are in files.

Deletes and evictions need the sizes of records also if a damaged file makes them unreadable. Sizes within such a segment are
estimates that add up to the size of the segment.
"""

from abc import abstractmethod
from itertools import compress

from topics.engine.partitions.render import Rendered, View, is_usual, record_heads
from topics.engine.partitions.segment import PAGE_RECORDS, Segment
from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.records.match import TagMatch
from topics.model.records.page import Page, page_weight, record_sizes
from topics.model.steps import Steps
from topics.segments.segment_cache import Damage, SegmentCache, damage_of
from topics.storage.segments.segment_format import (
    check_frame,
    is_another_segment,
    read_flags,
    segment_base,
    segment_exists,
    write_flags,
)
from topics.storage.segments.segment_reader import RowRange, SegmentFile
from topics.storage.segments.tag_index import find_tagged

# Records that a reader gets as one page of a sealed segment.
MAX_RUN_RECORDS = 1000
# Smallest byte budget of such a page. A filtered read may skip most of its records.
MIN_RUN_BYTES = 256 << 10

# Texts before and after a value of a record in the default rendering.
_AROUND_NODE = (b',"$node":"', b'"')
_AROUND_DATA = (b',"data":', b"")
_AROUND_META = (b',"meta":', b"")
_NOTHING = (b"", b"")
_LIVE = b"\0"


class StoredSegment(Segment):
    """A segment on disk, sealed or packed. If its records are damaged, their sizes are estimates."""

    __slots__ = ()

    sealed = True
    cache: SegmentCache
    topic_id: int
    partition: int

    @abstractmethod
    def damaged(self, error: CorruptStorage) -> CorruptStorage:
        """Record that a file of the segment is damaged. Return the error for reads of its records."""

    def measure(self, bound: int) -> tuple[int, int]:
        if not self.is_damaged:
            try:
                return super().measure(bound)
            except CorruptStorage as error:
                self.damaged(error)
        start, stop = max(self.low, self.first_seq) - self.first_seq, min(bound, self.last_seq + 1) - self.first_seq
        flags = self.flags()
        count = max(0, stop - start) if flags is None else flags.count(_LIVE, start, stop)
        return count, self._estimate(count)

    def _error(self, damage: Damage) -> CorruptStorage:
        return CorruptStorage(
            damage.path,
            damage.offset,
            damage.what,
            records=(damage.first_seq, damage.last_seq),
            topic=self.cache.topic_name(self.topic_id),
            partition=self.partition,
        )

    def _estimate(self, count: int) -> int:
        """Estimate the size of `count` live records from the average size; 0 if there are none."""
        return self.live_bytes * count // self.live if self.live else 0


class SealedSegment(StoredSegment):
    """A segment whose records are in a file of its own."""

    def __init__(self, cache: SegmentCache, topic_id: int, partition: int, info: SegmentInfo) -> None:
        self.info = info
        self.base = segment_base(topic_id, partition, info.first_seq, info.generation)
        self.first_seq = info.first_seq
        self.last_seq = info.last_seq
        self.first_ts = info.first_ts
        self.last_ts = info.last_ts
        self.low = info.first_seq
        self.records = info.last_seq - info.first_seq + 1
        self.live = self.records
        self.live_bytes = info.size
        self.cache = cache
        self.topic_id = topic_id
        self.partition = partition
        self._flags: bytearray | None = None
        # The flags on disk are damaged: the flags in memory are incomplete and must not replace them.
        self._flags_damaged = False
        # Set if all records are unreadable.
        self._unreadable: Damage | None = None

    # Files

    def files_exist(self) -> bool:
        return segment_exists(self.cache.fs, self.base, self.info)

    def was_replaced(self) -> bool:
        """Return whether the existing files belong to a later segment of the same name."""
        return is_another_segment(self.cache.fs, self.base, self.info)

    def verify(self) -> None:
        """Raise CorruptStorage if the segment as a whole cannot be used. Does not read batches and tags."""
        read_flags(self.cache.fs, self.base, self.info)
        check_frame(self.cache.fs, self.base, self.info)

    def inspect(self) -> None:
        """Find damage that is detectable without reading the records."""
        try:
            check_frame(self.cache.fs, self.base, self.info)
        except CorruptStorage as error:
            self.damaged(error)
        tags = self.base + ".tags"
        if self.info.tagged and not self.cache.fs.exists(tags):
            self.damaged(CorruptStorage(tags, 0, "file is missing"))

    def restore_flags(self) -> None:
        """Read the delete flags from disk. Records deleted there stay deleted, also if the log still contains them."""
        try:
            on_disk = read_flags(self.cache.fs, self.base, self.info)
        except CorruptStorage as error:
            self._flags_damaged = True
            self.damaged(error)
            return
        if 1 in on_disk:
            gone = [position for position, flag in enumerate(on_disk) if flag]
            size = self.size_of(gone)
            self.live -= len(gone)
            self.live_bytes -= size
            self._flags = on_disk

    def copy_flags(self) -> bytes:
        """Return the delete flags; empty if they must not replace those on disk. Any thread."""
        return b"" if self._flags_damaged else bytes(self._flags or b"")

    def save_flags(self, flags: bytes) -> None:
        """Write a copy of the flags to the segment's flag file. Any thread; not while its files are being removed."""
        # Also if the records are damaged: if their file is restored, the deletes still apply.
        if flags and self.cache.fs.exists(self.base + ".dead"):
            write_flags(self.cache.fs, self.base, self.first_seq, flags)

    def open_file(self) -> SegmentFile:
        """Return the open file. Raises CorruptStorage with the unreadable records if the whole segment is damaged."""
        if self._unreadable is not None:
            raise self._error(self._unreadable)
        try:
            return self.cache.file(self.base, self.info)
        except CorruptStorage as error:
            raise self.damaged(error) from error

    # Damage

    @property
    def is_damaged(self) -> bool:
        damage = self.cache.damage
        return bool(damage) and any([not each.readable for each in damage.get(self.base, ())])

    def damaged(self, error: CorruptStorage) -> CorruptStorage:
        """Record that a file of the segment is damaged. Return the error for reads of its records."""
        damage = damage_of(self.topic_id, self.partition, self.info, error)
        if error.records is None and not damage.readable:
            self._unreadable = damage
        self.cache.add_damage(self.base, damage)
        return self._error(damage)

    # Records

    def page_at(self, seq: int) -> Page:
        cache = self.cache
        last = cache.last_page
        # Single records are usually read in order. Without this shortcut a claim takes 1 us longer.
        if last is not None and last[0] is self and 0 <= seq - last[1].first_seq < last[1].count:
            return last[1]
        file = self.open_file()
        key = (self.base, file.page_bounds(seq, PAGE_RECORDS)[0])
        page: Page | None = cache.pages.get(key)
        if page is None:
            try:
                page = file.page(seq, PAGE_RECORDS)
            except CorruptStorage as error:
                raise self.damaged(error) from error
            cache.pages.put(key, page, page_weight(page) + 200)
        cache.last_page = (self, page)
        return page

    def run_at(self, seq: int, most: int, room: int) -> Page:
        # The page starts exactly at `seq`, so a sequential reader reads each record once. It is not much larger than the
        # byte budget: otherwise a reader of large records would copy all following records each time.
        most = min(most, MAX_RUN_RECORDS)
        room = max(room, MIN_RUN_BYTES)
        key = (self.base, seq, most, room)
        page: Page | None = self.cache.pages.get(key)
        if page is None:
            file = self.open_file()
            try:
                page = file.run(seq, most, room)
            except CorruptStorage as error:
                raise self.damaged(error) from error
            self.cache.pages.put(key, page, page_weight(page) + 200)
        return page

    def text_at(self, seq: int, most: int, room: int, view: View) -> Rendered | None:
        most = min(most, MAX_RUN_RECORDS)
        start = seq - self.first_seq
        if self._flags is not None and self._flags.find(1, start, start + most) >= 0:
            return None
        key = (self.base, seq, most, "text")
        found: Rendered | None = self.cache.pages.get(key)
        if found is None:
            file = self.open_file()
            try:
                row_range = file.row_range(seq, most)
            except CorruptStorage as error:
                raise self.damaged(error) from error
            if not row_range.plain or not is_usual(view, row_range) or row_range.size > room:
                return None
            found = _render(row_range)
            if found is not None and self.cache.is_repeated_read(self.base, seq, most):
                self.cache.pages.put(key, found, len(found.text) + 200)
        elif not is_usual(view, found) or found.size > room:
            return None
        return found

    def next_without(self, seq: int, last: int, nodes: frozenset[bytes]) -> tuple[int, bool]:
        file = self.open_file()
        try:
            return file.next_without(seq, last, nodes)
        except CorruptStorage as error:
            raise self.damaged(error) from error

    def check(self, first: int, last: int) -> None:
        file = self.open_file()
        try:
            file.check(first, last)
        except CorruptStorage as error:
            raise self.damaged(error) from error

    def flags(self) -> bytearray | None:
        return self._flags

    def flag(self, positions: list[int]) -> None:
        flags = self._flags
        if flags is None:
            flags = self._flags = bytearray(self.records)
        for position in positions:
            flags[position] = 1
        self._flagged(positions[0], positions[-1] + 1)

    def flag_run(self, start: int, stop: int) -> None:
        if self._flags is None:
            self._flags = bytearray(self.records)
        self._flags[start:stop] = b"\1" * (stop - start)
        self._flagged(start, stop)

    def _flagged(self, start: int, stop: int) -> None:
        self.cache.dirty.add(self)
        flags = self._flags
        assert flags is not None
        if self.is_damaged:
            return
        # Discard pages without live records: a queue that is being drained then reuses the same memory.
        file = self.open_file()
        seq, end = self.first_seq + start, self.first_seq + stop
        while seq < end:
            first, seq = file.page_bounds(seq, PAGE_RECORDS)
            if flags.find(_LIVE, first - self.first_seq, seq - self.first_seq) < 0:
                self.cache.pages.discard((self.base, first))

    def sizes(self, page: Page) -> list[int]:
        # In the shared cache and not with the page: the number of sealed segments is unlimited.
        key = (self.base, page.first_seq, page.count, "sizes")
        sizes: list[int] | None = self.cache.pages.get(key)
        if sizes is None:
            sizes = record_sizes(page)
            self.cache.pages.put(key, sizes, 40 * page.count + 200)
        return sizes

    def size_of(self, positions: list[int]) -> int:
        if not self.is_damaged:
            try:
                return self.open_file().size_of([self.first_seq + position for position in positions])
            except CorruptStorage as error:
                self.damaged(error)
        return self._estimate(len(positions))

    def size_between(self, first: int, stop: int) -> int:
        if not self.is_damaged:
            try:
                return self.open_file().size_between(first, stop)
            except CorruptStorage as error:
                self.damaged(error)
        return self._estimate(stop - first)

    def tagged(self, match: TagMatch, bound: int) -> Steps[bytearray]:
        found = bytearray(self.records)
        if self._unreadable is not None:
            # Search the index only: without a match the unreadable records are not needed.
            try:
                yield from find_tagged(self.cache.fs, self.base, self.info, match, bound, found)
            except CorruptStorage:
                raise self._error(self._unreadable) from None
            return found
        file = self.open_file()
        try:
            yield from file.find(match, bound, found)
        except CorruptStorage as error:
            raise self.damaged(error) from error
        if file.tags_damage is not None:
            self.damaged(file.tags_damage)
        return found

    def page_end(self, seq: int) -> int:
        return self.last_seq + 1 if self.is_damaged else self.open_file().page_bounds(seq, PAGE_RECORDS)[1]

    def spans(self) -> list[tuple[int, int]]:
        file = self.open_file()
        spans = []
        seq = max(self.low, self.first_seq)
        while seq <= self.last_seq:
            first, seq = file.page_bounds(seq, PAGE_RECORDS)
            spans.append((first, seq))
        return spans

    def chosen_size(self, first: int, chosen: bytes) -> int:
        start, stop = chosen.find(1), chosen.rfind(1) + 1
        if chosen.count(1) == stop - start:
            return self.size_between(first + start, first + stop)
        position = first - self.first_seq
        return self.size_of([*compress(range(position, position + len(chosen)), chosen)])

    def mark(self, first: int, gone: bytes) -> None:
        if self._flags is None:
            self._flags = bytearray(self.records)
        self._flags[first - self.first_seq : first - self.first_seq + len(gone)] = gone

    def marked(self, first: int, stop: int, count: int, size: int) -> None:
        super().marked(first, stop, count, size)
        self._flagged(first - self.first_seq, stop - self.first_seq)


def _render(row_range: RowRange) -> Rendered | None:
    """Render plain records in the default form; None if they must be rendered one by one."""
    # Texts that all records share are part of the heads.
    time = row_range.one_time
    in_heads = b',"$ts":' if time is None else b',"$ts":%d' % time
    data_in_heads = time is not None and not row_range.nodes
    made = record_heads(row_range.first_seq, row_range.count, in_heads + b',"data":' if data_in_heads else in_heads)
    if made is None:
        return None
    heads, width = made
    joined = row_range.joined(heads, width, _AROUND_NODE, _NOTHING if data_in_heads else _AROUND_DATA, _AROUND_META)
    # Each head closes the preceding record: remove that text from the first, and close the last record here.
    text = b"".join((joined[2:], b"}"))
    return Rendered(text, row_range.count, row_range.size, row_range.tags, row_range.metas, row_range.nodes)
