"""`topics group ls|lag|seek|rm`: consumer groups and how far they are."""

import argparse

from topics.cli.shared.arguments import (
    Parser,
    Subcommands,
    add_connection,
    add_output,
    add_yes,
    command_parser,
    count_argument,
)
from topics.cli.shared.connection import call
from topics.cli.shared.output import confirm, print_outcome, print_rows
from topics.cli.shared.times import parse_time
from topics.client import Client, SqlResult
from topics.model.errors import InvalidRequest, NotFound

LAG_COLUMNS = (
    "partition_id",
    "last_acked_offset",
    "next_offset",
    "last_offset",
    "lag_records",
    "lag_seconds",
    "consumer_id",
    "updated_at",
)
# A number of this size is a time in milliseconds, not an offset.
MIN_TIME_MS = 10**11


def build_parser() -> Parser:
    parser = command_parser(
        "group",
        "Consumer groups: which there are, how far each is behind, and moving or deleting one.",
        ["topics group ls", "topics group lag orders billing", "topics group seek orders billing -1h --dry-run"],
    )
    commands = Subcommands(parser)
    ls = commands.add(
        "ls", "list groups with their members and lag", ["topics group ls", "topics group ls orders -o json"]
    )
    ls.add_argument("topic", nargs="?", metavar="TOPIC", help="only groups of this topic")
    lag = commands.add("lag", "show the position of a group in each partition", ["topics group lag orders billing"])
    seek = commands.add(
        "seek",
        "move a group to another position",
        [
            "topics group seek orders billing earliest --dry-run",
            "topics group seek orders billing -1h",
            "topics group seek orders billing 2026-11-01T12:00",
            "topics group seek orders billing 4711 --partition 0",
        ],
    )
    rm = commands.add("rm", "delete a group with its positions", ["topics group rm orders billing --yes"])
    for each in (lag, seek, rm):
        each.add_argument("topic", metavar="TOPIC")
        each.add_argument("group", metavar="GROUP")
    seek.add_argument("to", metavar="TO", help="earliest, latest, an offset, or a time: -1h, 2026-11-01, milliseconds")
    seek.add_argument("--partition", type=count_argument, help="partition to move (default: all)")
    seek.add_argument("--dry-run", action="store_true", help="show what would happen and change nothing")
    add_yes(rm)
    for each in (ls, lag, seek, rm):
        add_output(each)
    add_connection(ls, lag, seek, rm)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    actions = {"ls": _ls, "lag": _lag, "seek": _seek, "rm": _rm}
    return call(arguments, lambda client: actions[arguments.command](client, arguments))


def _ls(client: Client, arguments: argparse.Namespace) -> int:
    where = "" if arguments.topic is None else f" ON {quoted(arguments.topic)}"
    _print(client.sql(f"SHOW CONSUMER GROUPS{where}"), arguments.output)
    return 0


def _lag(client: Client, arguments: argparse.Namespace) -> int:
    topic = client.info(arguments.topic, touch=False).topic
    result = client.sql(
        f"SELECT {', '.join(LAG_COLUMNS)} FROM system.topic_offsets WHERE topic_id = ? AND group_id = ? ORDER BY 1",
        topic,
        arguments.group,
    )
    if not result.rows:
        raise NotFound(f'topic "{topic}" has no group "{arguments.group}"', code="group_not_found")
    _print(result, arguments.output)
    return 0


def _seek(client: Client, arguments: argparse.Namespace) -> int:
    partition = "" if arguments.partition is None else f" PARTITION {arguments.partition}"
    dry_run = " DRY RUN" if arguments.dry_run else ""
    statement = (
        f"RESET CONSUMER GROUP ? ON {quoted(arguments.topic)}{partition} TO {seek_target(arguments.to)}{dry_run}"
    )
    _print(client.sql(statement, arguments.group), arguments.output)
    return 0


def seek_target(text: str) -> str:
    """The target of a RESET statement."""
    if text.lower() in ("earliest", "latest"):
        return text.upper()
    if text.isdigit() and int(text) < MIN_TIME_MS:
        return f"OFFSET {int(text)}"
    try:
        return f"TIMESTAMP {parse_time(text)}"
    except ValueError as error:
        raise InvalidRequest(f"{error}, earliest, latest, or an offset") from None


def _rm(client: Client, arguments: argparse.Namespace) -> int:
    if not confirm(f"Delete group {arguments.group} of {arguments.topic}?", yes=arguments.yes):
        return 0
    client.sql(f"DROP CONSUMER GROUP ? ON {quoted(arguments.topic)}", arguments.group)
    print_outcome("group", arguments.group, "deleted", arguments.output)
    return 0


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _print(result: SqlResult, output: str | None) -> None:
    print_rows(result.columns, result.rows, output)
