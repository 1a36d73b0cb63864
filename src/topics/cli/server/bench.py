"""`topics bench`: measure a server for a few seconds and print a table."""

import argparse
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser
from topics.cli.shared.connection import RETRY, connect, fail
from topics.cli.shared.output import chosen_format, print_rows
from topics.cli.shared.progress import Progress
from topics.cli.shared.temporary_server import temporary_server
from topics.client import Client
from topics.model.errors import TopicsError

COLUMNS = ("test", "requests_per_s", "records_per_s", "p50_ms", "p99_ms")
PAYLOAD = {"order": 4711, "sku": "AEROPRESS", "note": "x" * 60}
BATCH_RECORDS = 500
PAGE_RECORDS = 1000
CLAIM_JOBS = 50
MAX_LATENCY_RECORDS = 200


def build_parser() -> Parser:
    parser = command_parser(
        "bench",
        "Measure a server with one connection for a few seconds: single appends, batches, reads, the time from an append to "
        "a live reader, and jobs of a queue. Topics are created under bench. and removed. It measures this client as well; "
        "`make bench` measures what a server can do under load.",
        ["topics bench", "topics bench --local", "topics bench --seconds 5 -o json"],
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each test (default 1)")
    parser.add_argument(
        "--durability", choices=("memory", "disk", "fsync"), default="disk", help="of the topics (default disk)"
    )
    parser.add_argument(
        "--local", action="store_true", help="start a server in a temporary directory and measure that one"
    )
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        with ExitStack() as stack:
            if arguments.local:
                client = Client(stack.enter_context(temporary_server()), "", retry=RETRY)
            else:
                client = connect(arguments)
            rows = Bench(stack.enter_context(client), arguments).run()
    except TopicsError as error:
        return fail(error)
    shown: list[list[Any]] = rows
    if chosen_format(arguments.output) == "table":
        shown = [
            [row[0], *[None if value is None else f"{value:,.0f}" for value in row[1:3]], *row[3:]] for row in rows
        ]
    print_rows(COLUMNS, shown, arguments.output)
    return 0


class Bench:
    """The tests, one after the other, on topics of their own."""

    def __init__(self, client: Client, arguments: argparse.Namespace) -> None:
        self._client = client
        self._seconds: float = arguments.seconds
        self._config = {"durability": arguments.durability}
        self._prefix = f"bench.{uuid.uuid4().hex[:8]}"

    def run(self) -> list[list[Any]]:
        tests: list[tuple[str, Callable[[], list[Any]]]] = [
            ("append, 1 record", self._single),
            (f"append, {BATCH_RECORDS} records", self._batches),
            (f"read, {PAGE_RECORDS} records", self._reads),
            ("append to live reader", self._live),
            (f"claim and ack, {CLAIM_JOBS} jobs", self._jobs),
        ]
        rows = []
        try:
            self._client.create(f"{self._prefix}.log", **self._config)
            self._client.create(f"{self._prefix}.live", **self._config)
            self._client.create(f"{self._prefix}.queue", type="queue", **self._config)
            with Progress("bench", len(tests), "tests") as progress:
                for name, test in tests:
                    rows.append([name, *test()])
                    progress.advance()
        finally:
            for topic in ("log", "live", "queue"):
                self._client.drop(f"{self._prefix}.{topic}")
        return rows

    def _measure(self, request: Callable[[], int]) -> list[Any]:
        """Repeat a request, which returns how many records it moved, for the time of a test."""
        times: list[float] = []
        records = 0
        begun = time.perf_counter()
        until = begun + self._seconds
        while (now := time.perf_counter()) < until:
            records += request()
            times.append(time.perf_counter() - now)
        seconds = time.perf_counter() - begun
        return [round(len(times) / seconds, 1), round(records / seconds, 1), *_percentiles(times)]

    def _single(self) -> list[Any]:
        return self._measure(lambda: self._client.append(f"{self._prefix}.log", [PAYLOAD]).count)

    def _batches(self) -> list[Any]:
        records = [PAYLOAD] * BATCH_RECORDS
        return self._measure(lambda: self._client.append(f"{self._prefix}.log", records, return_seqs=False).count)

    def _reads(self) -> list[Any]:
        seq = 0

        def read() -> int:
            nonlocal seq
            page = self._client.diff(f"{self._prefix}.log", seq, limit=PAGE_RECORDS)
            seq = 0 if page.caught_up else page.next_from_seq
            return len(page.records)

        return self._measure(read)

    def _live(self) -> list[Any]:
        """One reader that follows, one record at a time: the time until it has it."""
        topic = f"{self._prefix}.live"
        arrived = threading.Event()

        def follow() -> None:
            for _ in self._client.read(topic, follow=True):
                arrived.set()
                if ended.is_set():
                    return

        ended = threading.Event()
        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        times: list[float] = []
        until = time.perf_counter() + self._seconds
        while (begun := time.perf_counter()) < until and len(times) < MAX_LATENCY_RECORDS:
            arrived.clear()
            self._client.append(topic, [PAYLOAD])
            arrived.wait(5)
            times.append(time.perf_counter() - begun)
        ended.set()
        self._client.append(topic, [PAYLOAD])
        reader.join(5)
        return [None, None, *_percentiles(times)]

    def _jobs(self) -> list[Any]:
        topic = f"{self._prefix}.queue"
        jobs = [PAYLOAD] * 1000
        for _ in range(max(1, int(10 * self._seconds))):
            self._client.append(topic, jobs, return_seqs=False)

        def work() -> int:
            claimed = self._client.claim(topic, "bench", CLAIM_JOBS).claimed
            if not claimed:
                self._client.append(topic, jobs, return_seqs=False)
                return 0
            self._client.ack(topic, "bench", [job.seq for job in claimed])
            return len(claimed)

        return self._measure(work)


def _percentiles(times: list[float]) -> list[float | None]:
    if not times:
        return [None, None]
    ordered = sorted(times)
    return [round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * part))], 2) for part in (0.5, 0.99)]
