"""`topics capture postgres`: follow a table of a PostgreSQL and send its changes to the server."""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from topics.cli.shared.arguments import Parser, Subcommands, add_connection, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_line
from topics.cli.shared.progress import Progress
from topics.client import Client, ServerUnreachable
from topics.model.errors import InvalidRequest, Throttled, Unavailable

if TYPE_CHECKING:
    from topics.capture.postgres import PostgresCapture

MIN_WAIT_S = 0.2
MAX_WAIT_S = 30.0


def build_parser() -> Parser:
    parser = command_parser(
        "capture",
        "Send the changes of a database table to the topic changes:TABLE, each once.",
        ["topics capture postgres --dsn 'host=db dbname=shop' --table public.orders"],
    )
    postgres = Subcommands(parser).add(
        "postgres",
        "follow a table of a PostgreSQL: a snapshot, then every change",
        [
            "topics capture postgres --dsn 'host=db dbname=shop' --table public.orders",
            "topics capture postgres --dsn 'host=db dbname=shop' --table public.orders --status",
        ],
    )
    postgres.add_argument("--dsn", required=True, help="how to reach the database; the password is in PGPASSFILE")
    postgres.add_argument("--table", required=True, metavar="SCHEMA.TABLE")
    postgres.add_argument("--as", dest="name", default="", metavar="TABLE", help="name of the table on the server")
    postgres.add_argument("--slot", default="", help="name of the replication slot and the publication; one per table")
    postgres.add_argument("--key", default="", metavar="COLUMNS", help="the key, when it is not the primary key")
    postgres.add_argument("--poll-ms", type=int, default=200, help="interval of looks while there is nothing new")
    postgres.add_argument("--skip-refused", action="store_true", help="continue when the server refuses a change")
    postgres.add_argument("--once", action="store_true", help="end when all changes are sent")
    postgres.add_argument("--status", action="store_true", help="show the slot and its lag, and end")
    add_connection(postgres)
    return parser


def run(argv: list[str]) -> int:
    arguments = build_parser().parse_args(argv)
    return call(arguments, lambda client: _capture(arguments, client))


def _capture(arguments: argparse.Namespace, client: Client) -> int:
    try:
        import psycopg

        from topics.capture.postgres import CaptureOptions, PostgresCapture, slot_status
    except ImportError:
        raise InvalidRequest("capture needs psycopg: pip install '.[capture]' in a checkout") from None
    options = CaptureOptions(
        arguments.dsn,
        arguments.table,
        arguments.name,
        arguments.slot,
        tuple([name.strip() for name in arguments.key.split(",") if name.strip()]),
        arguments.skip_refused,
    )
    wait_s = MIN_WAIT_S
    while True:
        try:
            if arguments.status:
                print_line(slot_status(options))
                return 0
            with PostgresCapture(options, client, _log) as capture:
                with Progress(f"copy {options.table}", unit=""):
                    capture.prepare()
                _log(f"following {options.table} into changes:{options.known_as}")
                wait_s = MIN_WAIT_S
                _follow(arguments, capture)
            return 0
        except (psycopg.OperationalError, psycopg.InterfaceError, ServerUnreachable, Unavailable, Throttled) as error:
            if arguments.once or arguments.status:
                raise Unavailable(str(error).strip(), code="unavailable") from None
            _log(f"{str(error).strip()}; trying again in {wait_s:g} s")
            time.sleep(wait_s)
            wait_s = min(wait_s * 2, MAX_WAIT_S)
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
            _log(f"{progress.sent} sent, {progress.duplicates} sent before, slot lag {progress.lag_bytes} bytes")
        if progress.caught_up:
            time.sleep(arguments.poll_ms / 1000)


def _log(text: str) -> None:
    print(f"topics: {text}", file=sys.stderr, flush=True)
