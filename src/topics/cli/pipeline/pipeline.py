"""`topics pipeline run|status|stop|replay`: the routes and archives of a server, run on Spark beside it.

Without a name `status` shows all pipelines, and `stop` means the only one that there is.
"""

import sys
import time
from importlib import import_module

from topics.cli.shared import exit_codes
from topics.cli.shared.arguments import Parser, Subcommands, add_connection, add_output, command_parser
from topics.cli.shared.connection import call
from topics.cli.shared.output import print_outcome, print_rows
from topics.cli.shared.progress import Progress
from topics.client import Client, PipelineInfo
from topics.model.errors import InvalidRequest, NotFound

COLUMNS = (
    "pipeline",
    "state",
    "job",
    "kind",
    "job_state",
    "rows",
    "rows_per_s",
    "lag",
    "lag_s",
    "bytes",
    "batch_ms",
    "latency_ms",
    "restarts",
    "error",
)
POLL_S = 0.25


def build_parser() -> Parser:
    parser = command_parser(
        "pipeline",
        "Pipelines on Spark: they route the changes of tables and archive topics.",
        [
            "topics pipeline run --checkpoint ./checkpoints",
            "topics pipeline status",
            "topics pipeline stop --wait-s 60",
        ],
    )
    commands = Subcommands(parser)
    commands.add(
        "run",
        "run all routes and archives of the server; has its own --help",
        ["topics pipeline run --checkpoint ./checkpoints --master local[2]"],
    )
    commands.add(
        "replay",
        "route a range of a table's changes again; has its own --help",
        ["topics pipeline replay shop.orders --from-seq 1 --to 5000 --dry-run"],
    )
    status = commands.add(
        "status", "show pipelines and their jobs", ["topics pipeline status", "topics pipeline status main"]
    )
    stop = commands.add(
        "stop", "ask a pipeline to finish its batches and end", ["topics pipeline stop main --wait-s 60"]
    )
    for each in (status, stop):
        each.add_argument("name", nargs="?", default="", metavar="PIPELINE")
        add_output(each)
    stop.add_argument("--wait-s", type=float, default=0.0, help="maximum seconds to wait for the pipeline to stop")
    add_connection(status, stop)
    return parser


def run(argv: list[str]) -> int:
    if argv[:1] == ["run"]:
        return _run_on_spark("topics.spark.pipeline.run", argv[1:])
    if argv[:1] == ["replay"]:
        return _run_on_spark("topics.spark.pipeline.replay", argv[1:])
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command in ("run", "replay"):
        parser.error(f"the options come behind the command: topics pipeline {arguments.command} --url ...")

    def action(client: Client) -> int:
        if arguments.command == "stop":
            return _stop(client, arguments.name, arguments.wait_s, arguments.output)
        shown = [client.pipeline(arguments.name)] if arguments.name else client.pipelines()
        print_rows(COLUMNS, [row for each in shown for row in _rows(each)], arguments.output)
        return 0

    return call(arguments, action)


def _run_on_spark(name: str, argv: list[str]) -> int:
    # Spark takes seconds to import and need not be there for the other commands.
    try:
        module = import_module(name)
    except ImportError as error:
        print(f"topics: a pipeline needs Spark: pip install '.[spark]' in a checkout ({error})", file=sys.stderr)
        return exit_codes.USAGE
    status: int = module.run(argv)
    return status


def _stop(client: Client, name: str, wait_s: float, output: str | None) -> int:
    if not name:
        names = [each.pipeline for each in client.pipelines() if each.state not in ("stopped", "lost")]
        if not names:
            raise NotFound("no pipeline runs", code="not_found")
        if len(names) > 1:
            raise InvalidRequest(f"name the pipeline to stop: {', '.join(names)}")
        name = names[0]
    state = client.stop_pipeline(name).state
    until = time.monotonic() + wait_s
    # A lost pipeline has not reported for some time; it may still run, and stops when it reports again.
    with Progress(f"wait for pipeline {name}", unit=""):
        while state != "stopped" and time.monotonic() < until:
            time.sleep(POLL_S)
            state = client.pipeline(name).state
    if state == "stopped":
        print_outcome("pipeline", name, "stopped", output)
        return 0
    if not wait_s:
        print_outcome("pipeline", name, "was asked to stop", output)
        return 0
    print_outcome("pipeline", name, f"has not stopped after {wait_s:g} s: it is {state}", output)
    return exit_codes.REFUSED


def _rows(pipeline: PipelineInfo) -> list[list[object]]:
    about: list[object] = [pipeline.pipeline, pipeline.state]
    if not pipeline.jobs:
        return [[*about, *[None] * (len(COLUMNS) - len(about))]]
    names = ("name", "kind", "state", *COLUMNS[5:])
    return [[*about, *[getattr(job, name) for name in names]] for job in pipeline.jobs]
