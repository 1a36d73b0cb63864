"""Read sealed segments. `segment_format.py` describes the files."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.records.match import TagMatch
from topics.model.records.page import RECORD_OVERHEAD, SEPARATOR, LoadedPage, Page, page_size
from topics.storage.fs import FileSystem
from topics.storage.reading import load, map_file
from topics.storage.segments.columns import first_not_in, joined_rows, joined_texts, node_set
from topics.storage.segments.segment_format import BAD_FRAME, METADATA_KEY, BatchEntry, Footer, frame_checksum
from topics.storage.segments.tag_index import TagIndex, TagScan, open_tag_index
from topics.storage.segments.text_column import StringColumn, TextColumn

# About the most bytes that are read from a file for one record.
PAGE_BYTES = 1 << 20


class SegmentFile:
    """An open segment, mapped into memory: its records take no memory of the process beyond the page cache."""

    def __init__(self, fs: FileSystem, base: str, info: SegmentInfo) -> None:
        import pyarrow as pa

        self.base = base
        self.info = info
        self._fs = fs
        self._pa = pa
        path = base + ".arrow"
        self._view = map_file(fs, path)
        load(self._view, 0, info.body_start, path)
        load(self._view, info.body_end, len(self._view), path)
        if frame_checksum(self._view, info.body_start, info.body_end) != info.checksum:
            raise CorruptStorage(path, 0, BAD_FRAME)
        self._reader, batches = _open_file(pa, self._view, path)
        self.batches = batches
        self._starts = [batch.first_seq for batch in batches]
        self._columns: dict[int, _Columns] = {}
        self._tags: TagIndex | TagScan | None = None
        # Set when the tag index was needed and is damaged.
        self.tags_damage: CorruptStorage | None = None
        rows = sum([batch.rows for batch in batches])
        if not batches or self._starts[0] != info.first_seq or rows != info.last_seq - info.first_seq + 1:
            raise CorruptStorage(path, 0, "segment does not contain the records that the log names")

    def page_bounds(self, seq: int, records: int) -> tuple[int, int]:
        """Return the first seq of the page that `page` would return, and the seq after its last."""
        batch = self.batches[bisect_right(self._starts, seq) - 1]
        records = _rows_per_page(batch, records)
        first = batch.first_seq + (seq - batch.first_seq) // records * records
        return first, min(first + records, batch.first_seq + batch.rows)

    def page(self, seq: int, records: int) -> Page:
        """Return the page that contains `seq`; a batch is divided into pages of `records` rows, fewer if the rows are large."""
        number = bisect_right(self._starts, seq) - 1
        columns = self._batch(number)
        batch = self.batches[number]
        records = _rows_per_page(batch, records)
        start = (seq - batch.first_seq) // records * records
        return columns.page(batch.first_seq, start, min(start + records, batch.rows))

    def run(self, seq: int, max_records: int, max_bytes: int) -> Page:
        """Return records from `seq` on, at least one, up to `max_records` and `max_bytes`; fewer at the end of a batch."""
        number = bisect_right(self._starts, seq) - 1
        batch = self.batches[number]
        start = seq - batch.first_seq
        columns = self._batch(number)
        return columns.page(
            batch.first_seq, start, columns.fitting(start, min(start + max_records, batch.rows), max_bytes)
        )

    def row_range(self, seq: int, max_records: int) -> "RowRange":
        """Return up to `max_records` rows from `seq` on, not copied; fewer at the end of a batch."""
        number = bisect_right(self._starts, seq) - 1
        batch = self.batches[number]
        start = seq - batch.first_seq
        return RowRange(self._batch(number), seq, start, min(start + max_records, batch.rows))

    def next_without(self, seq: int, last: int, nodes: frozenset[bytes]) -> tuple[int, bool]:
        """Find the first record from `seq` to `last`, within one batch, whose node is not in `nodes` (JSON strings).

        Return its seq and True, or the first seq that was not examined and False. Reads only the column of nodes.
        """
        number = bisect_right(self._starts, seq) - 1
        batch = self.batches[number]
        column = self._batch(number).nodes
        if column.empty:
            return seq, True
        rows = column.column.slice(seq - batch.first_seq, min(last + 1, batch.first_seq + batch.rows) - seq)
        found = first_not_in(rows, node_set(self._pa, nodes))
        return (seq + len(rows), False) if found < 0 else (seq + found, True)

    def size_between(self, first: int, stop: int) -> int:
        """Return the bytes of the records first .. stop - 1, computed from the offsets of the columns."""
        size = 0
        while first < stop:
            row_range = self.row_range(first, stop - first)
            size += row_range.size
            first += row_range.count
        return size

    def size_of(self, seqs: Sequence[int]) -> int:
        """Return the bytes of these records; seqs are ascending. Computed from offsets: 0.1 us per record."""
        size = start = 0
        while start < len(seqs):
            number = bisect_right(self._starts, seqs[start]) - 1
            first = self._starts[number]
            stop = bisect_left(seqs, first + self.batches[number].rows, start)
            size += self._batch(number).size_of([seq - first for seq in seqs[start:stop]])
            start = stop
        return size

    def check(self, first: int, last: int) -> None:
        """Verify the checksums of the records first..last. Raises CorruptStorage."""
        for number in range(bisect_right(self._starts, first) - 1, bisect_right(self._starts, last)):
            self._batch(number)

    def record_batch(self, number: int) -> Any:
        """Return a batch as a pyarrow RecordBatch: seq, ts, node, tag, data, meta."""
        self._batch(number)
        return self._reader.get_batch(number)

    def rows(self, first: int, last: int) -> list[Any]:
        """Return the records first..last as slices of their batches, not copied."""
        result = []
        number = bisect_right(self._starts, first) - 1
        while number < len(self.batches) and self._starts[number] <= last:
            batch = self.batches[number]
            start = max(0, first - batch.first_seq)
            stop = min(batch.rows, last - batch.first_seq + 1)
            result.append(self.record_batch(number).slice(start, stop - start))
            number += 1
        return result

    def find(self, match: TagMatch, bound: int, found: bytearray) -> Iterator[None]:
        """Set `found[seq - first_seq]` to 1 for each record below `bound` whose tag matches.

        Searches the sorted index in steps of some thousand records. If the index is damaged, searches the rows instead and
        sets `tags_damage`.
        """
        if not self.info.tagged:
            return
        if self._tags is None:
            try:
                self._tags = self._tag_index()
            except CorruptStorage as error:
                self.tags_damage = error
                self._tags = TagScan(self)
        yield from self._tags.find(match, self.info.first_seq, min(bound, self.info.last_seq + 1), found)

    def damage(self) -> Iterator[CorruptStorage]:
        """Verify every batch; yield an error for each that is damaged."""
        for number in range(len(self.batches)):
            try:
                self._batch(number)
            except CorruptStorage as error:
                yield error

    def verify(self) -> None:
        """Verify every batch and the tag index. Raises CorruptStorage."""
        for number in range(len(self.batches)):
            self._batch(number)
        if self.info.tagged:
            self._tag_index()

    def tags(self) -> list[tuple[bytes, list[int]]]:
        """Return the whole tag index: tags as JSON texts in order, each with its seqs. Raises CorruptStorage."""
        return self._tag_index().all() if self.info.tagged else []

    def _tag_index(self) -> "TagIndex":
        return open_tag_index(self._fs, self.base, self.info)

    def _batch(self, number: int) -> "_Columns":
        columns = self._columns.get(number)
        if columns is None:
            columns = self._columns[number] = self._read_batch(number)
        return columns

    def _read_batch(self, number: int) -> "_Columns":
        entry = self.batches[number]
        path, end = self.base + ".arrow", entry.start + entry.length
        try:
            load(self._view, entry.start, end, path)
            if xxh3_64_intdigest(self._view[entry.start : end]) != entry.checksum:
                raise CorruptStorage(path, entry.start, f"batch {number} is damaged")
            return _Columns(self._reader.get_batch(number))
        except CorruptStorage as error:
            records = (entry.first_seq, entry.first_seq + entry.rows - 1)
            raise CorruptStorage(path, error.offset, error.what, records=records) from error
        except (self._pa.ArrowException, OSError) as error:
            records = (entry.first_seq, entry.first_seq + entry.rows - 1)
            raise CorruptStorage(path, entry.start, f"batch {number}: {error}", records=records) from error


def _rows_per_page(batch: BatchEntry, max_rows: int) -> int:
    return max(1, min(max_rows, batch.rows * PAGE_BYTES // batch.length))


class RowRange:
    """Adjacent rows of one batch, rendered from the column buffers without a Python object per value.

    256 records of 100 bytes: 17 us with one `$ts`, 36 us with many; a page and rendering it take 60 us.
    """

    __slots__ = ("_columns", "_start", "_stop", "count", "first_seq", "metas", "nodes", "plain", "tags")

    def __init__(self, columns: "_Columns", first_seq: int, start: int, stop: int) -> None:
        self.first_seq = first_seq
        self.count = stop - start
        # Whether any row of the batch has a node, a tag, meta.
        self.nodes = not columns.nodes.empty
        self.tags = not columns.tags.empty
        self.metas = not columns.meta.empty
        # Whether nodes and tags become JSON strings by adding quotes only.
        self.plain = columns.nodes.plain and columns.tags.plain
        self._columns = columns
        self._start = start
        self._stop = stop

    @property
    def size(self) -> int:
        """The size of the records, as counted in `bytes` of a topic."""
        return self._columns.size_between(self._start, self._stop)

    @property
    def one_time(self) -> int | None:
        """The `$ts` that all rows share, None if they differ. Times are ascending, so it is enough to compare the ends."""
        times = self._columns.times
        first = times[self._start]
        return first if first == times[self._stop - 1] else None

    def joined(
        self, heads: bytes, width: int, node: tuple[bytes, bytes], data: tuple[bytes, bytes], meta: tuple[bytes, bytes]
    ) -> memoryview:
        """Join, for each row: its head (`heads` has `width` bytes per row), its `$ts` unless all rows share one, and node,
        data and meta, each between the two given texts.
        """
        columns = self._columns
        parts = []
        if self.nodes:
            parts.append((columns.nodes.column, node))
        parts.append((columns.data.column, data))
        if self.metas:
            parts.append((columns.meta.column, meta))
        slices = [(column.slice(self._start, self.count), around) for column, around in parts]
        times = None if self.one_time is not None else columns.times_column.slice(self._start, self.count)
        return joined_rows(heads, width, times, slices)


class _Columns:
    """The columns of one batch. Values are extracted together: 256 payloads take 25 us, one by one 36 us."""

    def __init__(self, batch: Any) -> None:
        self.times_column = batch.column(1)
        self.times = memoryview(self.times_column.buffers()[1]).cast("b").cast("q")
        self.nodes = StringColumn(batch.column(2))
        self.tags = StringColumn(batch.column(3))
        self.data = TextColumn(batch.column(4))
        self.meta = TextColumn(batch.column(5))

    def size_between(self, start: int, stop: int) -> int:
        size = (stop - start) * RECORD_OVERHEAD + self.data.bytes_between(start, stop)
        for column in (self.meta, self.nodes, self.tags):
            if not column.empty:
                size += column.bytes_between(start, stop)
        return size

    def fitting(self, start: int, stop: int, max_bytes: int) -> int:
        """Return the end of the rows from `start` that fit into `max_bytes`: at least one row, at most up to `stop`."""
        if self.size_between(start, stop) <= max_bytes:
            return stop
        ends = range(start + 1, stop + 1)
        return start + max(1, bisect_right(ends, max_bytes, key=lambda end: self.size_between(start, end)))

    def size_of(self, rows: list[int]) -> int:
        size = len(rows) * RECORD_OVERHEAD + sum(self.data.lengths(rows))
        for column in (self.meta, self.nodes, self.tags):
            if not column.empty:
                size += sum(column.lengths(rows))
        return size

    def page(self, first_seq: int, start: int, stop: int) -> Page:
        count = stop - start
        data = joined_texts(self.data.column.slice(start, count))
        metas = self.meta.joined(start, stop)
        nodes = self.nodes.joined(start, count)
        tags = self.tags.joined(start, count)
        moments = self.times[start:stop].tobytes()
        # Times are ascending: equal ends mean one time for all rows.
        times = int.from_bytes(moments[:8], "little", signed=True) if moments[:8] == moments[-8:] else moments
        size = page_size(count, data, metas, nodes, tags)
        return LoadedPage(first_seq + start, count, times, data, metas, nodes, tags, size, data.split(SEPARATOR))


def _open_file(pa: Any, view: memoryview, path: str) -> tuple[Any, list[BatchEntry]]:
    try:
        reader = pa.ipc.open_file(pa.py_buffer(view))
        footer = msgspec.json.decode(reader.metadata[METADATA_KEY], type=Footer)
    except (pa.ArrowException, OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise CorruptStorage(path, 0, f"not a valid segment file: {error}") from error
    if reader.num_record_batches != len(footer.batches):
        raise CorruptStorage(path, 0, "batches are missing from the segment file")
    return reader, footer.batches
