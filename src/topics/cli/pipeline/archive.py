"""`topics archive set|clear|show|ls`: the Delta tables that topics are copied to, and the progress."""

import msgspec

from topics.cli.shared.arguments import (
    Parser,
    Subcommands,
    add_connection,
    add_output,
    command_parser,
    duration_argument,
)
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_object, print_outcome, print_rows
from topics.client import ArchiveInfo, Client
from topics.model.errors import NotFound

COLUMNS = ("topic", "uri", "archived", "table_version", "freshness_ms", "compact_interval_ms", "vacuum_hours")


def build_parser() -> Parser:
    parser = command_parser(
        "archive",
        "Topics that a pipeline (topics pipeline run) copies to Delta tables.",
        ["topics archive set orders s3://lake/orders", "topics archive ls"],
    )
    commands = Subcommands(parser)
    put = commands.add(
        "set",
        "copy the records of a topic to a table from now on",
        ["topics archive set orders s3://lake/orders --freshness-ms 30s"],
    )
    put.add_argument("topic", metavar="TOPIC")
    put.add_argument("uri", metavar="URI", help="where the table is, for example s3://lake/events; without a secret")
    put.add_argument(
        "--freshness-ms",
        type=duration_argument,
        metavar="DURATION",
        help="maximum age of a record that is not copied (default 10s)",
    )
    put.add_argument(
        "--compact-interval-ms",
        type=duration_argument,
        metavar="DURATION",
        help="how often small files are joined (default 10m; 0: never)",
    )
    put.add_argument("--vacuum-hours", type=int, help="age at which unneeded files are removed (default 168; 0: never)")
    clear = commands.add("clear", "end the copying; the table stays", ["topics archive clear orders"])
    show = commands.add("show", "show the table of a topic and the progress", ["topics archive show orders"])
    ls = commands.add("ls", "list archives", ["topics archive ls", "topics archive ls -o json"])
    for each in (clear, show):
        each.add_argument("topic", metavar="TOPIC")
    for each in (put, clear, show, ls):
        add_output(each)
    add_connection(put, clear, show, ls)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)

    def action(client: Client) -> int:
        if arguments.command == "set":
            info = client.set_archive(
                arguments.topic,
                arguments.uri,
                freshness_ms=arguments.freshness_ms,
                compact_interval_ms=arguments.compact_interval_ms,
                vacuum_hours=arguments.vacuum_hours,
            )
            print_outcome("archive", info.topic, "set" if info.created else "changed", arguments.output)
        elif arguments.command == "clear":
            gone = client.clear_archive(arguments.topic)
            print_outcome("archive", gone.topic, "cleared" if gone.deleted else "was not set", arguments.output)
        elif arguments.command == "show":
            shown = client.archive(arguments.topic)
            if shown is None:
                raise NotFound(f'topic "{arguments.topic}" has no archive', code="not_found")
            print_object(msgspec.to_builtins(shown), arguments.output)
        else:
            print_rows(COLUMNS, [_row(each) for each in client.archives().archives], arguments.output)
        return 0

    return call(arguments, action)


def _row(archive: ArchiveInfo) -> list[object]:
    archived = {str(place.partition): place.next_seq - 1 for place in archive.archived}
    return [archived if column == "archived" else getattr(archive, column) for column in COLUMNS]
