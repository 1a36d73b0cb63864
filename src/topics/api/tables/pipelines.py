"""Pipelines: what the pipelines beside the server report, and requests to stop them."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any, Literal

from msgspec import Struct

from topics.api.common import Response, about
from topics.api.operation import ADMIN, DELETE, READ, WRITE, Example, Name, Operation

PIPELINE = Name("path", "pipeline", "pipeline")
PIPELINE_PATH = "/api/pipelines/{pipeline}"
JobState = Literal["starting", "running", "waiting", "failed", "stopped"]
PipelineState = Literal["starting", "running", "stopping", "stopped"]


class JobReport(Struct):
    """One job of a pipeline. What is not known is left out; unknown fields are ignored."""

    name: Annotated[str, about("1 to 300 printable characters, different for each job.")]
    kind: Annotated[str, about("1 to 300 printable characters.")]
    state: JobState
    rows: Annotated[int, about("Rows written since the start.", ge=0, le=2**63 - 1)] = 0
    rows_per_s: Annotated[float, about("Rows a second.", ge=0)] = 0.0
    lag: Annotated[int, about("Records that the job has yet to read.", ge=0, le=2**63 - 1)] | None = None
    last_batch: Annotated[int, about("Number of the last batch.", ge=0, le=2**63 - 1)] | None = None
    batch_ms: Annotated[float, about("How long the last batch took.", ge=0)] | None = None
    restarts: Annotated[int, about("Restarts after failures.", ge=0, le=2**63 - 1)] = 0
    error: Annotated[str | None, about("Why it failed; cut after 2000 characters.")] = None
    notes: Annotated[dict[str, Any], about("Anything else.")] = {}
    lag_s: Annotated[float, about("Age in seconds of what the job has yet to read.", ge=0)] | None = None
    bytes: Annotated[int, about("Bytes of records read since the start.", ge=0, le=2**63 - 1)] | None = None
    latency_ms: (
        Annotated[float, about("From the write of the last batch's newest record to the end of the batch.", ge=0)]
        | None
    ) = None


class PipelineReport(Struct):
    """What a pipeline reports, every two seconds."""

    state: PipelineState
    master: Annotated[str | None, about("Spark master.")] = None
    started_ts: Annotated[int, about("When this run started, in Unix milliseconds.", ge=0, le=2**63 - 1)] | None = None
    jobs: Annotated[list[JobReport], about("At most 2000.")] = []


class JobStatus(Struct):
    """One job of a pipeline as it was reported; what is not known is null."""

    name: Annotated[str, about("Name of the job.")]
    kind: Annotated[str, about("What the job does.")]
    state: Annotated[str, about("starting, running, waiting, failed or stopped.")]
    rows: Annotated[int, about("Rows that were processed.")] = 0
    rows_per_s: Annotated[float, about("Rows a second.")] = 0.0
    lag: Annotated[int | None, about("Records behind.")] = None
    last_batch: Annotated[int | None, about("Number of the last batch.")] = None
    batch_ms: Annotated[float | None, about("Duration of the last batch.")] = None
    restarts: Annotated[int, about("Restarts after failures.")] = 0
    error: Annotated[str | None, about("Last error.")] = None
    notes: Annotated[dict[str, Any], about("Further figures.")] = {}
    lag_s: Annotated[float | None, about("Age in seconds of what the job has yet to read.")] = None
    bytes: Annotated[int | None, about("Bytes that were read.")] = None
    latency_ms: Annotated[float | None, about("From a change to its routed record.")] = None


class PipelineInfo(Response):
    """A pipeline as it reported last; its state is `lost` when that is more than 15 s ago."""

    pipeline: Annotated[str, about("Name of the pipeline.")]
    state: Annotated[str, about("starting, running, stopping, stopped or lost.")]
    master: Annotated[str | None, about("Spark master.")]
    started_ts: Annotated[int | None, about("Start, in Unix milliseconds.")]
    reported_ts: Annotated[int, about("Last report, in Unix milliseconds.")]
    stop: Annotated[bool, about("Whether it was asked to stop.")]
    jobs: Annotated[list[JobStatus], about("Its jobs.")]


class PipelineList(Response):
    """Pipelines."""

    pipelines: Annotated[list[PipelineInfo], about("The pipelines.")]


class PipelineOrders(Response):
    """Whether the pipeline is asked to stop."""

    pipeline: Annotated[str, about("Name of the pipeline.")]
    stop: Annotated[bool, about("Whether it is asked to stop.")]
    state: Annotated[str | None, about("Only in the response to a stop.")] = None


class PipelineGone(Response):
    """A pipeline that was forgotten."""

    pipeline: Annotated[str, about("Name of the pipeline.")]
    deleted: Annotated[bool, about("False when there was no such pipeline.")]


_INFO = {
    "pipeline": "main", "state": "running", "master": "local[2]", "started_ts": 1767225600000, "reported_ts": 1767225610000,
    "stop": False, "jobs": [],
}  # fmt: skip

OPERATIONS = (
    Operation(
        name="list_pipelines", noun="pipelines", method="GET", path="/api/pipelines",
        summary="List the pipelines that have reported since the server was started.",
        scope=READ, response=PipelineList,
        example=Example("/api/pipelines", response={"pipelines": [_INFO], "performance": {"server_total_ms": 0.1}}),
    ),
    Operation(
        name="get_pipeline", noun="pipelines", method="GET", path=PIPELINE_PATH,
        summary="Show a pipeline.", scope=READ, names=(PIPELINE,), response=PipelineInfo, errors=("not_found",),
        example=Example("/api/pipelines/main", response={**_INFO, "performance": {"server_total_ms": 0.05}}),
    ),
    Operation(
        name="put_pipeline", noun="pipelines", method="PUT", path=PIPELINE_PATH,
        summary="Report how a pipeline is doing; the response says whether it is asked to stop.",
        scope=WRITE, names=(Name("path", "pipeline", "pipeline", "pipeline"),), body=PipelineReport, names_first=True,
        response=PipelineOrders,
        errors=("pipeline_exists", "batch_too_large"),
        example=Example("/api/pipelines/main", {"state": "running", "started_ts": 1767225600000, "jobs": []}, {
            "pipeline": "main", "stop": False, "performance": {"server_total_ms": 0.1}}),
    ),
    Operation(
        name="delete_pipeline", noun="pipelines", method="DELETE", path=PIPELINE_PATH,
        summary="Forget a pipeline; one that still runs is back with its next report.",
        scope=DELETE, names=(PIPELINE,), response=PipelineGone, errors=("not_found",),
        example=Example("/api/pipelines/main", response={"pipeline": "main", "deleted": True, "performance": {"server_total_ms": 0.1}}),
    ),
    Operation(
        name="stop_pipeline", noun="pipelines", method="POST", path=PIPELINE_PATH + "/stop",
        summary="Ask a pipeline to stop; does not wait for it.",
        scope=ADMIN, names=(PIPELINE,), response=PipelineOrders, errors=("not_found",),
        example=Example("/api/pipelines/main/stop", response={
            "pipeline": "main", "stop": True, "state": "running", "performance": {"server_total_ms": 0.1}}),
    ),
)  # fmt: skip
