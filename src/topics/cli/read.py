"""`topics read TOPIC` and `topics tail TOPIC`: records as JSON lines; where some are lost, a line that says so."""

import argparse
import sys
from collections.abc import Iterator

from topics.cli.calling import call, parser_for, print_line
from topics.client import Client, Record, Tombstone
from topics.model.errors import InvalidRequest, Unavailable


def run(argv: list[str]) -> int:
    parser = parser_for("read", "Print the records of a topic, one JSON object a line, up to its tail.")
    parser.add_argument("topic")
    parser.add_argument("--from-seq", type=int, default=0, help="records after this seq (default: all there are)")
    parser.add_argument("--from-ts", type=int, help="records from this time on, in ms since 1970")
    parser.add_argument("--partition", type=int, default=0)
    parser.add_argument("--limit", type=int, help="stop after so many records")
    parser.add_argument("--data", action="store_true", help="only the payloads")
    parser.add_argument("--history", action="store_true", help="begin in the archive, with what is not live any more")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with new records until interrupted")
    arguments = parser.parse_args(argv)

    def action(client: Client) -> int:
        left = arguments.limit
        if left == 0:
            return 0
        items = _history(client, arguments) if arguments.history else _live(client, arguments)
        for item in items:
            show(item, arguments.data)
            if left is not None and isinstance(item, Record):
                left -= 1
                if not left:
                    break
        return 0

    return call(arguments, action)


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
        raise InvalidRequest("history needs deltalake: pip install 'topics[spark]'") from None
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


def show(item: Record | Tombstone, data_only: bool) -> None:
    if isinstance(item, Tombstone):
        print(f"topics: records {item.gap_from} to {item.gap_to} are lost ({item.reason})", file=sys.stderr)
        if not data_only:
            print_line({"tombstone": item})
    elif data_only:
        print_line(item.data)
    else:
        fields = {"$seq": item.seq, "$ts": item.ts, "$node": item.node, "$tag": item.tag, "meta": item.meta}
        print_line({**{name: value for name, value in fields.items() if value is not None}, "data": item.data})
