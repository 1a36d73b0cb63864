"""`topics pipeline run`: one driver that runs everything the server asks for, and tells it how that goes.

    topics pipeline run --checkpoint DIR [--master M] [--name N] [--trigger-ms N]

Every second it asks the server which jobs there should be and looks after those there are; every two seconds it reports. A
server that is away changes nothing: jobs try again by themselves, and what is wanted stays as it was last known.
SIGTERM, SIGINT and an answer that says stop end it in good order: running batches are finished, and the exit status is 0.
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
from typing import TYPE_CHECKING, Any, TextIO

from topics.client import Client, RetryPolicy
from topics.client.values import JobStatus
from topics.model.errors import Forbidden, TopicsError, Unauthorized
from topics.spark.session import NoSpark, build_session, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.job import Job
    from topics.spark.supervisor import Supervisor

LOOK_S = 0.25
ASK_S = 1.0
REPORT_S = 2.0
SHOW_S = 10.0
STOP_PATIENCE_S = 60.0
JVM_GONE = "Spark's Java process has ended"


def run(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    started = time.time()
    try:
        url = _address(arguments.url, arguments.token)
        settings = dict([each.split("=", 1) for each in arguments.conf])
        require_spark()
        _tell(f"starting Spark on {arguments.master}")
        spark = build_session(arguments.master, f"topics {arguments.name}", settings)
        _leave_the_word_to_us(spark)
    except (NoSpark, TopicsError) as error:
        print(f"topics: {error}", file=sys.stderr)
        return 1
    # After Spark, which has a handler of its own for SIGINT.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    from topics.spark.supervisor import Supervisor

    token = arguments.token or os.environ.get("TOPICS_TOKEN") or None
    supervisor = Supervisor(spark, url, token, arguments.checkpoint, arguments.trigger_ms)
    # Short and without a second try: this loop comes back soon enough by itself.
    with Client(url, token, timeout_s=5.0, retry=RetryPolicy(attempts=1)) as client:
        started_ts = int(started * 1000)
        pipeline = Pipeline(arguments.name, arguments.master, started_ts, client, supervisor, stop, _watch_jvm(spark))
        status = pipeline.run()
    try:
        spark.stop()
    except Exception:  # noqa: BLE001 - a JVM that is gone has stopped, too
        pass
    return status


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
    ) -> None:
        self._name = name
        self._master = master
        self._started_ts = started_ts
        self._client = client
        self._supervisor = supervisor
        self._stop = stop
        self._jvm_runs = jvm_runs
        self._clock = clock
        self._screen = Screen(sys.stderr)
        self._away: str | None = None
        self._hidden = 0

    def run(self) -> int:
        """Until it is told to stop. Answers the exit status: 1 when Spark is gone."""
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
                        self._screen.line("told to stop")
                        break
                if now - shown >= self._screen.every_s:
                    shown = now
                    self._screen.show(self._supervisor.statuses())
            except Exception as error:
                if not jvm_is_gone(error):
                    raise
                return self._give_up()
            if not self._jvm_runs():
                # Nobody has to ask it anything for that: jobs may all be waiting, or there may be none.
                return self._give_up()
            self._stop.wait(LOOK_S)
        self._screen.line("stopping: running batches are finished first")
        self._report("stopping")
        try:
            self._supervisor.stop(STOP_PATIENCE_S)
        except Exception as error:
            if not jvm_is_gone(error):
                raise
        self._screen.show(self._supervisor.statuses())
        self._screen.keep()
        self._report("stopped")
        self._screen.line("stopped")
        return 0

    def _give_up(self) -> int:
        self._supervisor.give_up(JVM_GONE)
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
        for line in self._supervisor.want(wanted, STOP_PATIENCE_S):
            self._screen.line(line)

    def _report(self, state: str) -> bool:
        """Whether the server wants the pipeline to stop."""
        try:
            orders = self._client.report_pipeline(
                self._name, state, self._supervisor.statuses(), master=self._master, started_ts=self._started_ts
            )
        except TopicsError as error:
            if isinstance(error, Unauthorized | Forbidden):
                self._screen.line(f"cannot report: {error}")
            return False
        return orders.stop


def all_jobs(client: Client) -> "tuple[list[Job], int]":
    """Everything that the server wants done, and how many routes the key may not see. Raises what the client raises."""
    from topics.spark.archive import archive_jobs
    from topics.spark.delta_feed import feed_jobs
    from topics.spark.routing import route_jobs

    routes = client.routes()
    return [*route_jobs(routes.routes), *feed_jobs(client), *archive_jobs(client)], routes.hidden


def jvm_is_gone(error: BaseException) -> bool:
    """Whether an error means that there is nobody left to talk to."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return isinstance(error, Py4JNetworkError | ConnectionError)


class Screen:
    """What people see: a table that stays in its place on a terminal, a line for each job now and then elsewhere."""

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
        """What stands there now stays."""
        self._drawn = 0

    def _size(self) -> tuple[int, int]:
        """Asked each time: people change the size of their windows."""
        try:
            columns, lines = os.get_terminal_size(self._out.fileno())
        except OSError:
            columns = lines = 0
        # A terminal that does not know says 0.
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
    """The beginning of the text that is so wide at most. What comes from elsewhere does not move the cursor."""
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="topics pipeline run", description="Run routes, Delta feeds and archives of a server on Spark."
    )
    parser.add_argument("--url", help="the server; otherwise TOPICS_URL, otherwise http://127.0.0.1:4000")
    parser.add_argument("--token", help="the API key; otherwise TOPICS_TOKEN (which no process list shows)")
    parser.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="a directory or URI that outlives the driver"
    )
    parser.add_argument("--master", default="local[*]", help="any Spark master; otherwise local[*]")
    parser.add_argument("--name", default="main", help="what the server calls this pipeline; otherwise main")
    parser.add_argument("--trigger-ms", type=_whole, default=0, help="least time between batches; otherwise none")
    parser.add_argument("--conf", action="append", default=[], type=_setting, metavar="KEY=VALUE", help="of Spark")
    return parser


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of milliseconds")
    return int(text)


def _setting(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError("a setting of Spark is written key=value")
    return text


def _leave_the_word_to_us(spark: "SparkSession") -> None:
    """Of a JVM that has died we say one sentence; Spark's server for accumulators and py4j would print their stacks, too."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # One of its messages does not go through a logger of its own.
    logging.getLogger().addFilter(is_not_py4js)
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def is_not_py4js(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _watch_jvm(spark: "SparkSession") -> Callable[[], bool]:
    """Whether the Java process of this session, which is a child of ours, is still there."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return lambda: process is None or process.poll() is None


def _address(url: str | None, token: str | None) -> str:
    with Client(url, token) as client:
        return client.url


def _tell(text: str) -> None:
    print(f"topics: {text}", file=sys.stderr, flush=True)
