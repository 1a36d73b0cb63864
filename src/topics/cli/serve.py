"""`topics serve`: run a server, configured by the TOPICS_* variables."""

import argparse
import os
import sys


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="topics serve", description="Run a server. Configured by TOPICS_* variables.")
    parser.parse_args(argv)

    from topics.server.process import run as serve
    from topics.server.settings import BadSettings, load_settings

    try:
        settings = load_settings(os.environ)
    except BadSettings as error:
        for problem in error.problems:
            print(f"topics serve: {problem}", file=sys.stderr)
        return 2
    # The keys are digests from here on. What the process was started with stays visible to whoever may read its
    # environment from outside.
    for name in ("TOPICS_API_KEYS", "TOPICS_JWT_SECRET"):
        os.environ.pop(name, None)
    return serve(settings)
