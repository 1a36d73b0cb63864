"""/api/tables: registered tables, where their changes come from, and their columns.

    PUT /api/tables/chat.messages {"kind": "delta", "location": "s3://lake/messages", "key_columns": ["id"],
                                   "columns": {"id": "bigint", "text": "string"}}

`kind` is push (the default), delta or postgres. A caller sees the tables whose change topics it may touch. The list can be waited
for: see `versions`.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from topics.api.tables.tables import TableBody, TablesQuery
from topics.broker.tables.tables import drop_table, known_table, put_table
from topics.model.tables.change import change_topic
from topics.model.tables.table import Materialized, Table, check_table
from topics.server.decoding import convert_options
from topics.server.operations import Call, handles
from topics.server.paging import first_after, page_of
from topics.server.responses import reply_to, send
from topics.server.tables.versions import answer_version


@handles("put_table")
def put_known_table(call: Call[TableBody, None]) -> None:
    broker, request, name, body = call.broker, call.request, call.name, call.body
    before = broker.state.tables.by_name.get(name)
    created_ts = broker.runtime.now_ms() if before is None else before.created_ts
    columns = body.columns if isinstance(body.columns, dict) else dict.fromkeys(body.columns, "")
    materialized = None if before is None else before.materialized
    table = check_table(
        Table(name, body.kind, body.location, tuple(body.key_columns), columns, created_ts, materialized)
    )

    @reply_to(request)
    def reply(_: None) -> None:
        send(request, 201 if before is None else 200, {**table_fields(table), "created": before is None})

    put_table(broker, table, reply)


@handles("get_table")
def get_table(call: Call[None, None]) -> None:
    send(call.request, 200, table_fields(known_table(call.broker, call.name)))


@handles("delete_table")
def delete_table(call: Call[None, None]) -> None:
    request, name = call.request, call.name

    @reply_to(request)
    def reply(_: None) -> None:
        send(request, 200, {"table": name, "deleted": True})

    drop_table(call.broker, name, reply)


@handles("list_tables")
def list_tables(call: Call[None, TablesQuery]) -> None:
    broker, caller, query = call.broker, call.caller, call.query
    prefix, after = query.prefix, first_after(query)

    def answer() -> None:
        names = sorted(
            [
                name
                for name in broker.state.tables.by_name
                if name.startswith(prefix) and name > after and caller.may_touch_table(name)
            ]
        )
        page, next_cursor = page_of(names, query, lambda name: name)
        tables = [table_fields(broker.state.tables.by_name[name]) for name in page]
        version = broker.state.versions.tables.now
        send(call.request, 200, {"version": version, "tables": tables, "next_cursor": None, **next_cursor})

    answer_version(call, broker.state.versions.tables, answer)


def table_fields(table: Table) -> dict[str, Any]:
    return {
        "table": table.name,
        "kind": table.kind,
        "location": table.location,
        "key_columns": list(table.key_columns),
        "columns": table.columns,
        "topic": change_topic(table.name),
        "created_at": table.created_ts,
        "materialized": None if table.materialized is None else structs.asdict(table.materialized),
    }


def materialized_options(fields: Mapping[str, Any]) -> Materialized:
    """The options of an SQL statement. Raises InvalidRequest."""
    return convert_options(fields, Materialized, "a materialised table")
