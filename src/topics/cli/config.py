"""`topics config`: show what a server started here and now would use, and where each value comes from."""

import argparse
import os
import sys


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="topics config",
        description="Print the effective settings of a server, from TOPICS_* variables and the file TOPICS_CONFIG names. "
        "Secrets are not shown. Exits with 2, naming every problem, when a server would refuse to start.",
    )
    parser.parse_args(argv)

    from topics.server.settings import BadSettings, describe_settings, load_settings

    try:
        settings = load_settings(os.environ)
    except BadSettings as error:
        for problem in error.problems:
            print(f"topics config: {problem}", file=sys.stderr)
        return 2
    for name in settings.unknown_variables:
        print(f"topics config: {name} is not a setting and is ignored", file=sys.stderr)
    print(describe_settings(settings))
    return 0
