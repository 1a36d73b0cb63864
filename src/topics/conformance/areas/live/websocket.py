"""Section 7.7: subscribe and publish over /v0/ws."""

from typing import Any

from topics.conformance.checks import absent, cases, check, equal, fields, present, true
from topics.conformance.server import Server


@check
def ping_is_answered(server: Server) -> None:
    fields(server.websocket().call(op="ping"), op="pong")


@check
def subscribe_answers_with_positions(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    reply = server.websocket().call(op="subscribe", topic=name, tail=True)
    fields(reply, op="subscribed")
    fields(reply["topics"][name], from_seq=2, head_seq=2, earliest_seq=1)


@check
def backlog_is_sent_then_caught_up(server: Server) -> None:
    name = server.create()
    server.append(name, 1, 2)
    socket = server.websocket()
    socket.call(op="subscribe", topic=name, from_seq=0)
    frame = socket.next()
    fields(frame, op="record", topic=name, from_seq=0, to_seq=2, head_seq=2)
    equal([each["$seq"] for each in frame["records"]], [1, 2], "seqs")
    fields(socket.next(), op="caught_up", topic=name, head_seq=2)


@check
def new_records_are_pushed(server: Server) -> None:
    name = server.create()
    socket = server.websocket()
    socket.call(op="subscribe", topic=name, tail=True)
    server.append(name, {"data": {"a": 1}, "node": "n"})
    record = socket.until("record")["records"][0]
    fields(record, **{"$seq": 1, "$node": "n", "data": {"a": 1}})


@check
def several_topics_in_one_subscribe(server: Server) -> None:
    first, second = server.create(), server.create()
    socket = server.websocket()
    reply = socket.call(op="subscribe", topics={first: {"tail": True}, second: {"from_seq": 0}})
    equal(sorted(reply["topics"]), sorted([first, second]), "topics")
    server.append(second, 5)
    fields(socket.until("record"), topic=second)


@check
def own_records_are_left_out(server: Server) -> None:
    name = server.create()
    socket = server.websocket()
    socket.call(op="subscribe", topic=name, tail=True, node="me")
    server.append(name, {"data": 1, "node": "me"})
    server.append(name, {"data": 2, "node": "you"})
    equal([each["data"] for each in socket.until("record")["records"]], [2], "data")


@check
def unsubscribe_ends_the_records(server: Server) -> None:
    name, other = server.create(), server.create()
    socket = server.websocket()
    socket.call(op="subscribe", topics={name: {}, other: {}})
    fields(socket.call(op="unsubscribe", topic=name), op="unsubscribed")
    server.append(name, 1)
    server.append(other, 2)
    fields(socket.until("record"), topic=other)


@check
def publish_appends(server: Server) -> None:
    name = server.create()
    reply = server.websocket().call(op="publish", topic=name, records=[{"data": 1, "tag": "t"}, {"data": 2}])
    fields(reply, op="ack", topic=name, last_seq=2, head_seq=2)
    equal(server.seqs(name), [1, 2], "seqs")


@check
def publish_creates_the_topic(server: Server) -> None:
    name = server.new_name()
    fields(server.websocket().call(op="publish", topic=name, records=[{"data": 1}]), op="ack", last_seq=1)
    fields(server.state(name), head_seq=1)


@check
def publish_with_config_configures_a_new_topic(server: Server) -> None:
    name = server.new_name()
    server.websocket().call(op="publish", topic=name, records=[{"data": 1}], config={"ttl_ms": 60000})
    fields(server.state(name)["config"], ttl_ms=60000)


@check
def publish_with_an_idempotency_key_appends_once(server: Server) -> None:
    name = server.create()
    socket = server.websocket()
    first = socket.call(op="publish", topic=name, records=[{"data": 1}], idempotency_key="k")
    second = socket.call(op="publish", topic=name, records=[{"data": 1}], idempotency_key="k")
    equal(first["last_seq"], second["last_seq"], "last_seq of the repeated publish")
    fields(server.state(name), head_seq=1)


@check
def publish_to_a_synced_topic_waits_for_the_sync(server: Server) -> None:
    name = server.create(durability="fsync")
    reply = server.websocket().call(op="publish", topic=name, records=[{"data": 1}])
    true(reply.get("performance", {}).get("fsync_ms", 0) > 0, f"the ack is {reply}")


@check
def publish_without_seqs_leaves_them_out(server: Server) -> None:
    reply = server.websocket().call(op="publish", topic=server.create(), records=[{"data": 1}], return_seqs=False)
    absent(reply, "seqs")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown op": ({"op": "dance"}, "invalid_request"),
    "no op": ({}, "invalid_request"),
    "publish without records": ({"op": "publish", "topic": "{new}"}, "invalid_request"),
    "publish of no records": ({"op": "publish", "topic": "{new}", "records": []}, "invalid_request"),
    "publish of a record without data": ({"op": "publish", "topic": "{new}", "records": [{}]}, "invalid_request"),
    "publish to a bad name": ({"op": "publish", "topic": "a b", "records": [{"data": 1}]}, "invalid_request"),
    "publish with create false": ({"op": "publish", "topic": "{new}", "records": [{"data": 1}], "create": False}, "topic_not_found"),
    "subscribe to an unknown topic": ({"op": "subscribe", "topic": "{new}"}, "topic_not_found"),
    "subscribe without a topic": ({"op": "subscribe"}, "invalid_request"),
    "subscribe with a bad from_seq": ({"op": "subscribe", "topic": "{new}", "from_seq": "5"}, "invalid_request"),
}  # fmt: skip


@cases(REFUSED)
def refused_command_is_an_error_frame_and_the_socket_stays_open(
    server: Server, case: tuple[dict[str, Any], str]
) -> None:
    command, code = case
    if command.get("topic") == "{new}":
        command = {**command, "topic": server.new_name()}
    socket = server.websocket()
    frame = socket.call(**command)
    fields(frame, op="error", code=code)
    present(frame, "message")
    fields(socket.call(op="ping"), op="pong")


@cases({"broken": "{", "an array": "[]", "a number": "5", "text": "hello"})
def message_that_is_no_command_is_an_error_frame(server: Server, text: str) -> None:
    socket = server.websocket()
    socket.send_text(text)
    fields(socket.next(), op="error", code="invalid_request")
    fields(socket.call(op="ping"), op="pong")


@check
def commands_of_one_socket_run_in_order(server: Server) -> None:
    name = server.create()
    socket = server.websocket()
    for number in range(20):
        socket.send(op="publish", request_id=f"p{number}", topic=name, records=[{"data": number}])
    replies = [socket.until("ack") for _ in range(20)]
    equal([reply["request_id"] for reply in replies], [f"p{number}" for number in range(20)], "order of the acks")
    equal([each["data"] for each in server.diff(name)["records"]], list(range(20)), "order of the records")


@check
def published_records_come_back_to_a_subscriber(server: Server) -> None:
    name = server.create()
    socket = server.websocket()
    socket.call(op="subscribe", topic=name, tail=True)
    socket.send(op="publish", topic=name, records=[{"data": "echo"}])
    equal(socket.until("record")["records"][0]["data"], "echo", "data")


@check
def lost_records_are_a_tombstone(server: Server) -> None:
    name = server.create(cap_records=2)
    for number in range(5):
        server.append(name, number)
    socket = server.websocket()
    socket.call(op="subscribe", topic=name, from_seq=0)
    fields(socket.next(), op="tombstone", topic=name, gap_from=1, gap_to=3, earliest_seq=4, head_seq=5)


@check
def deleted_topic_is_announced(server: Server) -> None:
    name = server.create()
    socket = server.websocket()
    socket.call(op="subscribe", topic=name, tail=True)
    server.delete(server.topic_path(name))
    fields(socket.until("topic_deleted"), topic=name, reason="deleted")


@check
def plain_get_is_refused(server: Server) -> None:
    status = server.get("/v0/ws").status
    true(400 <= status < 500, f"a GET without an upgrade got {status}")
