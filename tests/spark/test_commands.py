"""The commands that start Spark, in a real terminal and in a pipe."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cases import SPARK_CASES, Case, check_pipe, check_terminal, prepare
from tests.cli.terminal import TOPICS, Terminal, clean_environment, in_pipe, in_terminal
from tests.served import server_settings
from tests.spark.conftest import python_path
from topics.client import Client
from topics.testing.server import running_server

# A JVM starts slowly on a machine with other work.
SPARK_PATIENCE_S = 300.0
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2 * SPARK_PATIENCE_S)]
TABLE = "shop.orders"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server of its own, because a pipeline runs all jobs of its server: a table with two changes and a route."""
    with running_server(server_settings(tmp_path_factory.mktemp("data"))) as url, Client(url) as client:
        client.create("orders.copy")
        client.sql(f'ALTER TOPIC "orders.copy" ADD SOURCE "{TABLE}" ON INSERT WITH (payload = \'full\')')
        changes = [{"op": "insert", "after": {"id": number}} for number in (1, 2)]
        client.send_changes(TABLE, changes, key_columns=["id"])
        yield client


@pytest.fixture
def environment(own: Client) -> dict[str, str]:
    return clean_environment(TOPICS_URL=str(own.url), PYTHONPATH=python_path())


# A JVM takes as long to start as many other tests: `make test` has each command once and each mode once.
CASES = [
    pytest.param(case, mode, id=f"{case.line}-{mode}", marks=[] if (at + number) % 2 == 0 else [pytest.mark.long])
    for number, case in enumerate(SPARK_CASES)
    for at, mode in enumerate(["terminal", "pipe"])
]


@pytest.mark.parametrize(("case", "mode"), CASES)
def test_command_on_spark(case: Case, mode: str, own: Client, environment: dict[str, str], tmp_path: Path) -> None:
    arguments = prepare(case, mode, tmp_path, str(own.url), table=TABLE)
    if mode == "terminal":
        check_terminal(case, *in_terminal(arguments, environment, patience_s=SPARK_PATIENCE_S))
    else:
        check_pipe(case, in_pipe(arguments, environment, patience_s=SPARK_PATIENCE_S))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["terminal", "pipe"])
def test_pipeline_run_ends_when_pipeline_stop_asks_for_it(
    mode: str, own: Client, environment: dict[str, str], tmp_path: Path
) -> None:
    run = ["pipeline", "run", "--checkpoint", str(tmp_path), "--name", mode, "--master", "local[2]"]
    run += ["--no-ui", "--no-logs"]
    stop = ["pipeline", "stop", mode, "--wait-s", "60"]
    if mode == "terminal":
        with Terminal(run, environment, patience_s=SPARK_PATIENCE_S) as terminal:
            terminal.expect(f"route {TABLE}: running, 2 rows")
            code, text = in_terminal(stop, environment, patience_s=SPARK_PATIENCE_S)
            assert (code, f"pipeline {mode} stopped" in text) == (0, True)
            assert terminal.wait() == 0
        assert "topics: stopped" in terminal.text
    else:
        process = subprocess.Popen([*TOPICS, *run], env=environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            output = ""
            while f'pipeline "{mode}" runs' not in output:
                line = process.stderr.readline()
                assert line, output
                output += line
            done = in_pipe(stop, environment, patience_s=SPARK_PATIENCE_S)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout == f'{{"pipeline":"{mode}","outcome":"stopped"}}\n'
            output += process.stderr.read()
            assert process.wait(SPARK_PATIENCE_S) == 0
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
            process.stderr.close()
        assert "topics: stopped" in output
        assert "\x1b" not in output
