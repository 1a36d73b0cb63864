"""`topics repair`: turn damaged ranges of a data directory into reported gaps, and list what is lost."""

import os
import sys
from typing import TYPE_CHECKING, Any

from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import Parser, add_report_output, command_parser

if TYPE_CHECKING:
    from topics.broker.durability.data_directory import DataDirectory
    from topics.storage.fs import FileSystem

EXIT_CODES = {
    "whole": exit_codes.SUCCESS,
    "repaired": exit_codes.SUCCESS,
    "repairable": exit_codes.FINDINGS,
    "damaged": exit_codes.DAMAGED,
}


def build_parser() -> Parser:
    parser = command_parser(
        "repair",
        "Give up the records in damaged segment files, so that the rest of the data directory is whole. Readers "
        "get a tombstone for each lost range. What can be read of a damaged file is kept. Damaged files are moved to "
        "damaged/ in the data directory and are never used again; restore them from a copy instead of repairing if there "
        "is one. The server must not be running.\n\nExits with 0 when the directory is whole afterwards, 11 when it cannot be "
        "repaired (a server would refuse to start: restore the named files from a copy); 3 when there is no data, 4 when a "
        "server is using the directory, 5 when it cannot be read or written. With --dry-run, 10 means that there is something "
        "to repair.",
        [
            "topics check ./topics-data              what is damaged",
            "topics repair --dry-run ./topics-data   what would be lost",
            "topics repair ./topics-data             give it up",
        ],
    )
    parser.add_argument(
        "directory",
        nargs="?",
        metavar="DIRECTORY",
        default=os.environ.get("TOPICS_DATA_DIR") or "./topics-data",
        help="the data directory (default: TOPICS_DATA_DIR, else ./topics-data)",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be lost and change nothing")
    add_report_output(parser)
    return parser


class Printer:
    """Print lines as they come, or keep them for one object at the end when `-o` names a format."""

    def __init__(self, directory: str, output: str | None) -> None:
        self._directory = directory
        self._output = output
        self._lines: list[str] = []

    def line(self, text: str) -> None:
        if self._output is None:
            print(text)
        else:
            self._lines.append(text)

    def end(self, state: str, **counts: Any) -> int:
        """Print the object, if one is wanted, and return the exit code for the state of the directory."""
        if self._output is not None:
            from topics.cli.shared.output import print_object

            fields = {"directory": self._directory, "state": state, **counts, "lines": self._lines}
            print_object(fields, self._output)
        return EXIT_CODES[state]


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)

    from topics.broker.durability.data_directory import DataDirectory, DirectoryInUse
    from topics.cli.shared.progress import Progress
    from topics.model.errors import CorruptStorage
    from topics.storage.os_marker import DEFAULT_DIRECTORY

    directory = DataDirectory(arguments.directory, os.environ.get("TOPICS_RUNTIME_DIR") or DEFAULT_DIRECTORY)
    printer = Printer(arguments.directory, arguments.output)
    try:
        if not directory.fs.list(""):
            print(f"topics repair: there is no data in {arguments.directory}", file=sys.stderr)
            return exit_codes.NOT_FOUND
        directory.open()
        with Progress(f"repair {arguments.directory}", unit=""):
            return _dry_run(directory.fs, printer) if arguments.dry_run else _repair(directory, printer)
    except DirectoryInUse:
        print(f"topics repair: a server is using {arguments.directory}; stop it first", file=sys.stderr)
        return exit_codes.REFUSED
    except CorruptStorage as error:
        printer.line(f"damaged: {error}")
        printer.line(
            "This cannot be repaired: the damaged part could have said anything. Restore the named files from a copy."
        )
        return printer.end("damaged")
    except OSError as error:
        print(f"topics repair: {arguments.directory} cannot be repaired: {error}", file=sys.stderr)
        return exit_codes.UNREACHABLE
    finally:
        directory.close()


def _dry_run(fs: "FileSystem", printer: Printer) -> int:
    from topics.broker.durability.recovery import replay
    from topics.maintenance.repair import find_damage
    from topics.model.storage_settings import StorageSettings

    replayed = replay(fs, StorageSettings())
    damaged = find_damage(fs, replayed.state)
    for error in replayed.bad_snapshots:
        printer.line(f"damaged: {error}; an older snapshot holds the same")
    for segment in damaged:
        for line in segment.lines():
            printer.line(line)
    if not damaged and not replayed.bad_snapshots:
        printer.line("Nothing is damaged.")
        return printer.end("whole", segments=0, lost_records=0)
    lost = sum([segment.lost_records for segment in damaged])
    printer.line(f"Nothing was changed. A repair loses {lost} records.")
    return printer.end("repairable", segments=len(damaged), lost_records=lost)


def _repair(directory: "DataDirectory", printer: Printer) -> int:
    import asyncio
    import logging

    from topics.broker.broker import Broker
    from topics.maintenance.repair import Repair
    from topics.model.errors import TopicsError
    from topics.model.limits import Limits
    from topics.model.storage_settings import StorageSettings
    from topics.runtime.loop_runtime import LoopRuntime

    # What is damaged is printed below.
    logging.getLogger("topics.health").addHandler(logging.NullHandler())
    # The margin of the server that wrote the log counts, if it is needed; this one adds nothing to it.
    settings = StorageSettings(margin=1)
    recovered = directory.recover(settings)
    for torn in recovered.torn:
        printer.line(f"cut off {torn.dropped_bytes} bytes of a torn tail: {torn.path} at byte {torn.offset}")

    async def repair() -> int:
        loop = asyncio.get_running_loop()
        runtime = LoopRuntime(loop)
        broker = Broker(directory.fs, runtime, recovered, Limits(), settings)
        broker.start()
        repaired: asyncio.Future[Exception | None] = loop.create_future()
        work = Repair(broker, directory.fs, printer.line, repaired.set_result)
        work.start()
        error = await repaired
        stopped: asyncio.Future[bool] = loop.create_future()
        broker.stop(stopped.set_result)
        await stopped
        runtime.stop()
        if error is not None:
            if not isinstance(error, OSError | TopicsError):
                raise error
            print(f"topics repair: stopped before it was complete: {error}; run it again", file=sys.stderr)
            return exit_codes.UNREACHABLE
        if not work.repaired and not recovered.bad_snapshots:
            printer.line("Nothing is damaged.")
            return printer.end("whole", segments=0, lost_records=0)
        printer.line(f"Repaired: {work.repaired} segments. {work.lost_records} records are lost.")
        return printer.end("repaired", segments=work.repaired, lost_records=work.lost_records)

    return asyncio.run(repair())
