"""POST /api/tables/:table/changes — change events of a table, ours or Debezium's, each kept once.

    {"changes": [...]}  ->  {"table", "topic", "appended", "duplicates", "tombstones", "refused": [{"index", "message"}],
                             "last_seq", "results": [{"partition", "first_seq", "last_seq", "count"}]}

The good events of a request are kept whatever the others are. `?key=id,tenant` names the key columns and `?source=name` the
source for events that do not say so themselves, as those of Debezium Server's HTTP sink; a table that is known has its key
columns anyway.
"""

from typing import Any

from topics.broker.broker import Broker
from topics.broker.changes import ChangesKept
from topics.model.batch import check_text
from topics.model.change import SOURCE_CHARS_MOST, Defaults, Events, change_topic, decode_changes
from topics.model.errors import InvalidRequest, TopicsError
from topics.server.access import caller_of
from topics.server.answers import send, send_error
from topics.server.bodies import Query, require_json
from topics.server.http import Request

# Reading so much takes some milliseconds: done beside the loop.
LARGE_BYTES = 64 << 10


def post_changes(broker: Broker, request: Request, table: str) -> None:
    caller_of(request).check_topic(change_topic(table))
    require_json(request)
    body = request.body
    if not body.isascii():
        check_text(body)
    query = Query(request.query)
    columns = tuple([name.strip() for name in query.text("key").split(",") if name.strip()])
    source = query.text("source")
    if len(source) > SOURCE_CHARS_MOST:
        raise InvalidRequest(f"source has at most {SOURCE_CHARS_MOST} characters")
    limits = broker.limits
    known = broker.state.tables.by_name.get(table)
    if known is not None:
        columns = columns or known.key_columns
    defaults = Defaults(broker.runtime.now_ms(), columns, source, limits.max_record_bytes)

    def reply(outcome: ChangesKept | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
        else:
            _send(request, table, outcome)

    if len(body) < LARGE_BYTES:
        broker.changes.append(table, decode_changes(body, defaults, limits.max_batch_records), reply)
        return

    def decoded(events: Events | None, error: BaseException | None) -> None:
        if isinstance(error, TopicsError):
            send_error(request, error)
        elif events is None:
            send_error(request, InvalidRequest("the body cannot be read"))
        else:
            broker.changes.append(table, events, reply)

    broker.runtime.run_aside("bulk", lambda: decode_changes(body, defaults, limits.max_batch_records), decoded)


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
