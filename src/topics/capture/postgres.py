"""Capture of one PostgreSQL table: a snapshot, then every change, each in the change topic once.

    create the slot -> send the table as of that moment -> repeat: peek at the slot, send, advance the slot

The slot is advanced after the server has acknowledged the changes, never before. Changes that were sent before a crash of
either side, but not advanced over, are sent again at the same position (commit LSN, number within the transaction), and the
server discards them as duplicates.

An interrupted snapshot cannot be continued: PostgreSQL drops it with the connection. A new one is taken and compared with
the rows in the change topic: unchanged rows are not sent again. The same happens when the slot is gone, and when the table
was dropped and created again or left the publication. The fence of a producer at the server records the state of the
snapshot: odd while one is running, even when it is complete.

Decoding uses pgoutput, which is part of PostgreSQL, so the database needs no extension: only `wal_level = logical` and a
role that has REPLICATION and owns the table (for the publication).
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
import psycopg
from msgspec import Struct
from psycopg import conninfo, pq, sql
from xxhash import xxh3_64_intdigest

from topics.capture.pgoutput import UNCHANGED, Begin, CommitMade, Relation, RowChanged, Truncated, Tuple, decode
from topics.capture.pgvalues import PgType, json_value
from topics.client import Client
from topics.client.calls import Call
from topics.model.errors import Conflict, InvalidRequest, NotFound
from topics.model.tables.change import change_topic

# Fixed output formats: values do not depend on the settings of the database or the role.
SESSION = (
    "SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'iso_8601'; SET bytea_output = 'hex'; "
    "SET extra_float_digits = 1; SET client_encoding = 'UTF8'; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0"
)
BATCH_EVENTS = 1000
BATCH_BYTES = 4 << 20
# A peek ends with the transaction in which this number of changes is reached.
PEEK_CHANGES = 10_000
FETCH_ROWS = 1000
LOCK_WAIT_MS = 10_000

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class CaptureOptions(Struct, frozen=True):
    """What to capture, and under which names. `table` is schema.table."""

    dsn: str
    table: str
    name: str = ""
    slot: str = ""
    key: tuple[str, ...] = ()
    skip_refused: bool = False

    @property
    def known_as(self) -> str:
        """The name of the table at the server."""
        return self.name or self.table

    @property
    def slot_name(self) -> str:
        return self.slot or "topics_" + re.sub(r"[^a-z0-9_]", "_", self.table.lower())[:56]


class Progress(Struct):
    """Counts of the capture. `lag_bytes` is the log that the slot has not confirmed yet."""

    sent: int = 0
    duplicates: int = 0
    refused: int = 0
    snapshot_rows: int = 0
    lag_bytes: int = 0
    caught_up: bool = False


class _KeptChange(Struct):
    """A change as stored in its topic, with values as raw JSON. A change without a key is a truncate."""

    key: dict[str, msgspec.Raw] | None = None
    after: dict[str, msgspec.Raw] | None = None


class _KeptRecord(Struct):
    data: _KeptChange


class _KeptPage(Struct):
    records: list[_KeptRecord]
    next_from_seq: int
    caught_up: bool


class PostgresCapture:
    """A capture with its connections. After any error, close it and create a new one."""

    def __init__(self, options: CaptureOptions, client: Client, log: Callable[[str], None] = lambda _: None) -> None:
        self.options = options
        self.progress = Progress()
        self._client = client
        self._log = log
        self._schema, _, self._table = options.table.partition(".")
        if not self._table or "." in self._table:
            raise InvalidRequest("the table is named as schema.table")
        self._slot = options.slot_name
        if _SLOT.fullmatch(self._slot) is None:
            raise InvalidRequest("a slot name has 1 to 63 characters of a-z 0-9 _")
        self._topic = change_topic(options.known_as)
        self._types: dict[int, PgType] = {}
        self._catalog = psycopg.connect(options.dsn, autocommit=True)
        try:
            self._connection = psycopg.connect(options.dsn, autocommit=True)
            for connection in (self._catalog, self._connection):
                connection.execute(SESSION)
            system = _replication_query(options.dsn, b"IDENTIFY_SYSTEM")[0]
        except psycopg.Error:
            self._catalog.close()
            raise
        # Positions are valid within one database cluster; another cluster has another source name.
        self._source = f"postgres:{system}:{self._slot}"
        self._batch: list[dict[str, Any]] = []
        self._batch_bytes = 0
        self._key: tuple[str, ...] = ()
        self._oid = 0

    def close(self) -> None:
        self._catalog.close()
        self._connection.close()

    def __enter__(self) -> "PostgresCapture":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Getting ready

    def prepare(self) -> None:
        """Get ready to follow: publication and slot exist and the snapshot is complete at the server."""
        self._lock()
        self._capture_table()

    def _capture_table(self) -> None:
        """Take a snapshot of the table unless the server has a complete one and the slot has every change since."""
        self._oid, self._key = self._find_table()
        was_published = self._publish()
        try:
            epoch = self._client.info(self._topic).epoch
        except NotFound:
            self._client.create(self._topic, durability="fsync")
            epoch = self._client.info(self._topic).epoch
        # Contains the table's oid: a table that was created again under the same name needs a new snapshot.
        unnumbered = f"capture:{self._source}:{self.options.known_as}:{epoch}"
        producer = f"{unnumbered}:{self._oid}"
        fence = self._client.last_commit(producer)
        stage = 0 if fence is None else fence.batch
        if was_published and self._slot_is_usable():
            if stage and not stage % 2:
                return
            before = self._client.last_commit(unnumbered) if fence is None else None
            if before is not None and not before.batch % 2:
                # Stored by an earlier version, whose producer names had no oid.
                self._client.commit([], producer=producer, batch=2)
                return
        running_stage = stage + 1 if not stage % 2 else stage + 2
        self._client.commit([], producer=producer, batch=running_stage)
        self._snapshot()
        self._client.commit([], producer=producer, batch=running_stage + 1)

    def _lock(self) -> None:
        key = xxh3_64_intdigest(f"topics capture {self._slot}".encode()) >> 1
        # The session of a killed capture holds the lock until the database closes it.
        self._catalog.execute(f"SET lock_timeout = {LOCK_WAIT_MS}")
        try:
            self._catalog.execute("SELECT pg_advisory_lock(%s)", [key])
        except psycopg.errors.LockNotAvailable:
            raise Conflict(f"another capture runs with the slot {self._slot}") from None
        self._catalog.execute("SET lock_timeout = 0")

    def _find_table(self) -> tuple[int, tuple[str, ...]]:
        """Return the table's oid and its key columns. Raises when these columns do not identify a row in the log."""
        row = self._catalog.execute(
            "SELECT c.oid, c.relreplident::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
            [self._schema, self._table],
        ).fetchone()
        if row is None:
            raise NotFound(f"the database has no table {self.options.table}", code="not_found")
        oid, identity = row
        which = {"d": "i.indisprimary", "f": "i.indisprimary", "i": "i.indisreplident"}.get(identity)
        if which is None:
            raise InvalidRequest(f"{self.options.table} has REPLICA IDENTITY NOTHING: its changes have no key")
        found = self._catalog.execute(
            "SELECT a.attname FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place) "
            f"JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE i.indrelid = %s AND {which} "
            "ORDER BY k.place",
            [oid],
        ).fetchall()
        columns = tuple([name for (name,) in found])
        if self.options.key:
            if identity != "f" and set(self.options.key) != set(columns):
                raise InvalidRequest(
                    f"the log of {self.options.table} holds only {columns} of the old row: another key needs "
                    "ALTER TABLE ... REPLICA IDENTITY FULL"
                )
            return oid, self.options.key
        if not columns:
            raise InvalidRequest(f"{self.options.table} has no primary key: name its key columns (--key)")
        return oid, columns

    def _publish(self) -> bool:
        """Add the table to the publication. Returns False if it was not in it: earlier changes are not in the slot."""
        exists = self._catalog.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [self._slot]).fetchone()
        names = {"publication": sql.Identifier(self._slot), "table": sql.Identifier(self._schema, self._table)}
        if exists is None:
            statement = "CREATE PUBLICATION {publication} FOR TABLE {table} WITH (publish_via_partition_root = true)"
        elif not self._is_published():
            self._log(f"publication {self._slot} did not contain {self.options.table}; a new snapshot is taken")
            statement = "ALTER PUBLICATION {publication} ADD TABLE {table}"
        else:
            return True
        self._catalog.execute(sql.SQL(statement).format(**names))
        return False

    def _slot_is_usable(self) -> bool:
        row = self._catalog.execute(
            "SELECT plugin, database = current_database(), coalesce(wal_status, '') FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [self._slot],
        ).fetchone()
        if row is None:
            return False
        if row[0] != "pgoutput" or not row[1]:
            raise Conflict(f"the slot {self._slot} is not one of this capture: name another one (--slot)")
        return bool(row[2] != "lost")

    # The snapshot

    def _snapshot(self) -> None:
        if self._slot_exists():
            self._catalog.execute("SELECT pg_drop_replication_slot(%s)", [self._slot])
        known_rows = self._rows_in_topic()
        with ReplicationConnection(self.options.dsn) as replication:
            # The exported snapshot is valid until the next command on this connection.
            _, point, snapshot = replication.query(
                f"CREATE_REPLICATION_SLOT {self._slot} LOGICAL pgoutput EXPORT_SNAPSHOT".encode()
            )[:3]
            with self._connection.transaction():
                self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                self._connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
                self._send_rows(lsn_number(point), known_rows)
        self._log(f"snapshot of {self.options.table} at {point}: {self.progress.snapshot_rows} rows")

    def _slot_exists(self) -> bool:
        query = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s"
        return self._catalog.execute(query, [self._slot]).fetchone() is not None

    def _rows_in_topic(self) -> dict[bytes, int]:
        """Replay the change topic: a digest of the newest row of each key. Digests are of the stored bytes."""
        known_rows: dict[bytes, int] = {}
        for partition in range(max(1, len(self._client.info(self._topic).partitions))):
            mine: dict[bytes, int] = {}
            for change in self._kept(partition):
                if change.key is None:
                    mine.clear()
                elif change.after is None:
                    mine.pop(_encode_sorted(change.key), None)
                else:
                    mine[_encode_sorted(change.key)] = _digest(change.after)
            known_rows |= mine
        return known_rows

    def _kept(self, partition: int) -> Iterator["_KeptChange"]:
        path = f"/v0/topics/{quote(self._topic, safe='')}/diff"
        from_seq = 0
        while True:
            body = {"from_seq": from_seq, "limit": FETCH_ROWS, "partition": partition}
            page = self._client.run(Call("POST", path, _KeptPage, body))
            for record in page.records:
                yield record.data
            from_seq = page.next_from_seq
            if page.caught_up:
                return

    def _send_rows(self, point: int, known_rows: dict[bytes, int]) -> None:
        """Send the difference between the rows of the snapshot and the rows already in the topic (key to digest)."""
        columns = [
            name
            for (name,) in self._connection.execute(
                "SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
                "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s "
                "AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum",
                [self._schema, self._table],
            ).fetchall()
        ]
        number = 0
        now = self._connection.execute("SELECT (extract(epoch FROM now()) * 1000)::bigint").fetchone()
        assert now is not None
        about = {
            "name": f"{self._source}:snapshot",
            "snapshot": True,
            "lsn": lsn_text(point),
            "table": self.options.table,
        }
        for row in self._rows(columns):
            self.progress.snapshot_rows += 1
            key = {name: row[name] for name in self._key}
            before = known_rows.pop(_encode_sorted(key), None)
            op = "insert" if before is None else "update"
            if before == _digest(row):
                continue
            number += 1
            self._add({"op": op, "ts": now[0], "key": key, "after": row, "source": about, "position": [point, number]})
        for text in known_rows:
            number += 1
            gone = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            self._add({"op": "delete", "ts": now[0], "key": gone, "source": about, "position": [point, number]})
        self._send()

    def _rows(self, columns: list[str]) -> Iterator[dict[str, Any]]:
        names = sql.SQL(", ").join([sql.Identifier(name) for name in columns])
        table = sql.Identifier(self._schema, self._table)
        self._connection.execute(
            sql.SQL("DECLARE topics_rows NO SCROLL CURSOR FOR SELECT {} FROM {}").format(names, table)
        )
        while True:
            result = self._connection.execute(f"FETCH {FETCH_ROWS} FROM topics_rows").pgresult
            assert result is not None
            if not result.ntuples:
                return
            oids = [result.ftype(column) for column in range(result.nfields)]
            for at in range(result.ntuples):
                # The text form of each value, the same as in the log of changes.
                yield {
                    name: json_value(result.get_value(at, column), oids[column], self._type)
                    for column, name in enumerate(columns)
                }

    # Following

    def step(self) -> int:
        """Send about PEEK_CHANGES changes of the slot, up to the end of a transaction, and return how many were sent.

        `progress.caught_up` says whether the slot has no more changes.
        """
        before = self.progress.sent + self.progress.duplicates
        flushed, confirmed = self._place()
        end = 0
        messages = 0
        transaction: Begin | None = None
        index = 0
        relations: dict[int, Relation] = {}
        with self._connection.transaction():
            for data in self._peek():
                messages += 1
                message = decode(data)
                if isinstance(message, Begin):
                    transaction, index = message, 0
                elif isinstance(message, CommitMade):
                    end = message.end_lsn
                elif isinstance(message, Relation):
                    relations[message.oid] = message
                elif message is not None:
                    assert transaction is not None, "a change outside of a transaction"
                    events = self._events(message, relations)
                    for number, event in enumerate(events, index + 1):
                        self._add(self._placed(event, transaction, number))
                    index += len(events)
        self._send()
        self.progress.caught_up = messages < PEEK_CHANGES
        # A peek that reached the end has seen every change committed before it began.
        target = max(end, flushed) if self.progress.caught_up else end
        if target > confirmed:
            self._connection.execute(
                "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [self._slot, lsn_text(target)]
            )
        if self.progress.caught_up and not self._is_captured():
            # The slot has the changes of the former table only, and they are sent. The rows of the new table need a snapshot.
            self._capture_table()
        self.progress.lag_bytes = self._lag()
        return self.progress.sent + self.progress.duplicates - before

    def _is_captured(self) -> bool:
        """Whether the table of this name is still the one whose snapshot was sent, and the publication contains it."""
        same = self._catalog.execute(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.oid = %s AND n.nspname = %s AND c.relname = %s",
            [self._oid, self._schema, self._table],
        ).fetchone()
        return same is not None and self._is_published()

    def _is_published(self) -> bool:
        """Raises Conflict when the publication contains the table but leaves out some of its changes."""
        # The view covers every way in which a table can belong to a publication, but lists partitions in place of their root
        # when these are published under their own names. `r` is read as JSON: before PostgreSQL 15 it has neither column.
        row = self._catalog.execute(
            "SELECT r.prrelid IS NOT NULL OR p.puballtables OR EXISTS (SELECT 1 FROM pg_publication_tables t "
            "WHERE t.pubname = p.pubname AND t.schemaname = n.nspname AND t.tablename = c.relname), "
            "p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, p.pubviaroot OR c.relkind <> 'p', "
            "to_jsonb(r) ->> 'prqual' IS NULL, to_jsonb(r) ->> 'prattrs' IS NULL "
            "FROM pg_publication p CROSS JOIN pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid "
            "WHERE p.pubname = %s AND n.nspname = %s AND c.relname = %s",
            [self._slot, self._schema, self._table],
        ).fetchone()
        if row is None or not row[0]:
            return False
        reasons = ("some operations", "changes of partitions under the name of the table", "some rows", "some columns")
        missing = [reason for reason, complete in zip(reasons, row[1:], strict=True) if not complete]
        if missing:
            raise Conflict(
                f"publication {self._slot} leaves out {missing[0]} of {self.options.table}: drop the publication, and the "
                "capture makes it again and takes a new snapshot"
            )
        return True

    def _place(self) -> tuple[int, int]:
        """Return the flushed LSN of the database and the confirmed LSN of the slot."""
        row = self._connection.execute(
            "SELECT pg_current_wal_flush_lsn()::text, confirmed_flush_lsn::text FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [self._slot],
        ).fetchone()
        if row is None:
            raise Conflict(f"the slot {self._slot} is gone; a new snapshot is needed")
        return lsn_number(row[0]), lsn_number(row[1])

    def _lag(self) -> int:
        row = self._connection.execute(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [self._slot],
        ).fetchone()
        return 0 if row is None else int(row[0])

    def _peek(self) -> Iterator[bytes]:
        with self._connection.cursor(name="topics_changes") as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(
                "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, %s, "
                "'proto_version', '1', 'publication_names', %s)",
                [self._slot, PEEK_CHANGES, self._slot],
            )
            for (data,) in cursor:
                yield bytes(data)

    def _events(self, message: RowChanged | Truncated, relations: dict[int, Relation]) -> list[dict[str, Any]]:
        if isinstance(message, Truncated):
            mine = any([self._is_mine(relations[oid]) for oid in message.relations if oid in relations])
            return [{"op": "truncate"}] if mine else []
        relation = relations[message.relation]
        if not self._is_mine(relation):
            return []
        old = None if message.old is None else self._row(relation, message.old, whole=message.old_is_whole)
        if message.new is None:
            return [{"op": "delete", "key": self._key_of(old), "before": old}]
        new = self._row(relation, message.new, whole=True)
        unchanged = [
            column.name for column, value in zip(relation.columns, message.new, strict=True) if value is UNCHANGED
        ]
        if old is not None and message.old_is_whole:
            new |= {name: old[name] for name in unchanged if name in old}
            unchanged = [name for name in unchanged if name not in old]
        more = {"unchanged": unchanged} if unchanged else {}
        key = self._key_of(new)
        if message.op == "insert":
            return [{"op": "insert", "key": key, "after": new}]
        whole_old = old if message.old_is_whole else None
        if old is not None and _encode_sorted(self._key_of(old)) != _encode_sorted(key):
            # A changed key is a delete of the old key and an insert of the new one: readers of the old key see that it is gone.
            return [
                {"op": "delete", "key": self._key_of(old), "before": old},
                {"op": "insert", "key": key, "after": new, **more},
            ]
        return [{"op": "update", "key": key, "before": whole_old, "after": new, **more}]

    def _is_mine(self, relation: Relation) -> bool:
        return (relation.namespace, relation.name) == (self._schema, self._table)

    def _row(self, relation: Relation, values: Tuple, *, whole: bool) -> dict[str, Any]:
        return {
            column.name: json_value(value, column.type_oid, self._type)
            for column, value in zip(relation.columns, values, strict=True)
            if (whole or column.in_identity) and (value is None or isinstance(value, bytes))
        }

    def _key_of(self, row: dict[str, Any] | None) -> dict[str, Any]:
        missing = [name for name in self._key if row is None or name not in row]
        if row is None or missing:
            raise Conflict(f"the key column {missing[0]} of {self.options.table} is gone; begin a new capture")
        return {name: row[name] for name in self._key}

    def _placed(self, event: dict[str, Any], transaction: Begin, index: int) -> dict[str, Any]:
        about: dict[str, Any] = {
            "name": self._source,
            "lsn": lsn_text(transaction.commit_lsn),
            "xid": transaction.xid,
            "table": self.options.table,
        }
        if "unchanged" in event:
            # Large values that the update did not change: the log omits them, so they are not in `after`.
            about["unchanged"] = event.pop("unchanged")
        position = [transaction.commit_lsn, index]
        return {**event, "ts": transaction.commit_ms, "source": about, "position": position}

    # Sending

    def _add(self, event: dict[str, Any]) -> None:
        self._batch.append(event)
        self._batch_bytes += len(msgspec.json.encode(event))
        if len(self._batch) >= BATCH_EVENTS or self._batch_bytes >= BATCH_BYTES:
            self._send()

    def _send(self) -> None:
        if not self._batch:
            return
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        sent = self._client.send_changes(self.options.known_as, batch)
        self.progress.sent += sent.appended
        self.progress.duplicates += sent.duplicates
        self.progress.refused += len(sent.refused)
        for refused in sent.refused:
            event = batch[refused.index]
            refusal = f"{event['op']} of {msgspec.json.encode(event.get('key')).decode()[:200]}: {refused.message}"
            if not self.options.skip_refused:
                raise InvalidRequest(f"the server refuses a change ({refusal})")
            self._log(f"left out: {refusal}")

    # Types

    def _type(self, oid: int) -> PgType:
        known = self._types.get(oid)
        if known is None:
            row = self._catalog.execute(
                "SELECT typtype::text, typbasetype, CASE WHEN typcategory = 'A' THEN typelem ELSE 0 END "
                "FROM pg_type WHERE oid = %s",
                [oid],
            ).fetchone()
            if row is None:
                known = PgType(oid)
            elif row[0] == "d":
                known = self._type(row[1])
            else:
                known = PgType(oid, row[2])
            self._types[oid] = known
        return known


class ReplicationConnection:
    """A connection in replication mode, for commands that exist only in the replication protocol."""

    def __init__(self, dsn: str) -> None:
        self._connection = pq.PGconn.connect(conninfo.make_conninfo(dsn, replication="database").encode())
        if self._connection.status != pq.ConnStatus.OK:
            message = self._connection.get_error_message()
            self._connection.finish()
            raise psycopg.OperationalError(message)

    def __enter__(self) -> "ReplicationConnection":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(psycopg.Error):
            self._connection.finish()

    def query(self, text: bytes) -> list[str]:
        """Run a command and return the first row of its result."""
        result = self._connection.exec_(text)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise psycopg.OperationalError(result.get_error_message())
        values = [result.get_value(0, column) for column in range(result.nfields)]
        return ["" if value is None else value.decode() for value in values]


def _replication_query(dsn: str, text: bytes) -> list[str]:
    with ReplicationConnection(dsn) as connection:
        return connection.query(text)


def slot_status(options: CaptureOptions) -> dict[str, Any]:
    """Return the position of the slot and the log it retains, without changing it."""
    with psycopg.connect(options.dsn, autocommit=True) as connection:
        row = connection.execute(
            "SELECT active, restart_lsn::text, confirmed_flush_lsn::text, wal_status, "
            "pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, "
            "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = %s",
            [options.slot_name],
        ).fetchone()
    if row is None:
        raise NotFound(f"there is no slot {options.slot_name}", code="not_found")
    names = ("active", "restart_lsn", "confirmed_flush_lsn", "wal_status", "lag_bytes", "retained_bytes")
    return {"slot": options.slot_name, **dict(zip(names, row, strict=True))}


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def _digest(row: Any) -> int:
    return xxh3_64_intdigest(_encode_sorted(row))
