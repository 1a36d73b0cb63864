"""SELECT in its own process: what it can do, what it cannot reach, and that it always comes back."""

import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.model.errors import InvalidRequest, Unavailable
from topics.sql.select import MAX_ROWS, Column, Reply, Request, SelectProcess, Table

TABLE = Table(
    "topics",
    [Column("name", "VARCHAR"), Column("count", "UBIGINT"), Column("share", "DOUBLE"), Column("live", "BOOLEAN")],
    [("a", 1, 0.5, True), ("b", 2**64 - 1, None, False), (None, None, None, None)],
)


@pytest.fixture(scope="module")
def process() -> Iterator[SelectProcess]:
    process = SelectProcess()
    yield process
    process.close()


def ask(process: SelectProcess, text: str, *params: str | int | float | bool | None, seconds: float = 20) -> Reply:
    return process.run(Request(text, list(params), [TABLE]), seconds)


def test_rows_come_in_the_order_and_with_the_types_of_the_columns(process: SelectProcess) -> None:
    reply = ask(process, "SELECT * FROM main.topics ORDER BY name NULLS LAST")
    assert reply.columns == ["name", "count", "share", "live"]
    assert reply.rows == [["a", 1, 0.5, True], ["b", 2**64 - 1, None, False], [None] * 4]


def test_parameters_are_bound(process: SelectProcess) -> None:
    assert ask(process, "SELECT count(*) FROM main.topics WHERE name = ?", "a' OR 'x' = 'x").rows == [[0]]
    assert ask(process, "SELECT $2, $1", "a", 5).rows == [[5, "a"]]


def test_values_that_json_does_not_know_have_their_nearest_form(process: SelectProcess) -> None:
    text = "SELECT sum(count) * 10, 1.5, DATE '2026-01-01', 'x'::BLOB, [1, NULL], {'a': 1}, 'nan'::DOUBLE, 'inf'::FLOAT FROM main.topics"
    assert ask(process, text).rows == [[str((2**64) * 10), 1.5, "2026-01-01", "eA==", [1, None], {"a": 1}, None, None]]


@pytest.mark.parametrize(
    "text",
    ["SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM glob('/*')",
     "SELECT * FROM '/etc/passwd'", "SELECT * FROM read_parquet('https://127.0.0.1/x')", "COPY (SELECT 1) TO '/tmp/x'",
     "ATTACH '/tmp/x.db'", "INSTALL httpfs", "LOAD httpfs", "SET threads = 4", "SET enable_external_access = true", "RESET lock_configuration",
     "PRAGMA version", "CREATE TABLE x (a INT)", "INSERT INTO main.topics VALUES ('x', 1, 1, true)", "DROP TABLE main.topics",
     "EXPORT DATABASE '/tmp/x'", "CALL pragma_version()", "SELECT 1; SELECT 2", "", "EXPLAIN ANALYZE SELECT 1", "BEGIN",
     "SELECT * FROM reply", "SELECT * FROM request"],
)  # fmt: skip
def test_files_network_settings_and_changes_are_out_of_reach(process: SelectProcess, text: str) -> None:
    with pytest.raises(InvalidRequest):
        ask(process, text)
    assert ask(process, "SELECT count(*) FROM main.topics").rows == [[3]]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SelectProcess]:
    """The child of a server that runs in `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    process = SelectProcess()
    yield process
    process.close()


@pytest.mark.parametrize("name", [".tmp/notes", ":memory:", ":memory:.wal"])
def test_files_beside_the_server_are_out_of_reach(elsewhere: SelectProcess, tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("secret")
    for query in (f"SELECT content FROM read_text('{name}')", f"SELECT * FROM glob('{name}')"):
        try:
            assert ask(elsewhere, query).rows == []
        except InvalidRequest:
            pass
    with pytest.raises(InvalidRequest):
        ask(elsewhere, f"SELECT content FROM read_text('{file}')")


def test_a_query_that_needs_more_memory_writes_no_files(elsewhere: SelectProcess, tmp_path: Path) -> None:
    text = "SELECT count(DISTINCT a.range * b.range) FROM range(10000) a, range(10000) b"
    with pytest.raises(InvalidRequest, match=r"^Out of Memory Error: [^\n]*$"):
        elsewhere.run(Request(text, [], [], memory_mb=32), 20)
    assert list(tmp_path.iterdir()) == []


def test_an_error_has_no_path_of_the_server(elsewhere: SelectProcess, tmp_path: Path) -> None:
    settings = str(ask(elsewhere, "SELECT * FROM duckdb_settings()").rows)
    assert str(tmp_path) not in settings
    home = str(Path.home())
    assert home == "/" or home not in settings


@pytest.mark.parametrize(
    "text",
    ["SELECT repeat('x', 2000000000)", "SELECT list(range) FROM range(1000000000)", "SELECT string_agg(repeat('x', 1000000), '') FROM range(5000)",
     "WITH RECURSIVE t(s) AS (SELECT 'xxxxxxxx' UNION ALL SELECT s || s FROM t WHERE length(s) < 4000000000) SELECT max(length(s)) FROM t",
     "SELECT " + "+".join(["1"] * 20000)],
)  # fmt: skip
def test_memory_is_bounded(process: SelectProcess, text: str) -> None:
    with pytest.raises(InvalidRequest):
        ask(process, text)
    assert ask(process, "SELECT 1").rows == [[1]]


def test_time_is_bounded_and_the_next_query_is_served(process: SelectProcess) -> None:
    with pytest.raises(InvalidRequest, match=r"longer than 0\.2 seconds"):
        ask(process, "SELECT count(*) FROM range(100000000000) a, range(1000000) b", seconds=0.2)
    assert ask(process, "SELECT 1").rows == [[1]]


def test_the_answer_is_bounded(process: SelectProcess) -> None:
    assert len(ask(process, f"SELECT * FROM range({MAX_ROWS})").rows) == MAX_ROWS
    with pytest.raises(InvalidRequest, match="LIMIT"):
        ask(process, f"SELECT * FROM range({MAX_ROWS + 1})")
    with pytest.raises(InvalidRequest, match="bytes"):
        ask(process, "SELECT repeat('x', 30000000)")


def test_an_error_has_the_words_of_the_query(process: SelectProcess) -> None:
    with pytest.raises(InvalidRequest, match="nothing"):
        ask(process, "SELECT nothing FROM main.topics")
    with pytest.raises(InvalidRequest, match=r"system\.topics"):
        ask(process, "SELECT nothing FROM main.topics WHERE main.topics.name = 1")


def test_a_worker_that_died_between_two_queries_is_replaced(process: SelectProcess) -> None:
    ask(process, "SELECT 1")
    killed = process.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
    assert ask(process, "SELECT 1").rows == [[1]]
    assert process.pid != killed


def test_a_worker_that_hangs_is_killed_and_replaced(process: SelectProcess) -> None:
    ask(process, "SELECT 1")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    rows: list[tuple[str | int | float | bool | None, ...]] = [("x" * 1000, 1, 0.5, True)] * 1000
    with pytest.raises(InvalidRequest, match=r"longer than 0\.2 seconds"):
        process.run(Request("SELECT 1", [], [Table("topics", TABLE.columns, rows)]), 0.2)
    assert ask(process, "SELECT 1").rows == [[1]]


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """All descriptors below 1,024 are in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    opened = [os.open("/dev/null", os.O_RDONLY)]
    while opened[-1] < 1100:
        opened.append(os.dup(opened[0]))
    yield
    for each in opened:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_queries_run_with_more_than_1024_open_descriptors() -> None:
    process = SelectProcess()
    try:
        assert ask(process, "SELECT 1").rows == [[1]]
        assert ask(process, "SELECT 2").rows == [[2]]
    finally:
        process.close()


def test_a_worker_that_cannot_be_started_is_an_error_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    process = SelectProcess()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(Unavailable, match="cannot be started"):
            ask(process, "SELECT 1")
        patch.setattr(sys, "executable", "/bin/true")
        with pytest.raises(Unavailable, match="cannot be started"):
            ask(process, "SELECT 1")
    try:
        assert ask(process, "SELECT 1").rows == [[1]]
    finally:
        process.close()


def test_a_closed_process_runs_nothing() -> None:
    process = SelectProcess()
    process.close()
    with pytest.raises(Unavailable):
        ask(process, "SELECT 1")
