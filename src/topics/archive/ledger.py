"""The ledger: a Delta table with the positions of its topics in the same log.

Every commit of a topic carries application transactions, which Delta keeps by name with their newest version:

    topics/<topic>                      version = epoch of the instance that is being archived
    topics/<topic>/<epoch>/partitions   version = how many partitions are known
    topics/<topic>/<epoch>/<partition>  version = the next seq to archive

A commit says from where to where it moves each partition. It is refused when the table stands elsewhere, and since the
first of these transactions is in every commit of the topic, two that race conflict in the log itself: one of them wins,
the other is told so. Neither needs the memory of whoever writes: with its checkpoint lost, a writer goes on where the
table stands. Other topics, compaction and vacuum do not conflict, so topics may share a table.
"""

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
from topics.archive.place import Place
from topics.archive.rows import PARTITION_BY, QUARANTINE_SCHEMA, SCHEMA

# Files are put together until they have about this size.
COMPACT_BYTES = 128 << 20
# A commit is tried again when another one took its version, which a busy table with several writers can do often.
_COMMIT_RETRIES = 50


class ArchiveError(Exception):
    """The table cannot be used as it is. Says which table and why."""


class NoTable(ArchiveError):
    """There is no table at that place: nothing has been archived yet, or somebody has removed it."""


class Overtaken(ArchiveError):
    """The table does not stand where this commit begins: another writer was faster. Plan again from where it stands."""


class Position(Struct, frozen=True):
    """How far a topic is archived: of this epoch, the next seq of each partition."""

    epoch: int
    next_seqs: tuple[int, ...]

    def next_seq(self, epoch: int, partition: int) -> int:
        if epoch != self.epoch or partition >= len(self.next_seqs):
            return 1
        return self.next_seqs[partition]


# A topic of which nothing has been archived; epochs begin at 1.
NOWHERE = Position(0, ())


class StoredFile(Struct, frozen=True):
    """A file of the table, with its statistics. None where the log has none: then it may hold anything."""

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
    # Whether the log says that no row of it is a tombstone.
    no_gaps: bool


class Move(Struct, frozen=True):
    """Of a partition: archived up to, but not including, `first`; after the commit up to and including `last`."""

    partition: int
    first: int
    last: int


class Ledger:
    """One table. Threads may share it."""

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
        """Another one when the table was removed and made again."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        return int(self._table.version())

    def refresh(self) -> None:
        """See what has been committed since. Raises ArchiveError when the table is not there any more."""
        with self._lock:
            self._refresh()

    def position(self, topic: str) -> Position:
        with self._lock:
            return self._position(topic)

    def archived_through(self, topic: str) -> dict[int, tuple[int, int]]:
        """For each partition the epoch and the next seq that is not archived yet."""
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
        """Add the files and move the positions, all or nothing. The table's version then.

        Raises Overtaken when the table does not stand at the beginning of the moves, or another commit of the topic came
        in between; nothing has been changed then.
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
                raise ArchiveError(f"cannot commit to {self.uri}: {error}") from error
            self._refresh()
            return self.version

    def files(self, topic: str) -> list[StoredFile]:
        """The files that hold rows of the topic."""
        with self._lock:
            version, found = self._files.get(topic, (-1, []))
            if version != self.version:
                with self._reading():
                    found = _stored_files(pa.table(self._table.get_add_actions(flatten=True)), topic)
                self._files[topic] = (self.version, found)
            return found

    def compact(self, topic: str) -> int:
        """Put small files of the topic together; how many went. Rows, positions and order stay as they are."""
        from deltalake import DeltaTable, WriterProperties

        # A table object of its own: this may take long, and commits must not wait for it.
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
        """Remove files that the table has not named for so long: compacted ones, and those of writers that died.

        How many went. A file is younger than that while its commit is under way, so `hours` must be at least 1.
        """
        from deltalake import DeltaTable

        if hours < 1:
            raise ValueError("a vacuum needs at least 1 hour")
        removed = DeltaTable(self.uri).vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        return len(removed)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            raise ArchiveError(f"cannot read {self.uri}: {error}") from error

    def _refresh(self) -> None:
        with self._reading():
            self._table.update_incremental()

    def _position(self, topic: str) -> Position:
        version, found = self._positions.get(topic, (-1, NOWHERE))
        if version != self.version:
            with self._reading():
                found = self._read_position(f"topics/{topic}")
            self._positions[topic] = (self.version, found)
        return found

    def _read_position(self, name: str) -> Position:
        epoch = self._table.transaction_version(name)
        if epoch is None:
            return NOWHERE
        count = self._table.transaction_version(f"{name}/{epoch}/partitions") or 0
        read = [self._table.transaction_version(f"{name}/{epoch}/{number}") for number in range(count)]
        return Position(int(epoch), tuple([int(seq or 1) for seq in read]))


def open_archive(uri: str, *, create: bool = False) -> Ledger:
    """Raises NoTable when there is none, ArchiveError when it is none of ours or cannot be read."""
    return _open(uri, SCHEMA, create)


def open_quarantine(uri: str, *, create: bool = False) -> Ledger | None:
    """The table beside an archive for what could not be converted; None when there is none."""
    beside = quarantine_uri(uri)
    return _open(beside, QUARANTINE_SCHEMA, True) if create or _is_table(beside) else None


def quarantine_uri(uri: str) -> str:
    return uri.rstrip("/") + "_quarantine"


def _open(uri: str, schema: Any, create: bool) -> Ledger:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError
    except ImportError as error:
        raise ArchiveError("archives need deltalake: pip install 'topics[spark]'") from error

    try:
        try:
            table = DeltaTable(uri)
        except TableNotFoundError:
            if not create:
                raise
            table = _create(uri, schema)
        protocol = table.protocol()
        found = pa.schema(table.schema().to_arrow())
        partitioned = list(table.metadata().partition_columns)
    except TableNotFoundError as error:
        raise NoTable(f"there is no table at {uri}") from error
    except (DeltaError, OSError) as error:
        raise ArchiveError(f"cannot open {uri}: {error}") from error
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


def _create(uri: str, schema: Any) -> Any:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable.create(uri, schema, partition_by=PARTITION_BY, description="An archive of topics")
    except (DeltaError, OSError) as error:
        # Two that begin at once: the one that came second finds the other's table.
        try:
            return DeltaTable(uri)
        except (DeltaError, OSError):
            raise ArchiveError(f"cannot make a table at {uri}: {error}") from error


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
