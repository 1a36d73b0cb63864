"""Registry of pipelines: last report and stop request of each. Kept in memory and bounded.

After a restart of the server the next report brings a pipeline back, and a stop that was asked for before is forgotten.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from topics.api.tables.pipelines import PipelineReport
from topics.model.errors import BatchTooLarge, Conflict, InvalidRequest, NotFound, Throttled
from topics.server.auth.authorization import Caller

MAX_PIPELINES = 100
MAX_JOBS = 2000
MAX_ALL_BYTES = 16 << 20
LOST_AFTER_MS = 15_000
MAX_NAME_CHARS = 300
MAX_TEXT_CHARS = 2000


class Pipeline:
    """The last report of a pipeline, and whether it was asked to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.report = PipelineReport("starting")
        self.reported_ms = 0
        self.bytes = 0
        self.stop = False

    def state(self, now_ms: int) -> str:
        silent = now_ms - self.reported_ms > LOST_AFTER_MS
        return "lost" if silent and self.report.state != "stopped" else self.report.state

    def is_another_run(self, report: PipelineReport) -> bool:
        """Whether the report names a start other than that of the run which reported last."""
        return None not in (report.started_ts, self.report.started_ts) and report.started_ts != self.report.started_ts

    def up(self, now_ms: int) -> bool:
        return self.state(now_ms) not in ("lost", "stopped")


class Pipelines:
    """All pipelines by name: at most MAX_PIPELINES, with MAX_ALL_BYTES of reports."""

    def __init__(self) -> None:
        self.by_name: dict[str, Pipeline] = {}

    def take(self, name: str, report: PipelineReport, size: int, now_ms: int) -> Pipeline:
        """Replace the report of the pipeline. Runs of one name differ in `started_ts`, if they have it.

        A stop applies to the run that it was requested for, not to the next one. Raises Conflict while another run of that name
        is up, Throttled when the limits do not allow the report.
        """
        pipeline = self.by_name.get(name)
        if pipeline is not None and pipeline.up(now_ms) and pipeline.is_another_run(report):
            first = pipeline.report
            raise Conflict(
                f'a pipeline called "{name}" runs already: on {first.master or "an unknown master"}, '
                f"started at {first.started_ts} ms, which reported {now_ms - pipeline.reported_ms} ms ago",
                code="pipeline_exists",
                detail={
                    "pipeline": name,
                    "master": first.master,
                    "started_ts": first.started_ts,
                    "reported_ts": pipeline.reported_ms,
                },
            )
        self._make_room(name, size, now_ms)
        if pipeline is None:
            pipeline = self.by_name[name] = Pipeline(name)
        if report.state == "stopped" or report.started_ts != pipeline.report.started_ts:
            pipeline.stop = False
        pipeline.report, pipeline.bytes, pipeline.reported_ms = report, size, now_ms
        return pipeline

    def known(self, name: str) -> Pipeline:
        pipeline = self.by_name.get(name)
        if pipeline is None:
            raise NotFound(f'pipeline "{name}" is not known', code="not_found", detail={"pipeline": name})
        return pipeline

    def shown_to(self, caller: Caller) -> list[Pipeline]:
        return [self.by_name[name] for name in sorted(self.by_name) if caller.may_touch(name)]

    def _make_room(self, name: str, size: int, now_ms: int) -> None:
        """Forget pipelines that are not up, the oldest report first, until the limits allow one more report."""
        others = [each for each in self.by_name.values() if each.name != name]
        over = sorted([each for each in others if not each.up(now_ms)], key=lambda each: each.reported_ms)
        count, total = len(others), sum([each.bytes for each in others])
        gone: list[str] = []
        while count >= MAX_PIPELINES or total + size > MAX_ALL_BYTES:
            if len(gone) == len(over):
                detail = {"limit": "pipelines", "max": MAX_PIPELINES, "max_bytes": MAX_ALL_BYTES}
                raise Throttled("the reports of pipelines have reached their limit", detail=detail)
            total -= over[len(gone)].bytes
            count -= 1
            gone.append(over[len(gone)].name)
        for each in gone:
            del self.by_name[each]


def check_report(report: PipelineReport) -> PipelineReport:
    """Raises InvalidRequest with the name of the job. Error texts are cut, not refused."""
    if len(report.jobs) > MAX_JOBS:
        raise BatchTooLarge(f"a pipeline has at most {MAX_JOBS} jobs", detail={"max": MAX_JOBS})
    _check_words("master", [] if report.master is None else [report.master])
    _check_words("the name of a job", [job.name for job in report.jobs])
    _check_words("the kind of a job", [job.kind for job in report.jobs])
    names: set[str] = set()
    for job in report.jobs:
        if job.name in names:
            raise InvalidRequest(f"two jobs are called {job.name!r}", detail={"job": job.name})
        names.add(job.name)
        if job.error is not None:
            job.error = job.error[:MAX_TEXT_CHARS]
    return report


def pipeline_fields(pipeline: Pipeline, now_ms: int) -> dict[str, Any]:
    report = pipeline.report
    return {
        "pipeline": pipeline.name,
        "state": pipeline.state(now_ms),
        "master": report.master,
        "started_ts": report.started_ts,
        "reported_ts": pipeline.reported_ms,
        "stop": pipeline.stop,
        "jobs": [structs.asdict(job) for job in report.jobs],
    }


def _check_words(what: str, words: Iterable[str]) -> None:
    for word in words:
        if not 0 < len(word) <= MAX_NAME_CHARS or not word.isprintable():
            raise InvalidRequest(f"{what} has 1 to {MAX_NAME_CHARS} printable characters")
