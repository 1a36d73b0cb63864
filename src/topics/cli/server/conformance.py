"""`topics conformance URL`: check a running server against the contract of the HTTP API."""

import argparse
import os
import sys

from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import FORMATS, Parser, command_parser
from topics.cli.shared.output import print_rows
from topics.cli.shared.progress import Progress

COLUMNS = ("area", "name", "outcome", "seconds", "reason")
KEY_NAMES = ("read", "write", "delete", "admin", "prefix")


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)

    from topics.conformance.report import json_report, text_report
    from topics.conformance.runner import Result, Target, run_checks, selected
    from topics.conformance.server import Server

    checks = selected(arguments.only)
    if arguments.list:
        print("\n".join([check.title for check in checks]))
        return 0
    if arguments.url is None:
        print("topics conformance: URL is missing, for example http://127.0.0.1:4000", file=sys.stderr)
        return exit_codes.USAGE
    if not checks:
        print(f"topics conformance: no check matches {', '.join(arguments.only)}; see --list", file=sys.stderr)
        return exit_codes.USAGE
    target = Target(arguments.url.rstrip("/"), arguments.token or os.environ.get("TOPICS_TOKEN"), dict(arguments.key))
    try:
        Server(target.url).get("/v0/health")
    except ValueError as error:
        print(f"topics conformance: {target.url} is not a server's URL: {error}", file=sys.stderr)
        return exit_codes.USAGE
    except OSError as error:
        print(f"topics conformance: {target.url} cannot be reached: {error}", file=sys.stderr)
        return exit_codes.UNREACHABLE
    with Progress("conformance", len(checks), "checks") as progress:

        def show(result: Result) -> None:
            if arguments.verbose:
                print(f"{result.outcome:<8} {result.area}: {result.name}", file=sys.stderr, flush=True)
            progress.advance()

        results = run_checks(target, checks, arguments.jobs, show)
    if arguments.output == "text":
        print(text_report(target.url, results))
    elif arguments.output == "json":
        print(json_report(target.url, results))
    else:
        rows = [[each.area, each.name, each.outcome, round(each.seconds, 3), each.reason or None] for each in results]
        print_rows(COLUMNS, rows, arguments.output)
    failed = any([result.outcome == "failed" for result in results])
    return exit_codes.FINDINGS if failed else exit_codes.SUCCESS


def build_parser() -> Parser:
    parser = command_parser(
        "conformance",
        "Check a running server, of any maker, against the contract of the HTTP API. Every check creates its own "
        "topics, named conformance-…, and removes them. The server needs its default limits. Exits with 0 when no check "
        "failed, 10 when one did, 5 when the server could not be reached.",
        ["topics conformance http://127.0.0.1:4000", "topics conformance http://127.0.0.1:4000 --only queues -o json"],
    )
    parser.add_argument("url", metavar="URL", nargs="?", help="the server, for example http://127.0.0.1:4000")
    parser.add_argument("--token", help="an API key with every scope; otherwise TOPICS_TOKEN")
    parser.add_argument(
        "--key",
        metavar="NAME=KEY",
        action="append",
        type=_named_key,
        default=[],
        help="a limited API key, for the checks of scopes: read, write, delete and admin name a key with that scope only, "
        "prefix one that is limited to names beginning with conformance-allowed: (may be repeated)",
    )
    parser.add_argument(
        "--only",
        metavar="TEXT",
        action="append",
        default=[],
        help="an area, or part of a check's name (may be repeated)",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the checks and run none")
    parser.add_argument("--jobs", type=int, default=8, help="number of checks that run at a time (default 8)")
    parser.add_argument("-o", "--output", choices=("text", *FORMATS), default="text", help="format (default: text)")
    parser.add_argument("-v", "--verbose", action="store_true", help="print each check as it ends, on standard error")
    return parser


def _named_key(text: str) -> tuple[str, str]:
    name, _, key = text.partition("=")
    if name not in KEY_NAMES or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=KEY with NAME one of {', '.join(KEY_NAMES)}")
    return name, key
