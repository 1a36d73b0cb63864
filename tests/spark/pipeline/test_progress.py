"""The figures of a job's status, from Spark's progress and from jobs that count by themselves."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from topics.client.values import JobStatus
from topics.spark.pipeline.job import JobContext
from topics.spark.pipeline.job_runner import JobRunner
from topics.spark.pipeline.progress import OBSERVED, lag_of, lag_s_of, latency_ms_of, observed_bytes, position_of

NEWEST_S = 1_700_000_000.5


def progress(end: Any, latest: Any, **more: Any) -> dict[str, Any]:
    source = {"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    observed = {OBSERVED: {"records": 3, "bytes": 120, "newest_ts": int(NEWEST_S * 1000)}}
    return {"sources": [source], "observedMetrics": observed, **more}


BEHIND = progress({"t": {"epoch": 1, "0": 5, "1": 2}}, {"t": {"epoch": 1, "0": 9, "1": 2, "2": 4}})
AT_END = progress({"t": {"epoch": 1, "0": 5}}, {"t": {"epoch": 1, "0": 5}})


def test_lag_counts_records_of_all_partitions_and_seconds_since_the_newest_record() -> None:
    assert (lag_of(BEHIND), lag_s_of(BEHIND, NEWEST_S + 2.04)) == (4 + 3, 2.0)
    assert (lag_of(AT_END), lag_s_of(AT_END, NEWEST_S + 100)) == (0, 0.0)
    assert (lag_of({}), lag_s_of({}, NEWEST_S)) == (None, None)
    assert lag_s_of(progress({"t": {"0": 1}}, {"t": {"0": 2}}, observedMetrics={}), NEWEST_S) is None


def test_lag_in_seconds_of_a_source_with_versions_is_zero_at_its_end() -> None:
    at_end = progress({"table": "x", "version": 7}, {"table": "x", "version": 7})
    behind = progress({"table": "x", "version": 7}, {"table": "x", "version": 9})
    assert (lag_of(at_end), lag_s_of(at_end, NEWEST_S + 9)) == (None, 0.0)
    assert (lag_of(behind), lag_s_of(behind, NEWEST_S + 9)) == (None, 9.0)


def test_latency_is_from_the_newest_record_to_the_end_of_the_batch() -> None:
    started = datetime.fromtimestamp(NEWEST_S + 0.25, UTC).isoformat().replace("+00:00", "Z")
    batch = {"timestamp": started, "durationMs": {"triggerExecution": 80}}
    assert latency_ms_of({**AT_END, **batch}) == pytest.approx(330.0)
    assert latency_ms_of(AT_END) is None
    assert latency_ms_of(batch) is None


def test_bytes_and_position_are_those_of_the_batch() -> None:
    assert (observed_bytes(AT_END), observed_bytes({})) == (120, 0)
    assert position_of(BEHIND) == '{"t": {"0": 5, "1": 2}}'
    assert position_of({}) is None


class Query:
    """A query that has finished one batch."""

    isActive = True  # noqa: N815 - Spark's name

    def __init__(self, last: dict[str, Any]) -> None:
        self.recentProgress = [{"batchId": 0, "numInputRows": 3, "durationMs": {"addBatch": 1}, **last}]


class Job:
    name = "archive t"
    kind = "archive"

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def start(self, context: JobContext) -> Any:
        context.set_status_fields(self._fields)
        return Query(BEHIND)


def status(fields: dict[str, Any]) -> JobStatus:
    def context(runner: JobRunner) -> JobContext:
        return JobContext(None, "", None, "", 0, runner.set_status_fields)  # type: ignore[arg-type]

    runner = JobRunner(Job(fields), context, lambda: 0.0)
    while runner.state != "running":
        runner.look()
    runner.look()
    return runner.status()


def test_status_shows_what_spark_observed() -> None:
    found = status({})
    assert (found.rows, found.lag, found.bytes) == (3, 7, 120)
    assert found.lag_s is not None
    assert found.lag_s > 0


def test_figures_of_a_job_that_counts_by_itself_replace_those_of_spark() -> None:
    own = {"rows": 500, "lag": 0, "bytes": 10_000, "newest_ts": int(NEWEST_S * 1000), "latency_ms": 42.0, "uri": "x"}
    found = status(own)
    # The bytes that Spark observed are added: a job reports or observes them, not both.
    assert (found.rows, found.lag, found.lag_s, found.latency_ms, found.bytes) == (500, 0, 0.0, 42.0, 10_120)
    assert found.notes == {"uri": "x"}
    assert status({**own, "lag": 3}).lag_s > 0  # type: ignore[operator]
    assert status({**own, "lag": 3, "newest_ts": None}).lag_s is None
