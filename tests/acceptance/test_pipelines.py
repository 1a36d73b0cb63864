"""/api/pipelines and system.pipelines: what a pipeline tells, who is shown it, and how it is stopped."""

from typing import Any

import pytest

from tests.acceptance.topic import refused, succeeded
from topics.testing.http import Api

JOB = {
    "name": "archive app.events",
    "kind": "archive",
    "state": "running",
    "rows": 5,
    "rows_per_s": 2.5,
    "lag": 7,
    "last_batch": 3,
    "batch_ms": 120,
    "restarts": 1,
    "error": "once it failed",
    "notes": {"quarantined": 2},
    "lag_s": 1.5,
    "bytes": 4096,
    "latency_ms": 130.5,
}
REPORT = {"state": "running", "master": "local[2]", "started_ts": 1_700_000_000_000, "jobs": [JOB]}


@pytest.fixture
def path(name: str) -> str:
    return f"/api/pipelines/{name}"


def rows(api: Api, name: str) -> list[dict[str, Any]]:
    statement = f"SELECT * FROM system.pipelines WHERE pipeline = '{name}' ORDER BY job"
    answer = succeeded(api.post("/api/sql", {"sql": statement}))
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def test_a_pipeline_reports_is_shown_and_is_forgotten(api: Api, name: str, path: str) -> None:
    refused(api.get(path), 404, "not_found")
    assert succeeded(api.put(path, {"state": "starting"}))["stop"] is False
    (row,) = rows(api, name)
    assert (row["state"], row["job"], row["rows"]) == ("starting", None, None)
    assert succeeded(api.put(path, REPORT))["stop"] is False
    want = {"pipeline": name, **REPORT, "stop": False}
    listed = [each for each in succeeded(api.get("/v1/api/pipelines"))["pipelines"] if each["pipeline"] == name]
    for found in (succeeded(api.get(path)), *listed):
        assert {field: found[field] for field in want} == want
        assert found["reported_ts"] > REPORT["started_ts"]
    assert len(listed) == 1
    (row,) = rows(api, name)
    assert (row["job"], row["kind"], row["job_state"], row["lag_records"]) == (JOB["name"], "archive", "running", 7)
    assert (row["batch_ms"], row["error"], row["notes"]) == (120, "once it failed", '{"quarantined":2}')
    assert (row["lag_s"], row["bytes"], row["latency_ms"]) == (1.5, 4096, 130.5)
    assert succeeded(api.delete(path))["deleted"] is True
    refused(api.delete(path), 404, "not_found")
    assert rows(api, name) == []
    succeeded(api.put(path, REPORT))


def test_a_stop_is_in_the_answers_until_it_is_done(api: Api, path: str) -> None:
    refused(api.post(f"{path}/stop", {}), 404, "not_found")
    succeeded(api.put(path, REPORT))
    answer = succeeded(api.send("POST", f"{path}/stop"))
    assert (answer["stop"], answer["state"]) == (True, "running")
    assert succeeded(api.get(path))["stop"] is True
    for state in ("running", "stopping"):
        assert succeeded(api.put(path, {**REPORT, "state": state}))["stop"] is True
    assert succeeded(api.put(path, {**REPORT, "state": "stopped"}))["stop"] is False
    again = succeeded(api.post(f"{path}/stop", {}))
    assert (again["stop"], again["state"]) == (False, "stopped"), "there is nothing to stop"
    assert succeeded(api.put(path, {**REPORT, "started_ts": 5}))["stop"] is False


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"state": "lost"},
        {"state": 5},
        {**REPORT, "master": 5},
        {**REPORT, "master": ""},
        {**REPORT, "master": "x\ny"},
        {**REPORT, "started_ts": -1},
        {**REPORT, "started_ts": "now"},
        {**REPORT, "jobs": {}},
        {**REPORT, "jobs": [{}]},
        {**REPORT, "jobs": [JOB, JOB]},
        *[
            {**REPORT, "jobs": [{**JOB, field: value}]}
            for field, value in [
                ("name", ""),
                ("name", "x" * 301),
                ("name", "a\u2028b"),
                ("name", None),
                ("kind", ""),
                ("kind", 5),
                ("state", "sleeping"),
                ("rows", -1),
                ("rows", 2**63),
                ("rows", "5"),
                ("rows_per_s", -0.5),
                ("rows_per_s", "fast"),
                ("lag", -1),
                ("lag", 1.5),
                ("last_batch", -1),
                ("batch_ms", -1),
                ("restarts", None),
                ("error", 5),
                ("notes", []),
                ("notes", None),
            ]
        ],
    ],
)
def test_a_wrong_report_is_refused_and_the_one_before_it_stays(api: Api, path: str, body: Any) -> None:
    succeeded(api.put(path, REPORT))
    before = succeeded(api.get(path))
    refused(api.put(path, body), 400, "invalid_request")
    after = succeeded(api.get(path))
    assert {**after, "performance": 0} == {**before, "performance": 0}


def test_a_report_has_a_size_and_a_shape(api: Api, name: str, path: str) -> None:
    many = [{"name": f"j{number}", "kind": "route", "state": "running"} for number in range(2001)]
    refused(api.put(path, {**REPORT, "jobs": many}), 400, "batch_too_large")
    succeeded(api.put(path, {**REPORT, "jobs": many[:2000]}))
    assert len(rows(api, name)) == 2000
    refused(api.put(path, {**REPORT, "jobs": [{**JOB, "notes": {"x": "y" * (1 << 20)}}]}), 413, "payload_too_large")
    deep = b'{"state":"running","jobs":[{"name":"a","kind":"b","state":"running","notes":{"x":%b}}]}'
    answer = api.send("PUT", path, deep % (b"[" * 100_000 + b"]" * 100_000), {"Content-Type": "application/json"})
    refused(answer, 400, "invalid_request")
    refused(api.send("PUT", path, b"{}", {"Content-Type": "text/plain"}), 415, "unsupported_media_type")
    refused(api.put("/api/pipelines/a%20b", REPORT), 400, "invalid_request")
    refused(api.put("/api/pipelines/%ff", REPORT), 400, "invalid_request")
    long = succeeded(api.put(path, {**REPORT, "jobs": [{**JOB, "error": "e" * 5000}], "more": 1}))
    assert long["stop"] is False
    assert succeeded(api.get(path))["jobs"][0]["error"] == "e" * 2000
