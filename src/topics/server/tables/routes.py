"""GET /api/routes: the routes of all topics, for the pipelines that run them.

?version=7&wait_ms=20000    wait for other routes than those of this version: see `versions`
?table=chat.messages&op=Insert    only the routes of this table and operation

A key sees the routes whose table and topic it may touch. `hidden` is the number of routes from its tables to other topics: a
pipeline that runs these tables must know that it does not run all their routes.
"""

from typing import Any

from topics.api.tables.tables import RoutesQuery
from topics.model.errors import InvalidRequest
from topics.server.operations import Call, handles
from topics.server.responses import send
from topics.server.sql.system_tables import route_fields
from topics.server.tables.versions import answer_version

OPS = {"insert": "Insert", "update": "Update", "delete": "Delete"}


@handles("get_routes")
def get_routes(call: Call[None, RoutesQuery]) -> None:
    table, op = call.query.table, call.query.op
    if op and op.lower() not in OPS:
        raise InvalidRequest("op must be Insert, Update or Delete")
    wanted = (table, OPS.get(op.lower(), ""))
    answer_version(call, call.broker.state.versions.routes, lambda: _send(call, wanted))


def _send(call: Call[None, RoutesQuery], wanted: tuple[str, str]) -> None:
    broker, caller = call.broker, call.caller
    table, op = wanted
    if table and op:
        found = broker.state.routes.get((table, op), [])
    else:
        found = [each for routes in broker.state.routes.values() for each in routes]
    found = [each for each in found if table in ("", each[1].table) and op in ("", each[1].op)]
    routes: list[dict[str, Any]] = [
        {"topic_id": topic.name, "partitions": len(topic.partitions), **route_fields(route)}
        for topic, route in found
        if caller.may_touch(topic.name) and caller.may_touch_table(route.table)
    ]
    routes.sort(key=lambda route: route["version"])
    hidden = [
        topic for topic, route in found if not caller.may_touch(topic.name) and caller.may_touch_table(route.table)
    ]
    send(call.request, 200, {"version": broker.state.versions.routes.now, "routes": routes, "hidden": len(hidden)})
