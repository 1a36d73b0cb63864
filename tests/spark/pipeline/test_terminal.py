"""What people see of a pipeline: on a terminal, in a log, and when there is nothing to run it on."""

import fcntl
import io
import json
import logging
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.served import server_settings
from tests.spark.conftest import python_path
from tests.spark.pipeline.terminal import Terminal
from topics.client import Client, JobStatus
from topics.client.values import ArchiveList, RouteList
from topics.testing.server import running_server

pytest.importorskip("pyspark")

from topics.spark.pipeline.jvm import is_not_of_py4j
from topics.spark.pipeline.run import JVM_GONE, Pipeline
from topics.spark.pipeline.screen import Screen, fitted
from topics.spark.pipeline.supervisor import Supervisor

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 150
COMMAND = [sys.executable, "-m", "topics.cli.main", "pipeline"]


def status(name: str, rows: int = 0, error: str | None = None) -> JobStatus:
    return JobStatus(f"route {name}", "route", "waiting" if error else "running", rows, error=error)


def environment_of(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(), **more}


# The screen


@pytest.fixture
def terminal() -> Terminal:
    return Terminal(60, 8)


class OnTerminal:
    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._out = os.fdopen(os.dup(terminal.device), "w")
        self.screen = Screen(self._out)

    def lines(self) -> list[str]:
        """What is on the screen at the end; the cursor is at the beginning of a line."""
        self._out.close()
        self._terminal.close()
        screen = self._terminal.screen()
        assert screen.column == 0
        return screen.lines()


@pytest.fixture
def on(terminal: Terminal) -> OnTerminal:
    return OnTerminal(terminal)


def test_redrawn_table_keeps_its_position_below_log_lines(on: OnTerminal) -> None:
    on.screen.line("begins")
    for rows in range(5):
        on.screen.show([status("a", rows), status("b", 10 * rows)])
    on.screen.line("route c: new")
    on.screen.show([status("a", 5), status("c")])
    on.screen.keep()
    on.screen.line("stopped")
    assert on.lines() == [
        "topics: begins",
        "topics: route c: new",
        "route a: running, 5 rows, 0/s, lag ?, batch -",
        "route c: running, 0 rows, 0/s, lag ?, batch -",
        "topics: stopped",
    ]


def test_what_is_too_wide_is_cut_and_never_leaves_half_a_table_behind(on: OnTerminal) -> None:
    for number in range(5):
        on.screen.show([status("a", number, "x" * 500), status("時" * 40, number), status("b", number)])
    found = on.lines()
    assert [line[:7] for line in found] == ["route a", "route 時", "route b"]
    assert all([len(line) < 60 for line in found])


def test_more_jobs_than_lines_are_counted(on: OnTerminal) -> None:
    for number in range(3):
        on.screen.show([status(f"t{index}", number) for index in range(20)])
    found = on.lines()
    assert [line.split(":")[0] for line in found[:-1]] == [f"route t{index}" for index in range(6)]
    assert found[-1] == "... and 14 more: topics pipeline status shows all"


def test_an_error_cannot_move_the_cursor(on: OnTerminal) -> None:
    for _ in range(3):
        on.screen.show([status("a", 1, "\x1b[2J\x1b[1;1Hyou are root\r\n# \x07\u202e"), status("b")])
    first, second = on.lines()
    assert "?[2J?[1;1Hyo" in first
    assert second.startswith("route b")


def test_a_ctrl_c_that_the_terminal_has_shown_leaves_nothing_behind(on: OnTerminal, terminal: Terminal) -> None:
    on.screen.show([status("a"), status("b")])
    os.write(terminal.device, b"^C")
    on.screen.line("stopping")
    assert on.lines() == ["topics: stopping"]


def test_every_size_of_a_terminal_is_kept_within() -> None:
    lines = [f"{number} " + "y" * 300 for number in range(50)]
    for columns, rows in ((1, 1), (2, 2), (10, 3), (200, 100)):
        found = fitted(lines, (columns, rows))
        assert len(found) <= max(1, rows - 1)
        assert all([len(line) < columns for line in found])


def test_without_terminal_prints_one_line_per_changed_job() -> None:
    out = io.StringIO()
    screen = Screen(out)
    for error in (None, None, "gone", "gone", None):
        screen.show([status("a", error=error)])
    lines = out.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "topics: route a: running",
        "topics: route a: waiting",
        "topics: route a: running",
    ]
    assert "\x1b" not in out.getvalue()


# Without Spark


def test_py4j_root_logger_messages_are_filtered(caplog: pytest.LogCaptureFixture) -> None:
    gateway = pytest.importorskip("py4j.java_gateway")
    said = compile("import logging; logging.error('Exception while sending command.')", gateway.__file__, "exec")
    root = logging.getLogger()
    root.addFilter(is_not_of_py4j)
    try:
        exec(said, {})
        logging.getLogger().error("another library")
    finally:
        root.removeFilter(is_not_of_py4j)
    assert caplog.messages == ["another library"]


def test_a_jvm_that_ends_is_noticed_though_there_is_nothing_to_ask_it(client: Client, topic: str) -> None:
    """Jobs may all be waiting, or there may be none at all."""
    looks = iter([True, True, False])
    supervisor = Supervisor(None, str(client.url), None, "/nowhere", 0)  # type: ignore[arg-type]
    pipeline = Pipeline(topic, "local[2]", 1, Nothing(client), supervisor, Event(), lambda: next(looks))  # type: ignore[arg-type]
    assert pipeline.run() == 1
    assert client.pipeline(topic).state == "stopped"


def test_a_second_pipeline_of_a_name_runs_nothing_and_names_the_first(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client.report_pipeline(topic, "running", master="local[4]", started_ts=1)
    monkeypatch.setattr("topics.spark.pipeline.run.MAX_NAME_WAIT_S", 0.0)
    stopped: list[bool] = []
    supervisor = Supervisor(None, str(client.url), None, "/nowhere", 0)  # type: ignore[arg-type]
    pipeline = Pipeline(
        topic,
        "local[2]",
        2,
        Nothing(client),  # type: ignore[arg-type]
        supervisor,
        Event(),
        stop_spark=lambda: stopped.append(True),
    )
    assert pipeline.run() == 1
    assert stopped == [True]
    assert "runs already: on local[4]" in capsys.readouterr().err
    assert client.pipeline(topic).started_ts == 1


class Nothing:
    """A server that wants nothing done, and hears what is reported."""

    def __init__(self, client: Client) -> None:
        self.report_pipeline = client.report_pipeline

    def routes(self) -> RouteList:
        return RouteList(0, [])

    def tables(self) -> list[Any]:
        return []

    def archives(self) -> Any:
        return ArchiveList(0, [])


# Nothing to run it on


@pytest.mark.parametrize("home", ["", "nowhere"], ids=["none", "wrong"])
@pytest.mark.parametrize("program", ["run", "demo"])
def test_without_java_one_sentence_says_so(tmp_path: Path, program: str, home: str) -> None:
    (tmp_path / "empty").mkdir()
    environment = environment_of(PATH=str(tmp_path / "empty"), TMPDIR=str(tmp_path))
    environment.pop("JAVA_HOME", None)
    if home:
        # Spark looks there and nowhere else, though there may be a Java on the path.
        environment |= {"JAVA_HOME": str(tmp_path / home), "PATH": os.environ["PATH"]}
    command = [*COMMAND, "run", "--checkpoint", str(tmp_path / "checkpoint")]
    if program == "demo":
        command = [sys.executable, str(ROOT / "tools" / "demo.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    start = "topics: " if program == "run" else "the demo cannot start: "
    if home:
        assert line == f"{start}JAVA_HOME is {tmp_path / home}, where there is no bin/java: " + (
            "set it to a Java runtime (17 or newer), or unset it"
        )
    else:
        assert line == f"{start}Spark needs a Java runtime (17 or newer): install one, or set JAVA_HOME"
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_java_that_fails_to_start_is_reported_in_one_line(tmp_path: Path) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'java: not for this machine' >&2\nexit 1\n")
    java.chmod(0o755)
    done = subprocess.run(
        [*COMMAND, "run", "--checkpoint", str(tmp_path / "checkpoint")],
        env=environment_of(JAVA_HOME=str(tmp_path / "home")),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "not for this machine" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("topics: Spark did not start on local[*]: ")
    assert "Traceback" not in done.stderr


# The whole process


class OnItsOwnTerminal:
    """`topics pipeline ...` in a terminal."""

    def __init__(self, url: str, *arguments: str, columns: int = 140, rows: int = 30) -> None:
        self.terminal = Terminal(columns, rows)
        self.process = subprocess.Popen(
            [*COMMAND, *arguments, "--url", url],
            env=environment_of(TERM="xterm"),
            stdin=self.terminal.device,
            stdout=self.terminal.device,
            stderr=self.terminal.device,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def wait_until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert self.process.poll() is None, self.terminal.written()
            assert time.monotonic() < until, self.terminal.written()
            time.sleep(0.02)

    def java(self) -> int:
        """The process that Spark runs in."""
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                    found.append(child)
        (pid,) = found
        return pid

    def end(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Client]:
    """A server of its own: a pipeline runs all that its server wants."""
    with running_server(server_settings(tmp_path / "data")) as url, Client(url) as client:
        yield client


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
@pytest.mark.parametrize("end", ["java", pytest.param("ctrl-c", marks=pytest.mark.long)])
def test_a_pipeline_on_a_terminal_shows_its_jobs_and_leaves_the_terminal_clean(
    own: Client, topic: str, tmp_path: Path, end: str
) -> None:
    """Whether it is stopped or its JVM is killed. What it was doing goes on when it is started again."""
    table = f"seen.{topic}"
    own.create(f"{table}.out")
    own.sql(f'ALTER TOPIC "{table}.out" ADD SOURCE "{table}" ON INSERT WITH (payload = \'full\')')
    own.send_changes(table, [{"op": "insert", "after": {"id": 1}}], key_columns=["id"])
    arguments = ["run", "--checkpoint", str(tmp_path / "checkpoint"), "--name", topic, "--master", "local[2]"]
    arguments += ["--no-ui", "--no-logs"]
    arguments += ["--conf", "spark.driver.memory=600m"]
    window = OnItsOwnTerminal(str(own.url), *arguments)
    try:
        window.wait_until(lambda: f"route {table}: running, 1 rows" in window.terminal.written())
        if end == "java":
            os.kill(window.java(), signal.SIGKILL)
            assert window.process.wait(60) == 1
        else:
            window.terminal.press(b"\x03")
            assert window.process.wait(60) == 0
        assert window.terminal.is_as_before()
    finally:
        window.end()
        window.terminal.close()
    screen = window.terminal.screen()
    found = screen.lines()
    assert screen.column == 0
    assert "Traceback" not in window.terminal.written()
    shown_lines = [line for line in found if line.startswith(f"route {table}: ")]
    report = own.pipeline(topic)
    (job,) = [each for each in report.jobs if each.name == f"route {table}"]
    assert report.state == "stopped"
    if end == "java":
        assert len(shown_lines) == 1
        assert shown_lines[0].startswith(f"route {table}: failed, 1 rows")
        assert found[-1] == (f"topics: {JVM_GONE}; start the pipeline again, it resumes from its checkpoint")
        assert (job.state, job.error) == ("failed", JVM_GONE)
    else:
        assert len(shown_lines) == 1
        assert shown_lines[0].startswith(f"route {table}: stopped, 1 rows")
        assert found[-1] == "topics: stopped"
        assert (job.state, job.error) == ("stopped", None)


def test_status_on_a_terminal_is_a_table_and_in_a_pipe_lines_of_json(client: Client, topic: str) -> None:
    error = "no\x1b[2J such\nluck"
    client.report_pipeline(topic, "running", [status("a", 7), status("b", 0, error)], master="local[2]", started_ts=1)
    window = OnItsOwnTerminal(str(client.url), "status", topic, columns=200)
    try:
        assert window.process.wait(60) == 0
        assert window.terminal.is_as_before()
    finally:
        window.end()
        window.terminal.close()
    screen = window.terminal.screen()
    head, first, second = screen.lines()
    assert head.split()[:4] == ["pipeline", "state", "job", "kind"]
    assert first.split()[:6] == [topic, "running", "route", "a", "route", "running"]
    assert "such" in second
    assert "luck" in second
    assert screen.column == 0
    piped = subprocess.run(
        [*COMMAND, "status", topic, "--url", str(client.url)],
        env=environment_of(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    rows: list[dict[str, Any]] = [json.loads(line) for line in piped.stdout.splitlines()]
    assert [(row["job"], row["rows"], row["error"]) for row in rows] == [("route a", 7, None), ("route b", 0, error)]
