"""`topics sql [STATEMENT]`: run SQL statements, from an argument, from standard input, or at a prompt."""

import sys
from typing import Any

import msgspec

from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_rows
from topics.client import Client, SqlResult
from topics.model.errors import InvalidRequest


def build_parser() -> Parser:
    parser = command_parser(
        "sql",
        "Run SQL statements, separated by semicolons. Without a statement a terminal gets a prompt with history and "
        "completion, and a pipe is read as statements, as is -. A statement that fails ends the run.\n\n"
        "docs/sql.md lists the statements and the system tables.",
        [
            "topics sql",
            "topics sql 'SELECT name, count FROM system.topics'",
            "topics sql 'SELECT * FROM system.topics WHERE name = ?' orders -o json",
            'topics sql "CREATE TOPIC a; CREATE TOPIC b"',
            "topics sql < statements.sql",
        ],
    )
    parser.add_argument("statement", nargs="?", metavar="STATEMENT")
    parser.add_argument("params", nargs="*", metavar="PARAMETER", help="values of its parameters: JSON or text")
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_intermixed_args(argv)
    if arguments.statement is None and sys.stdin.isatty() and sys.stdout.isatty():
        from topics.cli.sql.prompt import run_prompt

        return call(arguments, lambda client: run_prompt(client, arguments.output))

    def action(client: Client) -> int:
        text = sys.stdin.read() if arguments.statement in (None, "-") else arguments.statement
        statements = split_statements(text)
        if not statements:
            raise InvalidRequest("there is no statement; write one, or open the prompt with `topics sql` on a terminal")
        params = [_value(text) for text in arguments.params]
        if params and len(statements) > 1:
            raise InvalidRequest("parameters need a single statement")
        for statement in statements:
            print_result(client.sql(statement, *params), arguments.output)
        return 0

    return call(arguments, action)


def split_statements(text: str) -> list[str]:
    """The statements of a text, without their semicolons. Those in texts, names and comments do not separate."""
    from topics.sql.tokens import SqlError, tokenize

    try:
        tokens = tokenize(text)
    except SqlError:
        # The server reports the place of the error.
        return [text]
    statements: list[str] = []
    start = 0
    has_tokens = False
    for token in tokens:
        if token.is_sign(";") or token.kind == "end":
            if has_tokens:
                statements.append(text[start : token.start].strip())
            start, has_tokens = token.start + 1, False
        else:
            has_tokens = True
    return statements


def print_result(result: SqlResult, output: str | None) -> None:
    if result.columns:
        print_rows(result.columns, result.rows, output)
    if result.message and sys.stderr.isatty():
        print(result.message, file=sys.stderr)


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
