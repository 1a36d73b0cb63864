"""docs/pipeline.md and docs/sql.md speak of what is there."""

import re
from pathlib import Path

from topics.api.operation import MAX_CONTROL_BODY_BYTES, SCOPE_NAMES
from topics.model.tables.archive import ArchiveOptions
from topics.server.application import TopicsApplication
from topics.server.ops.monitoring.metrics import JOB_FIGURES
from topics.server.service import Service
from topics.server.sql.system_tables import TABLES
from topics.server.tables import pipeline_registry as pipeline

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "pipeline.md").read_text(encoding="utf-8")


def test_every_request_it_lists_is_served_and_asks_for_that_scope() -> None:
    served = {(method, path): route.scope for method, path, route in TopicsApplication(Service()).routes.all()}
    rows = re.findall(r"^\| (`[A-Z]+ /.*?) \| (\w+) \|", TEXT, re.MULTILINE)
    listed = {
        (method, re.sub(r":\w+", "*", path)): scope
        for requests, scope in rows
        for method, path in re.findall(r"`([A-Z]+) (/[^`?]*)", requests)
    }
    assert len(listed) >= 9
    assert {request: SCOPE_NAMES[served[request]] for request in listed} == listed
    ours = {request for request in served if re.match(r"/(v0/topics/\*/archive|api/(archives|pipelines))", request[1])}
    assert ours <= set(listed)


def test_it_names_the_metrics_there_are() -> None:
    named = set(re.findall(r"topics_pipeline_\w+", TEXT))
    assert named == {"topics_pipeline_up", *[f"topics_pipeline_job_{figure}" for figure in JOB_FIGURES]}


def test_its_defaults_and_bounds_are_those_of_the_code() -> None:
    options = ArchiveOptions("x")
    for name in ("freshness_ms", "compact_interval_ms", "vacuum_hours"):
        assert f"| `{name}` | {getattr(options, name)} |" in TEXT
    assert (
        f"Up to {pipeline.MAX_PIPELINES} pipelines, {pipeline.MAX_JOBS:,} jobs each, "
        f"{MAX_CONTROL_BODY_BYTES >> 20} MiB a report, {pipeline.MAX_ALL_BYTES >> 20} MiB together"
    ) in TEXT
    assert f"not reported for {pipeline.LOST_AFTER_MS // 1000} seconds" in TEXT


def test_the_page_on_sql_lists_every_system_table_with_its_columns() -> None:
    page = (DOCS / "sql.md").read_text(encoding="utf-8")
    listed = {
        name: columns.split() for name, columns in re.findall(r"^\| `system\.(\w+)` \| `([^`]+)`", page, re.MULTILINE)
    }
    assert listed == {name: [column.name for column in table.columns] for name, table in TABLES.items()}
