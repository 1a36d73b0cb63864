"""Sealed segments: a run of records as an Arrow IPC file that stock pyarrow, DuckDB or Polars can open.

    segments/<topic>-<partition>-<first seq>.arrow   columns seq, ts, node, tag, data, meta, in batches of some thousand
    segments/<topic>-<partition>-<first seq>.tags    tag (as JSON text), seqs; sorted by tag; only when a record has a tag
    segments/<topic>-<partition>-<first seq>.dead    one byte per record, 1 when it was deleted; flipped in place

The names are numbers: a topic's own name never reaches the file system. The first two files never change and carry
XXH3-64 checksums of their columns in the footer metadata under the key `topics`; each batch is checked when it is first
touched. A segment is synced whole before the log says that it exists; files the log does not name are left-overs.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from xxhash import xxh3_64

from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.match import TagMatch
from topics.model.page import SEPARATOR, LoadedPage, Page, page_size, page_times
from topics.storage.fs import File, FileSystem

ROOT = "segments"
BATCH_RECORDS = 4096
BATCH_BYTES = 8 << 20
_KEY = b"topics"


class Batch(Struct, array_like=True):
    """What the footer says of one batch of rows."""

    first_seq: int
    rows: int
    checksum: int


def segment_base(topic_id: int, partition: int, first_seq: int) -> str:
    return f"{ROOT}/{topic_id:016x}-{partition:04x}-{first_seq:020d}"


def write_segment(
    fs: FileSystem, base: str, pages: Sequence[Page], tags: Sequence[tuple[bytes, list[int]]]
) -> SegmentInfo:
    """The segment's three files hold these records and survive a power cut."""
    import pyarrow as pa

    remove_segment(fs, base)
    fs.make_directory(ROOT)
    _write_file(fs, base + ".arrow", _arrow_bytes(pa, _schema(pa), _batches(pa, pages)))
    if tags:
        names = pa.array([name.decode() for name, _ in tags], pa.string())
        seqs = pa.array([seqs for _, seqs in tags], pa.list_(pa.int64()))
        batch = pa.RecordBatch.from_arrays([names, seqs], names=["tag", "seqs"])
        _write_file(fs, base + ".tags", _arrow_bytes(pa, batch.schema, [batch]))
    first, last = pages[0], pages[-1]
    _write_file(fs, base + ".dead", bytes(last.last_seq - first.first_seq + 1))
    fs.sync_directory(ROOT)
    size = sum([page.size for page in pages])
    return SegmentInfo(first.first_seq, last.last_seq, first.first_ts, last.last_ts, size, bool(tags))


def remove_segment(fs: FileSystem, base: str) -> None:
    for suffix in (".dead", ".tags", ".arrow"):
        if fs.exists(base + suffix):
            fs.remove(base + suffix)


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
        self._reader, batches = _open(pa, fs, base + ".arrow")
        self.batches = batches
        self._starts = [batch.first_seq for batch in batches]
        self._columns: dict[int, _Columns] = {}
        self._tags: _TagColumns | None = None
        rows = sum([batch.rows for batch in batches])
        if not batches or self._starts[0] != info.first_seq or rows != info.last_seq - info.first_seq + 1:
            raise CorruptStorage(base + ".arrow", 0, "segment does not hold the records the log says it does")

    def page_start(self, seq: int, records: int) -> int:
        """The first seq of the page that `page` would answer."""
        first = self._starts[bisect_right(self._starts, seq) - 1]
        return first + (seq - first) // records * records

    def page(self, seq: int, records: int) -> Page:
        """The page of `records` rows, counted from the start of its batch, that holds `seq`."""
        number = bisect_right(self._starts, seq) - 1
        columns = self._batch(number)
        batch = self.batches[number]
        start = (seq - batch.first_seq) // records * records
        return columns.page(batch.first_seq, start, min(start + records, batch.rows))

    def run(self, seq: int, most: int) -> Page:
        """Up to `most` records from `seq` on; fewer at the end of a batch."""
        number = bisect_right(self._starts, seq) - 1
        batch = self.batches[number]
        start = seq - batch.first_seq
        return self._batch(number).page(batch.first_seq, start, min(start + most, batch.rows))

    def record_batch(self, number: int) -> Any:
        """A batch as pyarrow has it: seq, ts, node, tag, data, meta."""
        self._batch(number)
        return self._reader.get_batch(number)

    def find(self, match: TagMatch, bound: int) -> list[int]:
        """The seqs below `bound` whose tag matches, ascending: a search in the sorted index, never in the rows."""
        if not self.info.tagged:
            return []
        if self._tags is None:
            self._tags = _TagColumns(self._pa, self._fs, self.base + ".tags")
        return self._tags.find(match, bound)

    def verify(self) -> None:
        """Check every batch and the tag index. Raises CorruptStorage."""
        for number in range(len(self.batches)):
            self._batch(number)
        if self.info.tagged and self._tags is None:
            self._tags = _TagColumns(self._pa, self._fs, self.base + ".tags")

    def _batch(self, number: int) -> "_Columns":
        columns = self._columns.get(number)
        if columns is None:
            try:
                batch = self._reader.get_batch(number)
                whole = _checksum(batch) == self.batches[number].checksum
            except (self._pa.ArrowException, OSError) as error:
                raise CorruptStorage(self.base + ".arrow", 0, f"batch {number}: {error}") from error
            if not whole:
                raise CorruptStorage(self.base + ".arrow", 0, f"batch {number} is damaged")
            columns = self._columns[number] = _Columns(batch)
        return columns


class FlagFile:
    """The delete flags of one segment."""

    def __init__(self, fs: FileSystem, base: str, records: int) -> None:
        self.path = base + ".dead"
        self._file: File = fs.open(self.path)
        if self._file.size() != records:
            size = self._file.size()
            self._file.close()
            raise CorruptStorage(self.path, size, f"should hold {records} flags")
        self._records = records

    def read(self) -> bytearray:
        return bytearray(self._file.read_at(0, self._records))

    def set(self, positions: Sequence[int]) -> None:
        """Flip these flags in place. They survive a power cut once `sync` has returned."""
        start = 0
        while start < len(positions):
            stop = start + 1
            while stop < len(positions) and positions[stop] == positions[stop - 1] + 1:
                stop += 1
            self._file.write_at(positions[start], [b"\1" * (stop - start)])
            start = stop

    def sync(self) -> None:
        self._file.sync_data()

    def close(self) -> None:
        self._file.close()


class _Columns:
    """One batch as raw buffers: slicing bytes out of them costs 0.1 us a value, a tenth of asking pyarrow for each."""

    def __init__(self, batch: Any) -> None:
        self._times = memoryview(batch.column(1).buffers()[1]).cast("b")
        self._nodes = _Strings(batch.column(2))
        self._tags = _Strings(batch.column(3))
        self._data = _Texts(batch.column(4))
        self._meta = _Texts(batch.column(5))

    def page(self, first_seq: int, start: int, stop: int) -> Page:
        count = stop - start
        datas = self._data.slice(start, stop)
        data = SEPARATOR.join(datas)
        metas = self._meta.joined(start, stop)
        nodes = self._nodes.joined(start, count)
        tags = self._tags.joined(start, count)
        moments = bytes(self._times[start * 8 : stop * 8])
        # Times never fall, so equal ends mean one time for all.
        times = int.from_bytes(moments[:8], "little", signed=True) if moments[:8] == moments[-8:] else moments
        size = page_size(count, data, metas, nodes, tags)
        return LoadedPage(first_seq + start, count, times, data, metas, nodes, tags, size, datas)


class _Texts:
    """A string column: offsets and bytes. A null reads as empty, which no JSON text is."""

    def __init__(self, column: Any) -> None:
        _, offsets, data = column.buffers()
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

    def joined(self, start: int, stop: int) -> bytes | None:
        if self.empty:
            return None
        texts = self.slice(start, stop)
        return SEPARATOR.join(texts) if any(texts) else None


class _Strings:
    """A column of nodes or tags: strings there, JSON strings here."""

    def __init__(self, column: Any) -> None:
        self._column = None if column.null_count == len(column) else column

    def joined(self, start: int, count: int) -> bytes | None:
        if self._column is None:
            return None
        values = self._column.slice(start, count).to_pylist()
        if all([value is None for value in values]):
            return None
        return SEPARATOR.join([b"" if value is None else msgspec.json.encode(value) for value in values])


class _TagColumns:
    """The sorted tag index of a segment."""

    def __init__(self, pa: Any, fs: FileSystem, path: str) -> None:
        reader, batches = _open(pa, fs, path)
        try:
            batch = reader.get_batch(0)
            whole = _checksum(batch) == batches[0].checksum
        except (pa.ArrowException, OSError, IndexError) as error:
            raise CorruptStorage(path, 0, str(error)) from error
        if not whole:
            raise CorruptStorage(path, 0, "tag index is damaged")
        self._rows = int(batch.num_rows)
        self._names = _Texts(batch.column(0))
        lists = batch.column(1)
        self._ends = memoryview(lists.buffers()[1]).cast("b").cast("i")
        self._seqs = memoryview(lists.values.buffers()[1]).cast("b").cast("q")

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> bytes:
        return self._names.slice(row, row + 1)[0]

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


def _schema(pa: Any) -> Any:
    return pa.schema(
        [
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("ts", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("node", pa.string()),
            pa.field("tag", pa.string()),
            pa.field("data", pa.string(), nullable=False),
            pa.field("meta", pa.string()),
        ]
    )


def _batches(pa: Any, pages: Sequence[Page]) -> list[Any]:
    """The pages as batches of a size at which checking one on first touch and keeping its offsets costs little."""
    result = []
    waiting: list[Page] = []
    records = size = 0
    for page in pages:
        if waiting and (records + page.count > BATCH_RECORDS or size + page.size > BATCH_BYTES):
            result.append(_batch(pa, waiting))
            waiting = []
            records = size = 0
        waiting.append(page)
        records += page.count
        size += page.size
    result.append(_batch(pa, waiting))
    return result


def _batch(pa: Any, pages: list[Page]) -> Any:
    first_seq = pages[0].first_seq
    count = sum([page.count for page in pages])
    seqs = _numbers(pa, pa.int64(), array("q", range(first_seq, first_seq + count)))
    moments = array("q")
    for page in pages:
        moments += page_times(page)
    times = _numbers(pa, pa.timestamp("ms", "UTC"), moments)
    return pa.RecordBatch.from_arrays(
        [
            seqs,
            times,
            _strings(pa, [(page.nodes, page.count) for page in pages]),
            _strings(pa, [(page.tags, page.count) for page in pages]),
            _split(pa, [page.data for page in pages]),
            _texts(pa, [(page.metas, page.count) for page in pages]),
        ],
        schema=_schema(pa),
    )


def _numbers(pa: Any, kind: Any, values: "array[int]") -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _split(pa: Any, texts: list[bytes]) -> Any:
    """JSON texts as they are; taken apart in C++, where other threads can go on meanwhile."""
    import pyarrow.compute as pc

    return pc.split_pattern(pa.array(texts, pa.binary()), pattern=SEPARATOR).flatten().cast(pa.string())


def _texts(pa: Any, columns: list[tuple[bytes | None, int]]) -> Any:
    """The same for a column in which a record may have nothing."""
    import pyarrow.compute as pc

    if all([text is None for text, _ in columns]):
        return pa.nulls(sum([count for _, count in columns]), pa.string())
    values = _split(pa, [SEPARATOR * (count - 1) if text is None else text for text, count in columns])
    return pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, pa.string()), values)


def _strings(pa: Any, columns: list[tuple[bytes | None, int]]) -> Any:
    """JSON strings as the strings they stand for."""
    count = sum([count for _, count in columns])
    if all([text is None for text, _ in columns]):
        return pa.nulls(count, pa.string())
    values: list[str | None] = []
    for text, rows in columns:
        if text is None:
            values += [None] * rows
        else:
            values += [msgspec.json.decode(each, type=str) if each else None for each in text.split(SEPARATOR)]
    return pa.array(values, pa.string())


def _arrow_bytes(pa: Any, schema: Any, batches: list[Any]) -> Any:
    """The file with checksums of its columns as a reader will find them: hence written twice, first to be read back."""
    plain = pa.ipc.open_file(_serialize(pa, schema, batches, None))
    entries = []
    for number in range(plain.num_record_batches):
        batch = plain.get_batch(number)
        first_seq = batch.column(0)[0].as_py() if schema.names[0] == "seq" else 0
        entries.append(Batch(first_seq, batch.num_rows, _checksum(batch)))
    return _serialize(pa, schema, batches, {_KEY: msgspec.json.encode({"format": 1, "batches": entries})})


def _serialize(pa: Any, schema: Any, batches: list[Any], metadata: dict[bytes, bytes] | None) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, metadata=metadata) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _checksum(batch: Any) -> int:
    digest = xxh3_64()
    for column in batch.columns:
        for buffer in column.buffers():
            digest.update(b"-" if buffer is None else memoryview(buffer))
    return int(digest.intdigest())


class _Footer(Struct):
    format: int
    batches: list[Batch]


def _open(pa: Any, fs: FileSystem, path: str) -> tuple[Any, list[Batch]]:
    try:
        file = fs.open(path)
        try:
            view = file.map()
        finally:
            file.close()
        reader = pa.ipc.open_file(pa.py_buffer(view))
        footer = msgspec.json.decode(reader.metadata[_KEY], type=_Footer)
    except FileNotFoundError as error:
        raise CorruptStorage(path, 0, "segment file is missing") from error
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
