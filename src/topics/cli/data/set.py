"""`topics set TOPIC`: change the configuration of a topic."""

import sys

from topics.cli.data.config_options import add_config_options, changed_fields, given_config
from topics.cli.shared.arguments import Parser, add_connection, add_output, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_rows
from topics.client import Client
from topics.model.errors import InvalidRequest


def build_parser() -> Parser:
    parser = command_parser(
        "set",
        "Change the named fields of a topic's configuration; the others stay. Prints the fields that changed. With --dry-run "
        "it prints what would change and, on standard error, how many records the change would drop at once.",
        [
            "topics set orders --ttl-ms 30d --cap-bytes 10GB",
            "topics set orders --ttl-ms 1d --dry-run",
            "topics set jobs --lease-ms 2m --dead-letter none",
        ],
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--dry-run", action="store_true", help="show what would change and change nothing")
    add_config_options(parser, creating=False)
    add_output(parser)
    add_connection(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    config = given_config(arguments)

    def action(client: Client) -> int:
        if not config:
            raise InvalidRequest("nothing to set: name a field, for example --ttl-ms 7d")
        before = client.info(arguments.topic, touch=False).config
        after = client.create(arguments.topic, dry_run=arguments.dry_run, **config)
        changed = changed_fields(before, after.config)
        rows = [[name, before[name], value] for name, value in changed.items()]
        print_rows(("field", "before", "now"), rows, arguments.output)
        if after.evicts_records:
            print(f"topics: this would drop {after.evicts_records} records", file=sys.stderr)
        return 0

    return call(arguments, action)
