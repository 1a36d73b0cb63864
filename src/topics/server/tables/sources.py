"""Sources of a topic: the routes of table changes that it receives. Added and dropped by SQL; `GET /api/routes` lists them."""

from topics.broker.broker import Broker
from topics.broker.topics.lifecycle import ConfigureReply
from topics.model.errors import Conflict, InvalidRequest, NotFound, Throttled
from topics.model.tables.change import CHANGES
from topics.model.tables.route import ChangePosition, Route
from topics.sql.expressions import columns_in
from topics.sql.statements import AddSource, DropSource

MAX_ROUTES = 1000


def add_source(broker: Broker, source: AddSource, reply: ConfigureReply) -> None:
    """Add the source. Refused: a column that the table does not have, an equal source, and more than MAX_ROUTES."""

    def added(routes: list[Route], version: int) -> list[Route]:
        _check_columns(broker, source)
        route = Route(
            source.table,
            source.op,
            source.payload_mode,
            version,
            source.filter_expr,
            source.partition_key_expr,
            source.key_columns,
            source.start,
            None if source.start == "Earliest" else _end_of_changes(broker, source.table),
        )
        if any([route.same_as(other) for other in routes]):
            raise Conflict(f'topic "{source.topic}" has this source already', detail={"table": source.table})
        if len(routes) >= MAX_ROUTES:
            raise Throttled(
                f"a topic has at most {MAX_ROUTES} sources", detail={"limit": "max_routes", "max": MAX_ROUTES}
            )
        return [*routes, route]

    broker.change_routes(source.topic, added, reply)


def drop_source(broker: Broker, source: DropSource, reply: ConfigureReply) -> None:
    """Drop all sources of the topic that have the given values. Refused when there is none."""

    def matches(route: Route) -> bool:
        return (
            route.table == source.table
            and source.op in (None, route.op)
            and source.filter_expr in (None, route.filter_expr)
        )

    def without_matching(routes: list[Route], _version: int) -> list[Route]:
        kept = [route for route in routes if not matches(route)]
        if len(kept) == len(routes):
            raise NotFound(
                f'topic "{source.topic}" has no such source', code="not_found", detail={"table": source.table}
            )
        return kept

    broker.change_routes(source.topic, without_matching, reply)


def _end_of_changes(broker: Broker, table: str) -> ChangePosition | None:
    """Behind the last change of the table that is readable now; None when there is no change topic."""
    changes = broker.state.topics.get(CHANGES + table)
    if changes is None:
        return None
    return ChangePosition(changes.epoch, tuple([partition.head_seq + 1 for partition in changes.partitions]))


def _check_columns(broker: Broker, source: AddSource) -> None:
    """Raises InvalidRequest when the source names a column that its table is known not to have."""
    table = broker.state.tables.by_name.get(source.table)
    if table is None or not table.columns:
        return
    named = list(source.key_columns)
    for expression in (source.filter_expr, source.partition_key_expr):
        if expression is not None:
            named += columns_in(expression)
    unknown = table.unknown(named)
    if unknown is not None:
        raise InvalidRequest(
            f"table {table.name} has no column {unknown}",
            detail={"table": table.name, "column": unknown, "columns": list(table.columns)},
        )
