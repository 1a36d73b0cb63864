"""`topics capture postgres`: follow a table of a PostgreSQL and send its changes to the server."""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from topics.cli.calling import add_address, call, parser_for, print_line
from topics.client import Client, ServerUnreachable
from topics.model.errors import InvalidRequest, Throttled, Unavailable

if TYPE_CHECKING:
    from topics.capture.postgres import PostgresCapture

WAIT_LEAST_S = 0.2
WAIT_MOST_S = 30.0


def run(argv: list[str]) -> int:
    parser = parser_for("capture", "Send the changes of a table to the topic changes:TABLE, each once.")
    commands = parser.add_subparsers(dest="command", required=True)
    postgres = commands.add_parser("postgres", help="a table of a PostgreSQL: a snapshot, then every change")
    postgres.add_argument("--dsn", required=True, help="how to reach the database; the password stays in PGPASSFILE")
    postgres.add_argument("--table", required=True, metavar="SCHEMA.TABLE")
    postgres.add_argument("--as", dest="name", default="", metavar="TABLE", help="what the server calls the table")
    postgres.add_argument("--slot", default="", help="the replication slot, and the publication; one per table")
    postgres.add_argument("--key", default="", metavar="COLUMNS", help="the key, when it is not the primary key")
    postgres.add_argument("--poll-ms", type=int, default=200, help="how often to look when there is nothing new")
    postgres.add_argument("--skip-refused", action="store_true", help="go on when the server refuses a change")
    postgres.add_argument("--once", action="store_true", help="end when everything there is has been sent")
    postgres.add_argument("--status", action="store_true", help="show the slot and its lag, and end")
    add_address(postgres)
    arguments = parser.parse_args(argv)
    return call(arguments, lambda client: _capture(arguments, client))


def _capture(arguments: argparse.Namespace, client: Client) -> int:
    try:
        import psycopg

        from topics.capture.postgres import CaptureOptions, PostgresCapture, slot_status
    except ImportError:
        raise InvalidRequest("capture needs psycopg: pip install 'topics[capture]'") from None
    options = CaptureOptions(
        arguments.dsn,
        arguments.table,
        arguments.name,
        arguments.slot,
        tuple([name.strip() for name in arguments.key.split(",") if name.strip()]),
        arguments.skip_refused,
    )
    wait_s = WAIT_LEAST_S
    while True:
        try:
            if arguments.status:
                print_line(slot_status(options))
                return 0
            with PostgresCapture(options, client, _tell) as capture:
                capture.prepare()
                _tell(f"following {options.table} into changes:{options.known_as}")
                wait_s = WAIT_LEAST_S
                _follow(arguments, capture)
            return 0
        except (psycopg.OperationalError, psycopg.InterfaceError, ServerUnreachable, Unavailable, Throttled) as error:
            if arguments.once or arguments.status:
                raise Unavailable(str(error).strip(), code="unavailable") from None
            _tell(f"{str(error).strip()}; again in {wait_s:g} s")
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, WAIT_MOST_S)
        except psycopg.Error as error:
            raise InvalidRequest(str(error).strip()) from None


def _follow(arguments: argparse.Namespace, capture: "PostgresCapture") -> None:
    shown = 0.0
    while True:
        count = capture.step()
        progress = capture.progress
        now = time.monotonic()
        if arguments.once and progress.caught_up:
            print_line(progress)
            return
        if count and now - shown > 1:
            shown = now
            _tell(f"{progress.sent} sent, {progress.duplicates} known already, slot lag {progress.lag_bytes} bytes")
        if progress.caught_up:
            time.sleep(arguments.poll_ms / 1000)


def _tell(text: str) -> None:
    print(f"topics: {text}", file=sys.stderr, flush=True)
