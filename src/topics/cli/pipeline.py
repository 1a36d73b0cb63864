"""`topics pipeline run|status|stop`: what the routes and archives of a server ask for, run on Spark beside it.

Without a name `status` shows all pipelines, and `stop` means the only one that there is.
"""

import sys
import time
from importlib import import_module

from topics.cli.calling import add_address, call, parser_for, print_rows, tell
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
    "batch_ms",
    "restarts",
    "error",
)
LOOK_S = 0.25


def run(argv: list[str]) -> int:
    if argv[:1] == ["run"]:
        return _run_pipeline(argv[1:])
    parser = parser_for("pipeline", "Pipelines on Spark: routing changes of tables, archiving topics.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="run all that the server asks for; topics pipeline run --help tells more")
    status = commands.add_parser("status", help="show pipelines and their jobs")
    status.add_argument("name", nargs="?", default="")
    stop = commands.add_parser("stop", help="ask a pipeline to finish its batches and end")
    stop.add_argument("name", nargs="?", default="")
    stop.add_argument("--wait-s", type=float, default=0.0, help="so many seconds at most until it has stopped")
    add_address(status, stop)
    arguments = parser.parse_args(argv)
    if arguments.command == "run":
        parser.error("the options of run stand behind it: topics pipeline run --url ...")

    def action(client: Client) -> int:
        if arguments.command == "stop":
            return _stop(client, arguments.name, arguments.wait_s)
        shown = [client.pipeline(arguments.name)] if arguments.name else client.pipelines()
        print_rows(COLUMNS, [row for each in shown for row in _rows(each)])
        return 0

    return call(arguments, action)


def _run_pipeline(argv: list[str]) -> int:
    # Spark takes seconds to import and need not be there for the other commands.
    try:
        module = import_module("topics.spark.pipeline")
    except ImportError as error:
        print(f"topics: a pipeline needs Spark: pip install 'topics[spark]' ({error})", file=sys.stderr)
        return 1
    status: int = module.run(argv)
    return status


def _stop(client: Client, name: str, wait_s: float) -> int:
    if not name:
        names = [each.pipeline for each in client.pipelines() if each.state not in ("stopped", "lost")]
        if not names:
            raise NotFound("no pipeline runs", code="not_found")
        if len(names) > 1:
            raise InvalidRequest(f"say which one is to stop: {', '.join(names)}")
        name = names[0]
    orders = client.stop_pipeline(name)
    state = orders.state
    until = time.monotonic() + wait_s
    while state not in ("stopped", "lost") and time.monotonic() < until:
        time.sleep(LOOK_S)
        state = client.pipeline(name).state
    over = state in ("stopped", "lost")
    tell("pipeline", name, str(state) if over else "was asked to stop")
    return 0 if over or not wait_s else 1


def _rows(pipeline: PipelineInfo) -> list[list[object]]:
    about: list[object] = [pipeline.pipeline, pipeline.state]
    if not pipeline.jobs:
        return [[*about, *[None] * (len(COLUMNS) - len(about))]]
    names = ("name", "kind", "state", *COLUMNS[5:])
    return [[*about, *[getattr(job, name) for name in names]] for job in pipeline.jobs]
