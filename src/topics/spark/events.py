"""Change events on a worker: read from the change topic, and the columns that conditions need taken out of them.

    partition INT, seq BIGINT, epoch BIGINT, op STRING, data STRING, missing ARRAY<INT>, r0 STRING, r1 STRING, ...

`op` is insert, update, delete or truncate, `lost` for records that were gone before they were read, and NULL for what is no
change event. A column is the text of its value as the event has it: a number with all its digits, a text without its
quotes, an object or array as JSON. It is NULL for null, and for what is not there; `missing` tells the two apart.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from topics.client import Client
from topics.model.surrogates import cover_halves
from topics.spark.ranges import SeqRange
from topics.spark.reading import read_range

OPS = ("insert", "update", "delete")
COLUMNS = "partition INT, seq BIGINT, epoch BIGINT, op STRING, data STRING, missing ARRAY<INT>"
BATCH_ROWS = 10_000
_NULL = Raw(b"null")

Row = dict[str, Raw]


class Event(Struct):
    """A change event as its topic holds it; images stay bytes."""

    op: Any = None
    ts: Any = None
    key: Raw = _NULL
    before: Raw = _NULL
    after: Raw = _NULL
    source: Raw = _NULL

    @property
    def image(self) -> Raw:
        """The row that conditions are about: as it is now, or as it was when it is gone, or its key if that is all."""
        if self.op != "delete":
            return self.after
        return self.key if bytes(self.before) == b"null" else self.before


_decode_event = msgspec.json.Decoder(Event).decode
_decode_row = msgspec.json.Decoder(Row).decode
_decode_text = msgspec.json.Decoder(str).decode


def parsed(data: str | bytes) -> Event:
    """Raises MsgspecError, or RecursionError, for what is no object."""
    return _decode_event(data)


def row_of(image: bytes | Raw) -> Row:
    """The columns of an image; none for null. Raises MsgspecError for what is neither."""
    return {} if bytes(image) == b"null" else _decode_row(image)


def read_events(client: Client, wanted: SeqRange, paths: list[tuple[str, ...]]) -> Iterator[Any]:
    """Record batches of the events in the range, in order."""
    for batch in read_range(client, wanted, transport="arrow", on_data_loss="emit"):
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield taken_apart(batch.slice(start, BATCH_ROWS), paths)


def taken_apart(batch: Any, paths: list[tuple[str, ...]]) -> Any:
    """Records of the source as rows of `COLUMNS` and the columns at these places."""
    import pyarrow as pa

    names = batch.schema.names
    texts = batch.column(names.index("data")).to_pylist()
    metas = batch.column(names.index("meta"))
    ops: list[str | None] = []
    missing: list[list[int] | None] = []
    columns: list[list[str | None]] = [[] for _ in paths]
    for index, text in enumerate(texts):
        op: str | None = "lost"
        values: list[str | None] | None = None
        lacking: list[int] | None = None
        if text is None:
            texts[index] = metas[index].as_py()
        else:
            op, values, lacking = _taken(text, paths)
        ops.append(op)
        missing.append(lacking)
        for column, value in zip(columns, values or [None] * len(paths), strict=True):
            column.append(value)
    arrays = [
        batch.column(names.index("partition")),
        batch.column(names.index("seq")),
        batch.column(names.index("epoch")),
        pa.array(ops, pa.string()),
        pa.array(texts, pa.string()),
        pa.array(missing, pa.list_(pa.int32())),
        *[pa.array(column, pa.string()) for column in columns],
    ]
    return pa.RecordBatch.from_arrays(
        arrays,
        names=["partition", "seq", "epoch", "op", "data", "missing", *[f"r{n}" for n in range(len(paths))]],
    )


def _taken(text: str, paths: list[tuple[str, ...]]) -> tuple[str | None, list[str | None] | None, list[int] | None]:
    try:
        event = parsed(text)
        if event.op not in OPS:
            return ("truncate" if event.op == "truncate" else None), None, None
        row = row_of(event.image)
    except (msgspec.MsgspecError, RecursionError):
        covered = cover_halves(text.encode())
        # Half a character compares as the stand-in it has here, which no other text of the event holds.
        return (None, None, None) if covered is None else _taken(covered.body.decode(), paths)
    values: list[str | None] = []
    missing: list[int] = []
    for index, path in enumerate(paths):
        found = row.get(path[0])
        for name in path[1:]:
            found = _field(found, name)
        if found is None:
            missing.append(index)
            values.append(None)
        else:
            values.append(_text(found))
    return event.op, values, missing or None


def _field(value: Raw | None, name: str) -> Raw | None:
    if value is None or not bytes(value).startswith(b"{"):
        return None
    return _decode_row(value).get(name)


def _text(value: Raw) -> str | None:
    text = bytes(value)
    if text.startswith(b'"'):
        return _decode_text(text)
    return None if text == b"null" else text.decode()
