"""`topics table add|ls|drop|materialize`: the tables whose changes become records."""

from topics.cli.shared.arguments import Parser, Subcommands, add_connection, add_output, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_outcome, print_rows
from topics.client import Client
from topics.model.tables.table import Kind
from topics.spark.pipeline.arguments import add_spark_options

COLUMNS = ("table", "kind", "location", "key_columns", "topic")


def build_parser() -> Parser:
    parser = command_parser(
        "table",
        "Tables whose changes become records of the topic changes:TABLE.",
        ["topics table add chat.messages --key id", "topics table ls"],
    )
    commands = Subcommands(parser)
    add = commands.add(
        "add",
        "register a table, or change where its changes come from",
        [
            "topics table add chat.messages --key id --columns id:bigint,author,text",
            "topics table add lake.orders --delta s3://lake/orders",
        ],
    )
    add.add_argument("name", metavar="TABLE", help="the table, for example chat.messages")
    place = add.add_mutually_exclusive_group()
    place.add_argument("--push", action="store_true", help="its changes are sent to the server (the default)")
    place.add_argument("--delta", metavar="URI", help="a Delta table with a change data feed")
    place.add_argument("--postgres", metavar="DSN", help="a table of a PostgreSQL; the DSN holds no password")
    add.add_argument("--key", default="", metavar="COLUMNS", help="the key columns, separated by commas")
    add.add_argument("--columns", default="", help="all columns as name or name:type, separated by commas")
    ls = commands.add("ls", "list tables", ["topics table ls", "topics table ls chat. -o json"])
    ls.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only tables whose name begins with this")
    drop = commands.add("drop", "forget a table; its change topic stays", ["topics table drop chat.messages"])
    drop.add_argument("name", metavar="TABLE")
    materialize = commands.add(
        "materialize",
        "keep a Delta table equal to a table, or to the history of its rows",
        [
            "topics table materialize chat.messages --delta s3://lake/messages",
            "topics table materialize chat.messages --delta ./history --mode scd2 --once",
        ],
    )
    materialize.add_argument("name", metavar="TABLE", help="the table, for example chat.messages")
    materialize.add_argument("--delta", required=True, metavar="URI", help="the Delta table; made if there is none")
    materialize.add_argument(
        "--mode",
        choices=("scd1", "scd2"),
        default="scd1",
        help="scd1: the rows as they are now (default); scd2: all versions of each row, with their validity",
    )
    materialize.add_argument("--once", action="store_true", help="end when all changes there are now are applied")
    materialize.add_argument(
        "--ignore-loss",
        action="store_true",
        help="leave out changes that neither the server nor an archive has; otherwise the command fails",
    )
    materialize.add_argument(
        "--interval-ms", type=int, default=1000, metavar="N", help="minimum time between two commits (default 1000)"
    )
    add_spark_options(materialize)
    for each in (add, ls, drop):
        add_output(each)
    add_connection(add, ls, drop, materialize)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    if arguments.command == "materialize":
        from topics.cli.pipeline.materialize import materialize_table

        return materialize_table(arguments)

    def action(client: Client) -> int:
        if arguments.command == "ls":
            tables = [[getattr(table, column) for column in COLUMNS] for table in client.tables(arguments.prefix)]
            print_rows(COLUMNS, tables, arguments.output)
        elif arguments.command == "drop":
            client.drop_table(arguments.name)
            print_outcome("table", arguments.name, "dropped", arguments.output)
        else:
            kind: Kind = (
                "delta" if arguments.delta is not None else "postgres" if arguments.postgres is not None else "push"
            )
            put = client.put_table(
                arguments.name,
                kind,
                arguments.delta if arguments.delta is not None else arguments.postgres,
                key_columns=_names(arguments.key),
                columns=dict([_column(text) for text in _names(arguments.columns)]),
            )
            print_outcome("table", put.table, "added" if put.created else "changed", arguments.output)
        return 0

    return call(arguments, action)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _column(text: str) -> tuple[str, str]:
    name, _, kind = text.partition(":")
    return name.strip(), kind.strip()
