"""The reference pages name what a running server has."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import server_settings
from tests.test_project import ROOT, project_files
from tools.reference_pages import declared_metrics
from topics.api.errors import STATUS_OF
from topics.api.operations import OPERATIONS
from topics.cli.main import COMMANDS
from topics.server.ops.options import OPTIONS, RETIRED_OPTIONS
from topics.server.ops.settings import OTHER_VARIABLES
from topics.testing.http import Api
from topics.testing.server import running_server

DOCUMENTS = sorted([path for path in project_files() if path.suffix == ".md"])
# Set by `topics work` for the command of a job, and read by a test.
OTHERS = {"TOPICS_QUEUE", "TOPICS_JOB_SEQ", "TOPICS_JOB_DELIVERIES", "TOPICS_JOB_TAG", "TOPICS_WRITE_EXPECTED"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running_server(server_settings(tmp_path / "data")) as url, Api(url) as api:
        yield api


def test_every_metric_of_a_server_is_on_the_page_with_its_help(api: Api) -> None:
    api.put("/v0/topics/jobs", {"type": "queue"})
    api.post("/v0/topics/orders", {"records": [{"data": 1}]})
    api.put("/v0/routers/copy", {"source": "orders", "dest": "copies"})
    consume = {"topic": "orders", "group_id": "g", "partition_id": 0, "limit": 1, "timeout_seconds": 0}
    api.post("/api/topics/consume", consume)
    report = {"state": "running", "jobs": [{"name": "route", "kind": "route", "state": "running", "lag": 1}]}
    api.put("/api/pipelines/spark", report)
    text = api.get("/v0/metrics", headers={"Accept": "text/plain"}).body.decode()
    kinds = dict([line.split(" ")[2:4] for line in text.splitlines() if line.startswith("# TYPE ")])
    helps = dict([line.split(" ", 3)[2:4] for line in text.splitlines() if line.startswith("# HELP ")])
    declared = {name: (kind, about) for name, kind, _, about in declared_metrics()}
    assert {name: (kinds[name], helps[name]) for name in kinds} == {name: declared.get(name) for name in kinds}
    assert len(declared) == len(declared_metrics()), "a name occurs once"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("docs/operate/troubleshooting.md", [f"`{code}`" for code in STATUS_OF]),
        ("docs/reference/commands.md", [f"### topics {name}\n" for name in COMMANDS]),
        ("docs/commands.md", [f"topics {name}" for name in COMMANDS]),
    ],
)
def test_a_page_names_all_of_them(path: str, names: list[str]) -> None:
    text = (ROOT / path).read_text()
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_requests_that_a_document_names_are_operations(page: Path) -> None:
    known = [
        (operation.method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path)))
        for operation in OPERATIONS
        for path in (operation.path, *operation.aliases)
    ]
    named = re.findall(r"\b(GET|POST|PUT|DELETE|PATCH) (/[\w/:.{}<>$-]+)", page.read_text())
    wrong = [
        f"{method} {path}"
        for method, path in named
        if not any([method == each and pattern.fullmatch(path.rstrip(".")) for each, pattern in known])
    ]
    assert wrong == []


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_variables_that_a_document_names_are_settings(page: Path) -> None:
    known = {option.variable for option in OPTIONS} | {option.variable for option in RETIRED_OPTIONS} | OTHER_VARIABLES
    assert set(re.findall(r"\bTOPICS_[A-Z_]*[A-Z]\b", page.read_text())) - known - OTHERS == set()


def test_the_troubleshooting_page_has_the_status_of_each_code() -> None:
    page = (ROOT / "docs/operate/troubleshooting.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (\d+(?:, \d+)*) \|", page, re.MULTILINE)
    listed = {
        code: {int(each) for each in statuses.split(", ")}
        for codes, statuses in rows
        for code in re.findall(r"\w+", codes)
    }
    assert {code for code, status in STATUS_OF.items() if status not in listed.get(code, ())} == set()


def test_log_lines_of_the_troubleshooting_page_are_in_the_source() -> None:
    """`...` and `N` are for parts that differ."""
    page = (ROOT / "docs/operate/troubleshooting.md").read_text()
    table = page.partition("## By log line")[2].partition("\n## ")[0]
    lines = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    assert len(lines) >= 7
    source = "".join([path.read_text() for path in sorted((ROOT / "src/topics").rglob("*.py"))])
    # Long texts are written as several literals.
    source = re.sub(r'"\s*f?"', "", source)
    parts = [part.strip() for line in lines for part in re.split(r"\.\.\.|\bN\b", line) if part.strip()]
    assert [part for part in parts if part not in source] == []
