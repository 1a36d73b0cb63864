"""`topics archive set|clear|show|ls`: the tables that topics are copied to, and how far that has come."""

from topics.cli.calling import add_address, call, parser_for, print_line, print_rows, tell
from topics.client import ArchiveInfo, Client
from topics.model.errors import NotFound

COLUMNS = ("topic", "uri", "archived", "table_version", "freshness_ms", "compact_interval_ms", "vacuum_hours")


def run(argv: list[str]) -> int:
    parser = parser_for("archive", "Topics that are copied to Delta tables, by a pipeline (topics pipeline run).")
    commands = parser.add_subparsers(dest="command", required=True)
    put = commands.add_parser("set", help="copy the records of a topic to a table from now on")
    put.add_argument("topic")
    put.add_argument("uri", help="where the table is, for example s3://lake/events; no secret stands in it")
    put.add_argument("--freshness-ms", type=int, help="how old a record may be before it is there (default 10000)")
    put.add_argument(
        "--compact-interval-ms", type=int, help="how often small files are joined (default 600000; 0: never)"
    )
    put.add_argument("--vacuum-hours", type=int, help="how old unneeded files get (default 168; 0: for ever)")
    clear = commands.add_parser("clear", help="copy the records nowhere any more; the table stays")
    clear.add_argument("topic")
    show = commands.add_parser("show", help="where the records go and how far that has come")
    show.add_argument("topic")
    ls = commands.add_parser("ls", help="list the archives")
    add_address(put, clear, show, ls)
    arguments = parser.parse_args(argv)

    def action(client: Client) -> int:
        if arguments.command == "set":
            info = client.set_archive(
                arguments.topic,
                arguments.uri,
                freshness_ms=arguments.freshness_ms,
                compact_interval_ms=arguments.compact_interval_ms,
                vacuum_hours=arguments.vacuum_hours,
            )
            tell("archive", info.topic, "set" if info.created else "changed")
        elif arguments.command == "clear":
            gone = client.clear_archive(arguments.topic)
            tell("archive", gone.topic, "cleared" if gone.deleted else "was not set")
        elif arguments.command == "show":
            shown = client.archive(arguments.topic)
            if shown is None:
                raise NotFound(f'topic "{arguments.topic}" has no archive', code="not_found")
            print_line(shown)
        else:
            print_rows(COLUMNS, [_row(each) for each in client.archives().archives])
        return 0

    return call(arguments, action)


def _row(archive: ArchiveInfo) -> list[object]:
    archived = {str(place.partition): place.next_seq - 1 for place in archive.archived}
    return [archived if column == "archived" else getattr(archive, column) for column in COLUMNS]
