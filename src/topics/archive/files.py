"""Files: write rows as Parquet files, one per day, with the statistics of each file for the Delta log.

A row group is closed at 131,072 rows or 64 MB in memory, whichever comes first. The minimum and maximum of seq, epoch,
partition, ts and gap_from are both in the Parquet files and in the log: readers skip files without opening them and row
groups without reading them. The log also has the bounds of the other columns, with texts truncated: delta-rs passes the
bounds of every column to a pyarrow dataset, and treats a column without bounds as a column without values.
"""

import datetime
import uuid
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from topics.archive.place import Place
from topics.archive.rows import DAY_US

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 64 << 20
# Columns with statistics in the files. Texts have none: no query filters by a range of texts, and they may be long.
_COLUMNS_WITH_STATISTICS = ("partition", "epoch", "seq", "ts", "gap_from")
MAX_BOUND_CHARS = 32
_LAST_CHARACTER = "\U0010ffff"
_EPOCH_DAY = datetime.date(1970, 1, 1)


class Added(Struct, frozen=True):
    """A complete file that the log does not name yet."""

    path: str
    date: str
    bytes: int
    rows: int
    stats: str


class FileWriter:
    """Writes rows of one topic, in any order. `close` returns the files; `abort` removes them as far as possible."""

    def __init__(self, place: Place, topic: str, stem: str, schema: Any) -> None:
        self.rows = 0
        self._place = place
        self._directory = f"topic={quote(topic, safe='')}"
        # Unique for each attempt: a retried task never overwrites a file of the first attempt.
        self._stem = f"{stem}-{uuid.uuid4().hex[:16]}"
        self._schema = schema
        self._days: dict[int, _DayFile] = {}

    def add(self, rows: Any) -> None:
        if not rows.num_rows:
            return
        self.rows += rows.num_rows
        times = rows.column("ts").cast(pa.int64())
        bounds = pc.min_max(times).as_py()
        first, last = bounds["min"] // DAY_US, bounds["max"] // DAY_US
        if first == last:
            self._day(first).add(rows)
            return
        for day in range(first, last + 1):
            inside = pc.and_(pc.greater_equal(times, day * DAY_US), pc.less(times, (day + 1) * DAY_US))
            part = rows.filter(inside)
            if part.num_rows:
                self._day(day).add(part)

    def close(self) -> list[Added]:
        return [self._days[day].close() for day in sorted(self._days)]

    def abort(self) -> None:
        for each in self._days.values():
            each.abort()

    def _day(self, day: int) -> "_DayFile":
        found = self._days.get(day)
        if found is None:
            date = (_EPOCH_DAY + datetime.timedelta(days=day)).isoformat()
            path = f"{self._directory}/date={date}/{self._stem}.parquet"
            found = self._days[day] = _DayFile(self._place, path, date, self._schema)
        return found


class _DayFile:
    def __init__(self, place: Place, path: str, date: str, schema: Any) -> None:
        self._place = place
        self._path = path
        self._date = date
        # The Delta log has no bounds for binary columns.
        self._bounded_columns = [field.name for field in schema if field.type != pa.binary()]
        self._sink = place.create(path)
        texts = [field.name for field in schema if field.type in (pa.string(), pa.binary())]
        try:
            self._writer = pq.ParquetWriter(
                self._sink,
                schema,
                compression="zstd",
                compression_level=1,
                # Payloads rarely repeat: building a dictionary costs a pass and it is then discarded.
                use_dictionary=[name for name in texts if name not in ("data", "meta")],
                write_statistics=[name for name in _COLUMNS_WITH_STATISTICS if name in schema.names],
            )
        except BaseException:
            place.remove(path)
            raise
        self._buffer: list[Any] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self._rows = 0
        self._minimums: dict[str, Any] = {}
        self._maximums: dict[str, Any] = {}
        self._null_counts = dict.fromkeys(schema.names, 0)

    def add(self, rows: Any) -> None:
        self._buffer.append(rows)
        self._buffered_rows += rows.num_rows
        self._buffered_bytes += rows.nbytes
        if self._buffered_rows >= ROW_GROUP_ROWS or self._buffered_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> Added:
        self._flush()
        self._writer.close()
        self._sink.close()
        size = self._place.finish(self._path)
        return Added(self._path, self._date, size, self._rows, self._stats())

    def abort(self) -> None:
        try:
            self._writer.close()
            self._sink.close()
        except (OSError, pa.ArrowException):
            # The first error repeats here: the disk is full, or the location is gone.
            pass
        self._place.remove(self._path)

    def _flush(self) -> None:
        if not self._buffered_rows:
            return
        group = pa.concat_tables(self._buffer)
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0
        self._writer.write_table(group, row_group_size=group.num_rows)
        self._rows += group.num_rows
        for name in self._null_counts:
            self._null_counts[name] += group.column(name).null_count
        for name in self._bounded_columns:
            column = group.column(name)
            bounds = pc.min_max(column.cast(pa.int64()) if name == "ts" else column).as_py()
            if bounds["min"] is not None:
                self._minimums[name] = min(bounds["min"], self._minimums.get(name, bounds["min"]))
                self._maximums[name] = max(bounds["max"], self._maximums.get(name, bounds["max"]))

    def _stats(self) -> str:
        stats = {
            "numRecords": self._rows,
            "minValues": {name: _lower_bound(name, value) for name, value in self._minimums.items()},
            "maxValues": {name: _upper_bound(name, value) for name, value in self._maximums.items()},
            "nullCount": self._null_counts,
        }
        return msgspec.json.encode(stats).decode()


# The log stores times in milliseconds and truncated texts. Bounds are rounded outwards, so that no file is skipped wrongly.


def _lower_bound(name: str, value: Any) -> Any:
    if name == "ts":
        return _time(value)
    return value[:MAX_BOUND_CHARS] if isinstance(value, str) else value


def _upper_bound(name: str, value: Any) -> Any:
    if name == "ts":
        return _time(value + 999)
    if not isinstance(value, str) or len(value) <= MAX_BOUND_CHARS or value[MAX_BOUND_CHARS] == _LAST_CHARACTER:
        return value
    return value[:MAX_BOUND_CHARS] + _LAST_CHARACTER


def _time(value_us: int) -> str:
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=value_us // 1000)  # noqa: DTZ001 - UTC, written as such
    return moment.isoformat(timespec="milliseconds") + "Z"
