"""GET /api/routes — the routes of all topics, for whoever runs them.

?version=7&wait_ms=20000    wait for other routes than those of this version: see `versions`
?table=chat.messages&op=Insert    only the routes of this table and operation

A key sees the routes to topics that it may touch. Of the others it is told how many there are, for the tables whose changes
it may touch: whoever runs those tables would otherwise not know that something is left undone.
"""

from typing import Any

from topics.broker.broker import Broker
from topics.model.change import CHANGES
from topics.model.errors import InvalidRequest
from topics.server.access import caller_of
from topics.server.answers import send
from topics.server.bodies import Query
from topics.server.http import Request
from topics.server.system_tables import route_fields
from topics.server.versions import answer_version

OPS = {"insert": "Insert", "update": "Update", "delete": "Delete"}


def get_routes(broker: Broker, request: Request) -> None:
    query = Query(request.query)
    table, op = query.text("table"), query.text("op")
    if op and op.lower() not in OPS:
        raise InvalidRequest("op must be Insert, Update or Delete")
    wanted = (table, OPS.get(op.lower(), ""))
    answer_version(broker, request, broker.state.versions.routes, lambda: _send(broker, request, wanted))


def _send(broker: Broker, request: Request, wanted: tuple[str, str]) -> None:
    caller = caller_of(request)
    table, op = wanted
    if table and op:
        found = broker.state.routes.get((table, op), [])
    else:
        found = [each for routes in broker.state.routes.values() for each in routes]
    found = [each for each in found if table in ("", each[1].table) and op in ("", each[1].op)]
    routes: list[dict[str, Any]] = [
        {"topic_id": topic.name, "partitions": len(topic.partitions), **route_fields(route)}
        for topic, route in found
        if caller.may_touch(topic.name)
    ]
    routes.sort(key=lambda route: route["version"])
    hidden = [
        topic for topic, route in found if not caller.may_touch(topic.name) and caller.may_touch(CHANGES + route.table)
    ]
    send(request, 200, {"version": broker.state.versions.routes.now, "routes": routes, "hidden": len(hidden)})
