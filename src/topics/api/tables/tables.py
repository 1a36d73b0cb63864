"""Tables, their changes, and the routes from tables to topics."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any

from msgspec import Struct, field

from topics.api.common import KnownVersion, PageQuery, Response, VersionQuery, VersionWait, about
from topics.api.operation import ADMIN, DELETE, READ, WRITE, WRITE_ERRORS, Example, Name, Operation
from topics.model.tables.route import ChangePosition
from topics.model.tables.table import Kind

TABLE = Name("path", "table", "table", "table")
TABLE_PATH = "/api/tables/{table}"


class TableBody(Struct, forbid_unknown_fields=True):
    """What is known about a table. Replaces what was known before; unknown fields are refused."""

    kind: Annotated[Kind, about("Where its changes come from.")] = "push"
    location: Annotated[str | None, about("URI of a Delta table or DSN of a PostgreSQL, without a password.")] = None
    key_columns: Annotated[list[str], about("Columns of the key; at most 64.")] = []
    columns: Annotated[
        dict[str, str] | list[str], about("Columns with their types, or their names only; at most 2000.")
    ] = {}


class TablesQuery(PageQuery):
    """Parameters of a list that has pages and can be waited for."""

    version: KnownVersion = None
    wait_ms: VersionWait = 0


class RoutesQuery(VersionQuery):
    table: Annotated[str, about("Only routes of this table.")] = ""
    op: Annotated[str, about("Only routes of Insert, Update or Delete.")] = ""


class ChangesQuery(Struct):
    key: Annotated[str, about("Key columns, with commas, for events that do not name their key.")] = ""
    source: Annotated[str, about("Name of the source, for events without one; at most 256 characters.")] = ""


class ChangesBody(Struct):
    """Change events. A list of events or one event is accepted too, as Debezium Server sends them."""

    changes: Annotated[
        list[Any],
        about('Events such as `{"op": "insert", "key": {"id": 1}, "after": {"id": 1}}`, or those of Debezium.'),
    ]
    source: Annotated[str, about("Name of the source, for events without one.")] = ""
    key_columns: Annotated[list[str], about("Key columns, for events that do not name their key.")] = []


class MaterializedTo(Struct):
    """The Delta table that the pipeline keeps equal to a table."""

    uri: Annotated[str, about("Where the Delta table is.")]
    mode: Annotated[str, about("`scd1`: the rows as they are now; `scd2`: all versions of each row.")]


class TableInfo(Response):
    """A table that is known to the server."""

    table: Annotated[str, about("Name of the table.")]
    kind: Annotated[str, about("Kind of the table.")]
    location: Annotated[str | None, about("Where the table is; null if it is not known.")]
    key_columns: Annotated[list[str], about("Columns of the key.")]
    columns: Annotated[dict[str, str], about("Types of the columns, by name; empty if they are not known.")]
    topic: Annotated[str, about("Topic that holds its changes.")]
    created_at: Annotated[int, about("Unix time in milliseconds.")]
    materialized: Annotated[MaterializedTo | None, about("Set by `ALTER TABLE ... SET MATERIALIZED`.")] = None
    created: Annotated[bool, about("PUT only: whether the table is new.")] = False


class TablePage(Response):
    """A page of tables. `version` rises whenever one of all tables changes."""

    tables: Annotated[list[TableInfo], about("The tables.")]
    next_cursor: Annotated[str | None, about("Cursor of the next page; absent on the last one.")] = None
    version: Annotated[int, about("Version of all tables.")] = 0


class TableGone(Response):
    """A table that was deleted."""

    table: Annotated[str, about("Name of the table.")]
    deleted: Annotated[bool, about("False when there was no such table.")]


class RefusedChange(Struct):
    """An event that was not kept, by its place in the request."""

    index: Annotated[int, about("Position in the request.")]
    message: Annotated[str, about("Why it was refused.")]


class ChangePlace(Struct):
    """Where events were placed in the change topic."""

    partition: Annotated[int, about("Number of the partition.")]
    first_seq: Annotated[int, about("First seq.")]
    last_seq: Annotated[int, about("Last seq.")]
    count: Annotated[int, about("Number of records.")]


class ChangesSent(Response):
    """What became of change events: those in `refused` were not kept."""

    topic: Annotated[str, about("Topic that holds the changes.")]
    appended: Annotated[int, about("Changes that were appended.")]
    duplicates: Annotated[int, about("Events whose position was known: kept once.")]
    tombstones: Annotated[int, about("Events that say only that a key is gone; not kept.")]
    refused: Annotated[list[RefusedChange], about("Changes that were refused.")]
    last_seq: Annotated[int | None, about("Highest seq of the appended changes.")] = None
    table: Annotated[str, about("Name of the table.")] = ""
    results: Annotated[list[ChangePlace], about("Where the records are.")] = field(default_factory=list)


class RouteInfo(Struct):
    """One source of a topic; `version` names it."""

    topic_id: Annotated[str, about("Name of the topic.")]
    partitions: Annotated[int, about("Number of partitions of the topic.")]
    table_id: Annotated[str, about("Name of the table.")]
    op: Annotated[str, about("Insert, Update or Delete.")]
    payload_mode: Annotated[str, about("Key, Full or Diff.")]
    version: Annotated[int, about("Version of the routes when it was added.")]
    filter_expr: Annotated[str | None, about("Condition on a change; null for all changes.")] = None
    partition_key_expr: Annotated[
        str | None, about("Expression whose hash selects the partition; null for the key.")
    ] = None
    key_columns: Annotated[list[str], about("Columns of the key.")] = []
    start: Annotated[str, about("Latest, or Earliest for a route that replays the change topic.")] = "Latest"
    starts_at: Annotated[ChangePosition | None, about("First changes that are routed; null for all.")] = None


class RouteList(Response):
    """All routes, and their version: it rises whenever one of them changes.

    `hidden` counts routes from tables that the key may touch to topics that it may not.
    """

    version: Annotated[int, about("Version of all routes.")]
    routes: Annotated[list[RouteInfo], about("The routes.")]
    hidden: Annotated[int, about("Routes from tables that the key may touch to topics that it may not.")] = 0


OPERATIONS = (
    Operation(
        name="list_tables", noun="tables", method="GET", path="/api/tables",
        summary="List tables by name; waits, if wanted, until one changes.",
        scope=READ, query=TablesQuery, response=TablePage,
        example=Example("/api/tables", response={
            "version": 3, "next_cursor": None,
            "tables": [{"table": "shop.orders", "kind": "push", "location": None, "key_columns": ["id"],
                        "columns": {"id": "bigint"}, "topic": "changes:shop.orders", "created_at": 1767225600000}],
            "performance": {"server_total_ms": 0.1}}),
    ),
    Operation(
        name="get_table", noun="tables", method="GET", path=TABLE_PATH,
        summary="Show a table.", scope=READ, names=(TABLE,), response=TableInfo, errors=("not_found",),
        example=Example("/api/tables/shop.orders", response={
            "table": "shop.orders", "kind": "push", "location": None, "key_columns": ["id"], "columns": {"id": "bigint"},
            "topic": "changes:shop.orders", "created_at": 1767225600000, "performance": {"server_total_ms": 0.05}}),
    ),
    Operation(
        name="put_table", noun="tables", method="PUT", path=TABLE_PATH,
        summary="Make a table known, or replace what is known about it.",
        description="Only keys without prefixes may set a new location.",
        scope=ADMIN, names=(TABLE, Name("body", "location", "table_location")), body=TableBody, names_first=True, response=TableInfo,
        statuses=(200, 201), errors=WRITE_ERRORS,
        example=Example("/api/tables/shop.orders", {"key_columns": ["id"], "columns": {"id": "bigint"}}, {
            "table": "shop.orders", "kind": "push", "location": None, "key_columns": ["id"], "columns": {"id": "bigint"},
            "topic": "changes:shop.orders", "created_at": 1767225600000, "created": True,
            "performance": {"server_total_ms": 0.3}}),
    ),
    Operation(
        name="delete_table", noun="tables", method="DELETE", path=TABLE_PATH,
        summary="Forget a table; its change topic stays.",
        scope=DELETE, names=(TABLE,), response=TableGone, errors=("not_found", *WRITE_ERRORS),
        example=Example("/api/tables/shop.orders", response={
            "table": "shop.orders", "deleted": True, "performance": {"server_total_ms": 0.3}}),
    ),
    Operation(
        name="post_changes", noun="tables", method="POST", path=TABLE_PATH + "/changes",
        summary="Send change events of a table; each is kept once, by its position.",
        scope=WRITE, names=(TABLE,), query=ChangesQuery, body=ChangesBody, decoded="dedicated", names_first=True,
        max_body_bytes=0,
        response=ChangesSent,
        errors=("batch_too_large", "record_too_large", "topic_full", "topic_exists_incompatible", *WRITE_ERRORS),
        safe_to_retry=False, retry_note="Safe when every event has a position.",
        example=Example(
            "/api/tables/shop.orders/changes",
            {"changes": [{"op": "insert", "key": {"id": 1}, "after": {"id": 1}, "position": 17}]}, {
                "table": "shop.orders", "topic": "changes:shop.orders", "appended": 1, "duplicates": 0, "tombstones": 0,
                "refused": [], "last_seq": 1, "results": [{"partition": 0, "first_seq": 1, "last_seq": 1, "count": 1}],
                "performance": {"server_total_ms": 0.4, "wal_append_ms": 0.1, "fsync_ms": 0.0}}),
    ),
    Operation(
        name="get_routes", noun="tables", method="GET", path="/api/routes",
        summary="List the routes from tables to topics; waits, if wanted, until one changes.",
        scope=READ, query=RoutesQuery, response=RouteList,
        example=Example("/api/routes?table=shop.orders", response={
            "version": 5, "routes": [], "hidden": 0, "performance": {"server_total_ms": 0.1}}),
    ),
)  # fmt: skip
