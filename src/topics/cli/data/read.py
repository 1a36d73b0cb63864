"""`topics read TOPIC`: the records of a topic, and a line where some are lost."""

import argparse
import sys
from collections.abc import Iterator

from topics.cli.shared.arguments import (
    Parser,
    add_connection,
    add_output,
    command_parser,
    count_argument,
    time_argument,
)
from topics.cli.shared.connection import call
from topics.cli.shared.output import RecordPrinter
from topics.client import Client, Record, Tombstone
from topics.model.errors import InvalidRequest, NotFound, Unavailable


def build_parser() -> Parser:
    parser = command_parser(
        "read",
        "Print the records of a topic up to its end, one JSON object a line. Lost records are reported on standard error "
        "and as a line with a tombstone.",
        [
            "topics read orders",
            "topics read orders --from -1h --data",
            "topics read orders --from 2026-11-01 --to 2026-11-02 -o csv",
            "topics read orders --from-seq 100 --limit 10",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--from-seq", type=count_argument, default=0, metavar="SEQ", help="records after this seq (default: all)"
    )
    parser.add_argument(
        "--from", "--from-ts", dest="from_ts", type=time_argument, metavar="TIME", help="records from this time on: -1h"
    )
    parser.add_argument("--to", dest="to_ts", type=time_argument, metavar="TIME", help="records before this time")
    parser.add_argument("--partition", type=count_argument, help="partition to read (default 0)")
    parser.add_argument("--limit", type=count_argument, help="number of records after which to stop")
    parser.add_argument("--data", action="store_true", help="only the payloads, as JSON; -o raw prints texts unquoted")
    parser.add_argument("--history", action="store_true", help="begin in the archive, with what is not live any more")
    parser.add_argument("-f", "--follow", action="store_true", help="continue with new records until interrupted")
    add_output(parser, "jsonl")
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)

    def action(client: Client) -> int:
        if arguments.partition is None:
            arguments.partition = 0
            note_partitions(client, arguments.topic)
        items = _history(client, arguments) if arguments.history else _live(client, arguments)
        with RecordPrinter(arguments.output, data_only=arguments.data) as printer:
            print_items(items, printer, limit=arguments.limit, to_ts=arguments.to_ts)
        return 0

    return call(arguments, action)


def note_partitions(client: Client, topic: str) -> None:
    """Say on standard error that a topic has partitions that are not shown."""
    try:
        count = len(client.info(topic, touch=False).partitions)
    except NotFound:
        # The archive may still have it; otherwise reading reports it.
        return
    if count > 1:
        print(
            f"topic {topic} has {count} partitions; showing partition 0 (--partition selects another)", file=sys.stderr
        )


def print_items(
    items: Iterator[Record | Tombstone], printer: RecordPrinter, *, limit: int | None = None, to_ts: int | None = None
) -> None:
    """Print records and gaps until the limit or the first record at or after `to_ts`."""
    left = limit
    if left == 0:
        return
    for item in items:
        if isinstance(item, Tombstone):
            printer.tombstone(item)
            continue
        if to_ts is not None and item.ts >= to_ts:
            return
        printer.record(item)
        if left is not None:
            left -= 1
            if not left:
                return


def _live(client: Client, arguments: argparse.Namespace) -> Iterator[Record | Tombstone]:
    return client.read(
        arguments.topic,
        arguments.from_seq,
        follow=arguments.follow,
        from_ts=arguments.from_ts,
        partition=arguments.partition or None,
    )


def _history(client: Client, arguments: argparse.Namespace) -> Iterator[Record | Tombstone]:
    """The archive, then what is live, without a gap or an overlap between them."""
    try:
        from topics.archive import ArchiveError, HistoryGone, read_records
    except ImportError:
        raise InvalidRequest("history needs deltalake: pip install '.[spark]' in a checkout") from None
    try:
        yield from read_records(
            client,
            arguments.topic,
            arguments.partition,
            arguments.from_seq,
            from_ts=arguments.from_ts,
            follow=arguments.follow,
        )
    except (ArchiveError, HistoryGone) as error:
        raise Unavailable(str(error), code="unavailable") from error
