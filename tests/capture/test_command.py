"""`topics capture postgres` in a real terminal and in a pipe."""

from pathlib import Path

import pytest

from tests.capture.conftest import Database
from tests.cli.cases import CAPTURE_CASES, Case, check_pipe, check_terminal, prepare
from tests.cli.terminal import clean_environment, in_pipe, in_terminal

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def tables(database: Database) -> None:
    with database.connect() as connection:
        for mode in ("terminal", "pipe"):
            connection.execute(f"CREATE TABLE case_{mode} (id bigint PRIMARY KEY)")
            connection.execute(f"INSERT INTO case_{mode} VALUES (1), (2)")


@pytest.mark.parametrize("case", CAPTURE_CASES, ids=lambda case: case.line)
@pytest.mark.parametrize("mode", ["terminal", "pipe"])
def test_capture_command(case: Case, mode: str, database: Database, server: str, tmp_path: Path) -> None:
    arguments = prepare(case, mode, tmp_path, server, dsn=database.dsn.replace(" ", "\u00a0"))
    environment = clean_environment(TOPICS_URL=server)
    if mode == "terminal":
        check_terminal(case, *in_terminal(arguments, environment))
    else:
        check_pipe(case, in_pipe(arguments, environment))
