"""`topics top`: a live screen with the rates, the lag, the queues and the event loop of a server."""

import argparse
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from topics.cli.shared.arguments import FORMATS, Parser, add_connection, command_parser, count_argument
from topics.cli.shared.connection import call
from topics.cli.shared.metrics import get_metrics
from topics.cli.shared.output import console, is_terminal, print_line, print_rows, rich_table
from topics.cli.shared.times import show_size
from topics.client import Client
from topics.client.values import Health
from topics.model.errors import Forbidden

# The numbers of a screen, by the metric that counts them.
RATES = {
    "writes_per_s": "topics_appends_total",
    "records_in_per_s": "topics_records_appended_total",
    "reads_per_s": "topics_reads_total",
    "records_out_per_s": "topics_records_read_total",
    "fsyncs_per_s": "topics_wal_fsyncs_total",
    "log_bytes_per_s": "topics_wal_bytes_written_total",
}
QUEUES = "SELECT topic_id AS queue, ready, in_flight, dead_lettered FROM system.queues ORDER BY ready + in_flight DESC LIMIT 10"
GROUPS = (
    'SELECT topic_id AS topic, group_id AS "group", members, lag_records, lag_seconds FROM system.consumer_groups '
    "ORDER BY lag_records DESC LIMIT 10"
)
MAX_TOPICS_SHOWN = 10


class Sample(Struct):
    """What the server reports at one time."""

    at: float
    health: Health
    metrics: dict[str, Any]
    queues: list[list[Any]]
    groups: list[list[Any]]


def build_parser() -> Parser:
    parser = command_parser(
        "top",
        "Show the rates of reads and writes, the lag of consumer groups, the depth of queues, the busiest topics and how late "
        "the event loop runs, until q or Ctrl-C. In a pipe one JSON line is printed for each interval. With -o one row is "
        "printed, or as many as --count says.",
        ["topics top", "topics top --interval 5", "topics top -o csv", "topics top --count 1 | jq .writes_per_s"],
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="time between two looks (default 1)"
    )
    parser.add_argument("--count", type=count_argument, help="number of screens or rows after which to end")
    parser.add_argument(
        "-o", "--output", choices=FORMATS, help="format (default: a screen on a terminal, jsonl in a pipe)"
    )
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    return call(arguments, lambda client: _top(client, arguments))


def _top(client: Client, arguments: argparse.Namespace) -> int:
    interval = max(0.1, arguments.interval)
    if arguments.output in ("table", "json", "raw", "csv"):
        count = 1 if arguments.count is None else arguments.count
        rows = [_fields(before, now) for before, now in _samples(client, interval, count, time.sleep)]
        print_rows(list(rows[0]) if rows else [], [list(row.values()) for row in rows], arguments.output)
        return 0
    if arguments.output == "jsonl" or not is_terminal():
        for before, now in _samples(client, interval, arguments.count, time.sleep):
            print_line(_fields(before, now))
        return 0
    from rich.live import Live

    with _keys() as pressed, Live(console=console(), screen=True, auto_refresh=False) as live:

        def wait(seconds: float) -> None:
            if pressed(seconds) in ("q", "Q"):
                raise KeyboardInterrupt

        try:
            for before, now in _samples(client, interval, arguments.count, wait):
                live.update(_screen(client.url, before, now), refresh=True)
        except KeyboardInterrupt:
            pass
    return 0


def _samples(client: Client, interval: float, count: int | None, wait: Any) -> Iterator[tuple[Sample, Sample]]:
    """Each sample with the one before it."""
    before = _sample(client)
    while count is None or count > 0:
        wait(interval)
        now = _sample(client)
        yield before, now
        before = now
        if count is not None:
            count -= 1


def _sample(client: Client) -> Sample:
    try:
        queues, groups = client.sql(QUEUES).rows, client.sql(GROUPS).rows
    except Forbidden:
        queues, groups = [], []
    return Sample(time.monotonic(), client.health(), get_metrics(client), queues, groups)


def _rates(before: Sample, now: Sample) -> dict[str, float]:
    seconds = max(1e-3, now.at - before.at)
    # A server that was restarted in between counts from 0 again.
    return {
        name: max(0.0, round((now.metrics.get(metric, 0) - before.metrics.get(metric, 0)) / seconds, 1))
        for name, metric in RATES.items()
    }


def _busiest(before: Sample, now: Sample) -> list[list[Any]]:
    """Topics by the records that were written to them since the last sample."""
    seconds = max(1e-3, now.at - before.at)
    heads = {topic["topic"]: topic["head_seq"] for topic in before.metrics.get("topics", [])}
    rows = [
        [
            topic["topic"],
            round(max(0, topic["head_seq"] - heads.get(topic["topic"], 0)) / seconds, 1),
            topic["records_live"],
            topic["bytes_live"],
        ]
        for topic in now.metrics.get("topics", [])
    ]
    return sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))[:MAX_TOPICS_SHOWN]


def _fields(before: Sample, now: Sample) -> dict[str, Any]:
    metrics = now.metrics
    return {
        "ts": time.time_ns() // 1_000_000,
        **_rates(before, now),
        "loop_lag_ms": metrics.get("topics_loop_lag_ms"),
        "topics": metrics.get("topics_topics"),
        "records": metrics.get("topics_records_live"),
        "bytes": metrics.get("topics_bytes_live"),
        "streams": metrics.get("topics_sse_connections"),
        "queue_ready": sum([row[1] for row in now.queues]),
        "queue_in_flight": sum([row[2] for row in now.queues]),
        "group_lag_records": sum([row[3] for row in now.groups]),
    }


def _screen(url: str, before: Sample, now: Sample) -> Any:
    from rich.columns import Columns
    from rich.console import Group
    from rich.rule import Rule
    from rich.text import Text

    metrics, rates = now.metrics, _rates(before, now)
    uptime_s = now.health.uptime_ms // 1000
    lag_ms = metrics.get("topics_loop_lag_ms", 0.0)
    degraded = [name for name, value in metrics.get("topics_degraded_conditions", {}).items() if value]
    state = Text(f"degraded: {', '.join(degraded)}", style="bold red") if degraded else Text("healthy", style="green")
    head = Text.assemble(
        (f"{url}  ", "bold"),
        f"version {now.health.version}, up {uptime_s // 3600}:{uptime_s // 60 % 60:02}:{uptime_s % 60:02}, ",
        state,
    )
    numbers = [
        ("writes/s", f"{rates['writes_per_s']:,.0f}"),
        ("records in/s", f"{rates['records_in_per_s']:,.0f}"),
        ("reads/s", f"{rates['reads_per_s']:,.0f}"),
        ("records out/s", f"{rates['records_out_per_s']:,.0f}"),
        ("log/s", show_size(rates["log_bytes_per_s"])),
        ("fsyncs/s", f"{rates['fsyncs_per_s']:,.0f}"),
        ("loop lag", f"{lag_ms:.1f} ms"),
        ("topics", f"{metrics.get('topics_topics', 0):,}"),
        ("records", f"{metrics.get('topics_records_live', 0):,}"),
        ("stored", show_size(metrics.get("topics_bytes_live", 0))),
        ("streams", f"{metrics.get('topics_sse_connections', 0):,}"),
    ]
    cells = [Text.assemble((value, "bold cyan"), f" {name}") for name, value in numbers]
    return Group(
        head,
        Columns(cells, padding=(0, 3)),
        Rule("busiest topics", align="left"),
        rich_table(("topic", "records/s", "records", "bytes"), _busiest(before, now)),
        Rule("queues", align="left"),
        rich_table(("queue", "ready", "in_flight", "dead_lettered"), now.queues),
        Rule("consumer groups", align="left"),
        rich_table(("topic", "group", "members", "lag_records", "lag_seconds"), now.groups),
        Text("q leaves", style="dim"),
    )


@contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits for a key without echo and returns it, or an empty text after the time."""
    if not sys.stdin.isatty():

        def no_key(seconds: float) -> str:
            time.sleep(seconds)
            return ""

        yield no_key
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    kept = termios.tcgetattr(descriptor)

    def wait_key(seconds: float) -> str:
        readable, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 1).decode(errors="replace") if readable else ""

    tty.setcbreak(descriptor)
    try:
        yield wait_key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, kept)
