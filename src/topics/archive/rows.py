"""Rows of an archive: the columns, and which records cannot be converted to a row.

    topic, date          the partition columns of the table; date is the UTC day of ts
    partition, epoch, seq, ts, node, tag, data, meta
                         the record, as the Spark source gives it; data and meta are the client's own JSON text
    kind                 `record`, or `tombstone` for a range of records that are not here
    gap_from, reason     of a tombstone: it covers gap_from..seq, and why they are gone; ts is when the loss was detected

The reasons are those of the server's tombstones (`cap`, `ttl`, `mixed`, `source_trim`), and two of the archive's own:
`recreated` (the topic was deleted and created again: records of the old instance from this seq on, if there were any, were
not archived; the end is not known) and `quarantined` (the record is in the quarantine table instead).

A record cannot be converted when one of its texts is not UTF-8, or when its time lies outside the years 1 to 9999, the range
of a Delta date. The server accepts neither, so such a record comes from damage or from another program; it must not stop
the archive. Lone surrogates (`"\\ud800"`) are escapes in the JSON text and are archived unchanged.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TIMESTAMP = pa.timestamp("us", "UTC")
_FIELDS = [
    ("topic", pa.string()),
    ("date", pa.date32()),
    ("partition", pa.int32()),
    ("epoch", pa.int64()),
    ("seq", pa.int64()),
    ("ts", TIMESTAMP),
    ("kind", pa.string()),
    ("node", pa.string()),
    ("tag", pa.string()),
    ("data", pa.string()),
    ("meta", pa.string()),
    ("gap_from", pa.int64()),
    ("reason", pa.string()),
]
PARTITION_BY = ["topic", "date"]
SCHEMA = pa.schema(_FIELDS)
# The columns in the files; the partition columns are in their paths and in the log.
FILE_SCHEMA = pa.schema(_FIELDS[2:])
# The quarantine keeps bytes as bytes. `date` is the day on which the record was put there.
QUARANTINE_SCHEMA = pa.schema(
    [
        *_FIELDS[:5],
        ("ts", TIMESTAMP),
        ("reason", pa.string()),
        ("record_ts_ms", pa.int64()),
        *[(name, pa.binary()) for name in ("node", "tag", "data", "meta")],
    ]
)
QUARANTINE_FILE_SCHEMA = pa.schema(list(QUARANTINE_SCHEMA)[2:])
TEXTS = ("node", "tag", "data", "meta")
DAY_US = 86_400_000_000
# 0001-01-01 and 9999-12-31, in microseconds from 1970.
_FIRST_US = -62_135_596_800_000_000
_LAST_US = 253_402_300_799_000_000


def record_rows(page: Any, partition: int, epoch: int) -> Any:
    """Convert a page (seq, ts, node, tag, data, meta) to rows of the table."""
    count = page.num_rows
    columns = {
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "epoch": pa.repeat(pa.scalar(epoch, pa.int64()), count),
        "kind": pa.repeat(pa.scalar("record", pa.string()), count),
        "gap_from": pa.nulls(count, pa.int64()),
        "reason": pa.nulls(count, pa.string()),
        **{name: page.column(name) for name in ("seq", "ts", *TEXTS)},
    }
    return pa.Table.from_arrays([columns[field.name] for field in FILE_SCHEMA], schema=FILE_SCHEMA)


def tombstone_row(partition: int, epoch: int, gap_from: int, gap_to: int, reason: str, now_ms: int) -> Any:
    """Return one row for a range of lost records."""
    row = {
        "partition": partition,
        "epoch": epoch,
        "seq": gap_to,
        "ts": now_ms * 1000,
        "kind": "tombstone",
        "gap_from": gap_from,
        "reason": reason,
    }
    return pa.Table.from_arrays(
        [pa.array([row.get(field.name)], field.type) for field in FILE_SCHEMA], schema=FILE_SCHEMA
    )


def convertible(page: Any) -> tuple[Any, list[tuple[int, str]]]:
    """Split a page: the rows that can be converted, and the index and reason of each row that cannot.

    The check is one pass over the bytes in C++; rows are checked one by one only when it fails.
    """
    try:
        page.validate(full=True)
        broken: dict[int, str] = {}
    except pa.ArrowInvalid:
        broken = _not_unicode(page)
    times = page.column("ts").cast(pa.int64())
    if page.num_rows:
        edges = pc.min_max(times).as_py()
        if edges["min"] is not None and not _FIRST_US <= edges["min"] <= edges["max"] <= _LAST_US:
            for index, ts in enumerate(times.to_pylist()):
                if not _FIRST_US <= ts <= _LAST_US:
                    broken.setdefault(index, f"its time, {ts // 1000} ms, is outside the years 1 to 9999")
    if not broken:
        return page, []
    kept = page.take(pa.array([index for index in range(page.num_rows) if index not in broken], pa.int64()))
    return kept, sorted(broken.items())


def quarantined_rows(page: Any, broken: list[tuple[int, str]], partition: int, epoch: int, now_ms: int) -> Any:
    """Return the quarantine rows for records of a page that cannot be converted."""
    indices = pa.array([index for index, _ in broken], pa.int64())
    taken = page.take(indices)
    count = len(broken)
    columns = {
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "epoch": pa.repeat(pa.scalar(epoch, pa.int64()), count),
        "seq": taken.column("seq"),
        "ts": pa.repeat(pa.scalar(now_ms * 1000, TIMESTAMP), count),
        "reason": pa.array([reason for _, reason in broken], pa.string()),
        "record_ts_ms": pc.divide(taken.column("ts").cast(pa.int64()), 1000),
        # The cast from string to binary changes the type only; the bytes are the same.
        **{name: taken.column(name).cast(pa.binary()) for name in TEXTS},
    }
    return pa.Table.from_arrays(
        [columns[field.name] for field in QUARANTINE_FILE_SCHEMA], schema=QUARANTINE_FILE_SCHEMA
    )


def _not_unicode(page: Any) -> dict[int, str]:
    broken: dict[int, str] = {}
    for name in TEXTS:
        for index, value in enumerate(page.column(name).cast(pa.binary()).to_pylist()):
            try:
                if value is not None:
                    value.decode("utf-8")
            except UnicodeDecodeError as error:
                broken.setdefault(index, f"its {name} is not UTF-8: {error.reason} at byte {error.start}")
    return broken
