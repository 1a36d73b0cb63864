"""`topics pipeline run` and `python -m topics.spark`: one driver that runs all jobs of a server and reports to it.

    topics pipeline run --checkpoint DIR [--master M] [--name N] [--trigger-ms N]

Every second it asks the server which jobs there should be and looks after those there are; every two seconds it reports. A
server that is away changes nothing: jobs try again by themselves, and what is wanted stays as it was last known.
SIGTERM, SIGINT and a stop request of the server end it: running batches are finished, and the exit status is 0.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from topics.client import Client, RetryPolicy
from topics.client.values import JobStatus, PipelineOrders
from topics.model.errors import Conflict, Forbidden, TopicsError, Unauthorized
from topics.spark.pipeline.session import DEFAULT_MASTER, NoSpark, build_session, is_submitted, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.pipeline.job import Job
    from topics.spark.pipeline.supervisor import Supervisor

PipelineState = Literal["starting", "running", "stopping", "stopped"]
LOOK_S = 0.25
ASK_S = 1.0
REPORT_S = 2.0
SHOW_S = 10.0
MAX_STOP_WAIT_S = 60.0
# Longer than the server takes to call a silent pipeline lost.
MAX_NAME_WAIT_S = 20.0
JVM_GONE = "Spark's Java process has ended"


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    started = time.time()
    try:
        url = _address(arguments.url, arguments.token)
        settings = dict([each.split("=", 1) for each in arguments.conf])
        require_spark()
        if arguments.no_ui:
            settings["spark.ui.enabled"] = "false"
        submitted = is_submitted()
        _say("starting Spark" + ("" if submitted else f" on {arguments.master or DEFAULT_MASTER}"))
        name = None if submitted else f"topics {arguments.name}"
        spark = build_session(arguments.master, name, settings, logs=not arguments.no_logs)
        _silence_py4j()
    except (NoSpark, TopicsError) as error:
        print(f"topics: {error}", file=sys.stderr)
        return 1
    # After Spark, which has a handler of its own for SIGINT.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    from topics.spark.pipeline.supervisor import Supervisor

    token = arguments.token or os.environ.get("TOPICS_TOKEN") or None
    supervisor = Supervisor(spark, url, token, arguments.checkpoint, arguments.trigger_ms)
    # Short and without a second try: this loop comes back soon enough by itself.
    with Client(url, token, timeout_s=5.0, retry=RetryPolicy(attempts=1)) as client:
        started_ts = int(started * 1000)
        pipeline = Pipeline(
            arguments.name,
            str(spark.sparkContext.master),
            started_ts,
            client,
            supervisor,
            stop,
            lambda: _jvm_runs(spark),
            stop_spark=lambda: _stop_spark(spark),
        )
        return pipeline.run()


def _stop_spark(spark: "SparkSession") -> None:
    try:
        spark.stop()
    except Exception:  # noqa: BLE001 - the JVM is gone, so it has stopped
        pass


class Pipeline:
    """The loop of the driver."""

    def __init__(
        self,
        name: str,
        master: str,
        started_ts: int,
        client: Client,
        supervisor: "Supervisor",
        stop: threading.Event,
        jvm_runs: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        stop_spark: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._master = master
        self._started_ts = started_ts
        self._client = client
        self._supervisor = supervisor
        self._stop = stop
        self._jvm_runs = jvm_runs
        self._clock = clock
        # Called before the pipeline reports that it has stopped: no batch runs after that report.
        self._stop_spark = stop_spark
        self._screen = Screen(sys.stderr)
        self._away: str | None = None
        self._hidden = 0

    def run(self) -> int:
        """Run until a stop is requested. Returns the exit status: 1 when Spark is gone or another run has the name."""
        if not self._take_name():
            self._stop_spark()
            return 1
        asked = reported = shown = -1e9
        self._screen.line(f'pipeline "{self._name}" runs; stop it with SIGTERM or topics pipeline stop {self._name}')
        while not self._stop.is_set():
            now = self._clock()
            try:
                if now - asked >= ASK_S:
                    asked = now
                    self._ask()
                self._supervisor.look()
                if now - reported >= REPORT_S:
                    reported = now
                    if self._report("running"):
                        self._screen.line("stop requested")
                        break
                if now - shown >= self._screen.every_s:
                    shown = now
                    self._screen.show(self._supervisor.statuses())
            except Exception as error:
                if not jvm_is_gone(error):
                    raise
                return self._give_up()
            if not self._jvm_runs():
                return self._give_up()
            self._stop.wait(LOOK_S)
        self._screen.line("stopping: running batches are finished first")
        self._report("stopping")
        try:
            self._supervisor.stop(MAX_STOP_WAIT_S)
        except Exception as error:
            if not jvm_is_gone(error):
                raise
        self._screen.show(self._supervisor.statuses())
        self._screen.keep()
        self._stop_spark()
        self._report("stopped")
        self._screen.line("stopped")
        return 0

    def _take_name(self) -> bool:
        """Report for the first time. False when another pipeline of this name is up and stays up.

        A run that was killed is up for the server until it has been silent for some time, so this waits for that.
        """
        deadline = self._clock() + MAX_NAME_WAIT_S
        waiting = False
        while not self._stop.is_set():
            try:
                self._send_report("starting")
            except Conflict as error:
                if self._clock() >= deadline:
                    self._screen.line(f"{error}; stop it, or choose another --name")
                    return False
                if not waiting:
                    waiting = True
                    self._screen.line(f"{error}; waiting up to {MAX_NAME_WAIT_S:g} s for it to end")
                self._stop.wait(LOOK_S)
            except TopicsError:
                # Reported when the server answers; until then the pipeline goes on with what it knows.
                return True
            else:
                return True
        return True

    def _give_up(self) -> int:
        self._supervisor.give_up(JVM_GONE)
        self._stop_spark()
        self._report("stopped")
        self._screen.show(self._supervisor.statuses())
        self._screen.keep()
        self._screen.line(f"{JVM_GONE}; start the pipeline again, it goes on where its checkpoint says")
        return 1

    def _ask(self) -> None:
        try:
            wanted, hidden = all_jobs(self._client)
        except TopicsError as error:
            if self._away != str(error):
                self._away = str(error)
                self._screen.line(f"the server does not say what to do: {error}")
            return
        self._away = None
        if hidden != self._hidden:
            self._hidden = hidden
            self._screen.line(f"routes to topics that this key may not touch, and which are not run: {hidden}")
        for line in self._supervisor.want(wanted, MAX_STOP_WAIT_S):
            self._screen.line(line)

    def _report(self, state: PipelineState) -> bool:
        """Whether the pipeline has to stop: the server says so, or another run has taken its name."""
        try:
            return self._send_report(state).stop
        except Conflict as error:
            self._screen.line(str(error))
            return True
        except TopicsError as error:
            if isinstance(error, Unauthorized | Forbidden):
                self._screen.line(f"cannot report: {error}")
            return False

    def _send_report(self, state: PipelineState) -> PipelineOrders:
        return self._client.report_pipeline(
            self._name, state, self._supervisor.statuses(), master=self._master, started_ts=self._started_ts
        )


def all_jobs(client: Client) -> "tuple[list[Job], int]":
    """Everything that the server wants done, and how many routes the key may not see. Raises what the client raises."""
    from topics.spark.archive.job import archive_jobs
    from topics.spark.delta.feed import feed_jobs
    from topics.spark.routing.job import route_jobs

    routes = client.routes()
    columns = {table.table: table.columns for table in client.tables()}
    return [*route_jobs(routes.routes, columns), *feed_jobs(client), *archive_jobs(client)], routes.hidden


def jvm_is_gone(error: BaseException) -> bool:
    """Whether an error means that Spark's Java process has ended."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return isinstance(error, Py4JNetworkError | ConnectionError)


class Screen:
    """The output: a table that is redrawn in place on a terminal, elsewhere a line for each job that has changed."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._drawn = 0
        self._last: dict[str, tuple[object, ...]] = {}
        self.every_s = 1.0 if self._terminal else SHOW_S

    def line(self, text: str) -> None:
        self._erase()
        print(f"topics: {text}", file=self._out, flush=True)

    def show(self, statuses: list[JobStatus]) -> None:
        if self._terminal:
            self._erase()
            lines = fitted([shown(status) for status in statuses], self._size())
            self._out.write("".join([f"{line}\n" for line in lines]))
            self._drawn = len(lines)
            self._out.flush()
            return
        for status in statuses:
            now = (status.state, status.error, status.last_batch, status.lag)
            if self._last.get(status.name) != now:
                self._last[status.name] = now
                self.line(shown(status))

    def keep(self) -> None:
        """Do not erase what is shown now."""
        self._drawn = 0

    def _size(self) -> tuple[int, int]:
        """Columns and lines of the terminal, which can change at any time."""
        try:
            columns, lines = os.get_terminal_size(self._out.fileno())
        except OSError:
            columns = lines = 0
        # 0 when the terminal does not know its size.
        return columns or 80, lines or 24

    def _erase(self) -> None:
        if self._drawn:
            # From the first column: the terminal may have shown a ^C at the beginning of the line.
            self._out.write(f"\r\x1b[{self._drawn}A\x1b[J")
            self._drawn = 0


def fitted(lines: list[str], size: tuple[int, int]) -> list[str]:
    """As much of them as the terminal can show without scrolling or wrapping: otherwise they could not be erased again."""
    columns, rows = size
    room = max(1, rows - 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"... and {len(lines) - room + 1} more: topics pipeline status shows all"]
    return [_cut(line, columns - 1) for line in lines]


def _cut(text: str, columns: int) -> str:
    """The beginning of the text, at most `columns` wide, without characters that move the cursor."""
    cut, wide = "", 0
    for sign in text:
        if not sign.isprintable():
            sign = "?"
        wide += 0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        if wide > columns:
            break
        cut += sign
    return cut


def shown(status: JobStatus) -> str:
    lag = "?" if status.lag is None else f"{status.lag:,}"
    batch = "-" if status.last_batch is None else f"{status.last_batch} in {status.batch_ms or 0:.0f} ms"
    text = f"{status.name}: {status.state}, {status.rows:,} rows, {status.rows_per_s:,.0f}/s, lag {lag}, batch {batch}"
    if status.restarts:
        text += f", {status.restarts} restarts"
    troubles = status.notes.get("troubles")
    if troubles:
        text += f", {troubles} {'route' if troubles == 1 else 'routes'} in trouble"
    return f"{text}: {status.error}" if status.error else text


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="topics pipeline run", description="Run routes, Delta feeds and archives of a server on Spark."
    )
    parser.add_argument("--url", help="the server; otherwise TOPICS_URL, otherwise http://127.0.0.1:4000")
    parser.add_argument("--token", help="the API key; otherwise TOPICS_TOKEN (which no process list shows)")
    parser.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="a directory or URI that outlives the driver"
    )
    parser.add_argument("--master", help="any Spark master; otherwise that of spark-submit, otherwise local[*]")
    parser.add_argument("--no-ui", action="store_true", help="turn Spark's web page off")
    parser.add_argument("--no-logs", action="store_true", help="turn Spark's log off")
    parser.add_argument("--name", default="main", help="what the server calls this pipeline; otherwise main")
    parser.add_argument(
        "--trigger-ms", type=_whole, default=0, help="minimum milliseconds between two batches; default 0"
    )
    parser.add_argument(
        "--conf", action="append", default=[], type=_setting, metavar="KEY=VALUE", help="a setting of Spark; repeatable"
    )
    return parser


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of milliseconds")
    return int(text)


def _setting(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError("a setting of Spark is written key=value")
    return text


def _silence_py4j() -> None:
    """Keep the stacks that py4j and Spark print when the JVM has ended out of the output: the pipeline reports it in one line."""
    from pyspark import accumulators

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # Some of its messages go through the root logger.
    logging.getLogger().addFilter(is_not_of_py4j)
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(accumulators, name, None)
        if server is not None:
            server.handle_error = lambda *_: None


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _jvm_runs(spark: "SparkSession") -> bool:
    """Whether Spark's Java process answers."""
    try:
        spark.conf.get("spark.app.id", None)
    except Exception as error:
        if jvm_is_gone(error):
            return False
        raise
    return True


def _address(url: str | None, token: str | None) -> str:
    with Client(url, token) as client:
        return client.url


def _say(text: str) -> None:
    print(f"topics: {text}", file=sys.stderr, flush=True)
