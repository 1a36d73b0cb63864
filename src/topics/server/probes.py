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
    if broker is None or service.stopping:
        raise not_serving(service)
    fields = {"status": "ready", "wal_replay_complete": True, "topics": len(broker.state.topics)}
    send(request, 200, fields)


def not_serving(service: Service) -> Unavailable:
    """Why the broker cannot be asked: it has stopped, or it is not there yet."""
    if service.stopping:
        return Unavailable("the server is shutting down", code="shutting_down")
    progress = round(service.recovery_progress, 3)
    return Unavailable("the log is being replayed", detail={"replay_progress": progress})
