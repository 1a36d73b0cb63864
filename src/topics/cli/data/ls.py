"""`topics ls [PREFIX]`: the topics of a server."""

from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_rows
from topics.client import Client

COLUMNS = ("topic", "count", "bytes", "earliest_seq", "head_seq", "durable")


def build_parser() -> Parser:
    parser = command_parser(
        "ls",
        "List topics by name.",
        ["topics ls", "topics ls chat. -o json", "topics ls -o raw | cut -f1"],
    )
    parser.add_argument(
        "prefix", nargs="?", default="", metavar="PREFIX", help="only topics whose name begins with this"
    )
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)

    def action(client: Client) -> int:
        rows = [[getattr(topic, column) for column in COLUMNS] for topic in client.topics(arguments.prefix)]
        print_rows(COLUMNS, rows, arguments.output)
        return 0

    return call(arguments, action)
