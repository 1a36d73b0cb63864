"""`topics create TOPIC`: create a topic or a queue."""

from topics.cli.data.config_options import add_config_options, given_config
from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_outcome
from topics.client import Client
from topics.model.errors import Conflict, NotFound


def build_parser() -> Parser:
    parser = command_parser(
        "create",
        "Create a topic. An append creates one too, with the defaults; this command is for other configurations.",
        [
            "topics create orders --partitions 4 --ttl-ms 7d",
            "topics create jobs --queue --max-deliveries 5 --dead-letter jobs.dead",
            "topics create payments --durability fsync --if-not-exists",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--queue", action="store_true", help="create a queue; short for --type queue")
    parser.add_argument("--if-not-exists", action="store_true", help="succeed without a change when the topic exists")
    add_config_options(parser, creating=True)
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    config = given_config(arguments)
    if arguments.queue:
        config["type"] = "queue"

    def action(client: Client) -> int:
        if _exists(client, arguments.topic):
            if not arguments.if_not_exists:
                raise Conflict(f'topic "{arguments.topic}" exists; change it with: topics set', code="topic_exists")
            print_outcome("topic", arguments.topic, "exists", arguments.output)
            return 0
        made = client.create(arguments.topic, **config)
        print_outcome("topic", made.topic, "created" if made.created else "exists", arguments.output)
        return 0

    return call(arguments, action)


def _exists(client: Client, topic: str) -> bool:
    try:
        client.info(topic, touch=False)
    except NotFound:
        return False
    return True
