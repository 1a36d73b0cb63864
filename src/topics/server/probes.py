"""/v0/health and /v0/ready (also /healthz and /readyz): is the process alive, and does it serve."""

from topics import __version__
from topics.model.errors import Unavailable
from topics.server.answers import send
from topics.server.http import Request
from topics.server.service import Service


def get_health(service: Service, request: Request, _name: str) -> None:
    uptime_ms = int(service.uptime_ms())
    send(request, 200, {"status": "ok", "version": __version__, "uptime_ms": uptime_ms})


def get_ready(service: Service, request: Request, _name: str) -> None:
    broker = service.broker
    if service.stopping:
        raise shutting_down()
    if broker is None:
        raise not_ready(service)
    fields = {"status": "ready", "wal_replay_complete": True, "topics": len(broker.state.topics)}
    send(request, 200, fields)


def not_ready(service: Service) -> Unavailable:
    progress = round(service.recovery_progress, 3)
    return Unavailable("the log is being replayed", detail={"replay_progress": progress})


def shutting_down() -> Unavailable:
    return Unavailable("the server is shutting down", code="shutting_down")
