"""The ledger: a Delta table with the positions of its topics in the same log.

Every commit of a topic carries application transactions. Delta keeps the newest version of each, by name:

    topics/<topic>                      version = epoch of the instance that is being archived
    topics/<topic>/<epoch>/partitions   version = how many partitions are known
    topics/<topic>/<epoch>/<partition>  version = the next seq to archive

Guarantees:
- A commit names the first and last seq of each partition it moves. It is refused with Overtaken unless the table's
  positions equal the first seqs.
- Every commit of a topic contains its first transaction, so two concurrent commits conflict in the Delta log: one
  succeeds, the other raises Overtaken.
- A writer needs no state of its own. When its checkpoint is lost, it continues at the table's positions.
- Commits of other topics, compaction and vacuum do not conflict, so topics may share a table.
"""

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from topics.archive.files import ROW_GROUP_ROWS, Added
from topics.archive.place import DELTA_LOG, Place, local_path
from topics.archive.rows import PARTITION_BY, QUARANTINE_SCHEMA, SCHEMA
from topics.model.tables.archive import DEFAULT_VACUUM_HOURS
from topics.model.tables.location import QUARANTINE

# Target size of a compacted file.
COMPACT_BYTES = 128 << 20
# The table property for how long checkpoints of the log list removed files. Vacuum deletes only listed files, so the
# list must outlive the vacuum delay; the margin is a week, in which at least one vacuum runs.
REMOVED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
VACUUM_MARGIN_HOURS = 168
# Files that remain when a process is killed while it creates a table; the second pattern adds the directories of topics.
_UNFINISHED_COMMIT = re.compile(rf"{DELTA_LOG}/(_commit_.*\.json\.tmp|\d{{20}}\.json#\d+)")
_WRITTEN_AHEAD = re.compile(rf"topic=[^/]+|{_UNFINISHED_COMMIT.pattern}")
# A commit is retried when another one took its version, which is frequent in a table with several writers.
_COMMIT_RETRIES = 50
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class ArchiveError(Exception):
    """The table cannot be used. The message names the table and the reason."""


class NoTable(ArchiveError):
    """There is no table at that place: nothing has been archived yet, or the table was removed."""


class Overtaken(ArchiveError):
    """The table's positions differ from the start of this commit: another writer committed first. Plan again from them."""


class Position(Struct, frozen=True):
    """How far a topic is archived: its epoch, and the next seq to archive of each partition."""

    epoch: int
    next_seqs: tuple[int, ...]

    def next_seq(self, epoch: int, partition: int) -> int:
        if epoch != self.epoch or partition >= len(self.next_seqs):
            return 1
        return self.next_seqs[partition]


# The position of a topic without archived records; epochs begin at 1.
NOT_ARCHIVED = Position(0, ())


class StoredFile(Struct, frozen=True):
    """A file of the table with its statistics. None where the log has no statistic: the file may hold any value."""

    path: str
    rows: int
    bytes: int
    min_epoch: int | None
    max_epoch: int | None
    min_partition: int | None
    max_partition: int | None
    min_seq: int | None
    max_seq: int | None
    min_gap_from: int | None
    # Whether the log guarantees that the file has no tombstone.
    no_gaps: bool


class Move(Struct, frozen=True):
    """Move a partition from `first`, the next seq to archive before the commit, to `last`, the last archived seq after it."""

    partition: int
    first: int
    last: int


class Ledger:
    """The log of one table. Thread-safe."""

    def __init__(self, uri: str, table: Any, schema: Any) -> None:
        self.uri = uri
        self._table = table
        self._schema = schema
        self._lock = threading.Lock()
        self._positions: dict[str, tuple[int, Position]] = {}
        self._files: dict[str, tuple[int, list[StoredFile]]] = {}

    @property
    def place(self) -> Place:
        return Place(self.uri)

    @property
    def table_id(self) -> str:
        """The id that Delta gave the table. It changes when the table is removed and created again."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        return int(self._table.version())

    def refresh(self) -> None:
        """Load the commits made since the last refresh. Raises ArchiveError when the table no longer exists."""
        with self._lock:
            self._refresh()

    def position(self, topic: str) -> Position:
        with self._lock:
            return self._position(topic)

    def archived_through(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the epoch and the next seq to archive of each partition."""
        found = self.position(topic)
        return {number: (found.epoch, next_seq) for number, next_seq in enumerate(found.next_seqs)}

    def commit(
        self,
        topic: str,
        epoch: int,
        partitions: int,
        moves: list[Move],
        files: list[Added],
        note: dict[str, str] | None = None,
    ) -> int:
        """Add the files and move the positions atomically; return the new version of the table.

        Raises Overtaken, without any change, when the table's positions are not the first seqs of the moves, or when
        another commit of the topic succeeded first.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction

        with self._lock:
            self._refresh()
            at = self._position(topic)
            if epoch < at.epoch:
                raise Overtaken(f"{self.uri} has epoch {at.epoch} of topic {topic}; this commit is of epoch {epoch}")
            for move in moves:
                if move.first != at.next_seq(epoch, move.partition):
                    raise Overtaken(
                        f"{self.uri} has topic {topic} partition {move.partition} up to "
                        f"{at.next_seq(epoch, move.partition) - 1}; this commit begins at {move.first}"
                    )
            known = max(partitions, len(at.next_seqs) if epoch == at.epoch else 0)
            name = f"topics/{topic}"
            transactions = [Transaction(name, epoch), Transaction(f"{name}/{epoch}/partitions", known)]
            transactions += [Transaction(f"{name}/{epoch}/{move.partition}", move.last + 1) for move in moves]
            now_ms = int(time.time() * 1000)
            adds = [
                AddAction(each.path, each.bytes, {"topic": topic, "date": each.date}, now_ms, True, each.stats)
                for each in files
            ]
            properties = CommitProperties(
                custom_metadata=note or {}, app_transactions=transactions, max_commit_retries=_COMMIT_RETRIES
            )
            try:
                self._table.create_write_transaction(
                    adds, "append", self._schema, partition_by=PARTITION_BY, commit_properties=properties
                )
            except CommitFailedError as error:
                raise Overtaken(f"{self.uri}: another commit of topic {topic} came in between ({error})") from error
            except (DeltaError, OSError) as error:
                raise ArchiveError(f"cannot commit to {self.uri}: {one_line(error)}") from error
            self._refresh()
            return self.version

    def files(self, topic: str) -> list[StoredFile]:
        """Return the files that hold rows of the topic."""
        with self._lock:
            version, found = self._files.get(topic, (-1, []))
            if version != self.version:
                with self._reading():
                    found = _stored_files(pa.table(self._table.get_add_actions(flatten=True)), topic)
                self._files[topic] = (self.version, found)
            return found

    def commit_notes(self, after_version: int) -> list[dict[str, str]]:
        """Return the `topics.*` metadata of the commits after that version, newest first."""
        with self._lock, self._reading():
            newer = self.version - after_version
            found = self._table.history(newer) if newer > 0 else []
        return [
            {name: str(value) for name, value in each.items() if name.startswith("topics.")}
            for each in found
            if int(each.get("version", after_version + 1)) > after_version
        ]

    def compact(self, topic: str) -> int:
        """Merge small files of the topic and return how many were replaced. Rows and positions do not change."""
        from deltalake import DeltaTable, WriterProperties

        # A separate table object: compaction may take long, and commits must not wait for it.
        table = DeltaTable(self.uri)
        done = table.optimize.compact(
            partition_filters=[("topic", "=", topic)],
            target_size=COMPACT_BYTES,
            max_concurrent_tasks=1,
            writer_properties=WriterProperties(
                compression="ZSTD", compression_level=1, max_row_group_size=ROW_GROUP_ROWS
            ),
        )
        return int(done["numFilesRemoved"])

    def vacuum(self, hours: int) -> int:
        """Delete files that were removed from the table by compaction or erasure at least `hours` ago.

        Returns how many. Files that the log never named are kept.
        """
        from deltalake import DeltaTable

        if hours < 1:
            raise ValueError("a vacuum needs at least 1 hour")
        table = DeltaTable(self.uri)
        _extend_removed_file_retention(table, hours)
        return len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=False))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            raise ArchiveError(f"cannot read {self.uri}: {one_line(error)}") from error

    def _refresh(self) -> None:
        with self._reading():
            self._table.update_incremental()

    def _position(self, topic: str) -> Position:
        version, found = self._positions.get(topic, (-1, NOT_ARCHIVED))
        if version != self.version:
            with self._reading():
                found = self._read_position(f"topics/{topic}")
            self._positions[topic] = (self.version, found)
        return found

    def _read_position(self, name: str) -> Position:
        epoch = self._table.transaction_version(name)
        if epoch is None:
            return NOT_ARCHIVED
        count = self._table.transaction_version(f"{name}/{epoch}/partitions") or 0
        read = [self._table.transaction_version(f"{name}/{epoch}/{number}") for number in range(count)]
        return Position(int(epoch), tuple([int(seq or 1) for seq in read]))


def open_archive(uri: str, *, create: bool = False) -> Ledger:
    """Open an archive. Raises NoTable when there is none, ArchiveError when the table is not an archive or cannot be read."""
    return _open(uri, SCHEMA, create)


def open_quarantine(uri: str, *, create: bool = False) -> Ledger | None:
    """Open the table for records of an archive that could not be converted; None when it does not exist."""
    quarantine = quarantine_uri(uri)
    return _open(quarantine, QUARANTINE_SCHEMA, True) if create or _is_table(quarantine) else None


def quarantine_uri(uri: str) -> str:
    return uri.rstrip("/") + QUARANTINE


def _open(uri: str, schema: Any, create: bool) -> Ledger:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as error:
        raise ArchiveError("archives need deltalake: pip install '.[spark]' in a checkout") from error

    _check_location(uri, create=create)
    try:
        try:
            table = DeltaTable(uri)
        except TableNotFoundError:
            if not create:
                raise
            _check_empty(uri, written_ahead=schema is QUARANTINE_SCHEMA)
            table = _create(uri, schema)
        protocol = table.protocol()
        found = pa.schema(table.schema().to_arrow())
        partitioned = list(table.metadata().partition_columns)
    except TableNotFoundError as error:
        raise NoTable(f"there is no table at {uri}") from error
    except (DeltaError, OSError) as error:
        raise ArchiveError(f"cannot open {uri}: {one_line(error)}") from error
    if protocol.min_reader_version > 1:
        raise ArchiveError(
            f"the table at {uri} uses features that are not read here (deletion vectors, column mapping)"
        )
    missing = [field.name for field in schema if field.name not in found.names]
    if missing or partitioned != PARTITION_BY:
        raise ArchiveError(
            f"the table at {uri} is not an archive of topics: "
            + (f"it has no column {missing[0]}" if missing else f"it is partitioned by {', '.join(partitioned)}")
        )
    return Ledger(uri, table, schema)


def _check_location(uri: str, *, create: bool) -> None:
    """Raise ArchiveError for a local path that cannot hold a table; with `create`, make its directory.

    The error of the operating system gives the reason in one line; the error of delta-rs often omits it.
    """
    if "\0" in uri:
        raise ArchiveError(f"cannot use {uri!r}: a path has no NUL character")
    local = local_path(uri)
    if local is None:
        return
    if os.path.exists(local) and not os.path.isdir(local):
        raise ArchiveError(f"cannot use {uri}: {local} is a file, not a directory")
    if create:
        try:
            os.makedirs(local, exist_ok=True)
        except OSError as error:
            raise ArchiveError(f"cannot make a table at {uri}: {error.filename or local}: {error.strerror}") from error


def one_line(error: BaseException) -> str:
    """Return the message of a delta-rs error in one line, without terminal colours."""
    return " ".join(_COLOUR.sub("", str(error)).split())


def _check_empty(uri: str, *, written_ahead: bool) -> None:
    """Raise ArchiveError when the location holds files that do not belong to an archive.

    With `written_ahead`, directories of topics are accepted: tasks write files before the first commit creates the table.
    """
    ours = _WRITTEN_AHEAD if written_ahead else _UNFINISHED_COMMIT
    foreign = [name for name in Place(uri).names() if name != DELTA_LOG and not ours.fullmatch(name)]
    if foreign:
        raise ArchiveError(
            f"{uri} is not empty and holds no archive of topics (it has {foreign[0]!r}): use another place"
        )


def _extend_removed_file_retention(table: Any, hours: int) -> None:
    """Make the log list removed files for longer than the vacuum delay: a file that is no longer listed is never deleted."""
    text = table.metadata().configuration.get(REMOVED_FILE_RETENTION) or ""
    kept = re.fullmatch(r"interval (\d+) hours", text)
    if kept is None or int(kept[1]) < hours + VACUUM_MARGIN_HOURS:
        table.alter.set_table_properties({REMOVED_FILE_RETENTION: f"interval {hours + VACUUM_MARGIN_HOURS} hours"})


def _create(uri: str, schema: Any) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable.create(
            uri,
            schema,
            partition_by=PARTITION_BY,
            description="An archive of topics",
            configuration={REMOVED_FILE_RETENTION: f"interval {DEFAULT_VACUUM_HOURS + VACUUM_MARGIN_HOURS} hours"},
        )
    except (DeltaError, OSError) as error:
        # Another process may have created the table at the same time: use that one.
        try:
            return DeltaTable(uri)
        except (DeltaError, OSError):
            raise ArchiveError(f"cannot make a table at {uri}: {one_line(error)}") from error


def _is_table(uri: str) -> bool:
    from deltalake import DeltaTable

    return bool(DeltaTable.is_deltatable(uri))


def _stored_files(actions: Any, topic: str) -> list[StoredFile]:
    mine = actions.filter(pc.equal(actions.column("partition.topic").cast(pa.string()), topic))
    count = mine.num_rows

    def column(name: str) -> list[Any]:
        return mine.column(name).to_pylist() if name in mine.column_names else [None] * count

    names = [f"{end}.{name}" for name in ("epoch", "partition", "seq") for end in ("min", "max")]
    gaps = zip(column("num_records"), column("null_count.gap_from"), strict=True)
    columns = [
        [unquote(path) for path in column("path")],
        [rows or 0 for rows in column("num_records")],
        column("size_bytes"),
        *[column(name) for name in names],
        column("min.gap_from"),
        [rows is not None and rows == missing for rows, missing in gaps],
    ]
    found = [StoredFile(*values) for values in zip(*columns, strict=True)]
    return sorted(found, key=lambda each: (each.min_seq or 0, each.path))
