"""Convert pages to Arrow columns and back without a Python object per record.

pyarrow is passed as an argument or imported inside functions: its import takes a tenth of a second, and a server that neither
seals nor serves bulk reads does not need it.
"""

from array import array
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec

from topics.model.records.page import SEPARATOR, Page, page_times


@cache
def record_schema(pa: Any) -> Any:
    """Return the schema of a record in segments and bulk reads."""
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


def record_batch(pa: Any, pages: Sequence[Page]) -> Any:
    """Convert adjacent pages to one record batch with all columns."""
    first_seq = pages[0].first_seq
    count = sum([page.count for page in pages])
    moments = array("q")
    for page in pages:
        moments += page_times(page)
    times = _numbers(pa, pa.timestamp("ms", "UTC"), moments)
    return pa.RecordBatch.from_arrays(
        [
            _seqs(pa, first_seq, count),
            times,
            _strings(pa, [(page.nodes, page.count) for page in pages]),
            _strings(pa, [(page.tags, page.count) for page in pages]),
            _split(pa, [page.data for page in pages]),
            _texts(pa, [(page.metas, page.count) for page in pages]),
        ],
        schema=record_schema(pa),
    )


def tag_batch(pa: Any, tags: Sequence[tuple[bytes, int | Sequence[int]]]) -> Any:
    """Build the tag index: tags (JSON texts), each with its seqs, sorted by tag in C++; there may be as many tags as records."""
    import pyarrow.compute as pc

    names = pa.array([name for name, _ in tags], pa.binary()).cast(pa.string())
    # Unsigned like the arrays of the hot index, which are then copied with one call. Seqs stay below 2**63.
    seqs = array("Q")
    ends = array("i", [0])
    for _, each in tags:
        if isinstance(each, int):
            seqs.append(each)
        else:
            seqs.extend(each)
        ends.append(len(seqs))
    lists = pa.ListArray.from_arrays(_numbers(pa, pa.int32(), ends), _numbers(pa, pa.int64(), seqs))
    batch = pa.RecordBatch.from_arrays([names, lists], names=["tag", "seqs"])
    return batch.take(pc.sort_indices(names))


@lru_cache(maxsize=8)
def node_set(pa: Any, nodes: frozenset[bytes]) -> Any:
    """Return the nodes (JSON strings) as an Arrow array, cached for all batches that one reader scans."""
    return pa.array([msgspec.json.decode(node, type=str) for node in nodes], pa.string())


def first_not_in(column: Any, values: Any) -> int:
    """Return the position of the first value, nulls included, that is not in `values`; -1 if there is none."""
    import pyarrow.compute as pc

    return int(pc.index(pc.is_in(column, value_set=values), False).as_py())


def joined_rows(
    heads: bytes, width: int, times: Any | None, parts: Sequence[tuple[Any, tuple[bytes, bytes]]]
) -> memoryview:
    """Join for each row: its head (`heads` has `width` bytes per row), its time, its values of the text columns.

    Each value is between two constant texts; a null value omits both. Runs in C++: 0.05 us per row and column.
    """
    kernel = _join_kernel()
    pieces = [kernel.strings(heads, width, len(parts[0][0]))]
    if times is not None:
        pieces.append(kernel.decimals(times))
    for column, (before, behind) in parts:
        if column.null_count:
            pieces.append(kernel.join([kernel.scalar(before), column, kernel.scalar(behind)], kernel.null_if_any))
        else:
            pieces += [kernel.scalar(before)] if before else []
            pieces.append(column)
            pieces += [kernel.scalar(behind)] if behind else []
    return memoryview(kernel.join(pieces, kernel.skip_nulls).buffers()[2])


def joined_texts(column: Any) -> bytes:
    """Join the values of a column as pages store them: separated by SEPARATOR, a null as the empty text."""
    kernel = _join_kernel()
    ended = memoryview(kernel.join([column, kernel.scalar(b"")], kernel.empty_nulls, SEPARATOR).buffers()[2])
    return ended[:-1].tobytes()


def has_empty(column: Any) -> bool:
    """Return whether a value is the empty text. Nulls do not count."""
    import pyarrow.compute as pc

    return pc.any(pc.equal(pc.binary_length(column), 0)).as_py() is True


def load_libraries() -> None:
    """Import and use pyarrow once, so that the first read of a segment takes 1 ms instead of 150 ms."""
    import pyarrow as pa

    column = pa.array(["text"], pa.string())
    has_empty(column)
    joined_texts(column)
    first_not_in(column, column)
    _join_kernel().decimals(pa.array([1], pa.int64()))


class _JoinKernel:
    """Objects pyarrow needs for joining, created once: creating them for each page would double its cost."""

    def __init__(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        self._pa = pa
        self._kind = pa.string()
        self._number = pa.int64()
        self._cast = pc.get_function("cast")
        self._to_text = pc.CastOptions.safe(self._kind)
        self._function = pc.get_function("binary_join_element_wise")
        self.null_if_any = pc.JoinOptions(null_handling="emit_null")
        self.skip_nulls = pc.JoinOptions(null_handling="skip")
        self.empty_nulls = pc.JoinOptions(null_handling="replace", null_replacement="")
        self._scalars: dict[bytes, Any] = {}
        self._multiples: dict[int, Any] = {}

    def join(self, pieces: list[Any], nulls: Any, separator: bytes = b"") -> Any:
        return self._function.call([*pieces, self.scalar(separator)], nulls)

    def decimals(self, times: Any) -> Any:
        return self._cast.call([times.view(self._number)], self._to_text)

    def scalar(self, text: bytes) -> Any:
        """Return the scalar of a text, cached. Only for texts that are constants in the code."""
        scalar = self._scalars.get(text)
        if scalar is None:
            scalar = self._scalars[text] = self._pa.scalar(text.decode(), self._kind)
        return scalar

    def strings(self, text: bytes, width: int, rows: int) -> Any:
        """Return an array of `rows` strings of `width` bytes each, over the bytes of `text`."""
        kept = self._multiples.get(width)
        if kept is None or kept.size < (rows + 1) * 4:
            kept = self._multiples[width] = self._pa.py_buffer(array("i", range(0, width * (rows + 1), width)))
        return self._pa.Array.from_buffers(self._kind, rows, [None, kept, self._pa.py_buffer(text)])


@cache
def _join_kernel() -> _JoinKernel:
    return _JoinKernel()


def _seqs(pa: Any, first_seq: int, count: int) -> Any:
    """Return the seqs as an array, computed in C++: a Python object for each would be a sixth of the cost of sealing."""
    import pyarrow.compute as pc

    global _counted
    if len(_counted) < count:
        _counted = array("q", range(count))
    return pc.add(_numbers(pa, pa.int64(), _counted).slice(0, count), pa.scalar(first_seq, pa.int64()))


_counted: "array[int]" = array("q")


def _numbers(pa: Any, kind: Any, values: "array[int]") -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _split(pa: Any, texts: list[bytes]) -> Any:
    """Return the JSON texts as an array, split in C++ without the interpreter lock.

    (Joining 4 MB holds the lock for 0.3 ms; converting a list of bytes with pyarrow holds it for 0.8 ms.)
    """
    import pyarrow.compute as pc

    text = SEPARATOR.join(texts)
    ends = pa.py_buffer(array("i", (0, len(text))))
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(text)])
    values = pc.split_pattern(whole, pattern=SEPARATOR).flatten()
    # Reinterpreted instead of cast: the texts are known to be valid UTF-8, and a cast would verify every byte again.
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers(), offset=values.offset)


def _texts(pa: Any, columns: list[tuple[bytes | None, int]]) -> Any:
    """Return an optional column as an array; an absent value becomes null."""
    import pyarrow.compute as pc

    if all([text is None for text, _ in columns]):
        return pa.nulls(sum([count for _, count in columns]), pa.string())
    values = _split(pa, [SEPARATOR * (count - 1) if text is None else text for text, count in columns])
    return pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, pa.string()), values)


def _strings(pa: Any, columns: list[tuple[bytes | None, int]]) -> Any:
    """Return the decoded JSON strings as an array."""
    texts = [text for text, _ in columns if text is not None]
    # Without escapes, removing the quotes decodes the strings: 0.25 us less per value. Almost all tags and nodes are such.
    if not any([b"\\" in text or b'""' in text for text in texts]):
        return _texts(pa, [(None if text is None else text.replace(b'"', b""), count) for text, count in columns])
    values: list[str | None] = []
    for text, rows in columns:
        if text is None:
            values += [None] * rows
        else:
            values += [msgspec.json.decode(each, type=str) if each else None for each in text.split(SEPARATOR)]
    return pa.array(values, pa.string())
