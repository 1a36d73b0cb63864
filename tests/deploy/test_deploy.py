"""Files under deploy/ are valid, and name only metrics and settings that the server has."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from topics.server.ops.options import OPTIONS
from topics.server.ops.settings import OTHER_VARIABLES, load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "topics.json"
# Reported only while there is something to report about.
REPORTED_WHEN_PRESENT = {
    "topics_router_lag",
    "topics_pipeline_job_rows_per_second",
}


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture(scope="module")
def reported_metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    data_dir = str(tmp_path_factory.mktemp("data"))
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": data_dir})
    with running_server(settings) as url, Api(url) as api:
        api.post("/v0/topics/t", {"records": [{"data": 1}]})
        api.put("/v0/topics/q", {"type": "queue"})
        api.post("/api/topics/consume", {"topic_id": "t", "group_id": "g", "start": "Earliest", "timeout_seconds": 0})
        api.post("/api/topics/ack", {"topic_id": "t", "group_id": "g", "partition_id": 0, "upto_offset": 1})
        text = api.get("/v0/metrics").body.decode()
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:topics|process)_[a-z_]+", expression))


def test_dashboard_queries_metrics_that_the_server_reports(reported_metrics: set[str]) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    asked = set().union(*[metrics_in(expression) for expression in expressions])
    assert asked - reported_metrics - REPORTED_WHEN_PRESENT == set()
    assert len(expressions) > 20


def test_alerts_query_metrics_that_the_server_reports(reported_metrics: set[str]) -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    asked = set().union(*[metrics_in(rule["expr"]) for rule in rules])
    assert asked - reported_metrics == set()
    for rule in rules:
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


@pytest.mark.slow
def test_promtool_accepts_the_configuration_and_the_alert_rules() -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool is not installed; `make system-deps` installs it"
    subprocess.run([promtool, "check", "rules", str(DEPLOY / "alerts.yml")], check=True, capture_output=True)
    configuration = [promtool, "check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml")]
    subprocess.run(configuration, check=True, capture_output=True)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "topics.service"
    # The path in the unit is that of an installation; verify resolves it.
    unit.write_text((DEPLOY / "topics.service").read_text().replace("/opt/topics/bin/topics", "/bin/true"))
    result = subprocess.run([tool("systemd-analyze"), "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("path", ["Dockerfile", "deploy/compose.yaml", "deploy/topics.service"])
def test_variables_are_settings_of_the_server(path: str) -> None:
    known = {option.variable for option in OPTIONS} | OTHER_VARIABLES
    named = set(re.findall(r"\bTOPICS_[A-Z_]+", (ROOT / path).read_text()))
    assert named
    assert named - known == set()


def test_container_runs_as_a_user_without_privileges_and_reports_its_health() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER topics"]
    assert any(line.startswith("HEALTHCHECK ") for line in lines)
    assert any(line.startswith("VOLUME /data") for line in lines)


def test_container_copies_everything_that_the_build_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY ((?:\S+ )+)\./", dockerfile, re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    used = re.findall(r"-r (\S+)", dockerfile)
    assert {"pyproject.toml", "src", *used, *project["project"]["license-files"]} <= names
    ignored = set((ROOT / ".dockerignore").read_text().split())
    assert [name for name in names if name in ignored or not (ROOT / name).exists()] == []


def test_container_installs_only_pinned_requirements_and_the_wheel_of_this_tree() -> None:
    installs = re.findall(r"pip install ([^&\n]*)", (ROOT / "Dockerfile").read_text())
    sources = {re.sub(r"--\S+", "", each).rstrip("\\ ").strip() for each in installs}
    assert sources == {"-r requirements-build.txt", "-r requirements.txt", "/wheels/*.whl"}


def test_compose_file_has_no_default_secret() -> None:
    """A secret with a default (`${NAME:-text}`) would be the same in all installations that do not set it."""
    text = (DEPLOY / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == {"TOPICS_API_KEYS", "METRICS_KEY", "GRAFANA_PASSWORD"}
    assert ":-" not in text


def test_compose_file_mounts_only_files_that_exist() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"topics", "prometheus", "grafana"}
    mounts = [mount for service in services.values() for mount in service.get("volumes", ()) if isinstance(mount, str)]
    local = [mount.split(":")[0] for mount in mounts if mount.startswith(".")]
    assert local
    assert all((DEPLOY / mount).exists() for mount in local)
