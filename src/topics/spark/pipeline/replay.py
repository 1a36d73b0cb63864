"""`topics pipeline replay`: route a range of a table's changes again.

topics pipeline replay shop.orders --from-seq 1 --to 5000 --routes app.orders --dry-run
"""

import argparse
import os
import sys
import time
from typing import TextIO

from topics.client import Client
from topics.model.errors import TopicsError
from topics.spark.pipeline.session import NoSpark, build_session, require_spark

BAR_WIDTH = 30


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    token = arguments.token or os.environ.get("TOPICS_TOKEN") or None
    try:
        with Client(arguments.url, token) as client:
            url = client.url
        require_spark()
        settings = {"spark.ui.enabled": "false"}
        spark = build_session(arguments.master, f"topics replay {arguments.table}", settings, logs=False)
    except (NoSpark, TopicsError) as error:
        print(f"topics: {error}", file=sys.stderr)
        return 1
    from topics.spark.routing.replay import Replay, ReplayRange

    by_ts = arguments.from_ts is not None
    wanted = ReplayRange(arguments.from_ts if by_ts else arguments.from_seq, arguments.to, by_ts)
    try:
        replay = Replay(spark, url, token, arguments.table, wanted, arguments.routes)
        if arguments.dry_run:
            print(f"{replay.changes} changes, {len(replay.routes)} routes; messages by topic:")
            for topic, count in replay.count().items():
                print(f"{topic}\t{count}")
            return 0
        replay_id = arguments.id or f"{arguments.table}-{int(time.time())}"
        print(f"topics: replay {replay_id}: {replay.changes} changes, {len(replay.routes)} routes", file=sys.stderr)
        bar = ProgressBar(sys.stderr, replay.changes)
        replay.run(replay_id, lambda step: bar.add(step.changes))
        bar.end()
        return 0
    except TopicsError as error:
        print(f"topics: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()


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

    def end(self) -> None:
        if self._out.isatty():
            self._out.write("\n")
        else:
            self._out.write(f"topics: replayed {self._done} changes\n")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="topics pipeline replay",
        description="Route a range of a table's changes again, through the routes that there are now.",
        epilog="example: topics pipeline replay shop.orders --from-seq 1 --to 5000 --routes app.orders --dry-run",
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
    parser.add_argument("--id", help="the same id and range send every message once, also after an interruption")
    parser.add_argument("--url", help="the server; otherwise TOPICS_URL, otherwise http://127.0.0.1:4000")
    parser.add_argument("--token", help="the API key; otherwise TOPICS_TOKEN")
    parser.add_argument("--master", help="any Spark master; default local[*]")
    return parser
