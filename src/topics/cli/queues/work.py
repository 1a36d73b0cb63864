"""`topics work QUEUE -- COMMAND`: run a command for each job of a queue."""

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType
from typing import Any

from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import Parser, add_connection, command_parser, duration_argument
from topics.cli.shared.connection import call
from topics.cli.shared.output import encode
from topics.client import Client, Job, Retry
from topics.model.errors import InvalidRequest, TopicsError, not_a_queue

DEFAULT_LEASE_MS = 30_000
DEFAULT_RETRY_DELAY_MS = 1000
MAX_RETRY_DELAY_S = 3600.0
# A command may take as long as it needs after the first signal; the second one ends it.
DRAIN_S = 10 * 365 * 86_400.0
POLL_S = 0.1


def build_parser() -> Parser:
    parser = command_parser(
        "work",
        "Claim jobs and run a command for each: the payload is its standard input, texts as they are and everything else as "
        "one line of JSON. Exit code 0 finishes the job; any other returns it to the queue, to be delivered again after a delay that "
        "doubles each time. Leases are renewed while a command runs. A job is given up as `max_deliveries` and `dead_letter` "
        "of the queue say, or after --retries, which sets both.\n\nThe command gets TOPICS_QUEUE, TOPICS_JOB_SEQ, "
        "TOPICS_JOB_TAG and TOPICS_JOB_DELIVERIES. SIGTERM or Ctrl-C lets running commands finish; a second one ends them and "
        "returns their jobs.",
        [
            "topics work jobs -- ./resize.sh",
            "topics work jobs --concurrency 8 --retries 3 -- python3 resize.py",
            "topics work jobs --until-empty -- sh -c 'cat >> done.jsonl'",
        ],
    )
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("-c", "--concurrency", type=int, default=1, help="commands at the same time (default 1)")
    parser.add_argument(
        "--lease",
        type=duration_argument,
        default=DEFAULT_LEASE_MS,
        metavar="DURATION",
        help="a job goes to another worker this long after the last renewal of its lease (default 30s)",
    )
    parser.add_argument(
        "--retries", type=int, help="retries before a job goes to QUEUE.dead (default: as the queue is configured)"
    )
    parser.add_argument(
        "--retry-delay",
        type=duration_argument,
        default=DEFAULT_RETRY_DELAY_MS,
        metavar="DURATION",
        help="delay after the first failure (default 1s)",
    )
    parser.add_argument("--node", help="name of this worker (default: one of its own)")
    parser.add_argument("--until-empty", action="store_true", help="end when the queue is empty")
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    options, command = _split(argv)
    parser = build_parser()
    parser.usage = parser.format_usage().removeprefix("usage: ").rstrip() + " -- COMMAND [ARGUMENT ...]"
    arguments = parser.parse_args(options)

    def action(client: Client) -> int:
        if not command:
            raise InvalidRequest(f"name the command behind --: topics work {arguments.queue} -- ./handle.sh")
        # A worker would create the queue; here a missing one is more likely a misspelled one.
        if client.info(arguments.queue, touch=False).type != "queue":
            raise not_a_queue(arguments.queue)
        return CommandWorker(client, arguments, command).run()

    return call(arguments, action)


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """The options of `work`, and the command behind `--`."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


class CommandFailed(Exception):
    """The command ended with another exit code than 0."""


class CommandWorker:
    """A worker of the client whose handler runs the command."""

    def __init__(self, client: Client, arguments: argparse.Namespace, command: list[str]) -> None:
        self._client = client
        self._queue: str = arguments.queue
        self._command = command
        self._until_empty: bool = arguments.until_empty
        self._worker = client.worker(
            self._queue,
            concurrency=arguments.concurrency,
            retries=arguments.retries,
            first_delay_s=arguments.retry_delay / 1000,
            max_delay_s=MAX_RETRY_DELAY_S,
            lease_s=arguments.lease / 1000,
            drain_s=DRAIN_S,
            name=arguments.node,
            handle_signals=False,
        )
        self._worker.handler(self._handle)
        # Set by the first signal, and when there is nothing to do any more: take no more jobs.
        self._stop = threading.Event()
        # Set by the second signal: end the commands.
        self._kill = threading.Event()
        self._error: TopicsError | None = None

    def run(self) -> int:
        _log_to_stderr()
        previous = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            if self._until_empty:
                threading.Thread(target=self._stop_when_empty, daemon=True).start()
            self._worker.run()
        finally:
            self._stop.set()
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._error is not None:
            raise self._error
        return exit_codes.SUCCESS

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set():
            self._kill.set()
        elif sys.stderr.isatty():
            print("topics: finishing the running jobs; once more to end them", file=sys.stderr)
        self._end()

    def _end(self) -> None:
        self._stop.set()
        self._worker.stop()

    def _stop_when_empty(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                if self._client.info(self._queue, touch=False).count == 0:
                    self._end()
            except TopicsError as error:
                self._error = error
                self._end()

    def _handle(self, job: Job) -> None:
        """Run the command for one job. Raises CommandFailed, or Retry when a second signal ended the command."""
        begun = time.monotonic()
        code = self._run_command(job)
        if code is None:
            raise Retry("the worker was stopped")
        if code != 0:
            raise CommandFailed(f"exit code {code}")
        # Standard output belongs to the commands. Success is reported to a terminal only.
        if sys.stderr.isatty():
            print(f"topics: job {job.seq} done in {time.monotonic() - begun:.1f} s", file=sys.stderr)

    def _run_command(self, job: Job) -> int | None:
        """The exit code; None when a second signal ended the command."""
        environment = os.environ | {
            "TOPICS_QUEUE": self._queue,
            "TOPICS_JOB_SEQ": str(job.seq),
            "TOPICS_JOB_TAG": job.tag or "",
            "TOPICS_JOB_DELIVERIES": str(job.deliveries),
        }
        try:
            # A session of its own: Ctrl-C on the terminal must not end the command.
            process = subprocess.Popen(
                self._command, env=environment, stdin=subprocess.PIPE, start_new_session=True, text=True
            )
        except OSError as error:
            self._error = InvalidRequest(f"cannot run {self._command[0]}: {error.strerror}")
            self._end()
            raise Retry("the command cannot be run") from None
        threading.Thread(target=_feed, args=(process, payload_text(job.data)), daemon=True).start()
        while True:
            try:
                return process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                pass
            if self._kill.is_set():
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()
                return None


def payload_text(data: Any) -> str:
    """A text as it is, everything else as one line of JSON, so that commands can write to a JSONL file."""
    return data if isinstance(data, str) else f"{encode(data)}\n"


def _feed(process: "subprocess.Popen[str]", text: str) -> None:
    """Write the payload to a command that may not read it, or only a part of it."""
    assert process.stdin is not None
    try:
        process.stdin.write(text)
        process.stdin.close()
    except OSError:
        pass


class _Line(logging.Formatter):
    """One line without a traceback: what failed is the command, not this program."""

    def format(self, record: logging.LogRecord) -> str:
        return f"topics: {record.getMessage()}"


def _log_to_stderr() -> None:
    """Print what the worker of the client logs: failed jobs and lost connections."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line())
    log = logging.getLogger("topics.client")
    log.addHandler(handler)
    log.propagate = False
