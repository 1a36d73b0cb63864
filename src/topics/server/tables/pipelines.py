"""/api/pipelines: the pipelines that run beside the server, as they report.

    PUT  /api/pipelines/main {"state": "running", "master": "local[2]", "started_ts": 1, "jobs": [{"name": ...}]}
                             -> {"stop": false}
    POST /api/pipelines/main/stop    the next responses have `stop: true`, until it reports that it has stopped

A pipeline reports every two seconds; one without a report for `LOST_AFTER_MS` is shown as lost.
"""

from topics.api.tables.pipelines import PipelineReport
from topics.server.operations import Call, handles
from topics.server.responses import send
from topics.server.tables.pipeline_registry import check_report, pipeline_fields


@handles("put_pipeline")
def put_pipeline(call: Call[PipelineReport, None]) -> None:
    report = check_report(call.body)
    size, now_ms = len(call.request.body), call.broker.runtime.now_ms()
    pipeline = call.service.pipelines.take(call.name, report, size, now_ms)
    send(call.request, 200, {"pipeline": call.name, "stop": pipeline.stop})


@handles("stop_pipeline")
def stop_pipeline(call: Call[None, None]) -> None:
    """Ask the pipeline to stop; does not wait for it. A pipeline that has stopped stays as it is."""
    pipeline = call.service.pipelines.known(call.name)
    pipeline.stop = pipeline.report.state != "stopped"
    state = pipeline.state(call.broker.runtime.now_ms())
    send(call.request, 200, {"pipeline": call.name, "stop": pipeline.stop, "state": state})


@handles("get_pipeline")
def get_pipeline(call: Call[None, None]) -> None:
    pipeline = call.service.pipelines.known(call.name)
    send(call.request, 200, pipeline_fields(pipeline, call.broker.runtime.now_ms()))


@handles("list_pipelines")
def list_pipelines(call: Call[None, None]) -> None:
    shown = call.service.pipelines.shown_to(call.caller)
    now_ms = call.broker.runtime.now_ms()
    send(call.request, 200, {"pipelines": [pipeline_fields(each, now_ms) for each in shown]})


@handles("delete_pipeline")
def delete_pipeline(call: Call[None, None]) -> None:
    """Forget the pipeline. One that still runs is there again with its next report."""
    pipelines = call.service.pipelines
    pipelines.known(call.name)
    del pipelines.by_name[call.name]
    send(call.request, 200, {"pipeline": call.name, "deleted": True})
