"""The document about durable topics: consumer groups and SQL."""

import base64
import json
import time
from typing import Any

from topics.conformance.checks import Skipped, cases, check, equal, fields, present, true
from topics.conformance.server import Response, Server


def _consume(server: Server, topic: str, group: str = "g", **more: Any) -> dict[str, Any]:
    body = {"topic": topic, "group_id": group, "start": "Earliest", "timeout_seconds": 0, **more}
    return _body(server.post("/api/topics/consume", body))


def _ack(server: Server, topic: str, offset: int, group: str = "g", **more: Any) -> dict[str, Any]:
    body = {"topic": topic, "group_id": group, "partition_id": 0, "upto_offset": offset, **more}
    return _body(server.post("/api/topics/ack", body))


def _sql(server: Server, statement: str) -> dict[str, Any]:
    return _body(server.post("/api/sql", {"sql": statement}))


def _body(response: Response) -> dict[str, Any]:
    if response.status == 403:
        raise Skipped("the key may not consume")
    equal(response.status, 200, f"status of {response.request} ({response.text(200)})")
    body = response.json()
    true(isinstance(body, dict), "the body is not an object")
    return dict(body)


def _offsets(body: dict[str, Any]) -> list[int]:
    return [message["offset"] for message in body["messages"]]


@check
def message_has_the_documented_fields(server: Server) -> None:
    name = server.create()
    server.append(name, {"a": 1})
    body = _consume(server, name)
    message = body["messages"][0]
    present(message, "topic_id", "message_id", "source_table", "ts")
    fields(message, partition_id=0, offset=1, op="Insert", payload_mode="Full")
    equal(json.loads(base64.b64decode(message["payload"])), {"a": 1}, "payload")
    fields(body, next_offset=2, has_more=False)


@check
def limit_bounds_the_messages(server: Server) -> None:
    name = server.create()
    server.append(name, *range(5))
    body = _consume(server, name, limit=2)
    equal(_offsets(body), [1, 2], "offsets")
    fields(body, next_offset=3, has_more=True)


@check
def unacked_messages_come_again(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    equal(_offsets(_consume(server, name)), [1, 2], "offsets")
    equal(_offsets(_consume(server, name)), [1, 2], "offsets of the second poll")


@check
def ack_moves_the_group(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    _consume(server, name)
    fields(_ack(server, name, 2), success=True, acknowledged_offset=2)
    equal(_offsets(_consume(server, name)), [3], "offsets after the ack")


@check
def older_ack_does_not_rewind(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    _ack(server, name, 3)
    fields(_ack(server, name, 1), acknowledged_offset=3)
    equal(_offsets(_consume(server, name)), [], "offsets")


@check
def groups_are_independent(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    _consume(server, name, "one")
    _ack(server, name, 2, "one")
    equal(_offsets(_consume(server, name, "two")), [1, 2], "offsets of the other group")


@check
def latest_begins_at_the_head(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    equal(_offsets(_consume(server, name, start="Latest")), [], "offsets")
    server.append(name, 3)
    equal(_offsets(_consume(server, name, start="Latest")), [3], "offsets after an append")


@check
def offset_is_inclusive(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2, 3)
    equal(_offsets(_consume(server, name, start={"Offset": 2})), [2, 3], "offsets")


@check
def poll_is_woken_by_an_append(server: Server) -> None:
    name = server.create()
    server.append(name, 1)
    started = time.monotonic()
    equal(_offsets(_consume(server, name, timeout_seconds=10)), [1], "offsets")
    true(time.monotonic() - started < 5, "the poll waited although there was a message")


@check
def poll_ends_empty_after_its_time(server: Server) -> None:
    started = time.monotonic()
    fields(_consume(server, server.create(), timeout_seconds=1), messages=[])
    true(time.monotonic() - started < 5, "the poll did not end after its time")


@check
def unknown_topic_is_404(server: Server) -> None:
    body = {"topic": server.new_name(), "group_id": "g"}
    equal(server.post("/api/topics/consume", body).status, 404, "status")


BAD_POLLS: dict[str, dict[str, Any]] = {
    "no group": {"topic": "{topic}"},
    "no topic": {"group_id": "g"},
    "limit as text": {"topic": "{topic}", "group_id": "g", "limit": "5"},
    "unknown start": {"topic": "{topic}", "group_id": "g", "start": "Middle"},
    "start with a bad offset": {"topic": "{topic}", "group_id": "g", "start": {"Offset": "x"}},
}


@cases(BAD_POLLS)
def bad_poll_is_refused(server: Server, body: dict[str, Any]) -> None:
    topic = server.create()
    sent = {key: topic if value == "{topic}" else value for key, value in body.items()}
    equal(server.post("/api/topics/consume", sent).status, 400, "status")


@check
def the_same_paths_exist_under_v1(server: Server) -> None:
    name = server.create()
    server.append(name, 1)
    body = {"topic": name, "group_id": "g", "start": "Earliest", "timeout_seconds": 0}
    equal(_offsets(_body(server.post("/v1/api/topics/consume", body))), [1], "offsets")


@check
def sql_creates_consumes_and_acks(server: Server) -> None:
    name = server.new_name()
    _sql(server, f'CREATE TOPIC "{name}"')
    server.append(name, 1, 2, 3)
    _sql(server, f"CONSUME FROM \"{name}\" GROUP 'g' FROM EARLIEST LIMIT 10")
    _sql(server, f"ACK \"{name}\" GROUP 'g' PARTITION 0 UPTO OFFSET 2")
    equal(_offsets(_consume(server, name)), [3], "offsets after the ack")


@cases({"CONSUME": "CONSUME", "an unknown statement": "DANCE", "nothing": ""})
def bad_sql_is_refused(server: Server, statement: str) -> None:
    equal(server.post("/api/sql", {"sql": statement}).status, 400, "status")
