"""`topics rm TOPIC...`: delete topics with all their records."""

from topics.cli.shared.arguments import Parser, add_connection, add_output, add_yes, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import confirm, print_outcome
from topics.client import Client
from topics.model.errors import topic_not_found


def build_parser() -> Parser:
    parser = command_parser(
        "rm",
        "Delete topics with all their records, groups and routers, for good. Asks first on a terminal; without "
        "one --yes is required.",
        ["topics rm old.orders", "topics rm a b c --yes", "topics rm maybe --if-exists --if-empty --yes"],
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--if-empty", action="store_true", help="refuse topics that hold records")
    parser.add_argument("--if-exists", action="store_true", help="succeed when there is no such topic")
    add_yes(parser)
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_intermixed_args(argv)

    def action(client: Client) -> int:
        question = f"Delete {', '.join(arguments.topics)} with all records?"
        if not confirm(question, yes=arguments.yes):
            return 0
        for topic in arguments.topics:
            gone = client.drop(topic, if_empty=arguments.if_empty)
            if not gone.deleted and not arguments.if_exists:
                raise topic_not_found(topic)
            print_outcome("topic", topic, "deleted" if gone.deleted else "did not exist", arguments.output)
        return 0

    return call(arguments, action)
