"""`topics delete TOPIC`: delete records by seq, time or tag."""

import argparse
from typing import Any

from topics.cli.shared.arguments import Parser, add_connection, add_output, add_yes, command_parser, time_argument
from topics.cli.shared.connection import call
from topics.cli.shared.output import chosen_format, confirm, print_object, write_line
from topics.client import Client, Deleted
from topics.model.errors import InvalidRequest


def build_parser() -> Parser:
    parser = command_parser(
        "delete",
        "Delete records for good: those that meet all conditions given. Readers get no tombstone for deleted records. "
        "Deletes in all partitions unless --partition is given. Asks first on a terminal.",
        [
            "topics delete orders --tag customer-7",
            "topics delete orders --tag 'customer-*' --yes",
            "topics delete orders --before-seq 1000",
            "topics delete orders --before -30d",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--tag", help="records with this tag; a * at the end matches any rest")
    parser.add_argument("--before-seq", type=int, metavar="SEQ", help="records with a smaller seq")
    parser.add_argument(
        "--before", type=time_argument, metavar="TIME", help="records older than this: -30d, 2026-11-01"
    )
    parser.add_argument("--partition", type=int, help="delete only in this partition (default: in all)")
    add_yes(parser)
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)

    def action(client: Client) -> int:
        _check(arguments)
        if arguments.partition is None:
            partitions = list(range(len(client.info(arguments.topic, touch=False).partitions) or 1))
        else:
            partitions = [arguments.partition]
        if not confirm(f"Delete these records of {arguments.topic} for good?", yes=arguments.yes):
            return 0
        results = [_delete(client, arguments, partition) for partition in partitions]
        deleted, left = sum([done.deleted for done in results]), results[-1].count
        if chosen_format(arguments.output) == "table":
            write_line(f"{deleted} records deleted, {left} left")
        else:
            fields: dict[str, Any] = {"topic": results[0].topic, "deleted": deleted, "count": left}
            if len(results) == 1:
                fields["earliest_seq"] = results[0].earliest_seq
            print_object(fields, arguments.output)
        return 0

    return call(arguments, action)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse a call without conditions."""
    if arguments.tag is None and arguments.before_seq is None and arguments.before is None:
        raise InvalidRequest("say which records: --tag, --before-seq or --before; `topics rm` deletes the whole topic")


def _delete(client: Client, arguments: argparse.Namespace, partition: int) -> Deleted:
    """Delete in one partition. `--before` is a different seq in each."""
    limits = [] if arguments.before_seq is None else [arguments.before_seq]
    if arguments.before is not None:
        limits.append(_first_seq_from(client, arguments.topic, partition, arguments.before))
    match = arguments.tag
    if match is not None and match.endswith("*"):
        match = ["tag", "Glob", match]
    before_seq = min(limits, default=None)
    if match is None:
        return client.delete(arguments.topic, before_seq=before_seq, partition=partition or None)
    return client.delete(arguments.topic, before_seq=before_seq, match=match, partition=partition or None)


def _first_seq_from(client: Client, topic: str, partition: int, time_ms: int) -> int:
    """The seq of the first record at or after this time; behind the last one when there is none."""
    page = client.diff(topic, 0, from_ts=time_ms, limit=1, partition=partition or None)
    return page.records[0].seq if page.records else page.head_seq + 1
