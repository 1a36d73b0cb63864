"""A page of records as an Arrow stream. The cursor fields of the response are in the metadata of its schema.

seq int64 | ts timestamp[us, UTC] | node string | tag string | data string | meta string
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from topics.model.records.match import TagMatch

MEDIA_TYPE = b"application/vnd.apache.arrow.stream"


class ArrowOptions(Struct, frozen=True):
    """Which records and columns a reader wants. `without_nodes` holds JSON strings."""

    without_nodes: frozenset[bytes]
    match: TagMatch | None
    tags: bool
    data: bool
    metas: bool


def encode_page(
    batches: Iterable[tuple[Any, bytes | None]], metadata: dict[str, bytes], options: ArrowOptions
) -> tuple[bytes, int]:
    """Encode record batches, each with the flags of its deleted records. Returns the stream and its number of records."""
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("seq", pa.int64()),
            pa.field("ts", pa.timestamp("us", "UTC")),
            *[pa.field(name, pa.string()) for name in ("node", "tag", "data", "meta")],
        ],
        metadata=metadata,
    )
    records = 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch, flags in batches:
            if flags is not None:
                batch = batch.filter(pa.array([not flag for flag in flags], pa.bool_()))
            batch = _filtered(pa, batch, options)
            if batch.num_rows:
                records += batch.num_rows
                writer.write_batch(_with_schema(pa, batch, schema, options))
    return sink.getvalue().to_pybytes(), records


def _filtered(pa: Any, batch: Any, options: ArrowOptions) -> Any:
    import pyarrow.compute as pc

    if options.without_nodes and batch.column(2).null_count < batch.num_rows:
        unwanted = pa.array([msgspec.json.decode(node, type=str) for node in options.without_nodes], pa.string())
        batch = batch.filter(pc.invert(pc.is_in(batch.column(2), value_set=unwanted)))
    match = options.match
    if match is not None:
        tags = batch.column(3)
        found = pc.starts_with(tags, match.text) if match.prefix else pc.equal(tags, match.text)
        batch = batch.filter(pc.fill_null(found, False))
    return batch


def _with_schema(pa: Any, batch: Any, schema: Any, options: ArrowOptions) -> Any:
    columns = list(batch.columns)
    columns[1] = columns[1].cast(pa.timestamp("us", "UTC"))
    for index, shown in ((3, options.tags), (4, options.data), (5, options.metas)):
        if not shown:
            columns[index] = pa.nulls(batch.num_rows, pa.string())
    return pa.RecordBatch.from_arrays(columns, schema=schema)
