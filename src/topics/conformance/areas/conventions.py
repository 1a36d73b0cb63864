"""Sections 0.3 to 0.6: content types, error bodies, status codes, JSON bodies."""

import gzip
import json

from topics.conformance.checks import absent, cases, check, envelope, equal, refused, succeeded, true
from topics.conformance.server import Server

ONE = {"records": [{"data": 1}]}


@cases({path: path for path in ("/v0/nothing", "/v1/nothing", "/nothing", "/v0/topics/a/b/c", "/v0/topics/a/unknown")})
def unknown_path_is_404(server: Server, path: str) -> None:
    equal(server.get(path).status, 404, "status")
    envelope(server.get(path))


@cases(
    {
        f"{method} {path}": (method, path)
        for method, path in (
            ("DELETE", "/v0/topics"),
            ("PUT", "/v0/watch"),
            ("GET", "/v0/watch"),
            ("DELETE", "/v0/health"),
            ("POST", "/v0/ready"),
            ("POST", "/v0/metrics"),
            ("DELETE", "/v0/watch/wid_unknown"),
            ("GET", "/v0/topics/t/diff"),
            ("GET", "/v0/topics/t/delete"),
            ("GET", "/v0/topics/t/claim"),
            ("DELETE", "/v0/topics/t/work"),
            ("POST", "/v0/routers"),
            ("PATCH", "/v0/topics/t"),
        )
    }
)
def wrong_method_is_405(server: Server, request: tuple[str, str]) -> None:
    method, path = request
    refused(server.send(method, path), 405, "method_not_allowed")


CONTENT_TYPES = {"none": None, "text/plain": "text/plain", "a form": "application/x-www-form-urlencoded"}
BODIES = {
    "append": ("POST", "/v0/topics/{}", ONE),
    "create a topic": ("PUT", "/v0/topics/{}", {}),
    "diff": ("POST", "/v0/topics/{}/diff", {"from_seq": 0}),
    "delete records": ("POST", "/v0/topics/{}/delete", {"before_seq": 1}),
    "watch": ("POST", "/v0/watch", {"topics": {"t": {}}}),
    "create a router": ("PUT", "/v0/routers/{}", {"source": "a", "dest": "b"}),
    "claim": ("POST", "/v0/topics/{}/claim", {"node": "w"}),
}


@cases({f"{what}, {kind}": (what, kind) for what in BODIES for kind in CONTENT_TYPES})
def other_content_type_is_415(server: Server, case: tuple[str, str]) -> None:
    what, kind = case
    method, path, body = BODIES[what]
    media_type = CONTENT_TYPES[kind]
    headers = {"Content-Type": media_type} if media_type else {}
    refused(server.send(method, path.format(server.new_name()), body, headers), 415, "unsupported_media_type")


@cases(
    {
        name: name
        for name in (
            "application/json",
            "application/json; charset=utf-8",
            "application/json;charset=UTF-8",
            "APPLICATION/JSON",
        )
    }
)
def content_type_is_accepted(server: Server, content_type: str) -> None:
    succeeded(server.send("POST", server.topic_path(), ONE, {"Content-Type": content_type}), 201)


@check
def content_type_is_checked_before_the_body_is_parsed(server: Server) -> None:
    refused(
        server.send("POST", server.topic_path(), b"{", {"Content-Type": "text/plain"}), 415, "unsupported_media_type"
    )


BAD_JSON = {
    "empty": b"",
    "half an object": b'{"records":[{"data":1}]',
    "text after the object": b'{"records":[{"data":1}]} x',
    "two objects": b'{"records":[{"data":1}]}{}',
    "an array": b'[{"data":1}]',
    "a string": b'"records"',
    "null": b"null",
    "invalid UTF-8": b'{"records":[{"data":"\xff"}]}',
    "a raw control character": b'{"records":[{"data":"a\x01b"}]}',
    "a raw newline in a string": b'{"records":[{"data":"a\nb"}]}',
    "NaN": b'{"records":[{"data":NaN}]}',
    "Infinity": b'{"records":[{"data":Infinity}]}',
    "a leading zero": b'{"records":[{"data":01}]}',
    "a leading plus": b'{"records":[{"data":+1}]}',
    "a trailing comma": b'{"records":[{"data":1},]}',
    "single quotes": b"{'records':[{'data':1}]}",
    "an unknown word": b'{"records":[{"data":True}]}',
    "a bad escape": rb'{"records":[{"data":"\x41"}]}',
    "a short unicode escape": rb'{"records":[{"data":"\u12"}]}',
    "a bare decimal point": b'{"records":[{"data":1.}]}',
    "a comment": b'{"records":[{"data":1}]} // no',
}


@cases(BAD_JSON)
def bad_json_is_refused_and_creates_nothing(server: Server, body: bytes) -> None:
    topic = server.new_name()
    refused(server.post(server.topic_path(topic), body), 400, "invalid_request")
    refused(server.get(server.topic_path(topic)), 404, "topic_not_found")


@cases({what: BODIES[what] for what in BODIES})
def bad_json_is_400_on_every_body(server: Server, request: tuple[str, str, object]) -> None:
    method, path, _body = request
    response = server.send(method, path.format(server.new_name()), b"{", {"Content-Type": "application/json"})
    refused(response, 400, "invalid_request")


@check
def declared_body_above_64_mib_is_413_before_it_is_sent(server: Server) -> None:
    topic = server.new_name()
    head = f"POST {server.topic_path(topic)} HTTP/1.1\nContent-Type: application/json\nContent-Length: {(64 << 20) + 1}"
    refused(server.send_head(head), 413, "payload_too_large")
    refused(server.get(server.topic_path(topic)), 404, "topic_not_found")


@check
def absent_topic_error_names_the_topic(server: Server) -> None:
    topic = server.new_name()
    error = refused(server.get(server.topic_path(topic)), 404, "topic_not_found")
    equal(error.get("detail", {}).get("topic"), topic, "error.detail.topic")


@check
def success_has_no_status_wrapper(server: Server) -> None:
    topic = server.create()
    for response in (server.get(server.topic_path(topic)), server.get("/v0/topics"), server.get("/v0/routers")):
        absent(succeeded(response), "status", "ok", "error")


@check
def gzip_request_body_is_accepted(server: Server) -> None:
    topic = server.new_name()
    body = gzip.compress(json.dumps({"records": [{"data": "x" * 1000}]}).encode())
    succeeded(server.post(server.topic_path(topic), body, {"Content-Encoding": "gzip"}), 201)
    equal(server.diff(topic)["records"][0]["data"], "x" * 1000, "data")


@check
def broken_gzip_body_is_refused(server: Server) -> None:
    response = server.post(server.topic_path(), b"not gzip at all", {"Content-Encoding": "gzip"})
    refused(response, 400, "invalid_request")


@check
def response_is_compressed_only_when_asked(server: Server) -> None:
    topic = server.create()
    server.append(topic, *["x" * 1000] * 100)
    plain = server.post(server.topic_path(topic, "/diff"), {})
    true("content-encoding" not in plain.headers, "a response without Accept-Encoding is compressed")
    packed = server.post(server.topic_path(topic, "/diff"), {}, {"Accept-Encoding": "gzip"})
    body = gzip.decompress(packed.body) if packed.headers.get("content-encoding") == "gzip" else packed.body
    equal(len(json.loads(body)["records"]), 100, "number of records")


@check
def unknown_request_fields_are_ignored(server: Server) -> None:
    succeeded(server.post(server.topic_path(), {**ONE, "unknown": {"a": 1}}), 201)


@check
def unknown_query_parameters_are_ignored(server: Server) -> None:
    succeeded(server.get("/v0/topics?unknown=1"))


@check
def one_connection_carries_several_requests(server: Server) -> None:
    connection = server.connect()
    try:
        for _ in range(3):
            equal(server.send_on(connection, "GET", "/v0/topics").status, 200, "status")
        equal(server.send_on(connection, "GET", "/v0/nothing").status, 404, "status")
        equal(server.send_on(connection, "GET", "/v0/topics").status, 200, "status after an error")
    finally:
        connection.close()


@check
def performance_of_a_write_without_sync_has_no_sync_time(server: Server) -> None:
    performance = server.append(server.create(), 1)["performance"]
    true(performance.get("fsync_ms", 0) == 0, f"fsync_ms is {performance.get('fsync_ms')}")


@check
def performance_of_a_synced_write_has_a_sync_time(server: Server) -> None:
    performance = server.append(server.create(durability="fsync"), 1)["performance"]
    true(performance.get("fsync_ms", 0) > 0, f"fsync_ms is {performance.get('fsync_ms')!r}")
