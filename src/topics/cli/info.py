"""`topics info TOPIC`: the state and configuration of one topic."""

import msgspec

from topics.cli.calling import call, for_people, parser_for, print_line
from topics.client import Client


def run(argv: list[str]) -> int:
    parser = parser_for("info", "Show the state and configuration of a topic.")
    parser.add_argument("topic")
    arguments = parser.parse_args(argv)

    def action(client: Client) -> int:
        info = msgspec.to_builtins(client.info(arguments.topic, touch=False))
        if not for_people():
            print_line(info)
            return 0
        config = info.pop("config")
        for fields in (info, config):
            width = max(map(len, fields))
            for name, value in fields.items():
                print(f"{name:<{width}}  {'-' if value is None else value}")
            print()
        return 0

    return call(arguments, action)
