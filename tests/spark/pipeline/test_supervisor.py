"""The supervisor without Spark: jobs that start, fail, wait, change and go."""

from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("pyspark")

from topics.spark.pipeline.job import JobContext, NotYet
from topics.spark.pipeline.job_runner import MAX_WAIT_S, backoff_s
from topics.spark.pipeline.progress import lag_of, reason
from topics.spark.pipeline.supervisor import Supervisor, directory_of


class Query:
    def __init__(self) -> None:
        self.isActive = True
        self.error: Exception | None = None
        self.recentProgress: list[dict[str, Any]] = []
        self.stopped = 0
        self.looks_until_done = 0

    @property
    def status(self) -> dict[str, Any]:
        busy = self.looks_until_done > 0
        self.looks_until_done -= 1
        return {"isTriggerActive": busy, "isDataAvailable": busy}

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stopped += 1
        self.isActive = False

    def fail(self, error: Exception) -> None:
        self.error = error
        self.isActive = False

    def finish(self, batch: int, rows: int) -> None:
        self.recentProgress.append({"batchId": batch, "numInputRows": rows, "durationMs": {"addBatch": 1}})


@dataclass(frozen=True)
class FakeJob:
    name: str
    version: int = 0
    kind: str = "route"
    bench: Any = field(default=None, compare=False)

    def start(self, context: JobContext) -> Any:
        return self.bench.started(self, context)


class SupervisorBench:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.queries: dict[str, Query] = {}
        self.starts: list[tuple[str, int, str]] = []
        self.refusals: list[Exception] = []
        self.supervisor = Supervisor(None, "http://x", None, "/c/", 0, lambda: self.now_s)  # type: ignore[arg-type]

    def started(self, job: FakeJob, context: JobContext) -> Query:
        self.starts.append((job.name, job.version, context.checkpoint))
        if self.refusals:
            raise self.refusals.pop()
        context.set_status_fields({"version": job.version})
        self.queries[job.name] = Query()
        return self.queries[job.name]

    def want(self, *jobs: tuple[str, int]) -> None:
        self.supervisor.set_jobs([FakeJob(name, version, bench=self) for name, version in jobs], 1.0)

    def look(self) -> None:
        """One look that starts, one that sees it started."""
        self.supervisor.look()
        for running in self.supervisor.jobs.values():
            if running.starter is not None:
                running.starter.join(10)
        self.supervisor.look()

    def states(self) -> dict[str, tuple[str, str | None]]:
        return {each.name: (each.state, each.error) for each in self.supervisor.statuses()}


def test_jobs_are_started_replaced_and_stopped_as_they_are_wanted() -> None:
    bench = SupervisorBench()
    bench.want(("route a", 1), ("route b", 1))
    bench.look()
    assert bench.states() == {"route a": ("running", None), "route b": ("running", None)}
    first = dict(bench.queries)
    bench.want(("route a", 2))
    bench.look()
    assert (first["route a"].stopped, first["route b"].stopped) == (1, 1)
    assert [start for start in bench.starts if start[0] == "route a"] == [
        ("route a", 1, "/c/route-a"),
        ("route a", 2, "/c/route-a"),
    ]
    assert list(bench.supervisor.jobs) == ["route a"]
    bench.want(("route a", 2))
    assert bench.queries["route a"].stopped == 0, "an equal one is left alone"


def test_a_job_that_fails_waits_longer_each_time_and_the_others_run_on() -> None:
    bench = SupervisorBench()
    bench.want(("route a", 1), ("route b", 1))
    bench.look()
    waits = []
    for _ in range(12):
        bench.queries["route a"].fail(RuntimeError("topics.client.errors.ServerUnreachable: no answer"))
        bench.supervisor.look()
        assert bench.states() == {"route a": ("waiting", "no answer"), "route b": ("running", None)}
        began = bench.now_s
        while bench.states()["route a"][0] == "waiting":
            bench.now_s += 0.25
            bench.look()
        waits.append(bench.now_s - began)
    assert waits[0] <= 1.5
    assert 30 <= waits[-1] <= MAX_WAIT_S + 1
    assert bench.supervisor.jobs["route a"].restarts == 12
    bench.queries["route a"].finish(0, 5)
    bench.supervisor.look()
    bench.queries["route a"].fail(RuntimeError("x"))
    bench.supervisor.look()
    bench.now_s += 1.0
    bench.look()
    assert bench.states()["route a"] == ("running", None), "a batch that was done makes it young again"


def test_a_job_without_data_is_started_again_soon_and_has_not_failed() -> None:
    bench = SupervisorBench()
    bench.refusals = [NotYet("no changes yet")] * 5
    bench.want(("route a", 1))
    for _ in range(5):
        bench.look()
        assert bench.states() == {"route a": ("waiting", "no changes yet")}
        bench.now_s += 1.0
    bench.look()
    assert bench.states() == {"route a": ("running", None)}
    assert bench.supervisor.jobs["route a"].restarts == 0


def test_a_job_is_stopped_between_two_batches() -> None:
    bench = SupervisorBench()
    bench.want(("route a", 1))
    bench.look()
    query = bench.queries["route a"]
    query.looks_until_done = 3
    bench.supervisor.stop(5.0)
    assert (query.stopped, query.looks_until_done) == (1, -1)
    assert bench.states() == {"route a": ("stopped", None)}


def test_rows_are_counted_over_restarts_and_notes_are_shown() -> None:
    bench = SupervisorBench()
    bench.want(("route a", 7))
    bench.look()
    bench.queries["route a"].finish(0, 5)
    bench.queries["route a"].finish(1, 6)
    bench.supervisor.look()
    bench.queries["route a"].fail(RuntimeError("x"))
    bench.supervisor.look()
    bench.now_s += 2
    bench.look()
    bench.queries["route a"].finish(2, 1)
    bench.supervisor.look()
    (status,) = bench.supervisor.statuses()
    assert (status.rows, status.last_batch, status.notes["version"]) == (12, 2, 7)


@pytest.mark.parametrize(
    "name", ["route chat.messages", "archive a:b/c", "delta ünï", "route " + "x" * 400, "route a=b"]
)
def test_directories_of_jobs_are_safe(name: str) -> None:
    made = directory_of(name)
    assert made.isascii()
    assert len(made) < 220
    assert not set(made) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_=")


def test_directories_of_different_jobs_differ() -> None:
    names = ["route a:b", "route a=3ab", "route a-b", "archive a-b", "route " + "x" * 400, "route " + "x" * 401]
    assert len({directory_of(name) for name in names}) == len(names)


def test_backoff_doubles_up_to_a_bound_and_is_half_random() -> None:
    assert [backoff_s(n, 1.0) for n in (1, 2, 3, 7, 5000)] == [1.0, 2.0, 4.0, 60.0, 60.0]
    assert backoff_s(3, 0.0) == 2.0


def test_lag_is_what_lies_between_the_query_and_the_head() -> None:
    source = {"endOffset": '{"t": {"epoch": 1, "0": 5}}', "latestOffset": '{"t": {"epoch": 1, "0": 9, "1": 3}}'}
    assert lag_of({"sources": [source]}) == 6
    assert lag_of({"sources": [{"endOffset": "7", "latestOffset": None}]}) is None
    assert lag_of({}) is None


def test_reasons_have_no_stacks() -> None:
    text = "[STREAM_FAILED] Query failed\nTraceback (most recent call last):\n  File x\ntopics.spark.connector.reading.DataLoss: gone"
    assert reason(RuntimeError(text)) == "gone"
    assert reason(ValueError("plain")) == "plain"
    assert reason(ValueError()) == "ValueError"
