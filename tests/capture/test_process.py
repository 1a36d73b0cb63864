"""`topics capture postgres` as a process: whichever side is killed, every change arrives once."""

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.capture.conftest import Database
from topics.cli.main import main
from topics.client import Client, Record
from topics.model.errors import TopicsError

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 60.0
TABLE, TOPIC = "public.killed", "changes:public.killed"


class Child:
    """A `topics` command that can be killed and restarted."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self._environment = {**os.environ, **environment}
        self._arguments = [sys.executable, "-m", "topics.cli.main", *arguments]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._arguments, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[tuple[str, Child]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    server = Child({"TOPICS_PORT": port, "TOPICS_DATA_DIR": str(tmp_path / "data")}, "serve")
    yield f"http://127.0.0.1:{port}", server
    server.kill()


def test_whichever_side_is_killed_every_change_arrives_once(
    database: Database, url: tuple[str, Child], capsys: pytest.CaptureFixture[str]
) -> None:
    address, server = url
    arguments = ["postgres", "--dsn", database.dsn, "--table", TABLE, "--url", address, "--poll-ms", "10"]
    made = itertools.count(1)

    def write(transactions: int) -> int:
        """How many changes these transactions made."""
        changed = 0
        for _ in range(transactions):
            n = next(made)
            with psycopg.connect(database.dsn) as connection:
                execute = connection.execute
                changed += execute(
                    "INSERT INTO killed SELECT %s * 100 + g, 0 FROM generate_series(1, 50) g", [n]
                ).rowcount
                changed += execute("UPDATE killed SET n = %s WHERE id %% 7 = %s", [n, n % 7]).rowcount
                changed += execute("DELETE FROM killed WHERE id %% 31 = %s", [n % 31]).rowcount
        return changed

    def head() -> int:
        with suppress(TopicsError), Client(address) as client:
            return client.info(TOPIC).head_seq
        return 0

    def killed_capture() -> None:
        capture.kill()
        capture.start()

    def killed_server() -> None:
        server.kill()
        server.start()

    def killed_database() -> None:
        database.stop("immediate")
        database.start()

    with database.connect() as connection:
        connection.execute("CREATE TABLE killed (id int PRIMARY KEY, n int)")
    write(20)
    with database.connect() as connection:
        ((expected,),) = connection.execute("SELECT count(*) FROM killed").fetchall()
    capture = Child({}, "capture", *arguments)
    try:
        # Only when it follows is the number of changes to come known: a snapshot has rows, not changes.
        wait_for(lambda: head() == expected)
        expected += write(1)
        wait_for(lambda: head() == expected)
        for kill in (killed_capture, killed_server, killed_database) * 2:
            seen = head()
            expected += write(5)
            wait_for(lambda seen=seen: head() > seen)  # type: ignore[misc]
            kill()
            expected += write(5)
        wait_for(lambda: head() > 0)
    finally:
        capture.kill()
    wait_for(lambda: main(["capture", *arguments, "--once"]) == 0)
    progress = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert progress["caught_up"] is True
    assert main(["capture", *arguments, "--status"]) == 0
    assert json.loads(capsys.readouterr().out)["lag_bytes"] < 100_000
    with Client(address) as client:
        changes = [each.data for each in client.read(TOPIC) if isinstance(each, Record)]
    rows: dict[int, Any] = {}
    for change in changes:
        key = change["key"]["id"]
        if change["op"] == "delete":
            del rows[key]
        else:
            assert (key in rows) == (change["op"] == "update"), "a change is missing or there twice"
            rows[key] = change["after"]["n"]
    with database.connect() as connection:
        assert rows == dict(connection.execute("SELECT id, n FROM killed").fetchall())
        connection.execute("SELECT pg_drop_replication_slot('topics_public_killed')")
    assert len(changes) == expected
    positions = [(change["source"]["name"], *change["source"]["position"]) for change in changes]
    assert len(positions) == len(set(positions))


def test_a_missing_table_and_an_unreachable_database_are_named(
    database: Database, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["capture", "postgres", "--url", server, "--once", "--table", "public.absent", "--dsn"]
    assert main([*arguments, database.dsn]) == 3
    assert "no table public.absent" in capsys.readouterr().err
    assert main([*arguments, "host=127.0.0.1 port=1 user=postgres"]) == 5
    assert "refused" in capsys.readouterr().err
