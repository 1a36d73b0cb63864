"""`topics table add|ls|drop`: the tables whose changes become records."""

from topics.cli.calling import add_address, call, parser_for, print_rows, tell
from topics.client import Client

COLUMNS = ("table", "kind", "location", "key_columns", "topic")


def run(argv: list[str]) -> int:
    parser = parser_for("table", "Tables whose changes become records of the topic changes:TABLE.")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="make a table known, or say anew where its changes come from")
    add.add_argument("name", help="the table, for example chat.messages")
    place = add.add_mutually_exclusive_group()
    place.add_argument("--push", action="store_true", help="its changes are sent to the server (the default)")
    place.add_argument("--delta", metavar="URI", help="a Delta table with a change data feed")
    place.add_argument("--postgres", metavar="DSN", help="a table of a PostgreSQL; the password stays out of the DSN")
    add.add_argument("--key", default="", metavar="COLUMNS", help="the key columns, with commas between them")
    add.add_argument("--columns", default="", help="all columns as name or name:type, with commas between them")
    ls = commands.add_parser("ls", help="list the tables")
    ls.add_argument("prefix", nargs="?", default="", help="only tables whose name begins with this")
    drop = commands.add_parser("drop", help="forget a table; its change topic stays")
    drop.add_argument("name")
    add_address(add, ls, drop)
    arguments = parser.parse_args(argv)

    def action(client: Client) -> int:
        if arguments.command == "ls":
            tables = [[getattr(table, column) for column in COLUMNS] for table in client.tables(arguments.prefix)]
            print_rows(COLUMNS, tables)
        elif arguments.command == "drop":
            client.drop_table(arguments.name)
            tell("table", arguments.name, "dropped")
        else:
            kind = "delta" if arguments.delta is not None else "postgres" if arguments.postgres is not None else "push"
            put = client.put_table(
                arguments.name,
                kind,
                arguments.delta if arguments.delta is not None else arguments.postgres,
                key_columns=_names(arguments.key),
                columns=dict([_column(text) for text in _names(arguments.columns)]),
            )
            tell("table", put.table, "added" if put.created else "changed")
        return 0

    return call(arguments, action)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _column(text: str) -> tuple[str, str]:
    name, _, kind = text.partition(":")
    return name.strip(), kind.strip()
