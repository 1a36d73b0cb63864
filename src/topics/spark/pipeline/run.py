"""`topics pipeline run` and `python -m topics.spark`: one driver that runs all jobs of a server and reports to it.

    topics pipeline run --checkpoint DIR [--master M] [--name N] [--trigger-ms N]

Every second it asks the server which jobs there should be, and starts, restarts and stops jobs; every two seconds it reports.
While the server is unreachable the last known set of jobs keeps running; each job retries.
SIGTERM, SIGINT and a stop request of the server end it: running batches are finished, and the exit status is 0.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from topics.client import Client, RetryPolicy
from topics.client.values import PipelineOrders
from topics.model.errors import Conflict, Forbidden, TopicsError, Unauthorized
from topics.spark.pipeline.arguments import add_server_options, add_spark_options, session_of
from topics.spark.pipeline.jvm import jvm_is_gone, jvm_runs, silence_py4j
from topics.spark.pipeline.screen import Screen
from topics.spark.pipeline.session import DEFAULT_MASTER, NoSpark, is_submitted, require_spark, set_checkpoint_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from topics.spark.pipeline.job import Job
    from topics.spark.pipeline.supervisor import Supervisor

PipelineState = Literal["starting", "running", "stopping", "stopped"]
LOOK_S = 0.25
ASK_S = 1.0
REPORT_S = 2.0
MAX_STOP_WAIT_S = 60.0
# Longer than the server takes to call a silent pipeline lost.
MAX_NAME_WAIT_S = 20.0
JVM_GONE = "Spark's Java process has ended"


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    started = time.time()
    try:
        url = _address(arguments.url, arguments.token)
        require_spark()
        _say("starting Spark" + ("" if is_submitted() else f" on {arguments.master or DEFAULT_MASTER}"))
        spark = session_of(arguments, f"topics {arguments.name}")
        set_checkpoint_files(spark, arguments.checkpoint)
        silence_py4j()
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
    # A short timeout and no retry: the loop retries within a second.
    with Client(url, token, timeout_s=5.0, retry=RetryPolicy(attempts=1)) as client:
        started_ts = int(started * 1000)
        pipeline = Pipeline(
            arguments.name,
            str(spark.sparkContext.master),
            started_ts,
            client,
            supervisor,
            stop,
            lambda: jvm_runs(spark),
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
                # Reported when the server answers; until then the pipeline continues with the last known jobs.
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
        self._screen.line(f"{JVM_GONE}; start the pipeline again, it resumes from its checkpoint")
        return 1

    def _ask(self) -> None:
        try:
            wanted, hidden = all_jobs(self._client)
        except TopicsError as error:
            if self._away != str(error):
                self._away = str(error)
                self._screen.line(f"cannot list the jobs of the server: {error}; the running jobs continue")
            return
        self._away = None
        if hidden != self._hidden:
            self._hidden = hidden
            self._screen.line(f"routes to topics that this key may not touch, and which are not run: {hidden}")
        for line in self._supervisor.set_jobs(wanted, MAX_STOP_WAIT_S):
            self._screen.line(line)

    def _report(self, state: PipelineState) -> bool:
        """Whether the pipeline has to stop: the server requests it, or another run has taken its name."""
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
    """The jobs for all routes, tables and archives of the server, and how many routes the key may not see. Raises what the client raises."""
    from topics.spark.archive.job import archive_jobs
    from topics.spark.delta.feed import feed_jobs
    from topics.spark.materialize.job import materialize_jobs
    from topics.spark.routing.job import route_jobs

    routes = client.routes()
    tables = list(client.tables())
    columns = {table.table: table.columns for table in tables}
    jobs = [*route_jobs(routes.routes, columns), *feed_jobs(client, tables), *archive_jobs(client)]
    return [*jobs, *materialize_jobs(tables)], routes.hidden


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="topics pipeline run", description="Run routes, Delta feeds and archives of a server on Spark."
    )
    add_server_options(parser)
    parser.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="a directory or URI that outlives the driver"
    )
    add_spark_options(parser)
    parser.add_argument("--name", default="main", help="what the server calls this pipeline; otherwise main")
    parser.add_argument(
        "--trigger-ms", type=_whole, default=0, help="minimum milliseconds between two batches; default 0"
    )
    return parser


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of milliseconds")
    return int(text)


def _address(url: str | None, token: str | None) -> str:
    with Client(url, token) as client:
        return client.url


def _say(text: str) -> None:
    print(f"topics: {text}", file=sys.stderr, flush=True)
