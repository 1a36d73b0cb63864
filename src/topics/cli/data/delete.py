"""`topics delete TOPIC`: delete records by seq, time or tag."""

import argparse
from typing import Any

from topics.cli.shared.arguments import (
    Parser,
    add_connection,
    add_output,
    add_yes,
    command_parser,
    count_argument,
    time_argument,
)
from topics.cli.shared.connection import call
from topics.cli.shared.output import chosen_format, confirm, print_object, write_line
from topics.cli.shared.progress import Progress
from topics.client import Client, Deleted
from topics.model.errors import InvalidRequest


def build_parser() -> Parser:
    parser = command_parser(
        "delete",
        "Delete records for good: those that meet all conditions given. Readers get no tombstone for deleted records. "
        "Deletes in all partitions unless --partition is given. Asks first on a terminal; without one --yes is required.",
        [
            "topics delete orders --tag customer-7",
            "topics delete orders --tag 'customer-*' --yes",
            "topics delete orders --before-seq 1000",
            "topics delete orders --before -30d --dry-run",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--tag", help="records with this tag; a * at the end matches any rest")
    parser.add_argument("--before-seq", type=count_argument, metavar="SEQ", help="records with a smaller seq")
    parser.add_argument(
        "--before", type=time_argument, metavar="TIME", help="records older than this: -30d, 2026-11-01"
    )
    parser.add_argument("--partition", type=count_argument, help="delete only in this partition (default: in all)")
    parser.add_argument("--dry-run", action="store_true", help="count the records and delete nothing")
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
        question = f"Delete these records of {arguments.topic} for good?"
        if not confirm(question, yes=arguments.yes or arguments.dry_run):
            return 0
        results = []
        with Progress(f"delete from {arguments.topic}", len(partitions), "partitions") as progress:
            for partition in partitions:
                results.append(_delete(client, arguments, partition))
                progress.advance()
        deleted, left = sum([done.deleted for done in results]), results[-1].count
        if chosen_format(arguments.output) == "table":
            outcome = "would be deleted" if arguments.dry_run else "deleted"
            write_line(f"{deleted} records {outcome}, {left} left")
        else:
            fields: dict[str, Any] = {"topic": results[0].topic, "deleted": deleted, "count": left}
            if arguments.dry_run:
                fields["dry_run"] = True
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
    conditions: dict[str, Any] = {} if match is None else {"match": match}
    return client.delete(
        arguments.topic,
        before_seq=min(limits, default=None),
        partition=partition or None,
        dry_run=arguments.dry_run,
        **conditions,
    )


def _first_seq_from(client: Client, topic: str, partition: int, time_ms: int) -> int:
    """The seq of the first record at or after this time; behind the last one when there is none."""
    page = client.diff(topic, 0, from_ts=time_ms, limit=1, partition=partition or None)
    return page.records[0].seq if page.records else page.head_seq + 1
