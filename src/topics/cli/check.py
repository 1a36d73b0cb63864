"""`topics check`: verify a data directory and say in plain words what was found."""

import argparse
import os
import sys

# Beside the statuses of a report: the directory could not be looked at.
NOT_CHECKED = 3


def run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="topics check",
        description="Verify every file of a data directory without changing it: log, snapshots, segments, delete flags "
        "and tag indexes, and that they agree. Exits with 0 when everything is whole, 1 when a server would only cut "
        "off a torn tail, 2 when something is damaged, 3 when it could not be checked. A directory that a server is "
        "using is not checked: stop the server first, or check a copy.",
    )
    parser.add_argument(
        "directory",
        nargs="?",
        default=os.environ.get("TOPICS_DATA_DIR") or "./topics-data",
        help="the data directory (default: TOPICS_DATA_DIR, else ./topics-data)",
    )
    directory = parser.parse_args(argv).directory

    from topics.broker.check import check
    from topics.broker.directory import LOCK
    from topics.storage.os_fs import OsFileSystem

    fs = OsFileSystem.at(directory)
    lock = None
    try:
        if not fs.list(""):
            print(f"topics check: there is no data in {directory}", file=sys.stderr)
            return NOT_CHECKED
        if fs.exists(LOCK):
            # Held while checking, so that no server starts meanwhile. One that was never used has no such file.
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
