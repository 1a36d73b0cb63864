"""`topics info TOPIC`: the state and configuration of one topic."""

import msgspec

from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_object
from topics.client import Client


def build_parser() -> Parser:
    parser = command_parser(
        "info",
        "Show the state and configuration of a topic, named by its name or its alias.",
        ["topics info orders", "topics info orders -o json"],
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)

    def action(client: Client) -> int:
        print_object(msgspec.to_builtins(client.info(arguments.topic, touch=False)), arguments.output)
        return 0

    return call(arguments, action)
