"""`topics check`: verify a data directory and report what is damaged."""

import os
import sys

from topics.cli.shared.arguments import Parser, command_parser

# In addition to the exit codes of a report: the directory could not be read.
NOT_CHECKED = 3


def build_parser() -> Parser:
    parser = command_parser(
        "check",
        "Verify every file of a data directory without changing it: log, snapshots, segments, delete flags "
        "and tag indexes, and that they agree. Exits with 0 when everything is whole, 1 when a server would only cut "
        "off a torn tail, 2 when something is damaged, 3 when it could not be checked. A directory that a server is "
        "using is not checked: stop the server first, or check a copy.",
        ["topics check", "topics check /var/lib/topics"],
    )
    parser.add_argument(
        "directory",
        nargs="?",
        metavar="DIRECTORY",
        default=os.environ.get("TOPICS_DATA_DIR") or "./topics-data",
        help="the data directory (default: TOPICS_DATA_DIR, else ./topics-data)",
    )
    return parser


def run(argv: list[str]) -> int:
    directory = build_parser().parse_args(argv).directory

    from topics.broker.durability.data_directory import LOCK
    from topics.maintenance.check import check
    from topics.storage.os_fs import OsFileSystem

    fs = OsFileSystem.at(directory)
    lock = None
    try:
        if not fs.list(""):
            print(f"topics check: there is no data in {directory}", file=sys.stderr)
            return NOT_CHECKED
        if fs.exists(LOCK):
            # Held while checking, so that no server starts meanwhile. A directory that no server has used has no such file.
            lock = fs.lock(LOCK)
        report = check(fs)
    except BlockingIOError:
        print(
            f"topics check: a server is using {directory}; stop it first, or check a copy of the directory",
            file=sys.stderr,
        )
        return NOT_CHECKED
    except OSError as error:
        print(f"topics check: {directory} cannot be read: {error}", file=sys.stderr)
        return NOT_CHECKED
    finally:
        if lock is not None:
            lock.release()
    for line in report.lines():
        print(line)
    return report.status
