"""`topics check`: verify a data directory and report what is damaged."""

import os
import sys
from typing import TYPE_CHECKING

from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import Parser, add_report_output, command_parser

if TYPE_CHECKING:
    from topics.maintenance.check import Report

STATES = ("whole", "torn", "damaged")
EXIT_CODES = (exit_codes.SUCCESS, exit_codes.FINDINGS, exit_codes.DAMAGED)
COUNTS = ("snapshots", "wal_files", "frames", "wal_bytes", "segments", "packs", "packed_segments")


def build_parser() -> Parser:
    parser = command_parser(
        "check",
        "Verify every file of a data directory without changing it: log, snapshots, segments, delete flags "
        "and tag indexes, and that they agree. A directory that a server is using is not checked: stop the server first, or "
        "check a copy.\n\nExits with 0 when everything is whole, 10 when a server would only cut off a torn tail, 11 when "
        "something is damaged; 3 when there is no data, 4 when a server is using the directory, 5 when it cannot be read.",
        ["topics check", "topics check /var/lib/topics", "topics check -o json | jq .findings"],
    )
    parser.add_argument(
        "directory",
        nargs="?",
        metavar="DIRECTORY",
        default=os.environ.get("TOPICS_DATA_DIR") or "./topics-data",
        help="the data directory (default: TOPICS_DATA_DIR, else ./topics-data)",
    )
    add_report_output(parser)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    directory = arguments.directory

    from topics.broker.durability.data_directory import LOCK
    from topics.cli.shared.progress import Progress
    from topics.maintenance.check import check
    from topics.storage.os_fs import OsFileSystem

    fs = OsFileSystem.at(directory)
    lock = None
    try:
        if not fs.list(""):
            print(f"topics check: there is no data in {directory}", file=sys.stderr)
            return exit_codes.NOT_FOUND
        if fs.exists(LOCK):
            # Held while checking, so that no server starts meanwhile. A directory that no server has used has no such file.
            lock = fs.lock(LOCK)
        with Progress(f"check {directory}", unit=""):
            report = check(fs)
    except BlockingIOError:
        print(
            f"topics check: a server is using {directory}; stop it first, or check a copy of the directory",
            file=sys.stderr,
        )
        return exit_codes.REFUSED
    except OSError as error:
        print(f"topics check: {directory} cannot be read: {error}", file=sys.stderr)
        return exit_codes.UNREACHABLE
    finally:
        if lock is not None:
            lock.release()
    _print(report, directory, arguments.output)
    return EXIT_CODES[report.status]


def _print(report: "Report", directory: str, output: str | None) -> None:
    if output is None:
        for line in report.lines():
            print(line)
        return

    import msgspec

    from topics.cli.shared.output import print_object

    fields = {"directory": directory, "state": STATES[report.status], "starts": report.starts}
    for name in COUNTS:
        fields[name] = getattr(report, name)
    if report.starts:
        fields |= {"topics": report.topics, "records": report.records, "bytes": report.bytes}
    print_object({**fields, "findings": msgspec.to_builtins(report.findings)}, output)
