"""POST /api/tables/:table/changes: change events of a table, in our format or Debezium's, each appended once.

    {"changes": [...]}  ->  {"table", "topic", "appended", "duplicates", "tombstones", "refused": [{"index", "message"}],
                             "last_seq", "results": [{"partition", "first_seq", "last_seq", "count"}]}

Valid events are appended even if others of the same request are refused. `?key=id,tenant` and `?source=name` set the key columns
and the source of events that do not name them, such as those of Debezium Server's HTTP sink; a registered table has its own key
columns.
"""

from collections.abc import Callable
from typing import Any

from topics.api.tables.tables import ChangesQuery
from topics.broker.tables.changes import ChangesKept
from topics.model.errors import InvalidRequest
from topics.model.tables.change import MAX_SOURCE_CHARS, Defaults, decode_changes, decode_large_changes
from topics.server.decoding import decode_in_slices
from topics.server.http import Request
from topics.server.operations import Call, decodes, handles
from topics.server.responses import reply_to, send

# A larger body is decoded in steps, because it takes milliseconds.
MIN_SLICED_BYTES = 64 << 10


@decodes("post_changes")
def decode_body(call: Call[Any, ChangesQuery], take: Callable[[Any], None]) -> None:
    broker, request, table = call.broker, call.request, call.name
    body = request.body
    columns = tuple([name.strip() for name in call.query.key.split(",") if name.strip()])
    source = call.query.source
    if len(source) > MAX_SOURCE_CHARS:
        raise InvalidRequest(f"source has at most {MAX_SOURCE_CHARS} characters")
    limits = broker.limits
    known = broker.state.tables.by_name.get(table)
    if known is not None:
        columns = columns or known.key_columns
    defaults = Defaults(broker.runtime.now_ms(), columns, source, limits.max_record_bytes)
    max_events = limits.max_batch_records
    if len(body) < MIN_SLICED_BYTES:
        take(decode_changes(body, defaults, max_events))
    else:
        decode_in_slices(broker, request, decode_large_changes(body, defaults, max_events), take)


@handles("post_changes")
def post_changes(call: Call[Any, ChangesQuery]) -> None:
    request, table = call.request, call.name

    @reply_to(request)
    def reply(outcome: ChangesKept) -> None:
        _send(request, table, outcome)

    call.broker.changes.append(table, call.body, reply)


def _send(request: Request, table: str, kept: ChangesKept) -> None:
    results = [
        {
            "partition": placed.partition,
            "first_seq": placed.first_seq,
            "last_seq": placed.first_seq + placed.count - 1,
            "count": placed.count,
        }
        for placed in kept.placed
    ]
    fields: dict[str, Any] = {
        "table": table,
        "topic": kept.topic,
        "appended": kept.appended,
        "duplicates": kept.duplicates,
        "tombstones": kept.tombstones,
        "refused": [{"index": refused.index, "message": refused.message} for refused in kept.refused],
        "last_seq": max([result["last_seq"] for result in results], default=None),
        "results": results,
    }
    send(request, 200, fields, wal_append_ms=round(kept.wal_ms, 3), fsync_ms=round(kept.sync_ms, 3))
