"""Sealed segments: a run of records as an Arrow IPC file that stock pyarrow, DuckDB or Polars can open.

    segments/<topic>-<partition>-<first seq>.arrow   columns seq, ts, node, tag, data, meta, in batches of some thousand
    segments/<topic>-<partition>-<first seq>.tags    tag (as JSON text), seqs; sorted by tag; only when a record has a tag
    segments/<topic>-<partition>-<first seq>.dead    one byte per record, 1 when it was deleted; then a checksum u64 of them

The names are numbers: a topic's own name never reaches the file system. The first two files never change. Every byte of
them is covered by an XXH3-64 checksum: those of the batches stand in the footer metadata under the key `topics` and are
compared when a batch is first touched; the one of what lies around the batches, and that of the tag index, stand in the
log and the snapshot (`SegmentInfo`). A segment is synced whole before the log says that it exists; files the log does
not name are left-overs.

The delete flags are written anew by each checkpoint, aside and renamed; until then the log remembers the deletes. Their
checksum is seeded with the first seq, so that flags of another segment are not taken for these.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from xxhash import xxh3_64, xxh3_64_intdigest

from topics.model.config import U64_MAX
from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.match import TagMatch
from topics.model.page import RECORD_OVERHEAD, SEPARATOR, LoadedPage, Page, page_size
from topics.storage.columns import has_empty, joined_rows, joined_texts, record_batch, record_schema, tag_batch
from topics.storage.fs import File, FileSystem

ROOT = "segments"
BATCH_RECORDS = 4096
BATCH_BYTES = 8 << 20
# Batches are made in stacks of about this size. More would be memory that is touched for the first time, less would have the
# thread that seals ask for the interpreter more often, and the loop wait for it.
STACK_BYTES = 4 << 20
# Smaller parts of a batch are put together before they are written.
SMALL_BYTES = 64 << 10
# About the most that is taken out of a file for the sake of one record.
PAGE_BYTES = 1 << 20
_KEY = b"topics"
# Every file that a segment may have.
_SUFFIXES = (".new", ".dead", ".tags", ".arrow")
# What stands otherwise in a JSON string.
_ESCAPED = re.compile(rb'["\\\x00-\x1f]')


class Batch(Struct, array_like=True):
    """What the footer says of one batch of rows: its records, where its bytes stand, and their checksum."""

    first_seq: int
    rows: int
    start: int
    length: int
    checksum: int


def segment_base(topic_id: int, partition: int, first_seq: int) -> str:
    return f"{ROOT}/{topic_id:016x}-{partition:04x}-{first_seq:020d}"


def write_segment(
    fs: FileSystem, base: str, pages: Sequence[Page], tags: Sequence[tuple[bytes, int | Sequence[int]]]
) -> SegmentInfo:
    """The segment's three files hold these records and survive a power cut. Tags may come in any order."""
    import pyarrow as pa

    remove_segment(fs, base)
    fs.make_directory(ROOT)
    body_start, body_end, frame_checksum = _write_rows(pa, fs, base + ".arrow", pages)
    tags_checksum = 0
    if tags:
        batch = tag_batch(pa, tags)
        index = pa.BufferOutputStream()
        with pa.ipc.new_file(index, batch.schema) as writer:
            writer.write_batch(batch)
        content = memoryview(index.getvalue())
        _write_file(fs, base + ".tags", content)
        tags_checksum = xxh3_64_intdigest(content)
    first, last = pages[0], pages[-1]
    # Whole or not there at all: the log may still name an earlier segment that stood under this name, and whoever looks
    # for that one must not find half of this one's flags.
    write_flags(fs, base, first.first_seq, bytes(last.last_seq - first.first_seq + 1))
    fs.sync_directory(ROOT)
    # Arrow keeps freed buffers for the next time; between two segments that would be most of what a server weighs.
    pa.default_memory_pool().release_unused()
    return SegmentInfo(
        first.first_seq,
        last.last_seq,
        first.first_ts,
        last.last_ts,
        sum([page.size for page in pages]),
        bool(tags),
        body_start,
        body_end,
        frame_checksum,
        tags_checksum,
    )


def remove_segment(fs: FileSystem, base: str) -> None:
    for suffix in _SUFFIXES:
        if fs.exists(base + suffix):
            fs.remove(base + suffix)


def segment_exists(fs: FileSystem, base: str, info: SegmentInfo) -> bool:
    """Whether all files of the segment are there. Removing one may have stopped half-way."""
    return all([fs.exists(base + suffix) for suffix in (".arrow", ".dead", ".tags")[: 3 if info.tagged else 2]])


def read_flags(fs: FileSystem, base: str, info: SegmentInfo) -> bytearray:
    """One byte per record, 1 when it was deleted. Raises CorruptStorage."""
    path = base + ".dead"
    records = info.last_seq - info.first_seq + 1
    try:
        file = fs.open(path)
    except FileNotFoundError as error:
        raise CorruptStorage(path, 0, "delete flags are missing") from error
    try:
        content = file.read_at(0, records + 9)
    finally:
        file.close()
    if content != _flags_file(info.first_seq, content[:records]) or content[:records].strip(b"\0\1"):
        raise CorruptStorage(path, 0, "delete flags are damaged")
    return bytearray(content[:records])


def is_another_segment(fs: FileSystem, base: str, info: SegmentInfo) -> bool:
    """Whether the files under this name are whole and belong to a segment that begins at the same seq and ends elsewhere.

    That happens when a segment was dropped, the server ended, and the next one sealed what it had read from the log.
    """
    file = fs.open(base + ".dead")
    try:
        content = file.read_at(0, file.size())
    finally:
        file.close()
    flags = content[:-8]
    return len(flags) != info.last_seq - info.first_seq + 1 and content == _flags_file(info.first_seq, flags)


def write_flags(fs: FileSystem, base: str, first_seq: int, flags: bytes) -> None:
    """The flags are these. Survives a power cut after `sync_directory(ROOT)`; until then the old or the new ones do."""
    aside = base + ".new"
    if fs.exists(aside):
        fs.remove(aside)
    _write_file(fs, aside, _flags_file(first_seq, flags))
    fs.rename(aside, base + ".dead")


def segment_bases(fs: FileSystem) -> set[str]:
    """Every segment that has left a file behind."""
    return {f"{ROOT}/{name.rsplit('.', 1)[0]}" for name in fs.list(ROOT)}


class SegmentFile:
    """An open segment, mapped into memory. Holds no more than the operating system keeps of it."""

    def __init__(self, fs: FileSystem, base: str, info: SegmentInfo) -> None:
        import pyarrow as pa

        self.base = base
        self.info = info
        self._fs = fs
        self._pa = pa
        self._view = _map(fs, base + ".arrow")
        if _frame_checksum(self._view, info.body_start, info.body_end) != info.checksum:
            raise CorruptStorage(
                base + ".arrow", 0, "segment file is damaged outside of its rows, or not the right one"
            )
        self._reader, batches = _open(pa, self._view, base + ".arrow")
        self.batches = batches
        self._starts = [batch.first_seq for batch in batches]
        self._columns: dict[int, _Columns] = {}
        self._tags: _TagColumns | None = None
        rows = sum([batch.rows for batch in batches])
        if not batches or self._starts[0] != info.first_seq or rows != info.last_seq - info.first_seq + 1:
            raise CorruptStorage(base + ".arrow", 0, "segment does not hold the records the log says it does")

    def page_bounds(self, seq: int, records: int) -> tuple[int, int]:
        """The first seq of the page that `page` would answer, and the one behind its last."""
        batch = self.batches[bisect_right(self._starts, seq) - 1]
        records = _rows_of_a_page(batch, records)
        first = batch.first_seq + (seq - batch.first_seq) // records * records
        return first, min(first + records, batch.first_seq + batch.rows)

    def page(self, seq: int, records: int) -> Page:
        """The page of `records` rows, fewer if they are large, counted from the start of its batch, that holds `seq`."""
        number = bisect_right(self._starts, seq) - 1
        columns = self._batch(number)
        batch = self.batches[number]
        records = _rows_of_a_page(batch, records)
        start = (seq - batch.first_seq) // records * records
        return columns.page(batch.first_seq, start, min(start + records, batch.rows))

    def run(self, seq: int, most: int, room: int) -> Page:
        """Up to `most` records of up to `room` bytes from `seq` on, at least one; fewer at the end of a batch."""
        number = bisect_right(self._starts, seq) - 1
        batch = self.batches[number]
        start = seq - batch.first_seq
        columns = self._batch(number)
        return columns.page(batch.first_seq, start, columns.fitting(start, min(start + most, batch.rows), room))

    def stretch(self, seq: int, most: int) -> "Stretch":
        """Up to `most` records from `seq` on, where they stand; fewer at the end of a batch."""
        number = bisect_right(self._starts, seq) - 1
        batch = self.batches[number]
        start = seq - batch.first_seq
        return Stretch(self._batch(number), seq, start, min(start + most, batch.rows))

    def size_between(self, first: int, stop: int) -> int:
        """The bytes of the records first .. stop - 1. No value is looked at."""
        size = 0
        while first < stop:
            stretch = self.stretch(first, stop - first)
            size += stretch.size
            first += stretch.count
        return size

    def size_of(self, seqs: Sequence[int]) -> int:
        """The bytes of these records; seqs ascend. No value is looked at: 0.1 us a record."""
        size = start = 0
        while start < len(seqs):
            number = bisect_right(self._starts, seqs[start]) - 1
            first = self._starts[number]
            stop = bisect_left(seqs, first + self.batches[number].rows, start)
            size += self._batch(number).size_of([seq - first for seq in seqs[start:stop]])
            start = stop
        return size

    def check(self, first: int, last: int) -> None:
        """The records first..last are as they were written. Raises CorruptStorage."""
        for number in range(bisect_right(self._starts, first) - 1, bisect_right(self._starts, last)):
            self._batch(number)

    def record_batch(self, number: int) -> Any:
        """A batch as pyarrow has it: seq, ts, node, tag, data, meta."""
        self._batch(number)
        return self._reader.get_batch(number)

    def rows(self, first: int, last: int) -> list[Any]:
        """Records first..last as slices of their batches, nothing copied."""
        result = []
        number = bisect_right(self._starts, first) - 1
        while number < len(self.batches) and self._starts[number] <= last:
            batch = self.batches[number]
            start = max(0, first - batch.first_seq)
            stop = min(batch.rows, last - batch.first_seq + 1)
            result.append(self.record_batch(number).slice(start, stop - start))
            number += 1
        return result

    def find(self, match: TagMatch, bound: int) -> list[int]:
        """The seqs below `bound` whose tag matches, ascending: a search in the sorted index, never in the rows."""
        if not self.info.tagged:
            return []
        return self._tag_index().find(match, bound)

    def verify(self) -> None:
        """Check every batch and the tag index. Raises CorruptStorage."""
        for number in range(len(self.batches)):
            self._batch(number)
        if self.info.tagged:
            self._tag_index()

    def tags(self) -> list[tuple[bytes, list[int]]]:
        """The whole tag index: tags as JSON texts in order, each with its seqs."""
        return self._tag_index().all() if self.info.tagged else []

    def _tag_index(self) -> "_TagColumns":
        if self._tags is None:
            path = self.base + ".tags"
            view = _map(self._fs, path)
            if xxh3_64_intdigest(view) != self.info.tags_checksum:
                raise CorruptStorage(path, 0, "tag index is damaged, or not the right one")
            self._tags = _TagColumns(self._pa, view, path)
        return self._tags

    def _batch(self, number: int) -> "_Columns":
        columns = self._columns.get(number)
        if columns is None:
            entry = self.batches[number]
            if xxh3_64_intdigest(self._view[entry.start : entry.start + entry.length]) != entry.checksum:
                raise CorruptStorage(self.base + ".arrow", entry.start, f"batch {number} is damaged")
            try:
                columns = self._columns[number] = _Columns(self._reader.get_batch(number))
            except (self._pa.ArrowException, OSError) as error:
                raise CorruptStorage(self.base + ".arrow", entry.start, f"batch {number}: {error}") from error
        return columns


def _rows_of_a_page(batch: Batch, most: int) -> int:
    return max(1, min(most, batch.rows * PAGE_BYTES // batch.length))


class Stretch:
    """Some rows of one batch: what they have, and their texts put together without taking any of them apart.

    256 records of 100 bytes with one `$ts`: 17 us, with many 36, against 60 for a page of them and rendering it.
    """

    __slots__ = ("_columns", "_start", "_stop", "count", "first_seq", "metas", "nodes", "plain", "tags")

    def __init__(self, columns: "_Columns", first_seq: int, start: int, stop: int) -> None:
        self.first_seq = first_seq
        self.count = stop - start
        # Whether one of the rows may have it.
        self.nodes = not columns.nodes.empty
        self.tags = not columns.tags.empty
        self.metas = not columns.meta.empty
        # Whether nodes and tags are as JSON strings what they are here, but for the quotes.
        self.plain = columns.nodes.plain and columns.tags.plain
        self._columns = columns
        self._start = start
        self._stop = stop

    @property
    def size(self) -> int:
        """What the records count as in `bytes`."""
        return self._columns.size_between(self._start, self._stop)

    @property
    def one_time(self) -> int | None:
        """The `$ts` of all of them; None when they differ. Times never fall, so equal ends mean one for all."""
        times = self._columns.times
        first = times[self._start]
        return first if first == times[self._stop - 1] else None

    def joined(
        self, heads: bytes, width: int, node: tuple[bytes, bytes], data: tuple[bytes, bytes], meta: tuple[bytes, bytes]
    ) -> memoryview:
        """For each record its head, of which each is `width` long, its `$ts` unless all have the same, and node, data
        and meta with what is to stand around them."""
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
    """The columns of one batch. Values are taken out of them all at once: 256 payloads in 25 us, one by one in 36."""

    def __init__(self, batch: Any) -> None:
        self.times_column = batch.column(1)
        self.times = memoryview(self.times_column.buffers()[1]).cast("b").cast("q")
        self.nodes = _Strings(batch.column(2))
        self.tags = _Strings(batch.column(3))
        self.data = _Texts(batch.column(4))
        self.meta = _Texts(batch.column(5))

    def size_between(self, start: int, stop: int) -> int:
        size = (stop - start) * RECORD_OVERHEAD + self.data.bytes_between(start, stop)
        for column in (self.meta, self.nodes, self.tags):
            if not column.empty:
                size += column.bytes_between(start, stop)
        return size

    def fitting(self, start: int, stop: int, room: int) -> int:
        """Where the rows from `start` on, `stop` at most, end that take `room` bytes; one at least."""
        if self.size_between(start, stop) <= room:
            return stop
        ends = range(start + 1, stop + 1)
        return start + max(1, bisect_right(ends, room, key=lambda end: self.size_between(start, end)))

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
        # Times never fall, so equal ends mean one time for all.
        times = int.from_bytes(moments[:8], "little", signed=True) if moments[:8] == moments[-8:] else moments
        size = page_size(count, data, metas, nodes, tags)
        return LoadedPage(first_seq + start, count, times, data, metas, nodes, tags, size, data.split(SEPARATOR))


class _Texts:
    """A string column: offsets and bytes. A null reads as empty, which no JSON text is."""

    def __init__(self, column: Any) -> None:
        _, offsets, data = column.buffers()
        self.column = column
        self.empty = column.null_count == len(column)
        self._offsets = memoryview(offsets).cast("b").cast("i")
        self._data = memoryview(data) if data is not None else memoryview(b"")

    def slice(self, start: int, stop: int) -> list[bytes]:
        offsets = self._offsets[start : stop + 1].tolist()
        first = offsets[0]
        text = bytes(self._data[first : offsets[-1]])
        if first:
            offsets = [offset - first for offset in offsets]
        return [text[low:high] for low, high in pairwise(offsets)]

    def bytes_between(self, start: int, stop: int) -> int:
        return self._offsets[stop] - self._offsets[start]

    def find(self, what: re.Pattern[bytes]) -> bool:
        return what.search(self._data[: self._offsets[len(self.column)]]) is not None

    def lengths(self, rows: Sequence[int]) -> list[int]:
        offsets = self._offsets
        return [offsets[row + 1] - offsets[row] for row in rows]

    def joined(self, start: int, stop: int) -> bytes | None:
        if self.empty:
            return None
        text = joined_texts(self.column.slice(start, stop - start))
        return text if text.strip(SEPARATOR) else None


class _Strings:
    """A column of nodes or tags: strings there, JSON strings here."""

    def __init__(self, column: Any) -> None:
        self.column = column
        self.empty = column.null_count == len(column)
        # Whether those that are there only lack their quotes, and none is an empty one, which has the length of none.
        self.plain = True
        if not self.empty:
            self._texts = _Texts(column)
            self.plain = not self._texts.find(_ESCAPED) and not has_empty(column)

    def bytes_between(self, start: int, stop: int) -> int:
        if not self.plain:
            return sum(self.lengths(range(start, stop)))
        rows = self.column.slice(start, stop - start)
        quoted = len(rows) - int(rows.null_count)
        return self._texts.bytes_between(start, stop) + 2 * quoted

    def lengths(self, rows: Sequence[int]) -> list[int]:
        """As JSON strings."""
        if self.plain:
            return [length + 2 if length else 0 for length in self._texts.lengths(rows)]
        return [len(self.joined(row, 1) or b"") for row in rows]

    def joined(self, start: int, count: int) -> bytes | None:
        if self.empty:
            return None
        values = self.column.slice(start, count).to_pylist()
        if all([value is None for value in values]):
            return None
        return SEPARATOR.join([b"" if value is None else msgspec.json.encode(value) for value in values])


class _TagColumns:
    """The sorted tag index of a segment."""

    def __init__(self, pa: Any, view: memoryview, path: str) -> None:
        try:
            batch = pa.ipc.open_file(pa.py_buffer(view)).get_batch(0)
        except (pa.ArrowException, OSError) as error:
            raise CorruptStorage(path, 0, str(error)) from error
        self._rows = int(batch.num_rows)
        self._names = _Texts(batch.column(0))
        lists = batch.column(1)
        self._ends = memoryview(lists.buffers()[1]).cast("b").cast("i")
        self._seqs = memoryview(lists.values.buffers()[1]).cast("b").cast("q")

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> bytes:
        return self._names.slice(row, row + 1)[0]

    def all(self) -> list[tuple[bytes, list[int]]]:
        return [(self[row], list(self._seqs[self._ends[row] : self._ends[row + 1]])) for row in range(self._rows)]

    def find(self, match: TagMatch, bound: int) -> list[int]:
        text = msgspec.json.encode(match.text)
        prefix = text[:-1]
        result: list[int] = []
        for row in range(bisect_left(self, prefix if match.prefix else text), self._rows):
            name = self[row]
            if not (name.startswith(prefix) if match.prefix else name == text):
                break
            result += [seq for seq in self._seqs[self._ends[row] : self._ends[row + 1]] if seq < bound]
        if match.prefix:
            result.sort()
        return result


def _groups(pages: Sequence[Page]) -> list[list[Page]]:
    """The pages of each batch: of a size at which checking one on first touch and keeping its offsets costs little."""
    groups: list[list[Page]] = []
    records = size = 0
    for page in pages:
        if not groups or records + page.count > BATCH_RECORDS or size + page.size > BATCH_BYTES:
            groups.append([])
            records = size = 0
        groups[-1].append(page)
        records += page.count
        size += page.size
    return groups


def _stacks(groups: list[list[Page]]) -> list[list[list[Page]]]:
    """Neighbouring groups that are made into columns together."""
    stacks: list[list[list[Page]]] = []
    size = 0
    for group in groups:
        more = sum([page.size for page in group])
        if not stacks or size + more > STACK_BYTES:
            stacks.append([])
            size = 0
        stacks[-1].append(group)
        size += more
    return stacks


def _write_rows(pa: Any, fs: FileSystem, path: str, pages: Sequence[Page]) -> tuple[int, int, int]:
    """The file of the records, synced. Answers from where to where its batches stand, and the checksum of what is around.

    A few batches are made, written and let go before the next: memory that is touched for the first time was a third of what
    sealing cost when the whole file was put together first. (0.17 us a record, 0.29 with each batch made for itself and
    every part of it handed over: docs/decisions/0017-sealing-beside-writers.md.)

    Arrow wants the footer's metadata before the first batch. It gets as many bytes of nothing, which are replaced by the
    checksums when the footer comes.
    """
    groups = _groups(pages)
    longest = Batch(U64_MAX, U64_MAX, U64_MAX, U64_MAX, U64_MAX)
    nothing = b"?" * len(_footer([longest] * len(groups)))
    file = fs.open(path, create=True)
    try:
        sink = _Sink(file)
        stream = pa.BufferedOutputStream(pa.PythonFile(sink, mode="w"), SMALL_BYTES)
        with pa.ipc.new_file(stream, record_schema(pa), metadata={_KEY: nothing}) as writer:
            stream.flush()
            frame = xxh3_64(b"".join(sink.parts))
            sink.write_out()
            entries = []
            for stack in _stacks(groups):
                rows = record_batch(pa, [page for group in stack for page in group])
                first_seq = stack[0][0].first_seq
                for group in stack:
                    start, seq = sink.position, group[0].first_seq
                    count = group[-1].last_seq - seq + 1
                    writer.write_batch(rows.slice(seq - first_seq, count))
                    stream.flush()
                    checksum = sink.write_out()
                    entries.append(Batch(seq, count, start, sink.position - start, checksum))
        stream.flush()
        footer = b"".join(sink.parts)
        assert footer.count(nothing) == 1
        sink.parts = [memoryview(footer.replace(nothing, _footer(entries).ljust(len(nothing))))]
        frame.update(sink.parts[0])
        sink.write_out()
        file.sync_data()
    finally:
        file.close()
    return entries[0].start, entries[-1].start + entries[-1].length, int(frame.intdigest())


def _footer(entries: list[Batch]) -> bytes:
    return msgspec.json.encode(_Footer(1, entries))


class _Sink:
    """A file as Arrow sees it: takes parts, and writes them out when told to."""

    def __init__(self, file: File) -> None:
        self.parts: list[memoryview] = []
        self.position = 0
        # Arrow asks before each write.
        self.closed = False
        self._file = file

    def write(self, part: Any) -> int:
        view = memoryview(part)
        self.parts.append(view)
        return view.nbytes

    def flush(self) -> None:
        """Parts wait for `write_out`."""

    def close(self) -> None:
        self.closed = True

    def write_out(self) -> int:
        """What has come stands in the file; answers its checksum."""
        digest = xxh3_64()
        for part in self.parts:
            digest.update(part)
        self._file.write_at(self.position, self.parts)
        self.position += sum(map(len, self.parts))
        self.parts = []
        return int(digest.intdigest())


def _frame_checksum(content: Any, body_start: int, body_end: int) -> int:
    """Of all that is not a batch: schema and footer."""
    view = memoryview(content)
    digest = xxh3_64(view[:body_start])
    digest.update(view[body_end:])
    return int(digest.intdigest())


def _flags_file(first_seq: int, flags: bytes) -> bytes:
    return flags + xxh3_64_intdigest(flags, first_seq).to_bytes(8, "little")


class _Footer(Struct):
    format: int
    batches: list[Batch]


def _map(fs: FileSystem, path: str) -> memoryview:
    try:
        file = fs.open(path)
    except FileNotFoundError as error:
        raise CorruptStorage(path, 0, "segment file is missing") from error
    try:
        return file.map()
    finally:
        file.close()


def _open(pa: Any, view: memoryview, path: str) -> tuple[Any, list[Batch]]:
    try:
        reader = pa.ipc.open_file(pa.py_buffer(view))
        footer = msgspec.json.decode(reader.metadata[_KEY], type=_Footer)
    except (pa.ArrowException, OSError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise CorruptStorage(path, 0, f"not a whole segment file: {error}") from error
    if reader.num_record_batches != len(footer.batches):
        raise CorruptStorage(path, 0, "segment file has lost batches")
    return reader, footer.batches


def _write_file(fs: FileSystem, path: str, content: Any) -> None:
    file = fs.open(path, create=True)
    try:
        file.write_at(0, [memoryview(content)])
        file.sync_data()
    finally:
        file.close()
