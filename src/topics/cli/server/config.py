"""`topics config`: the settings that a server started here and now would use, and where each comes from."""

import os
import sys

from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import Parser, add_report_output, command_parser


def build_parser() -> Parser:
    parser = command_parser(
        "config",
        "Print the effective settings of a server, from TOPICS_* variables and the file TOPICS_CONFIG names. "
        "Secrets are not shown. Exits with 1 and names every problem when a server would refuse to start. The text is a "
        "server.toml that gives the same settings; -o prints a row for each setting.",
        ["topics config", "TOPICS_CONFIG=server.toml topics config", "topics config -o csv"],
    )
    add_report_output(parser)
    return parser


def run(argv: list[str]) -> int:
    output = build_parser().parse_args(argv).output

    from topics.server.ops.settings import BadSettings, describe_settings, effective_settings, load_settings

    try:
        settings = load_settings(os.environ)
    except BadSettings as error:
        for problem in error.problems:
            print(f"topics config: {problem}", file=sys.stderr)
        return exit_codes.USAGE
    for name in settings.unknown_variables:
        print(f"topics config: {name} is not a setting and is ignored", file=sys.stderr)
    for sentence in settings.retired:
        print(f"topics config: {sentence}", file=sys.stderr)
    if output is None:
        print(describe_settings(settings))
    else:
        from topics.cli.shared.output import print_rows

        print_rows(("section", "setting", "value", "origin"), effective_settings(settings), output)
    return 0
