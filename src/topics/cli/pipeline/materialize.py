"""`topics table materialize`: run the Spark query that keeps a Delta table equal to a table."""

import argparse
import os
import signal
import sys
import threading

from topics.cli.shared import exit_codes
from topics.cli.shared.connection import call
from topics.cli.shared.contexts import find_address
from topics.cli.shared.output import print_line
from topics.client import Client

POLL_S = 0.25


def materialize_table(arguments: argparse.Namespace) -> int:
    """Runs until SIGTERM or SIGINT, or with --once until all changes are applied."""
    from topics.spark.pipeline.session import NoSpark

    try:
        return call(arguments, lambda client: _materialize(client, arguments))
    except NoSpark as error:
        print(f"topics: {error}", file=sys.stderr)
        return exit_codes.USAGE


def _materialize(client: Client, arguments: argparse.Namespace) -> int:
    from topics.spark.pipeline.arguments import session_of
    from topics.spark.pipeline.session import require_spark

    require_spark()
    from topics.spark.materialize.job import Materializer
    from topics.spark.materialize.table import Applied, MaterializeError
    from topics.spark.pipeline.progress import reason

    _, token, _ = find_address(arguments.url, arguments.token, arguments.context)

    def show(applied: Applied) -> None:
        print_line({"table": arguments.name, **{name: getattr(applied, name) for name in Applied.__struct_fields__}})

    try:
        materializer = Materializer(
            client,
            arguments.name,
            arguments.delta,
            arguments.mode,
            token=token or os.environ.get("TOPICS_TOKEN") or None,
            ignore_loss=arguments.ignore_loss,
            on_applied=show,
        )
        spark = session_of(arguments, f"topics materialize {arguments.name}")
        interval = {"processingTime": f"{arguments.interval_ms} milliseconds"}
        running = materializer.start(spark, **({"availableNow": True} if arguments.once else interval))
    except MaterializeError as error:
        print(f"topics: {error}", file=sys.stderr)
        return exit_codes.USAGE
    # After Spark, which has a handler of its own for SIGINT.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        while not stop.is_set() and not running.wait(POLL_S):
            pass
    except Exception as error:  # noqa: BLE001 - any error that ends the query is reported in one line
        print(f"topics: {reason(error)}", file=sys.stderr)
        return exit_codes.USAGE
    finally:
        running.stop()
        spark.stop()
    return exit_codes.SUCCESS
