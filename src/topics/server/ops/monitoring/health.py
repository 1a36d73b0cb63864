"""/v0/health and /v0/ready (also /healthz and /readyz): is the process alive, and does it serve."""

from typing import Any

from topics import __version__
from topics.runtime.health import Condition
from topics.server.operations import Call, handles
from topics.server.responses import send
from topics.server.service import not_serving

# Reasons listed in one response; `topics_degraded_conditions` in /v0/metrics counts all of them.
MAX_REASONS_SHOWN = 100


@handles("get_health")
def get_health(call: Call[None, None]) -> None:
    uptime_ms = int(call.service.uptime_ms())
    send(call.request, 200, {"status": "ok", "version": __version__, "uptime_ms": uptime_ms})


@handles("get_ready")
def get_ready(call: Call[None, None]) -> None:
    service = call.service
    broker = service.broker
    if broker is None or service.stopping:
        raise not_serving(service)
    fields: dict[str, Any] = {"status": "ready", "wal_replay_complete": True, "topics": len(broker.state.topics)}
    conditions = broker.health.conditions
    fields["degraded"] = bool(conditions)
    if conditions:
        fields["reasons"] = [_reason(condition) for condition in conditions[:MAX_REASONS_SHOWN]]
    send(call.request, 200, fields)


def _reason(condition: Condition) -> dict[str, Any]:
    fields: dict[str, Any] = {"condition": condition.kind}
    if condition.subject:
        fields["subject"] = condition.subject
    return {**fields, "reason": condition.reason, "since_ms": condition.since_ms, "failures": condition.failures}
