"""`topics consume TOPIC --group GROUP`: print the messages of a consumer group and acknowledge them."""

import argparse
from typing import Any

from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser, count_argument
from topics.cli.shared.connection import call
from topics.cli.shared.output import RecordPrinter
from topics.client import Client, LostMessages, Record
from topics.model.errors import InvalidRequest


def build_parser() -> Parser:
    parser = command_parser(
        "consume",
        "Print the messages of a consumer group and acknowledge them after they are printed. The server remembers the "
        "position of the group: the next call continues there. Several processes with the same group share the partitions.",
        [
            "topics consume orders --group billing",
            "topics consume orders --group billing -f -o raw",
            "topics consume orders --group audit --from latest --limit 10 --no-ack",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-g", "--group", required=True, metavar="GROUP")
    parser.add_argument(
        "--from",
        dest="start",
        default="earliest",
        metavar="START",
        help="for a new group: earliest (default), latest or an offset",
    )
    parser.add_argument("--limit", type=count_argument, help="number of messages after which to stop")
    parser.add_argument("-f", "--follow", action="store_true", help="continue with new messages until interrupted")
    parser.add_argument("--no-ack", action="store_true", help="leave the position of the group as it is")
    parser.add_argument("--member", default=None, help="name of this member of the group (default: one of its own)")
    parser.add_argument("--data", action="store_true", help="only the payloads")
    add_output(parser, "jsonl")
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    return call(arguments, lambda client: _consume(client, arguments))


def _consume(client: Client, arguments: argparse.Namespace) -> int:
    left = arguments.limit
    consumer = client.consumer(
        arguments.topic,
        group=arguments.group,
        # Messages are acknowledged together, after they are printed.
        ack="explicit" if arguments.no_ack else "timed",
        start=_start(arguments.start),
        follow=arguments.follow,
        name=arguments.member,
    )
    with RecordPrinter(arguments.output, data_only=arguments.data) as printer, consumer:
        for message in [] if left == 0 else consumer:
            if isinstance(message, LostMessages):
                printer.tombstone(message)
                continue
            printer.record(Record(seq=message.offset, ts=message.ts, data=message.data), partition=message.partition)
            if left is not None:
                left -= 1
                if not left:
                    if not arguments.no_ack:
                        consumer.ack(message)
                    break
    return 0


def _start(text: str) -> Any:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.isdigit():
        return int(text)
    raise InvalidRequest(f"--from must be earliest, latest or an offset, not {text!r}; `topics group seek` takes times")
