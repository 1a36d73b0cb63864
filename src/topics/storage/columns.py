"""Columns: records as Arrow has them, made from pages without touching each record.

pyarrow comes in as an argument: it takes a tenth of a second to import, and a server that seals nothing and serves no bulk
reader never needs it.
"""

from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from topics.model.page import SEPARATOR, Page, page_times


@cache
def record_schema(pa: Any) -> Any:
    """A record as a row: what segments hold and bulk reads answer."""
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
    """The records of neighbouring pages, all columns."""
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
    """Tags (JSON texts) and the seqs of each, sorted by tag; in C++, since there may be as many tags as records."""
    import pyarrow.compute as pc

    names = pa.array([name for name, _ in tags], pa.binary()).cast(pa.string())
    # Of the kind that the index has, which is then copied at once; no seq is so large that it makes a difference.
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


def joined_rows(
    heads: bytes, width: int, times: Any | None, parts: Sequence[tuple[Any, tuple[bytes, bytes]]]
) -> memoryview:
    """Row after row: its head (`heads` has one of `width` bytes for each), its time, its values of columns of texts.

    A value stands between two constant texts; a row without one has neither. Done in C++: 0.05 us a row for one column.
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
    """The values of a column as pages hold them: one behind the other, a separator between them, nothing for a null."""
    kernel = _join_kernel()
    ended = memoryview(kernel.join([column, kernel.scalar(b"")], kernel.empty_nulls, SEPARATOR).buffers()[2])
    return ended[:-1].tobytes()


def has_empty(column: Any) -> bool:
    """Whether a text is there and empty."""
    import pyarrow.compute as pc

    return pc.any(pc.equal(pc.binary_length(column), 0)).as_py() is True


def load_libraries() -> None:
    """Load what segments are read with, and use it once. Otherwise the first read does, and takes 150 ms instead of one."""
    import pyarrow as pa

    column = pa.array(["text"], pa.string())
    has_empty(column)
    joined_texts(column)
    _join_kernel().decimals(pa.array([1], pa.int64()))


class _JoinKernel:
    """What pyarrow needs for joining, made once: finding it anew for each of some hundred rows would cost as much again."""

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
        """Of a text that is constant in the code."""
        scalar = self._scalars.get(text)
        if scalar is None:
            scalar = self._scalars[text] = self._pa.scalar(text.decode(), self._kind)
        return scalar

    def strings(self, text: bytes, width: int, rows: int) -> Any:
        """A text that is made of equally long ones."""
        kept = self._multiples.get(width)
        if kept is None or kept.size < (rows + 1) * 4:
            kept = self._multiples[width] = self._pa.py_buffer(array("i", range(0, width * (rows + 1), width)))
        return self._pa.Array.from_buffers(self._kind, rows, [None, kept, self._pa.py_buffer(text)])


@cache
def _join_kernel() -> _JoinKernel:
    return _JoinKernel()


def _seqs(pa: Any, first_seq: int, count: int) -> Any:
    """Counted in C++, from numbers that are kept: an object for each would be a sixth of what sealing does."""
    import pyarrow.compute as pc

    global _counted
    if len(_counted) < count:
        _counted = array("q", range(count))
    return pc.add(_numbers(pa, pa.int64(), _counted).slice(0, count), pa.scalar(first_seq, pa.int64()))


_counted: "array[int]" = array("q")


def _numbers(pa: Any, kind: Any, values: "array[int]") -> Any:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _split(pa: Any, texts: list[bytes]) -> Any:
    """JSON texts as they are; taken apart in C++, where other threads can go on meanwhile.

    (To put 4 MB together takes 0.3 ms in which they cannot; pyarrow's own way to take in a list of bytes 0.8.)
    """
    import pyarrow.compute as pc

    text = SEPARATOR.join(texts)
    ends = pa.py_buffer(array("i", (0, len(text))))
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(text)])
    values = pc.split_pattern(whole, pattern=SEPARATOR).flatten()
    # Taken as the text it is known to be. A cast would look at every byte again.
    return pa.Array.from_buffers(pa.string(), len(values), values.buffers(), offset=values.offset)


def _texts(pa: Any, columns: list[tuple[bytes | None, int]]) -> Any:
    """The same for a column in which a record may have nothing."""
    import pyarrow.compute as pc

    if all([text is None for text, _ in columns]):
        return pa.nulls(sum([count for _, count in columns]), pa.string())
    values = _split(pa, [SEPARATOR * (count - 1) if text is None else text for text, count in columns])
    return pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, pa.string()), values)


def _strings(pa: Any, columns: list[tuple[bytes | None, int]]) -> Any:
    """JSON strings as the strings they stand for."""
    texts = [text for text, _ in columns if text is not None]
    # Nearly always nothing is escaped, and then only quotes are between the two: a quarter of a us less for each.
    if not any([b"\\" in text or b'""' in text for text in texts]):
        return _texts(pa, [(None if text is None else text.replace(b'"', b""), count) for text, count in columns])
    values: list[str | None] = []
    for text, rows in columns:
        if text is None:
            values += [None] * rows
        else:
            values += [msgspec.json.decode(each, type=str) if each else None for each in text.split(SEPARATOR)]
    return pa.array(values, pa.string())
