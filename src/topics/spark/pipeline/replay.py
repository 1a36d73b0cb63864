"""`topics pipeline replay`: route a range of a table's changes again.

topics pipeline replay shop.orders --from-seq 1 --to 5000 --routes app.orders --dry-run
"""

import argparse
import os
import sys
import uuid
from typing import TYPE_CHECKING, Any, TextIO

from topics.client import Client
from topics.model.errors import TopicsError
from topics.spark.pipeline.arguments import add_server_options, add_spark_options, session_of
from topics.spark.pipeline.progress import reason
from topics.spark.pipeline.session import NoSpark, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAR_WIDTH = 30
# As in `topics.cli.shared.exit_codes`.
FAILED = 1
REFUSED = 4


def run(argv: list[str]) -> int:
    """Returns 0 when every message of the range was sent, 4 when some were refused, 1 when the replay could not be done."""
    arguments = build_parser().parse_args(argv)
    token = arguments.token or os.environ.get("TOPICS_TOKEN") or None
    try:
        with Client(arguments.url, token) as client:
            url = client.url
        require_spark()
        spark = session_of(arguments, f"topics replay {arguments.table}")
    except (NoSpark, TopicsError) as error:
        print(f"topics: {error}", file=sys.stderr)
        return FAILED
    try:
        return replay(spark, url, token, arguments)
    finally:
        spark.stop()


def replay(spark: "SparkSession", url: str, token: str | None, arguments: argparse.Namespace) -> int:
    """Replay in this session. Returns the exit status."""
    from pyspark.errors import PySparkException

    from topics.archive.ledger import ArchiveError
    from topics.spark.connector.reading import DataLoss
    from topics.spark.routing.replay import Replay, ReplayRange

    by_ts = arguments.from_ts is not None
    wanted = ReplayRange(arguments.from_ts if by_ts else arguments.from_seq, arguments.to, by_ts)
    try:
        found = Replay(spark, url, token, arguments.table, wanted, arguments.routes, ignore_loss=arguments.ignore_loss)
        if arguments.dry_run:
            print(f"{found.changes} changes, {len(found.routes)} routes; messages by topic:")
            for topic, count in found.count().items():
                print(f"{topic}\t{count}")
            return _show_problems(found.notes())
        replay_id = arguments.id or f"{arguments.table}-{uuid.uuid4().hex[:12]}"
        print(f"topics: replay {replay_id}: {found.changes} changes, {len(found.routes)} routes", file=sys.stderr)
        bar = ProgressBar(sys.stderr, found.changes)
        notes = found.run(replay_id, bar.add)
        bar.end(notes["messages"])
        return _show_problems(notes)
    except DataLoss as error:
        print(f"topics: {error} --ignore-loss leaves them out.", file=sys.stderr)
        return FAILED
    except (TopicsError, ArchiveError) as error:
        print(f"topics: {error}", file=sys.stderr)
        return FAILED
    except PySparkException as error:
        print(f"topics: {reason(error)}", file=sys.stderr)
        return FAILED


def _show_problems(notes: dict[str, Any]) -> int:
    """Print what was not sent and why. Returns the exit status: changes that match no route are no problem."""
    for name, what in (
        ("lost", "changes were lost before this replay"),
        ("unreadable", "records are no change events"),
        ("truncates", "truncates are routed nowhere"),
    ):
        if notes[name]:
            print(f"topics: {notes[name]} {what}", file=sys.stderr)
    for each in notes["trouble"]:
        count = "" if each["count"] is None else f" {each['count']}"
        route = "" if each["topic"] is None else f" route to {each['topic']} on {each['op']}:"
        print(f"topics:{route} {each['what']}{count}: {each['message']}", file=sys.stderr)
    if notes["troubles"] > len(notes["trouble"]):
        print(f"topics: and {notes['troubles'] - len(notes['trouble'])} more problems", file=sys.stderr)
    not_sent = {"broken", "refused", "hidden"} & {each["what"] for each in notes["trouble"]}
    return REFUSED if not_sent or notes["refused"] else 0


class ProgressBar:
    """A line that is redrawn on a terminal; elsewhere one line at the end."""

    def __init__(self, out: TextIO, total: int) -> None:
        self._out = out
        self._total = total
        self._done = 0

    def add(self, changes: int) -> None:
        self._done += changes
        if self._out.isatty():
            filled = BAR_WIDTH * self._done // max(1, self._total)
            bar = "#" * filled + "." * (BAR_WIDTH - filled)
            self._out.write(f"\r[{bar}] {self._done:,} of {self._total:,} changes")
            self._out.flush()

    def end(self, messages: int) -> None:
        if self._out.isatty():
            self._out.write("\n")
        self._out.write(f"topics: replayed {self._done} changes, sent {messages} messages\n")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="topics pipeline replay",
        description="Route a range of a table's changes again, through the routes that there are now.",
        epilog="example: topics pipeline replay shop.orders --from-seq 1 --to 5000 --routes app.orders --dry-run. "
        "Exit status 4: some messages were not sent.",
    )
    parser.add_argument("table")
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument("--from-seq", type=int, metavar="SEQ", help="first change, in every partition")
    start.add_argument("--from-ts", type=int, metavar="MS", help="first change by its time, in Unix milliseconds")
    parser.add_argument(
        "--to", type=int, metavar="N", help="last change, as a seq or a time like the first; default: all"
    )
    parser.add_argument("--routes", nargs="*", default=[], metavar="TOPIC", help="only routes to these topics")
    parser.add_argument("--dry-run", action="store_true", help="count the messages and write nothing")
    parser.add_argument(
        "--ignore-loss",
        action="store_true",
        help="leave out changes that neither the server nor an archive has; otherwise the replay fails",
    )
    parser.add_argument("--id", help="the same id and range send every message once, also after an interruption")
    add_server_options(parser)
    add_spark_options(parser)
    return parser
