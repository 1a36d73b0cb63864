"""/api/tables — which tables there are, where their changes come from, and what their columns are.

    PUT /api/tables/chat.messages {"kind": "delta", "location": "s3://lake/messages", "key_columns": ["id"],
                                   "columns": {"id": "bigint", "text": "string"}}

`kind` is push (the default), delta or postgres. Everybody sees the tables whose change topics they may touch. The list
can be waited for: see `versions`.
"""

from typing import Any

import msgspec
from msgspec import Struct

from topics.broker.broker import Broker
from topics.broker.tables import drop_table, known_table, put_table
from topics.model.change import change_topic
from topics.model.errors import TopicsError
from topics.model.table import Kind, Table, check_table
from topics.server.access import caller_of
from topics.server.answers import send, send_error
from topics.server.bodies import Query, decode, list_cursor, parse_list_cursor, require_json
from topics.server.http import Request
from topics.server.versions import answer_version

PAGE_MOST = 1000


class TableBody(Struct, forbid_unknown_fields=True):
    kind: Kind = "push"
    location: str | None = None
    key_columns: list[str] = []
    # Types may be left out: then a list of names.
    columns: dict[str, str] | list[str] = {}


_decoder = msgspec.json.Decoder(TableBody)


def put_known_table(broker: Broker, request: Request, name: str) -> None:
    caller_of(request).check_topic(change_topic(name))
    require_json(request)
    body = decode(request.body, _decoder)
    before = broker.state.tables.by_name.get(name)
    created_ts = broker.runtime.now_ms() if before is None else before.created_ts
    columns = body.columns if isinstance(body.columns, dict) else dict.fromkeys(body.columns, "")
    table = check_table(Table(name, body.kind, body.location, tuple(body.key_columns), columns, created_ts))

    def reply(error: TopicsError | None) -> None:
        if error is not None:
            send_error(request, error)
        else:
            send(request, 201 if before is None else 200, {**table_fields(table), "created": before is None})

    put_table(broker, table, reply)


def get_table(broker: Broker, request: Request, name: str) -> None:
    caller_of(request).check_topic(change_topic(name))
    send(request, 200, table_fields(known_table(broker, name)))


def delete_table(broker: Broker, request: Request, name: str) -> None:
    caller_of(request).check_topic(change_topic(name))

    def reply(error: TopicsError | None) -> None:
        if error is not None:
            send_error(request, error)
        else:
            send(request, 200, {"table": name, "deleted": True})

    drop_table(broker, name, reply)


def list_tables(broker: Broker, request: Request) -> None:
    query = Query(request.query)
    prefix, after = query.text("prefix"), parse_list_cursor(query.text("cursor"))
    size = min(query.number("page_size", 100, low=1), PAGE_MOST)
    caller = caller_of(request)

    def answer() -> None:
        names = sorted(
            [
                name
                for name in broker.state.tables.by_name
                if name.startswith(prefix) and name > after and caller.may_touch(change_topic(name))
            ]
        )
        tables = [table_fields(broker.state.tables.by_name[name]) for name in names[:size]]
        cursor = list_cursor(names[size - 1]) if len(names) > size else None
        version = broker.state.versions.tables.now
        send(request, 200, {"version": version, "tables": tables, "next_cursor": cursor})

    answer_version(broker, request, broker.state.versions.tables, answer)


def table_fields(table: Table) -> dict[str, Any]:
    return {
        "table": table.name,
        "kind": table.kind,
        "location": table.location,
        "key_columns": list(table.key_columns),
        "columns": table.columns,
        "topic": change_topic(table.name),
        "created_at": table.created_ts,
    }
