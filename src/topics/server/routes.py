"""GET /api/routes — the routes of all topics, for whoever runs them.

    ?version=7&wait_ms=20000    answer when the version is another one than this, or when the time is over
    ?table=chat.messages&op=Insert    only the routes of this table and operation

The version is one number for all routes. It rises with every change and is never used twice, so a reader that has the
same version has the same routes.
"""

from typing import Any

from topics.broker.broker import Broker
from topics.broker.runtime import Timer
from topics.model.errors import InvalidRequest
from topics.server.access import caller_of
from topics.server.answers import send
from topics.server.bodies import Query
from topics.server.http import Request
from topics.server.system_tables import route_fields

OPS = {"insert": "Insert", "update": "Update", "delete": "Delete"}


def get_routes(broker: Broker, request: Request) -> None:
    query = Query(request.query)
    known = query.number("version", 0) if query.text("version") else None
    wait_ms = min(query.number("wait_ms", 0), broker.limits.max_wait_ms)
    table, op = query.text("table"), query.text("op")
    if op and op.lower() not in OPS:
        raise InvalidRequest("op must be Insert, Update or Delete")
    wanted = (table, OPS.get(op.lower(), ""))
    if known == broker.state.routes_version and wait_ms:
        RoutesPoll(broker, request, wanted, wait_ms)
    else:
        _send(broker, request, wanted)


class RoutesPoll:
    """A reader that has the present routes and waits for others."""

    def __init__(self, broker: Broker, request: Request, wanted: tuple[str, str], wait_ms: int) -> None:
        self._broker = broker
        self._request = request
        self._wanted = wanted
        self._over = False
        broker.on_routes_changed.add(self.finish)
        broker.polls.add(self)
        self._timer: Timer = broker.runtime.call_later(wait_ms, self.finish)
        request.on_disconnect(self._end)

    def finish(self) -> None:
        if not self._over:
            self._end()
            _send(self._broker, self._request, self._wanted)

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        self._broker.on_routes_changed.discard(self.finish)
        self._broker.polls.discard(self)


def _send(broker: Broker, request: Request, wanted: tuple[str, str]) -> None:
    caller = caller_of(request)
    table, op = wanted
    if table and op:
        found = broker.state.routes.get((table, op), [])
    else:
        found = [each for routes in broker.state.routes.values() for each in routes]
    routes: list[dict[str, Any]] = [
        {"topic_id": topic.name, "partitions": len(topic.partitions), **route_fields(route)}
        for topic, route in found
        if table in ("", route.table) and op in ("", route.op) and caller.may_touch(topic.name)
    ]
    routes.sort(key=lambda route: route["version"])
    send(request, 200, {"version": broker.state.routes_version, "routes": routes})
