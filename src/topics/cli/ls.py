"""`topics ls [PREFIX]`: the topics of a server."""

from topics.cli.calling import call, parser_for, print_rows
from topics.client import Client


def run(argv: list[str]) -> int:
    parser = parser_for("ls", "List topics: a table on a terminal, JSON lines in a pipe.")
    parser.add_argument("prefix", nargs="?", default="", help="only topics whose name begins with this")
    arguments = parser.parse_args(argv)

    def action(client: Client) -> int:
        columns = ("topic", "count", "bytes", "earliest_seq", "head_seq", "durable")
        rows = [[getattr(topic, column) for column in columns] for topic in client.topics(arguments.prefix)]
        print_rows(columns, rows)
        return 0

    return call(arguments, action)
