"""Columns: records as Arrow has them, made from pages without touching each record.

pyarrow comes in as an argument: it takes a fifth of a second to import, and a server that seals nothing and serves no bulk
reader never needs it.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from topics.model.page import SEPARATOR, Page, page_times


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
        schema=record_schema(pa),
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
