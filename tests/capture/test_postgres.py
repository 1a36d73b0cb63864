"""Every change of a PostgreSQL table is in its change topic once and in order, after any failure."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.capture.conftest import Database
from topics.capture import postgres
from topics.capture.postgres import CaptureOptions, PostgresCapture, slot_status
from topics.client import Client, Record, ServerUnreachable
from topics.model.errors import Conflict, InvalidRequest, NotFound

pytestmark = pytest.mark.slow
_numbers = itertools.count(1)


class Watched:
    """A table with a capture that can be begun again and again."""

    def __init__(self, database: Database, client: Client, columns: str) -> None:
        self.database = database
        self.client = client
        self.name = f"public.t{next(_numbers)}"
        self.options = CaptureOptions(database.dsn, self.name)
        with database.connect() as connection:
            connection.execute(f"CREATE TABLE {self.name} ({columns})")

    def sql(self, *statements: str) -> None:
        """All statements in one transaction."""
        with psycopg.connect(self.database.dsn) as connection:
            for statement in statements:
                connection.execute(statement.format(t=self.name))  # type: ignore[call-overload]

    def capture(self, client: Any = None, **options: Any) -> PostgresCapture:
        """One run of the capture, until it has caught up."""
        chosen = CaptureOptions(self.database.dsn, self.name, **options)
        with PostgresCapture(chosen, client or self.client) as capture:
            capture.prepare()
            for _ in range(100):
                capture.step()
                if capture.progress.caught_up:
                    return capture
        raise AssertionError("never caught up")

    def changes(self) -> list[dict[str, Any]]:
        return [each.data for each in self.client.read(f"changes:{self.name}") if isinstance(each, Record)]

    def events(self) -> list[tuple[Any, ...]]:
        """The op, the key and the new value of column n of each change."""
        return [
            (
                each["op"],
                None if each["key"] is None else each["key"]["id"],
                None if each["after"] is None else each["after"].get("n"),
            )
            for each in self.changes()
        ]

    def rows(self) -> dict[int, Any]:
        with self.database.connect() as connection:
            return dict(connection.execute(f"SELECT id, n FROM {self.name}").fetchall())  # type: ignore[call-overload]

    def replayed(self) -> dict[int, Any]:
        """What the changes make of an empty table. No insert meets a row, no update or delete misses one."""
        rows: dict[int, Any] = {}
        for op, key, n in self.events():
            if op == "truncate":
                rows.clear()
            elif op == "delete":
                del rows[key]
            else:
                assert (key in rows) == (op == "update"), (op, key)
                rows[key] = n
        return rows

    def drop(self) -> None:
        with self.database.connect() as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                [self.options.slot_name],
            )


@pytest.fixture
def watch(database: Database, client: Client) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def make(columns: str = "id int PRIMARY KEY, n int") -> Watched:
        made.append(Watched(database, client, columns))
        return made[-1]

    yield make
    for each in made:
        each.drop()


def test_a_snapshot_and_then_every_change(watch: Callable[..., Watched]) -> None:
    table = watch()
    table.sql("INSERT INTO {t} SELECT g, g FROM generate_series(1, 3) g")
    assert table.capture().progress.snapshot_rows == 3
    assert table.events() == [("insert", 1, 1), ("insert", 2, 2), ("insert", 3, 3)]
    assert all([change["source"]["snapshot"] for change in table.changes()])
    table.sql("INSERT INTO {t} VALUES (4, 4)", "UPDATE {t} SET n = 40 WHERE id = 4")
    table.sql("UPDATE {t} SET id = 5 WHERE id = 4", "DELETE FROM {t} WHERE id = 1")
    table.sql("TRUNCATE {t}")
    table.sql("INSERT INTO {t} VALUES (1, NULL)")
    progress = table.capture().progress
    assert table.events()[3:] == [
        ("insert", 4, 4),
        ("update", 4, 40),
        ("delete", 4, None),
        ("insert", 5, 40),
        ("delete", 1, None),
        ("truncate", None, None),
        ("insert", 1, None),
    ]
    assert (progress.sent, progress.snapshot_rows, progress.duplicates) == (7, 0, 0)
    last = table.changes()[-1]
    assert "snapshot" not in last["source"]
    assert last["source"]["table"] == table.name
    assert abs(last["ts"] - table.client.info(f"changes:{table.name}").last_write_ts) < 60_000  # type: ignore[operator]
    assert table.capture().progress.sent == 0


def test_snapshot_and_changes_encode_types_alike(watch: Callable[..., Watched], database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('glad'); CREATE DOMAIN positive AS int CHECK (value > 0)")
    table = watch(
        "id bigint PRIMARY KEY, price numeric(30, 12), at timestamptz, local timestamp, j json, jb jsonb, tags text[], "
        "grid int[], raw bytea, ok boolean, x float8, padded char(5), mood mood, positive positive, u uuid, nothing text, "
        "made int GENERATED ALWAYS AS (1) STORED"
    )
    values = (
        "12345678901234567.123456789012, '2026-01-02 03:04:05.5+02', '2026-01-02 03:04:05', '{{\"a\": 1.10}}', "
        "'{{\"b\": [null]}}', ARRAY['a', 'b,c', NULL, '\"q\"'], '{{{{1,2}},{{3,4}}}}', '\\xdeadbeef', true, 'NaN', 'ab', 'glad', 7, "
        "'6b3e1a8e-0000-4000-8000-000000000001', NULL"
    )
    table.sql(f"INSERT INTO {{t}} VALUES (9007199254740993, {values})")
    table.capture()
    table.sql(f"INSERT INTO {{t}} VALUES (9007199254740994, {values})")
    table.capture()
    first, second = [change["after"] for change in table.changes()]
    assert (first.pop("id"), second.pop("id")) == (9007199254740993, 9007199254740994)
    assert first == second
    raw = table.client.diff_arrow(f"changes:{table.name}")
    assert raw.count(b'"price":12345678901234567.123456789012') == 2, "not a digit is lost"
    del first["price"]
    assert first == {
        "at": "2026-01-02T01:04:05.5Z",
        "local": "2026-01-02T03:04:05",
        "j": {"a": 1.1},
        "jb": {"b": [None]},
        "tags": ["a", "b,c", None, '"q"'],
        "grid": [[1, 2], [3, 4]],
        "raw": "3q2+7w==",
        "ok": True,
        "x": "NaN",
        "padded": "ab   ",
        "mood": "glad",
        "positive": 7,
        "u": "6b3e1a8e-0000-4000-8000-000000000001",
        "nothing": None,
    }


def test_replica_identity_full_gives_the_row_before_and_large_values(watch: Callable[..., Watched]) -> None:
    table = watch("id int PRIMARY KEY, n int, large text")
    table.sql("ALTER TABLE {t} ALTER large SET STORAGE EXTERNAL", "INSERT INTO {t} VALUES (1, 1, repeat('x', 9000))")
    table.capture()
    table.sql("UPDATE {t} SET n = 2")
    table.sql("ALTER TABLE {t} REPLICA IDENTITY FULL", "UPDATE {t} SET n = 3")
    table.sql("DELETE FROM {t}")
    table.capture()
    _, update, full, delete = table.changes()
    assert (update["before"], update["after"]) == (None, {"id": 1, "n": 2})
    assert update["source"]["unchanged"] == ["large"], "what the log does not hold is said to be missing"
    large = "x" * 9000
    assert full["before"] == {"id": 1, "n": 2, "large": large}
    assert full["after"] == {"id": 1, "n": 3, "large": large}
    assert "unchanged" not in full["source"]
    assert delete["before"] == {"id": 1, "n": 3, "large": large}


def test_columns_come_and_go_while_it_follows(watch: Callable[..., Watched]) -> None:
    table = watch()
    table.capture()
    table.sql("INSERT INTO {t} VALUES (1, 1)")
    table.sql("ALTER TABLE {t} ADD more text DEFAULT 'x'", "INSERT INTO {t} VALUES (2, 2)")
    table.sql("ALTER TABLE {t} DROP n", "INSERT INTO {t} VALUES (3)")
    table.capture()
    assert [change["after"] for change in table.changes()] == [
        {"id": 1, "n": 1},
        {"id": 2, "n": 2, "more": "x"},
        {"id": 3, "more": "x"},
    ]


def test_a_big_transaction_is_complete_after_an_interruption(watch: Callable[..., Watched]) -> None:
    table = watch()
    table.capture()
    table.sql(
        "INSERT INTO {t} SELECT g, g FROM generate_series(1, 12000) g", "UPDATE {t} SET n = -n WHERE id % 100 = 0"
    )
    table.sql("INSERT INTO {t} VALUES (0, 0)")
    with pytest.raises(ServerUnreachable):
        table.capture(Breaking(table.client, 6, after=True))
    progress = table.capture().progress
    assert (progress.sent + progress.duplicates, progress.duplicates > 0) == (12_121, True)
    assert len(table.changes()) == 12_121
    assert table.replayed() == table.rows()


class Breaking:
    """A client whose nth write fails: before the server has run it, or after, when only the reply is lost."""

    def __init__(self, client: Client, at: int, *, after: bool) -> None:
        self._client = client
        self._left = at
        self._after = after
        self.broke = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in ("send_changes", "commit", "create"):
            return method

        def call(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left:
                return method(*arguments, **options)
            self.broke = True
            if self._after:
                method(*arguments, **options)
            raise ServerUnreachable("the server is gone")

        return call


@pytest.mark.parametrize("after", [False, True])
def test_no_change_is_lost_or_repeated_if_any_request_fails(
    watch: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr(postgres, "BATCH_EVENTS", 3)
    for step in range(1, 30):
        table = watch()
        table.sql("INSERT INTO {t} SELECT g, g FROM generate_series(1, 7) g")
        breaking = Breaking(table.client, step, after=after)
        for work in ("", "UPDATE {t} SET n = n + 10 WHERE id < 5", "DELETE FROM {t} WHERE id = 2"):
            if work:
                table.sql(work)
            try:
                table.capture(breaking)
            except ServerUnreachable:
                # The table changes while the server is unreachable.
                table.sql("UPDATE {t} SET n = n + 100 WHERE id IN (1, 7)", "INSERT INTO {t} VALUES (20, 20)")
                table.sql("DELETE FROM {t} WHERE id = 3")
                table.capture()
        assert table.replayed() == table.rows(), f"broken at step {step}"
        events = table.events()
        assert len(events) == len(set(events)), f"broken at step {step}"
        if not breaking.broke:
            break
    assert 8 < step < 29


def test_after_the_loss_of_a_slot_only_differences_are_sent(watch: Callable[..., Watched]) -> None:
    table = watch()
    table.sql("INSERT INTO {t} SELECT g, g FROM generate_series(1, 5) g")
    table.capture()
    table.drop()
    table.sql("UPDATE {t} SET n = 20 WHERE id = 2", "DELETE FROM {t} WHERE id = 3", "INSERT INTO {t} VALUES (6, 6)")
    progress = table.capture().progress
    assert (progress.snapshot_rows, progress.sent) == (5, 3)
    assert sorted(table.events()[5:], key=str) == [("delete", 3, None), ("insert", 6, 6), ("update", 2, 20)]
    assert table.replayed() == table.rows()


def test_a_deleted_change_topic_begins_with_a_snapshot_again(watch: Callable[..., Watched]) -> None:
    table = watch()
    table.sql("INSERT INTO {t} VALUES (1, 1)")
    table.capture()
    table.client.drop(f"changes:{table.name}")
    table.capture()
    assert table.events() == [("insert", 1, 1)]


def test_the_lag_of_the_slot_is_shown_and_other_tables_do_not_hold_it_back(watch: Callable[..., Watched]) -> None:
    table, other = watch(), watch()
    table.capture()
    assert slot_status(table.options)["lag_bytes"] < 10_000
    other.sql("INSERT INTO {t} SELECT g, g FROM generate_series(1, 5000) g")
    behind = slot_status(table.options)
    assert behind["lag_bytes"] > 100_000
    assert (behind["slot"], behind["active"]) == (table.options.slot_name, False)
    assert table.capture().progress.lag_bytes < 10_000
    assert slot_status(table.options)["lag_bytes"] < 10_000


def test_a_table_that_cannot_be_captured_is_refused_with_the_reason(watch: Callable[..., Watched]) -> None:
    keyless = watch("id int, n int")
    with pytest.raises(InvalidRequest, match="no primary key"):
        keyless.capture()
    with pytest.raises(InvalidRequest, match="REPLICA IDENTITY FULL"):
        keyless.capture(key=("id",))
    keyless.sql("ALTER TABLE {t} REPLICA IDENTITY FULL", "INSERT INTO {t} VALUES (1, 1)")
    keyless.capture(key=("id",))
    keyless.sql("UPDATE {t} SET id = 2")
    keyless.capture(key=("id",))
    assert keyless.events() == [("insert", 1, 1), ("delete", 1, None), ("insert", 2, 1)]
    nothing = watch()
    nothing.sql("ALTER TABLE {t} REPLICA IDENTITY NOTHING")
    with pytest.raises(InvalidRequest, match="no key"):
        nothing.capture()
    for name in ("t", "a.b.c"):
        with pytest.raises(InvalidRequest):
            PostgresCapture(CaptureOptions(nothing.database.dsn, name), nothing.client)
    with (
        pytest.raises(NotFound),
        PostgresCapture(CaptureOptions(nothing.database.dsn, "a.b"), nothing.client) as absent,
    ):
        absent.prepare()
    with pytest.raises(NotFound):
        slot_status(nothing.options)


def test_one_capture_at_a_time_uses_a_slot(watch: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "LOCK_WAIT_MS", 50)
    table = watch()
    with PostgresCapture(table.options, table.client) as first:
        first.prepare()
        with pytest.raises(Conflict, match="another capture"):
            table.capture()
    table.capture()


def test_a_change_the_server_refuses_stops_the_capture_unless_skip_refused_is_set(
    watch: Callable[..., Watched],
) -> None:
    table = watch("id int PRIMARY KEY, n int, large text")
    table.capture()
    table.sql("INSERT INTO {t} VALUES (1, 1, repeat('x', 2000000))", "INSERT INTO {t} VALUES (2, 2, '')")
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="refuses a change"):
            table.capture()
    progress = table.capture(skip_refused=True).progress
    assert (progress.refused, [key for _, key, _ in table.events()]) == (1, [2])


def test_a_table_that_was_dropped_and_created_again_is_captured_again(watch: Callable[..., Watched]) -> None:
    table = watch()
    table.sql("INSERT INTO {t} VALUES (1, 1), (2, 2), (3, 3)")
    table.capture()
    table.sql("INSERT INTO {t} VALUES (4, 4)")
    table.sql("DROP TABLE {t}", "CREATE TABLE {t} (id int PRIMARY KEY, n int)")
    table.sql("INSERT INTO {t} VALUES (2, 2), (3, 30), (5, 5)")
    progress = table.capture().progress
    assert progress.snapshot_rows == 3
    assert table.replayed() == table.rows() == {2: 2, 3: 30, 5: 5}
    table.sql("UPDATE {t} SET n = 50 WHERE id = 5")
    assert table.capture().progress.sent == 1
    assert table.replayed() == table.rows()


def test_a_table_that_is_replaced_while_it_is_followed_is_captured_again(watch: Callable[..., Watched]) -> None:
    table = watch()
    table.sql("INSERT INTO {t} VALUES (1, 1)")
    with PostgresCapture(table.options, table.client) as capture:
        capture.prepare()
        capture.step()
        table.sql("INSERT INTO {t} VALUES (2, 2)")
        table.sql(
            "CREATE TABLE {t}_new (id int PRIMARY KEY, n int)",
            "INSERT INTO {t}_new VALUES (2, 2), (3, 3)",
            "DROP TABLE {t}",
            "ALTER TABLE {t}_new RENAME TO " + table.name.partition(".")[2],
        )
        capture.step()
        table.sql("INSERT INTO {t} VALUES (4, 4)")
        capture.step()
        assert table.replayed() == table.rows() == {2: 2, 3: 3, 4: 4}
        table.sql("DROP TABLE {t}")
        with pytest.raises(NotFound, match="has no table"):
            capture.step()


def test_a_publication_without_the_table_is_repaired_with_a_new_snapshot(watch: Callable[..., Watched]) -> None:
    table = watch()
    table.capture()
    table.sql(f"ALTER PUBLICATION {table.options.slot_name} DROP TABLE {{t}}", "INSERT INTO {t} VALUES (1, 1)")
    assert table.capture().progress.snapshot_rows == 1
    table.sql("INSERT INTO {t} VALUES (2, 2)")
    table.capture()
    assert table.replayed() == table.rows() == {1: 1, 2: 2}


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER PUBLICATION {p} SET (publish = 'insert')", "some operations"),
        ("ALTER PUBLICATION {p} SET TABLE {{t}} WHERE (id > 1)", "some rows"),
        ("ALTER PUBLICATION {p} SET TABLE {{t}} (id)", "some columns"),
    ],
)
def test_a_publication_that_leaves_out_changes_is_refused_until_it_is_dropped(
    watch: Callable[..., Watched], statement: str, reason: str
) -> None:
    table = watch()
    table.sql("INSERT INTO {t} VALUES (1, 1)")
    table.capture()
    table.sql(statement.format(p=table.options.slot_name), "UPDATE {t} SET n = 2")
    with pytest.raises(Conflict, match=f"publication {table.options.slot_name} leaves out {reason}"):
        table.capture()
    table.sql(f"DROP PUBLICATION {table.options.slot_name}")
    table.capture()
    assert table.replayed() == table.rows() == {1: 2}


def test_a_partitioned_table_whose_partitions_are_published_by_their_own_names_is_refused(
    watch: Callable[..., Watched],
) -> None:
    table = watch()
    table.sql(
        "DROP TABLE {t}",
        "CREATE TABLE {t} (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE {t}_low PARTITION OF {t} FOR VALUES FROM (0) TO (100)",
        "INSERT INTO {t} VALUES (1, 1)",
    )
    table.capture()
    table.sql("INSERT INTO {t} VALUES (2, 2)")
    table.capture()
    assert table.replayed() == table.rows() == {1: 1, 2: 2}
    table.sql(f"ALTER PUBLICATION {table.options.slot_name} SET (publish_via_partition_root = false)")
    with pytest.raises(Conflict, match="leaves out changes of partitions"):
        table.capture()


def test_a_capture_started_before_table_ids_were_stored_continues_without_a_snapshot(
    watch: Callable[..., Watched],
) -> None:
    table = watch()
    table.sql("INSERT INTO {t} VALUES (1, 1)")
    table.capture()
    topic = f"changes:{table.name}"
    (kept,) = [each for each in table.changes() if each["source"]["snapshot"]]
    source = kept["source"]["name"].removesuffix(":snapshot")
    # The name under which earlier versions kept that their snapshot was whole.
    earlier = f"capture:{source}:{table.name}:{table.client.info(topic).epoch}"
    with psycopg.connect(table.database.dsn) as connection:
        oid = connection.execute("SELECT %s::regclass::oid", [table.name]).fetchone()
    assert oid is not None
    assert table.client.last_commit(f"{earlier}:{oid[0]}").batch == 2  # type: ignore[union-attr]
    other = CaptureOptions(table.database.dsn, table.name, name=f"{table.name}-other", slot=table.options.slot_name)
    topic = f"changes:{other.known_as}"
    table.client.create(topic)
    earlier = f"capture:{source}:{other.known_as}:{table.client.info(topic).epoch}"
    table.client.commit([], producer=earlier, batch=2)
    with PostgresCapture(other, table.client) as capture:
        capture.prepare()
        assert capture.progress.snapshot_rows == 0
