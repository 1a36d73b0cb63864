"""The Delta table that changes are applied to, exactly once.

    scd1   the columns of the source, and `_ts`, `_partition`, `_seq` of the last change of the row
    scd2   a row for each version: the columns of the source, `_valid_from`, `_valid_to` (NULL while it is the current
           one), `_is_current`, and `_partition`, `_seq` of the change that made it

How far the change topic has been applied is in the Delta log, in the same commit as the rows, as application transactions:

    topics/<topic>               version = epoch of the topic
    topics/<topic>/<partition>   version = the next seq to apply

Changes below that are skipped, so a batch may be applied again by any driver. Two drivers that apply at the same time write
the same transaction, and Delta refuses the second commit.

A key that is not in the scd1 table may have been deleted by a change that is newer than a late one. For sources without
positions the times of deletes are therefore kept in a second table, at `<uri>_deletes`, for DELETE_RETENTION_DAYS. A change
that is later than that counts as new. The second table is written first, and a second attempt writes the same rows.
"""

import datetime
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from topics.archive.ledger import one_line
from topics.archive.place import Place
from topics.spark.materialize.columns import TIMESTAMP, inferred_type, named_type, value_decoder
from topics.spark.materialize.versions import ChangeEvent, Key, Row, RowVersions, Version

MODES = ("scd1", "scd2")
DELETE_RETENTION_DAYS = 7
MAX_COMMIT_RETRIES = 20
_MODE_PROPERTY = "topics.mode"
_KEY_PROPERTY = "topics.key"
_ADDED_COLUMNS = {
    "scd1": [("_ts", TIMESTAMP), ("_partition", pa.int32()), ("_seq", pa.int64())],
    "scd2": [
        ("_valid_from", TIMESTAMP),
        ("_valid_to", TIMESTAMP),
        ("_is_current", pa.bool_()),
        ("_partition", pa.int32()),
        ("_seq", pa.int64()),
    ],
}
_START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class MaterializeError(Exception):
    """The table cannot be used or kept equal to its source. Says which table and why."""


class Overtaken(MaterializeError):
    """Another driver has applied changes since the table was read. Apply again from where the table is."""


class Change(msgspec.Struct):
    """A record of the change topic."""

    partition: int
    seq: int
    event: ChangeEvent


class Applied(msgspec.Struct):
    changes: int
    upserts: int
    deletes: int
    version: int


class MaterializedTable:
    """One table at a URI. It is created with the first changes, which name its key."""

    def __init__(self, uri: str, mode: str, topic: str, declared: dict[str, str] | None = None) -> None:
        self._uri = uri.rstrip("/")
        self._mode = mode
        self._topic = topic
        self._declared = declared or {}
        self._table: Any = _opened(self._uri)
        # Deletes before this time have been removed.
        self._deletes_since: datetime.datetime | None = None
        if self._table is not None:
            found = self._table.metadata().configuration.get(_MODE_PROPERTY)
            if found != mode:
                what = f"has mode {found}" if found else "was not made by topics table materialize"
                raise MaterializeError(f"the table at {uri} {what}: use another location")

    @property
    def table_id(self) -> str | None:
        """Another one when the table was removed and made again; None while there is none."""
        return None if self._table is None else str(self._table.metadata().id)

    def positions(self, epoch: int, partitions: Iterable[int]) -> dict[int, int]:
        """The next seq to apply of each partition. Raises MaterializeError for another instance of the topic."""
        if self._table is None:
            return dict.fromkeys(partitions, 1)
        self._table.update_incremental()
        known = self._table.transaction_version(f"topics/{self._topic}")
        if known is not None and known != epoch:
            raise MaterializeError(
                f'topic "{self._topic}" was deleted and created again since the table at {self._uri} was made '
                f"(epoch {known}, now {epoch}): use another location"
            )
        return {
            number: int(self._table.transaction_version(f"topics/{self._topic}/{number}") or 1) for number in partitions
        }

    def apply(self, epoch: int, changes: list[Change]) -> Applied:
        """Apply changes, which come with all changes of their partitions from the table's position on.

        Raises Overtaken when another driver was faster, and BadValue or MaterializeError for a change that the table cannot
        hold. The table is unchanged then.
        """
        at = self.positions(epoch, {change.partition for change in changes})
        changes = sorted(
            [change for change in changes if change.seq >= at[change.partition]],
            key=lambda change: (change.partition, change.seq),
        )
        rows = [change for change in changes if change.event.op != "truncate"]
        if self._table is None:
            if not rows:
                return Applied(len(changes), 0, 0, -1)
            self._create(rows)
        elif not changes:
            return Applied(0, 0, 0, int(self._table.version()))
        self._add_columns(rows)
        rows_changed = _RowChanges(self, changes)
        self._write_deletes(rows_changed)
        return self._write(epoch, changes, rows_changed)

    # What _RowChanges needs.

    @property
    def key_columns(self) -> list[str]:
        found: list[str] = json.loads(self._table.metadata().configuration[_KEY_PROPERTY])
        return found

    @property
    def schema(self) -> Any:
        return _arrow_schema(self._table)

    @property
    def source_schema(self) -> Any:
        """The columns of the source, without our own."""
        own = {name for name, _ in _ADDED_COLUMNS[self._mode]}
        return pa.schema([field for field in self.schema if field.name not in own])

    @property
    def mode(self) -> str:
        return self._mode

    def stored(self, keys: set[Key], truncated: set[int]) -> list[dict[str, Any]]:
        """Rows of these keys, and all rows (scd2: all current ones) of these partitions."""
        if not keys and not truncated:
            return []
        return _rows_of(_dataset(self._uri, self._table), self.key_columns, keys, truncated)

    def deletes(self, keys: set[Key]) -> list[dict[str, Any]]:
        table = _opened(f"{self._uri}_deletes")
        if table is None or not keys:
            return []
        return _rows_of(_dataset(f"{self._uri}_deletes", table), self.key_columns, keys, set())

    # Writing.

    def _create(self, changes: list[Change]) -> None:
        from deltalake import DeltaTable

        key = sorted(changes[0].event.key or {})
        columns = {name: named_type(kind) for name, kind in self._declared.items()}
        for change in changes:
            columns |= {name: kind for name, kind in _inferred(change).items() if name not in columns}
        clash = sorted(set(columns) & {name for name, _ in _ADDED_COLUMNS[self._mode]})
        if clash:
            raise MaterializeError(
                f"column {clash[0]} of the source has the name of a column of the materialised table"
            )
        fields = [pa.field(name, kind) for name, kind in columns.items()]
        try:
            self._table = DeltaTable.create(
                self._uri,
                pa.schema([*fields, *[pa.field(name, kind) for name, kind in _ADDED_COLUMNS[self._mode]]]),
                mode="ignore",
                description=f"{self._topic}, materialised by topics as {self._mode}",
                configuration={_MODE_PROPERTY: self._mode, _KEY_PROPERTY: json.dumps(key)},
                # Our own properties are not known to Delta.
                raise_if_key_not_exists=False,
            )
        except Exception as error:
            raise MaterializeError(f"cannot make a table at {self._uri}: {one_line(error)}") from error
        # When two drivers start at once, one of them finds the table of the other.
        self._table = _opened(self._uri)

    def _add_columns(self, changes: list[Change]) -> None:
        from deltalake.schema import Field, Schema

        known = set(self.schema.names)
        added: dict[str, Any] = {}
        for change in changes:
            if change.event.after is not None and not known.issuperset(change.event.after):
                for name, kind in _inferred(change).items():
                    if name not in known:
                        added.setdefault(name, named_type(self._declared[name]) if name in self._declared else kind)
        if added:
            fields = Schema.from_arrow(pa.schema([pa.field(name, kind) for name, kind in added.items()])).fields
            self._table.alter.add_columns([Field(field.name, field.type, nullable=True) for field in fields])

    def _write_deletes(self, rows_changed: "_RowChanges") -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError, DeltaError

        if not rows_changed.deleted:
            return
        keys = self.key_columns
        schema = pa.schema([*[self.source_schema.field(name) for name in keys], *_ADDED_COLUMNS["scd1"]])
        source = _table(rows_changed.deleted, schema)
        uri = f"{self._uri}_deletes"
        try:
            if _opened(uri) is None:
                DeltaTable.create(uri, schema, mode="ignore", description=f"deletes of {self._topic}")
            table = DeltaTable(uri)
            merge = table.merge(source, _key_condition(keys), source_alias="s", target_alias="t")
            merge.when_matched_update_all("s._ts > t._ts").when_not_matched_insert_all().execute()
            self._remove_old_deletes(table, max([row["_ts"] for row in rows_changed.deleted]))
        except CommitFailedError as error:
            raise Overtaken(f"{uri}: another driver has written deletes ({one_line(error)})") from error
        except (DeltaError, OSError) as error:
            raise MaterializeError(f"cannot write to {uri}: {one_line(error)}") from error

    def _remove_old_deletes(self, table: Any, newest: datetime.datetime) -> None:
        """Remove deletes that are more than DELETE_RETENTION_DAYS older than `newest`, at most once for each day of changes.

        The times of the changes count, not the clock: old changes that are replayed have late ones among them, too. A time in
        the future counts as now.
        """
        newest = min(newest, datetime.datetime.now(datetime.UTC))
        since = newest - datetime.timedelta(days=DELETE_RETENTION_DAYS)
        if self._deletes_since is None or since - self._deletes_since >= datetime.timedelta(days=1):
            table.delete(f"_ts < '{since.isoformat()}'")
            self._deletes_since = since

    def _write(self, epoch: int, changes: list[Change], rows_changed: "_RowChanges") -> Applied:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        ends: dict[int, int] = {}
        for change in changes:
            ends[change.partition] = max(ends.get(change.partition, 0), change.seq + 1)
        transactions = [Transaction(f"topics/{self._topic}", epoch)]
        transactions += [Transaction(f"topics/{self._topic}/{number}", end) for number, end in sorted(ends.items())]
        properties = CommitProperties(app_transactions=transactions, max_commit_retries=MAX_COMMIT_RETRIES)
        upserts, removed = rows_changed.upserts, rows_changed.removed
        if upserts or removed:
            schema = self.schema.append(pa.field("_remove", pa.bool_()))
            rows = [{**row, "_remove": False} for row in upserts] + [{**row, "_remove": True} for row in removed]
            identity = self.key_columns if self._mode == "scd1" else [*self.key_columns, "_partition", "_seq"]
            columns = {name: f"s.{_quoted(name)}" for name in self.schema.names}
            merge = self._table.merge(
                _table(rows, schema),
                _key_condition(identity),
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
            )
            merge = merge.when_matched_delete("s._remove").when_matched_update(
                {_quoted(name): value for name, value in columns.items()}
            )
            merge = merge.when_not_matched_insert(
                {_quoted(name): value for name, value in columns.items()}, predicate="NOT s._remove"
            )
            commit: Callable[[], Any] = merge.execute
        else:
            # Nothing to write: only the position moves. Retention may remove these changes from the topic now.
            commit = partial(
                self._table.create_write_transaction, [], "append", self.schema, commit_properties=properties
            )
        try:
            commit()
        except CommitFailedError as error:
            raise Overtaken(f"{self._uri}: another driver has applied changes ({one_line(error)})") from error
        except (DeltaError, OSError) as error:
            raise MaterializeError(f"cannot write to {self._uri}: {one_line(error)}") from error
        self._table.update_incremental()
        return Applied(len(changes), len(upserts), len(removed), int(self._table.version()))


class _RowChanges:
    """Applies changes to the versions of their keys in memory.

    `upserts` are rows of the table that are new or different, `removed` rows (scd1) that are gone, and `deleted` the deletes
    of sources without positions, for the table of deletes.
    """

    def __init__(self, table: MaterializedTable, changes: list[Change]) -> None:
        self._table = table
        self._key_columns = table.key_columns
        self._schema = table.source_schema
        self._decoders = {field.name: value_decoder(field.name, field.type) for field in self._schema}
        self._versions: dict[Key, RowVersions] = {}
        self._partition_of: dict[Key, int] = {}
        keys = {self._key(change) for change in changes if change.event.op != "truncate"}
        truncated = {change.partition for change in changes if change.event.op == "truncate"}
        unordered = {
            self._key(change) for change in changes if change.event.op != "truncate" and not change.event.in_order
        }
        stored = table.stored(keys, truncated)
        deletes = table.deletes(unordered) if unordered else []
        self._load(stored, deletes)
        self.deleted: list[Row] = []
        for change in changes:
            self._apply(change)
        before = {self._identity(row): row for row in stored}
        after = {self._identity(row): row for key in self._versions for row in self._rows(key)}
        self.upserts = [row for identity, row in after.items() if before.get(identity) != row]
        self.removed = [row for identity, row in before.items() if identity not in after]
        newest = {tuple([row[name] for name in self._key_columns]): row for row in self.deleted}
        self.deleted = list(newest.values())

    def _key(self, change: Change) -> Key:
        key = change.event.key or {}
        if sorted(key) != self._key_columns:
            raise MaterializeError(
                f"record {change.seq} of partition {change.partition} has the key {', '.join(sorted(key)) or 'none'}; the "
                f"table has {', '.join(self._key_columns)}"
            )
        return tuple([self._decoders[name](bytes(key[name])) for name in self._key_columns])

    def _load(self, stored: list[Row], deletes: list[Row]) -> None:
        versions: dict[Key, list[Version]] = {}
        names = self._schema.names
        for row in stored:
            key = tuple([row[name] for name in self._key_columns])
            self._partition_of[key] = row["_partition"]
            mine = versions.setdefault(key, [])
            since = row["_ts"] if self._table.mode == "scd1" else row["_valid_from"]
            mine.append(Version(_ms(since), row["_seq"], {name: row[name] for name in names}))
            if row.get("_valid_to") is not None:
                # Where the next version begins at the same time, this delete is removed below.
                mine.append(Version(_ms(row["_valid_to"]), row["_seq"], None))
        for row in deletes:
            key = tuple([row[name] for name in self._key_columns])
            versions.setdefault(key, []).append(Version(_ms(row["_ts"]), row["_seq"], None))
        for key, mine in versions.items():
            mine.sort(key=lambda each: (each.ts, each.seq, each.row is None))
            kept = [
                each
                for index, each in enumerate(mine)
                if each.row is not None or index + 1 == len(mine) or mine[index + 1].ts > each.ts
            ]
            self._versions[key] = RowVersions(kept)

    def _apply(self, change: Change) -> None:
        event = change.event
        if event.op == "truncate":
            for key, versions in self._versions.items():
                if self._partition_of.get(key) == change.partition and versions.last and versions.last.row is not None:
                    versions.add(Version(event.ts, change.seq, None), in_order=True, unchanged=[])
            return
        key = self._key(change)
        self._partition_of[key] = change.partition
        row: Row | None = None
        if event.op != "delete":
            row = dict.fromkeys(self._schema.names)
            row |= dict(zip(self._key_columns, key, strict=True))
            row |= {
                name: self._decoders[name](bytes(value))
                for name, value in (event.after or {}).items()
                if name in self._decoders
            }
        elif not event.in_order:
            own = {"_ts": _time(event.ts), "_partition": change.partition, "_seq": change.seq}
            self.deleted.append(dict(zip(self._key_columns, key, strict=True)) | own)
        versions = self._versions.setdefault(key, RowVersions([]))
        versions.add(Version(event.ts, change.seq, row), in_order=event.in_order, unchanged=event.unchanged)

    def _rows(self, key: Key) -> list[Row]:
        """The rows of the table for a key."""
        versions = self._versions[key].versions
        partition = self._partition_of.get(key)
        if self._table.mode == "scd1":
            last = versions[-1] if versions else None
            if last is None or last.row is None:
                return []
            return [{**last.row, "_ts": _time(last.ts), "_partition": partition, "_seq": last.seq}]
        rows = []
        for index, version in enumerate(versions):
            if version.row is not None:
                end = versions[index + 1].ts if index + 1 < len(versions) else None
                own: Row = {"_valid_from": _time(version.ts), "_valid_to": None if end is None else _time(end)}
                own |= {"_is_current": end is None, "_partition": partition, "_seq": version.seq}
                rows.append({**version.row, **own})
        return rows

    def _identity(self, row: Row) -> Key:
        key = tuple([row[name] for name in self._key_columns])
        return key if self._table.mode == "scd1" else (*key, row["_partition"], row["_seq"])


def _inferred(change: Change) -> dict[str, Any]:
    """The types of the values of a change, without those that are null."""
    found = {}
    for name, value in {**(change.event.key or {}), **(change.event.after or {})}.items():
        kind = inferred_type(bytes(value))
        if kind is not None:
            found[name] = kind
    return found


def _rows_of(dataset: Any, columns: list[str], keys: set[Key], truncated: set[int]) -> list[Row]:
    """Rows of these keys and of these partitions. Rows of other keys may be among them if a key has several columns."""
    in_keys = in_dataset = None
    for index, name in enumerate(columns):
        kind = dataset.schema.field(name).type
        values = pc.unique(pa.array([key[index] for key in keys], kind))
        wanted = ds.field(name).isin(values)
        in_keys = wanted if in_keys is None else in_keys & wanted
        if not pa.types.is_string(kind):
            # delta-rs stores texts as views, and pyarrow cannot compare the bounds of row groups of views.
            in_dataset = wanted if in_dataset is None else in_dataset & wanted
    if truncated:
        whole = ds.field("_partition").isin(sorted(truncated))
        in_keys = in_keys | whole
        in_dataset = None if in_dataset is None else in_dataset | whole
    found: list[Row] = []
    for batch in dataset.to_batches(filter=in_dataset):
        found += pa.Table.from_batches([batch]).filter(in_keys).to_pylist()
    return found


def _opened(uri: str) -> Any | None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(uri)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise MaterializeError(f"cannot open {uri}: {one_line(error)}") from error


def _arrow_schema(table: Any) -> Any:
    # pyarrow has few functions for views.
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    found = pa.schema(table.schema().to_arrow())
    return pa.schema([pa.field(field.name, plain.get(field.type, field.type)) for field in found])


def _dataset(uri: str, table: Any) -> Any:
    """The files of the table with their columns as plain types. The dataset of delta-rs has views for texts."""
    actions = pa.table(table.get_add_actions(flatten=True))
    paths = [unquote(path) for path in actions.column("path").to_pylist()]
    schema = _arrow_schema(table)
    return (
        ds.dataset(paths, schema=schema, format="parquet", filesystem=Place(uri).filesystem())
        if paths
        else ds.dataset(schema.empty_table())
    )


def _table(rows: list[Row], schema: Any) -> Any:
    return pa.Table.from_arrays(
        [pa.array([row[field.name] for row in rows], field.type) for field in schema], schema=schema
    )


def _key_condition(columns: list[str]) -> str:
    return " AND ".join([f"s.{_quoted(name)} = t.{_quoted(name)}" for name in columns])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _time(ts_ms: int) -> datetime.datetime:
    return _START + datetime.timedelta(milliseconds=ts_ms)


def _ms(time: datetime.datetime) -> int:
    return (time - _START) // datetime.timedelta(milliseconds=1)
