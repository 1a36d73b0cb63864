"""`topics sql STATEMENT`: run one SQL statement on the server."""

import sys
from typing import Any

import msgspec

from topics.cli.calling import call, parser_for, print_rows
from topics.client import Client


def run(argv: list[str]) -> int:
    parser = parser_for("sql", "Run a SQL statement; - reads it from standard input.")
    parser.add_argument("statement")
    parser.add_argument("params", nargs="*", help="values for its parameters: JSON if it is JSON, a string otherwise")
    arguments = parser.parse_args(argv)

    def action(client: Client) -> int:
        statement = sys.stdin.read() if arguments.statement == "-" else arguments.statement
        result = client.sql(statement, *[_value(text) for text in arguments.params])
        if result.columns:
            print_rows(result.columns, result.rows)
        if result.message:
            print(result.message, file=sys.stderr)
        return 0

    return call(arguments, action)


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
