"""/api/pipelines — the pipelines that run beside the server, as they tell it themselves.

    PUT  /api/pipelines/main {"state": "running", "master": "local[2]", "started_ts": 1, "jobs": [{"name": ...}]}
                             -> {"stop": false}
    POST /api/pipelines/main/stop    the next answers say `stop: true`, until it has told that it has stopped

A pipeline reports every two seconds; one that has not been heard of for `LOST_AFTER_MS` is shown as lost. Names are held
to the prefixes of a key like those of topics and routers.
"""

import msgspec

from topics.broker.broker import Broker
from topics.model.errors import BatchTooLarge
from topics.model.names import check_topic_name
from topics.server.access import caller_of
from topics.server.answers import send
from topics.server.bodies import decode, require_json
from topics.server.http import Request
from topics.server.pipeline import REPORT_BYTES_MOST, Report, check_report, pipeline_fields
from topics.server.service import Service

_decoder = msgspec.json.Decoder(Report)


def put_pipeline(service: Service, broker: Broker, request: Request, name: str) -> None:
    check_topic_name(name, "pipeline")
    require_json(request)
    size = len(request.body)
    if size > REPORT_BYTES_MOST:
        raise BatchTooLarge(f"a report has at most {REPORT_BYTES_MOST} bytes", detail={"max": REPORT_BYTES_MOST})
    report = check_report(decode(request.body, _decoder))
    pipeline = service.pipelines.take(name, report, size, broker.runtime.now_ms())
    send(request, 200, {"pipeline": name, "stop": pipeline.stop})


def post_stop(service: Service, broker: Broker, request: Request, name: str) -> None:
    """Asks for an end and does not wait for it. One that has stopped already is left alone."""
    pipeline = service.pipelines.known(name)
    pipeline.stop = pipeline.report.state != "stopped"
    state = pipeline.state(broker.runtime.now_ms())
    send(request, 200, {"pipeline": name, "stop": pipeline.stop, "state": state})


def get_pipeline(service: Service, broker: Broker, request: Request, name: str) -> None:
    send(request, 200, pipeline_fields(service.pipelines.known(name), broker.runtime.now_ms()))


def list_pipelines(service: Service, broker: Broker, request: Request) -> None:
    shown = service.pipelines.shown_to(caller_of(request))
    now_ms = broker.runtime.now_ms()
    send(request, 200, {"pipelines": [pipeline_fields(each, now_ms) for each in shown]})


def delete_pipeline(service: Service, _broker: Broker, request: Request, name: str) -> None:
    """Forget it. One that still runs is back with its next report."""
    service.pipelines.known(name)
    del service.pipelines.by_name[name]
    send(request, 200, {"pipeline": name, "deleted": True})
