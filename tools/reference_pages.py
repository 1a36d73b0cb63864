"""Pages of docs/reference: metrics, events, WebSocket, errors, commands, Spark options, Python methods.

Each page is made from the code that it describes. `make generate` writes them.
"""

import argparse
import ast
import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from topics.api.documents.reference import type_rows
from topics.api.errors import STATUS_OF
from topics.api.live import COMMANDS, ErrorMessage
from topics.api.live_messages import EVENTS
from topics.api.operation import COMMON_ERRORS
from topics.api.operations import OPERATIONS
from topics.cli.main import GROUPS
from topics.client import Client, Consumer, Producer, Topic, Worker
from topics.client.errors import error_from
from topics.server.ops.monitoring import metrics
from topics.server.ops.monitoring.process_metrics import process_gauges
from topics.spark.connector.options import SHARED_OPTIONS, SINK_OPTIONS, SOURCE_OPTIONS, Option

ROOT = Path(__file__).resolve().parent.parent
GROUP_TITLES = {
    "data": "Topics and records",
    "queues": "Queues",
    "groups": "Consumer groups",
    "pipeline": "Tables, routers and pipelines",
    "server": "Server",
}

# Labels of the metrics that have some; those of topics and jobs are added below.
LABELS = {
    "topics_topics_by_class": "class",
    "topics_group_lag_records": "topic, group",
    "topics_group_lag_seconds": "topic, group",
    "topics_router_forwarded_total": "router",
    "topics_router_lag": "router",
    "topics_router_blocked": "router",
    "topics_router_backoff": "router",
    "topics_pipeline_up": "pipeline",
    "topics_degraded_conditions": "condition",
    "topics_failures_total": "condition",
    "topics_damaged_range": "file, first_seq, last_seq",
}
SYNC_LATENCY = ("topics_wal_fsync_latency_us", "histogram", "le", "How long syncs of the log took, in microseconds.")

# Commands whose options are those of a program for Spark, by module.
SPARK_COMMANDS = {
    "topics pipeline run": "topics.spark.pipeline.run",
    "topics pipeline replay": "topics.spark.pipeline.replay",
}


def reference_pages() -> dict[str, str]:
    """The pages by path."""
    return {
        "docs/reference/metrics.md": _metrics(),
        "docs/reference/events.md": _events(),
        "docs/reference/websocket.md": _websocket(),
        "docs/reference/errors.md": _errors(),
        "docs/reference/commands.md": _commands(),
        "docs/reference/spark-options.md": _spark_options(),
        "docs/reference/python.md": _python(),
    }


def _page(title: str, source: str, *introduction: str) -> list[str]:
    return [f"# {title}", "", f"Generated from {source} by `make generate`; do not edit.", "", *introduction, ""]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    names = [*head]
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    return [*lines, *[f"| {' | '.join([_cell(cell) for cell in row])} |" for row in rows], ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _text(lines: list[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


# Metrics


def declared_metrics() -> list[tuple[str, str, str, str]]:
    """Name, kind, labels and help of each metric of GET /v0/metrics."""
    found = [*_called_metrics(ROOT / "src/topics/server/ops/monitoring/metrics.py")]
    found += [*_assigned_gauges(ROOT / "src/topics/server")]
    found += [(name, _kind(name), "", text) for name, (text, _) in process_gauges(".").items()]
    found += [(f"topics_topic_{name}", "gauge", "topic", text) for name, text in metrics.TOPIC_FIGURES.items()]
    jobs = metrics.JOB_FIGURES.items()
    found += [(f"topics_pipeline_job_{name}", kind, "pipeline, job", text) for name, (kind, text, _) in jobs]
    found.append(SYNC_LATENCY)
    return sorted(found)


def _called_metrics(path: Path) -> Iterator[tuple[str, str, str, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
            continue
        values = [each.value if isinstance(each, ast.Constant) else None for each in node.args]
        if not isinstance(values[0], str):
            continue
        if node.func.id in ("_gauge", "_counter"):
            yield values[0], node.func.id[1:], "", str(values[1])
        elif node.func.id == "Metric":
            yield values[0], str(values[1]), LABELS[values[0]], str(values[2])


def _assigned_gauges(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """`service.gauges["name"] = (help, read)`."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Subscript):
                named = isinstance(target.value, ast.Attribute) and target.value.attr == "gauges"
                if named and isinstance(target.slice, ast.Constant) and isinstance(node.value, ast.Tuple):
                    text = node.value.elts[0]
                    name = str(target.slice.value)
                    yield name, _kind(name), "", str(text.value) if isinstance(text, ast.Constant) else ""


def _kind(name: str) -> str:
    return "counter" if name.endswith("_total") else "gauge"


def _metrics() -> str:
    lines = _page(
        "Metrics",
        "`topics.server.ops.monitoring.metrics`",
        "`GET /v0/metrics` answers these as Prometheus text, or as JSON with `Accept: application/json`. Metrics of topics are",
        "listed for at most `TOPICS_METRICS_TOPICS_MAX` topics, and only for topics that the key may touch. How to collect them,",
        "and alerts: [Monitoring](../operate/monitoring.md).",
    )
    rows = [(f"`{name}`", kind, labels, text) for name, kind, labels, text in declared_metrics()]
    return _text(lines + _table(("metric", "type", "labels", "meaning"), rows))


# Events and messages


def _fields(kind: type[msgspec.Struct], *, is_request: bool = False) -> list[str]:
    lines: list[str] = []
    for name, rows in type_rows(kind, is_request=is_request):
        if name:
            lines += [f"`{name}`:", ""]
        lines += _table(("field", "type", ""), [(f"`{field}`", of, text) for field, of, text in rows])
    return lines


def _about(kind: type[msgspec.Struct]) -> list[str]:
    text = inspect.cleandoc(kind.__doc__ or "")
    return [] if not text or text.startswith(f"{kind.__name__}(") else [text, ""]


def _events() -> str:
    lines = _page(
        "Live events",
        "`topics.api.live_messages`",
        "Server-sent events of `GET /v0/watch/{wid}` ([API](../api.md)). `data:` is one JSON object with the fields below. `id:` is the",
        "cursor of the session: send it as `Last-Event-ID` to continue there. A comment line is a heartbeat. A",
        "[WebSocket](websocket.md) sends the same fields with `op` in place of `event:`, and `caught_up` and `topic_deleted` with an",
        'underscore; a session with `"event_names": "websocket"` uses these names too.',
    )
    for name, kind in EVENTS.items():
        lines += [f"## {name}", "", *_about(kind), *_fields(kind)]
    return _text(lines)


def _websocket() -> str:
    lines = _page(
        "WebSocket",
        "`topics.api.live`",
        "Messages of `GET /v0/ws` ([API](../api.md)): JSON objects as text messages, by `op`. The server answers each command, in order,",
        "and repeats its `request_id`. Between the answers it sends the [events](events.md) of the subscribed topics.",
    )
    for op, command in COMMANDS.items():
        assert command.request is not None
        assert command.response is not None
        answer = command.response
        lines += [f"## {op}", "", *_about(command.request), *_fields(command.request, is_request=True)]
        lines += [f"Answer `{answer.__struct_config__.tag}`:", "", *_about(answer), *_fields(answer)]
    lines += ["## error", "", *_about(ErrorMessage), *_fields(ErrorMessage)]
    return _text(lines)


# Errors


def _errors() -> str:
    lines = _page(
        "Errors",
        "`topics.api.errors`",
        'An error response is `{"error": {"code", "message", "detail"}}`. `code` is stable; the message names the field, the value and the',
        "limit. The Python client raises the exception of the table, with the same `code`, `message` and `detail`. What to do about each:",
        "[Troubleshooting](../operate/troubleshooting.md).",
    )
    rows = []
    for code, status in STATUS_OF.items():
        exception = type(error_from(status, {"error": {"code": code}}, None)).__name__
        found = [each.name for each in OPERATIONS if code in each.errors]
        where = "all operations" if code in COMMON_ERRORS else ", ".join([f"`{name}`" for name in found])
        rows.append((f"`{code}`", str(status), f"`{exception}`", where))
    return _text(lines + _table(("code", "status", "Python exception", "operations"), rows))


# Commands


def _commands() -> str:
    lines = _page(
        "Commands and options",
        "the parsers of `topics.cli`",
        "Most commands also take `--url`, `--token` and `--context`, which choose the server. The guide is [Commands](../commands.md).",
    )
    for group, commands in GROUPS.items():
        lines += [f"## {GROUP_TITLES[group]}", ""]
        for name, (module, _) in commands.items():
            parser = import_module(module).build_parser()
            lines += _command(f"topics {name}", parser)
    return _text(lines)


def _command(title: str, parser: argparse.ArgumentParser) -> list[str]:
    examples = [line.strip() for line in (parser.epilog or "").splitlines()[1:]]
    if title in SPARK_COMMANDS:
        parser = import_module(SPARK_COMMANDS[title]).build_parser()
    lines = [f"### {title}", "", " ".join((parser.description or "").split()), ""]
    rows = []
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):
            below = [*action.choices.items()]
        elif action.help != argparse.SUPPRESS and action.dest not in ("help", "url", "token", "context"):
            rows.append((_argument(action), _help(parser, action)))
    if rows:
        lines += _table(("argument", "meaning"), rows)
    if examples:
        lines += ["```sh", *examples, "```", ""]
    for name, each in below:
        lines += [line.replace("### ", "#### ", 1) for line in _command(f"{title} {name}", each)]
    return lines


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions


def _argument(action: argparse.Action) -> str:
    names = ", ".join([f"`{name}`" for name in action.option_strings])
    value = str(action.metavar or (action.dest.upper() if action.nargs != 0 else ""))
    if not names:
        return f"`{value}`"
    return names if action.nargs == 0 else f"{names} {value}"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = action.help or ""
    if "%(" in text:
        text = parser._get_formatter()._expand_help(action)
    if action.choices is not None and not text:
        text = ", ".join(map(str, action.choices))
    return text.replace("%%", "%")


# Spark


def _spark_options() -> str:
    lines = _page(
        "Spark options",
        "`topics.spark.connector.options`",
        'Options of `format("topics")`. Names are read in any case. An unknown option is an error that names the nearest known one. The',
        "guide is [Spark](../spark.md).",
    )

    def table(options: dict[str, Option]) -> list[str]:
        rows = [
            (f"`{name}`", f"`{each.default}`" if each.default else "", each.about) for name, each in options.items()
        ]
        return _table(("option", "default", "meaning"), rows)

    own_source = {name: each for name, each in SOURCE_OPTIONS.items() if name not in SHARED_OPTIONS}
    own_sink = {name: each for name, each in SINK_OPTIONS.items() if name not in SHARED_OPTIONS}
    lines += ["## Source and sink", "", *table(SHARED_OPTIONS), "## Source", "", *table(own_source)]
    return _text([*lines, "## Sink", "", *table(own_sink)])


# Python


def _python() -> str:
    lines = _page(
        "Python methods",
        "`topics.client`",
        "`AsyncClient` and its classes have the same methods, to be awaited. The guide is [Python client](../python.md).",
    )
    for kind in (Client, Topic, Producer, Worker, Consumer):
        lines += [f"## {kind.__name__}", "", _first_line(kind), ""]
        rows = []
        for name, member in inspect.getmembers(kind):
            if name.startswith("_"):
                continue
            if callable(member):
                rows.append((f"`{name}{_signature(member)}`", _first_line(member)))
            elif isinstance(member, property):
                rows.append((f"`{name}`", _first_line(member)))
        lines += _table(("method", "meaning"), rows)
    return _text(lines)


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parts = []
    star = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}")
            star = True
        elif parameter.default is parameter.empty or parameter.default in (None, msgspec.UNSET):
            parts.append(parameter.name if parameter.default is parameter.empty else f"{parameter.name}=None")
        else:
            parts.append(f"{parameter.name}={parameter.default!r}")
    result = signature.return_annotation
    shown = (
        ""
        if result in (signature.empty, None, "None")
        else f" -> {result if isinstance(result, str) else result.__name__}"
    )
    return f"({', '.join(parts)}){shown}"


def _first_line(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").partition("\n")[0]
