"""Files of exported records: JSON lines or Parquet, by the name of the file.

A JSON line is a record as the API writes it, with its partition when the topic has several:

    {"$seq": 1, "$ts": 1793520000000, "$tag": "customer-7", "data": {"sku": "AEROPRESS"}}

A Parquet file has the columns partition, seq, ts, node, tag, meta and data; meta and data are JSON texts.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

import msgspec

from topics.cli.shared.output import record_fields
from topics.client import Record, RecordIn
from topics.model.errors import InvalidRequest

FORMATS = ("jsonl", "parquet")
# Rows of one row group of a Parquet file.
ROW_GROUP_RECORDS = 50_000


class RecordWriter(Protocol):
    def write(self, partition: int, record: Record) -> None: ...
    def close(self) -> None: ...


def file_format(path: str, chosen: str | None) -> str:
    """The format of a file: the chosen one, or that of its name. Raises InvalidRequest when neither says."""
    if chosen is not None:
        return chosen
    if path == "-" or path.endswith((".jsonl", ".ndjson", ".json")):
        return "jsonl"
    if path.endswith((".parquet", ".pq")):
        return "parquet"
    raise InvalidRequest(f"the name {path!r} does not tell the format: add --format jsonl or --format parquet")


class JsonlWriter:
    """Write JSON lines to a file, or to standard output for `-`."""

    def __init__(self, path: str, *, with_partition: bool) -> None:
        self._file: IO[bytes] = sys.stdout.buffer if path == "-" else open(path, "wb")  # noqa: SIM115 - closed below
        self._with_partition = with_partition
        self._owns_file = path != "-"

    def write(self, partition: int, record: Record) -> None:
        fields = {"partition": partition} if self._with_partition else {}
        line = msgspec.json.encode({**fields, **record_fields(record), "data": record.data})
        self._file.write(line + b"\n")

    def close(self) -> None:
        self._file.flush()
        if self._owns_file:
            self._file.close()


class ParquetWriter:
    """Write a Parquet file, one row group for ROW_GROUP_RECORDS records."""

    def __init__(self, path: str) -> None:
        import pyarrow
        from pyarrow import parquet

        if path == "-":
            raise InvalidRequest("a Parquet file needs a name: it is not written to standard output")
        text, number = pyarrow.string(), pyarrow.int64()
        names = {"partition": pyarrow.int32(), "seq": number, "ts": number, "node": text, "tag": text}
        self._schema = pyarrow.schema({**names, "meta": text, "data": text})
        self._table_from = pyarrow.Table.from_pylist
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, partition: int, record: Record) -> None:
        row = {
            "partition": partition,
            "seq": record.seq,
            "ts": record.ts,
            "node": record.node,
            "tag": record.tag,
            "meta": None if record.meta is None else msgspec.json.encode(record.meta).decode(),
            "data": msgspec.json.encode(record.data).decode(),
        }
        self._rows.append(row)
        if len(self._rows) >= ROW_GROUP_RECORDS:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.write_table(self._table_from(self._rows, schema=self._schema))
        self._rows = []


class Export:
    """A file that appears under its name only when it is complete. Use it as a context."""

    def __init__(self, path: str, chosen_format: str | None, *, with_partition: bool) -> None:
        self._path = path
        self._aside = path if path == "-" else f"{path}.part"
        try:
            if file_format(path, chosen_format) == "parquet":
                self._writer: RecordWriter = ParquetWriter(self._aside)
            else:
                self._writer = JsonlWriter(self._aside, with_partition=with_partition)
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be written: {error.strerror or error}") from None
        self.write = self._writer.write

    def __enter__(self) -> "Export":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        if self._path == "-":
            return
        if error is None:
            Path(self._aside).replace(self._path)
        else:
            Path(self._aside).unlink(missing_ok=True)


class _Line(msgspec.Struct, rename={"node": "$node", "tag": "$tag"}):
    """What an import takes from a line; seqs and times are assigned by the server."""

    data: msgspec.Raw
    node: str | None = None
    tag: str | None = None
    meta: dict[str, Any] | None = None
    partition: int = 0


def read_file(path: str, chosen_format: str | None, *, payloads: bool) -> Iterator[tuple[int, RecordIn]]:
    """Each record of the file with its partition. `payloads`: a line is a payload, not a record."""
    try:
        if file_format(path, chosen_format) == "parquet":
            yield from _read_parquet(path)
        elif path == "-":
            yield from _read_lines(sys.stdin.buffer, payloads)
        else:
            with open(path, "rb") as file:
                yield from _read_lines(file, payloads)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror or error}") from None


def _read_lines(file: IO[bytes], payloads: bool) -> Iterator[tuple[int, RecordIn]]:
    for number, line in enumerate(file, 1):
        text = line.strip()
        if not text:
            continue
        try:
            if payloads:
                msgspec.json.decode(text, type=msgspec.Raw)
                yield 0, RecordIn(msgspec.Raw(text))
            else:
                read = msgspec.json.decode(text, type=_Line)
                yield read.partition, RecordIn(read.data, tag=read.tag, node=read.node, meta=read.meta)
        except msgspec.MsgspecError as error:
            hint = "" if payloads else "; use --payloads when each line is one payload"
            raise InvalidRequest(f"line {number} is not a record: {error}{hint}") from None


def _read_parquet(path: str) -> Iterator[tuple[int, RecordIn]]:
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
        if "data" not in file.schema_arrow.names:
            raise InvalidRequest(f"{path} has no column data")
        wanted = [name for name in ("partition", "node", "tag", "meta", "data") if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=wanted):
            for row in batch.to_pylist():
                meta = row.get("meta")
                record = RecordIn(
                    msgspec.Raw(str(row["data"]).encode()),
                    tag=row.get("tag"),
                    node=row.get("node"),
                    meta=None if meta is None else msgspec.Raw(meta.encode()),
                )
                yield row.get("partition") or 0, record
    except pyarrow.ArrowInvalid as error:
        raise InvalidRequest(f"{path} is not a Parquet file: {error}") from None
