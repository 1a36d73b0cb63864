"""Convert rows of a change data feed to change events in the form of the push API.

A feed has two rows for an update, the old and the new one, in no particular order and possibly in different files. They are
paired by key within their version. A row without a partner changed its key: the old key gets a delete, the new key an
insert. For each key, deletes precede inserts, so that applying the events in order produces the table.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Raw, Struct
from xxhash import xxh64_intdigest

from topics.model.tables.change import canonical_key
from topics.spark.delta.log import FeedError
from topics.spark.delta.values import encode, json_values, without_views

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
_FEED_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)


class Event(Struct):
    """A change event as JSON, and the key that selects its partition."""

    data: bytes
    partition_key: str


class EventEncoder(Struct, frozen=True):
    """Encodes the change events of one table."""

    table: str
    source: str
    key_columns: tuple[str, ...]

    def events(self, batches: Iterable[Any]) -> Iterator[Event]:
        """Yield the events of all versions in the batches, in the order of the versions. Holds all rows in memory."""
        versions: dict[int, _Changed] = {}
        for batch in batches:
            rows = self._rows(batch, [name for name in batch.schema.names if name not in _FEED_COLUMNS])
            numbers = batch.column(COMMIT_VERSION).to_pylist()
            kinds = batch.column(CHANGE_TYPE).to_pylist()
            times = batch.column(COMMIT_TIMESTAMP).cast("int64").to_pylist()
            divisor = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[batch.column(COMMIT_TIMESTAMP).type.unit]
            for row, number, kind, time in zip(rows, numbers, kinds, times, strict=True):
                changed = versions.get(number)
                if changed is None:
                    changed = versions[number] = _Changed(int(time // divisor), {})
                key = self._key(row, number)
                changed.add(self._canonical(key), kind, row)
        for number in sorted(versions):
            changed = versions[number]
            origin = {"name": self.source, "version": number, "table": self.table}
            for canonical, images in changed.by_key.items():
                for op, before, after in images.changes():
                    yield self._event(op, changed.ts, canonical, before, after, origin)

    def inserts(self, batch: Any, version: int, ts: int, *, snapshot: bool) -> Iterator[Event]:
        """Yield an insert for each row of a batch."""
        origin: dict[str, Any] = {"name": self.source, "version": version, "table": self.table}
        if snapshot:
            origin["snapshot"] = True
        for row in self._rows(batch, batch.schema.names):
            canonical = self._canonical(self._key(row, version))
            yield self._event("insert", ts, canonical, None, row, origin)

    def truncates(self, version: int, ts: int, partitions: int) -> Iterator[Event]:
        """Yield one truncate for each partition: it cancels all earlier events."""
        origin = {"name": self.source, "version": version, "table": self.table, "snapshot": True}
        data = encode({"op": "truncate", "ts": ts, "key": None, "before": None, "after": None, "source": origin})
        for partition in range(partitions):
            yield Event(data, _key_for(partition, partitions))

    def in_slice(self, batch: Any, which: int, slices: int) -> Any:
        """Return the rows of a batch whose keys hash to slice `which` of `slices`."""
        import pyarrow as pa

        if slices == 1:
            return batch
        self._check_columns(batch.schema.names)
        columns = [_key_texts(batch.column(name)) for name in self.key_columns]
        keys = columns[0] if len(columns) == 1 else ["\x1f".join(map(str, key)) for key in zip(*columns, strict=True)]
        chosen = pa.array([xxh64_intdigest(str(key).encode()) % slices == which for key in keys], pa.bool_())
        return without_views(batch).filter(chosen)

    def _rows(self, batch: Any, names: list[str]) -> list[dict[str, Any]]:
        self._check_columns(names)
        columns = [json_values(batch.column(name)) for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _check_columns(self, names: list[str]) -> None:
        missing = [name for name in self.key_columns if name not in names]
        if missing:
            raise FeedError(
                f"{self.table}: its key column {missing[0]} is not among the columns of the Delta table "
                f"({', '.join(names[:50])}). Name the key with `topics table add {self.table} --delta URI --key COLUMNS`."
            )

    def _key(self, row: dict[str, Any], version: int) -> dict[str, Any]:
        key = {name: row[name] for name in self.key_columns}
        for name, value in key.items():
            if value is None or isinstance(value, dict | list):
                raise FeedError(
                    f"{self.table}: version {version} has a row whose key column {name} is null or not a scalar value"
                )
        return key

    def _canonical(self, key: dict[str, Any]) -> str:
        return canonical_key({name: Raw(encode(value)) for name, value in key.items()})

    def _event(
        self,
        op: str,
        ts: int,
        canonical: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
        origin: dict[str, Any],
    ) -> Event:
        image = before if after is None else after
        assert image is not None
        key = {name: image[name] for name in self.key_columns}
        fields = {"op": op, "ts": ts, "key": key, "before": before, "after": after, "source": origin}
        return Event(encode(fields), canonical)


class _Images(Struct):
    """The rows of one key in one version."""

    old: list[dict[str, Any]] = []
    new: list[dict[str, Any]] = []
    deleted: list[dict[str, Any]] = []
    inserted: list[dict[str, Any]] = []

    def changes(self) -> Iterator[tuple[str, dict[str, Any] | None, dict[str, Any] | None]]:
        pairs = min(len(self.old), len(self.new))
        for row in [*self.old[pairs:], *self.deleted]:
            yield "delete", row, None
        for before, after in zip(self.old[:pairs], self.new[:pairs], strict=True):
            yield "update", before, after
        for row in [*self.new[pairs:], *self.inserted]:
            yield "insert", None, row


class _Changed(Struct):
    """The rows that one version changed, by key."""

    ts: int
    by_key: dict[str, _Images]

    def add(self, key: str, kind: str, row: dict[str, Any]) -> None:
        images = self.by_key.get(key)
        if images is None:
            images = self.by_key[key] = _Images()
        if kind == "insert":
            images.inserted.append(row)
        elif kind == "delete":
            images.deleted.append(row)
        elif kind == "update_preimage":
            images.old.append(row)
        elif kind == "update_postimage":
            images.new.append(row)
        else:
            raise FeedError(f"the feed has a change of the unknown kind {kind!r}")


def _key_texts(column: Any) -> list[Any]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_string_view(kind):
        values: list[Any] = column.to_pylist()
        return values
    return [encode(value).decode() for value in json_values(column)]


def _key_for(partition: int, partitions: int) -> str:
    """Return a key that the server hashes to this partition. About one key in `partitions` does, so the loop is short."""
    number = 0
    while hashed_partition(f"truncate-{number}", partitions) != partition:
        number += 1
    return f"truncate-{number}"


def hashed_partition(key: str, partitions: int) -> int:
    """Return the partition that the server selects for a `partition_key`."""
    value = xxh64_intdigest(key.encode(), 42)
    return (value - (1 << 64) if value >> 63 else value) % partitions
