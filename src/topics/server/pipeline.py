"""What the server knows of pipelines: what each said last, and whether it is to stop. Kept in memory and bounded.

After a restart of the server the next report brings a pipeline back, and a stop that was asked for before is forgotten.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from topics.model.errors import BatchTooLarge, InvalidRequest, NotFound, Throttled
from topics.server.access import Caller

PIPELINES_MOST = 100
JOBS_MOST = 2000
REPORT_BYTES_MOST = 1 << 20
ALL_BYTES_MOST = 16 << 20
LOST_AFTER_MS = 15_000
NAME_CHARS_MOST = 300
TEXT_CHARS_MOST = 2000

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Amount = Annotated[float, Meta(ge=0)]


class JobReport(Struct):
    """One job as its pipeline tells it. What is not known yet is left out; what this server does not know is ignored."""

    name: str
    kind: str
    state: Literal["starting", "running", "waiting", "failed", "stopped"]
    rows: Count = 0
    rows_per_s: Amount = 0.0
    # Records that the job has yet to take, and the number of its last batch and how long that took.
    lag: Count | None = None
    last_batch: Count | None = None
    batch_ms: Amount | None = None
    restarts: Count = 0
    error: str | None = None
    notes: dict[str, Any] = {}


class Report(Struct):
    state: Literal["starting", "running", "stopping", "stopped"]
    master: str | None = None
    started_ts: Count | None = None
    jobs: list[JobReport] = []


class Pipeline:
    """What a pipeline said last, and whether it is to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.report = Report("starting")
        self.reported_ms = 0
        self.bytes = 0
        self.stop = False

    def state(self, now_ms: int) -> str:
        silent = now_ms - self.reported_ms > LOST_AFTER_MS
        return "lost" if silent and self.report.state != "stopped" else self.report.state

    def up(self, now_ms: int) -> bool:
        return self.state(now_ms) not in ("lost", "stopped")


class Pipelines:
    """All pipelines by name: so many, and so many bytes of what they say."""

    def __init__(self) -> None:
        self.by_name: dict[str, Pipeline] = {}

    def take(self, name: str, report: Report, size: int, now_ms: int) -> Pipeline:
        """Keep the report in place of the one before it. Raises Throttled when there is no room for it.

        A stop is meant for the run that was there when it was asked for: another run, told by `started_ts`, is not stopped.
        """
        pipeline = self.by_name.get(name)
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
        """Those that are over are forgotten, the longest silent first, when there is no room for one more report."""
        others = [each for each in self.by_name.values() if each.name != name]
        over = sorted([each for each in others if not each.up(now_ms)], key=lambda each: each.reported_ms)
        count, total = len(others), sum([each.bytes for each in others])
        gone: list[str] = []
        while count >= PIPELINES_MOST or total + size > ALL_BYTES_MOST:
            if len(gone) == len(over):
                detail = {"limit": "pipelines", "max": PIPELINES_MOST, "max_bytes": ALL_BYTES_MOST}
                raise Throttled("the server follows as many pipelines as it can", detail=detail)
            total -= over[len(gone)].bytes
            count -= 1
            gone.append(over[len(gone)].name)
        for each in gone:
            del self.by_name[each]


def check_report(report: Report) -> Report:
    """Raises InvalidRequest, naming the job; the texts of errors are cut rather than refused."""
    if len(report.jobs) > JOBS_MOST:
        raise BatchTooLarge(f"a pipeline has at most {JOBS_MOST} jobs", detail={"max": JOBS_MOST})
    _check_words("master", [] if report.master is None else [report.master])
    _check_words("the name of a job", [job.name for job in report.jobs])
    _check_words("the kind of a job", [job.kind for job in report.jobs])
    names: set[str] = set()
    for job in report.jobs:
        if job.name in names:
            raise InvalidRequest(f"two jobs are called {job.name!r}", detail={"job": job.name})
        names.add(job.name)
        if job.error is not None:
            job.error = job.error[:TEXT_CHARS_MOST]
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
        if not 0 < len(word) <= NAME_CHARS_MOST or not word.isprintable():
            raise InvalidRequest(f"{what} has 1 to {NAME_CHARS_MOST} printable characters")
