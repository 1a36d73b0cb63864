"""What a stranger may send: every refusal has the one error body, writes nothing, and leaves the connection usable."""

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.topic import TopicApi, refused
from topics.testing.http import Answer, Api

JSON_TYPE = {"Content-Type": "application/json"}

# Malformed anywhere in a body; `DATA` marks where a payload would stand.
BAD_VALUES = [
    b"NaN",
    b"-NaN",
    b"Infinity",
    b"-Infinity",
    b"nan",
    b"01",
    b"-01",
    b"00",
    b"+1",
    b"1.",
    b".5",
    b"-",
    b"1e",
    b"1e+",
    b"0x10",
    b"1_000",
    b"1,000",
    b"True",
    b"None",
    b"tru",
    b"undefined",
    b"'a'",
    b'"\x00"',
    b'"a\x01b"',
    b'"line\nbreak"',
    b'"tab\there"',
    b'"\x1f"',
    b'"\\x41"',
    b'"\\a"',
    b'"\\u12"',
    b'"\\u12G4"',
    b'"open',
    b'"open\\"',
    b'"\xff"',
    b'"\xc3"',
    b'"\xc0\xaf"',
    b'"\xed\xa0\x80"',
    b'"\xf5\x80\x80\x80"',
    b"[1,]",
    b"[,1]",
    b"[1 2]",
    b"[1",
    b"1]",
    b"[01]",
    b"[NaN]",
    b'["\x02"]',
    b'{"a":1,}',
    b'{"a"}',
    b'{"a":}',
    b'{"a" 1}',
    b"{a:1}",
    b"{1:1}",
    b"{'a':1}",
    b'{"a":1',
    b'{"a":1}}',
    b'{"\x01":1}',
    b'{"a":[1,{"b":Infinity}]}',
    b"// comment\n1",
    b"/* comment */1",
    b"# comment\n1",
    b"\xef\xbb\xbf1",
    b"\xc2\xa01",
    b"\x0b1",
    b"\x0c1",
    b"",
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
]


def shorten(value: Any) -> str:
    text = value if isinstance(value, bytes) else repr(value).encode()
    return text[:30].decode("latin-1").encode("unicode_escape").decode() + (f"..{len(text)}" if len(text) > 30 else "")


@pytest.mark.parametrize("value", BAD_VALUES, ids=shorten)
def test_malformed_data_writes_nothing_and_the_connection_goes_on(topic: TopicApi, value: bytes) -> None:
    connection = topic.api.connection()
    connection.connect()
    port = connection.sock.getsockname()[1]
    for body in (
        b'{"records":[{"data":' + value + b'}],"idempotency_key":"k"}',
        b'{"records":[{"data":1},{"data":1,"tag":"t","meta":{"m":' + value + b'}}],"idempotency_key":"k"}',
        b'{"records":[{"data":1}],"idempotency_key":"k","unknown":' + value + b"}",
    ):
        refused(topic.api.post(topic.path, body), 400, "invalid_request")
    assert not topic.exists()
    body = topic.append("good", idempotency_key="k")
    assert (body["seqs"], body["deduped"]) == ([1], False)
    assert topic.api.connection().sock.getsockname()[1] == port, "the connection was not kept"


@pytest.mark.parametrize("value", BAD_VALUES, ids=shorten)
def test_malformed_json_is_refused_by_every_resource(topic: TopicApi, value: bytes) -> None:
    topic.append(1)
    before = topic.state()
    for method, path in [
        ("PUT", topic.path),
        ("PUT", topic.path + ".new"),
        ("POST", f"{topic.path}/diff"),
        ("POST", f"{topic.path}/delete"),
    ]:
        body = b'{"before_seq":2,"cap_records":1,"unknown":' + value + b"}"
        refused(topic.api.send(method, path, body, JSON_TYPE), 400, "invalid_request")
    assert not TopicApi(topic.api, topic.name + ".new").exists()
    after = topic.state()
    for state in (before, after):
        del state["performance"]
        del state["last_read_ts"]
        del state["effective_priority"]
    assert after == before


GOOD_BODIES = {
    "PUT ": b'{"cap_records":5}',
    "POST ": b'{"records":[{"data":1}]}',
    "POST /diff": b"{}",
    "POST /delete": b'{"before_seq":1}',
}


def resources(topic: TopicApi) -> Iterator[tuple[str, str, bytes]]:
    for resource, body in GOOD_BODIES.items():
        method, _, rest = resource.partition(" ")
        yield method, topic.path + rest, body


@pytest.mark.parametrize("tail", [b" x", b"{}", b",", b"}", b"\x00", b"null", b"\xef\xbb\xbf"], ids=shorten)
def test_nothing_may_follow_the_document(topic: TopicApi, tail: bytes) -> None:
    for method, path, body in resources(topic):
        refused(topic.api.send(method, path, body + tail, JSON_TYPE), 400, "invalid_request")
    assert not topic.exists()


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"\x00", b"x", b",", b"\xfe\xff"], ids=shorten)
def test_nothing_may_precede_the_document(topic: TopicApi, start: bytes) -> None:
    for method, path, body in resources(topic):
        refused(topic.api.send(method, path, start + body, JSON_TYPE), 400, "invalid_request")
    assert not topic.exists()


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"x"', b"true", b"[{}]", b"", b" ", b"{"], ids=shorten)
def test_a_body_is_one_object(topic: TopicApi, body: bytes) -> None:
    for method, path, _ in resources(topic):
        if body or not path.endswith("/diff"):
            refused(topic.api.send(method, path, body, JSON_TYPE), 400, "invalid_request")
    assert not topic.exists()


def test_white_space_around_the_document_is_fine(topic: TopicApi) -> None:
    for method, path, body in resources(topic):
        assert topic.api.send(method, path, b" \t\r\n" + body + b"\n ", JSON_TYPE).status in (200, 201)


def test_utf16_is_not_json(topic: TopicApi) -> None:
    for method, path, body in resources(topic):
        refused(topic.api.send(method, path, body.decode().encode("utf-16"), JSON_TYPE), 400, "invalid_request")


# Content types


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "text/json",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/vnd.api+json",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "json",
        "*/*",
    ],
)
def test_a_body_that_is_not_declared_as_json_is_not_looked_at(topic: TopicApi, content_type: str | None) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    for method, path, body in resources(topic):
        for each in (body, b"{not json"):
            refused(topic.api.send(method, path, each, headers), 415, "unsupported_media_type")
    assert not topic.exists()


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        'application/json; charset="utf-8"',
        "Application/JSON",
        "application/json ; charset=utf-8",
        "application/json; profile=x",
    ],
)
def test_json_may_be_declared_in_every_usual_way(topic: TopicApi, content_type: str) -> None:
    for method, path, body in resources(topic):
        assert topic.api.send(method, path, body, {"Content-Type": content_type}).status in (200, 201)


@pytest.mark.parametrize("content_type", [None, "application/json", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("body", [None, b""], ids=["no length", "length 0"])
def test_a_read_or_claim_without_a_body_is_one_with_an_empty_object(
    topic: TopicApi, body: bytes | None, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    topic.configure(type="queue")
    topic.append(1, 2)
    found = topic.api.send("POST", f"{topic.path}/diff", body, headers)
    assert (found.status, [record["$seq"] for record in found.json["records"]]) == (200, [1, 2])
    # A claim must name its node, so `{}` is refused for that and not for its type.
    refused(topic.api.send("POST", f"{topic.path}/claim", body, headers), 400, "invalid_request")
    # What a connection has learned about requests without a body does not hold for those with one.
    refused(topic.api.send("POST", f"{topic.path}/claim", b'{"node":"w"}'), 415, "unsupported_media_type")
    refused(topic.api.send("POST", f"{topic.path}/diff", b"{}"), 415, "unsupported_media_type")
    absent = topic.api.send("POST", f"{topic.path}-absent/diff", body, headers)
    refused(absent, 404, "topic_not_found")


def test_the_content_type_comes_before_the_topic(topic: TopicApi) -> None:
    refused(topic.api.send("POST", f"{topic.path}/diff", b"{}"), 415, "unsupported_media_type")


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "x"])
def test_a_body_in_an_unknown_coding_is_refused(topic: TopicApi, coding: str) -> None:
    answer = topic.api.post(topic.path, b'{"records":[{"data":1}]}', {"Content-Encoding": coding})
    refused(answer, 415, "unsupported_media_type")
    assert not topic.exists()


@pytest.mark.parametrize("spoil", [lambda body: body[:-3], lambda body: b"x" + body, lambda body: body[:10]])
def test_a_broken_gzip_body_is_refused(topic: TopicApi, spoil: Any) -> None:
    packed = spoil(gzip.compress(b'{"records":[{"data":1}]}'))
    refused(topic.api.post(topic.path, packed, {"Content-Encoding": "gzip"}), 400, "invalid_request")
    assert not topic.exists()
    topic.append(1)


# Size


def test_a_body_over_the_limit_is_refused_before_it_is_parsed(small_topic: TopicApi) -> None:
    too_large = b"x" * 20_001
    for method, path, _ in resources(small_topic):
        refused(small_topic.api.send(method, path, too_large, JSON_TYPE), 413, "payload_too_large")
    assert not small_topic.exists()
    small_topic.append(1)


def test_a_body_exactly_at_the_limit_is_read(small_topic: TopicApi) -> None:
    for method, path, body in resources(small_topic):
        assert small_topic.api.send(method, path, body.ljust(20_000), JSON_TYPE).status in (200, 201)
        refused(small_topic.api.send(method, path, body.ljust(20_001), JSON_TYPE), 413, "payload_too_large")


def test_a_chunked_body_over_the_limit_is_refused_as_well(small_topic: TopicApi) -> None:
    def chunked(body: bytes) -> Answer:
        connection = http.client.HTTPConnection(small_topic.api.host, small_topic.api.port, timeout=20)
        try:
            pieces = [body[at : at + 700] for at in range(0, len(body), 700)]
            connection.request("POST", small_topic.path, iter(pieces), JSON_TYPE, encode_chunked=True)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    good = b'{"records":[{"data":1}]}'
    assert chunked(good.ljust(20_000)).status == 201
    refused(chunked(good.ljust(20_001)), 413, "payload_too_large")
    refused(chunked(b"x" * 50_000), 413, "payload_too_large")
    assert small_topic.state()["count"] == 1


def test_a_body_that_only_declares_too_much_is_refused_without_waiting_for_it(api: Api) -> None:
    with socket.create_connection((api.host, api.port), timeout=20) as client:
        client.sendall(
            b"POST /v0/topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 99999999999\r\n\r\n"
        )
        received = client.recv(65536)
    assert received.startswith(b"HTTP/1.1 413 ")
    assert b'"payload_too_large"' in received


def test_the_limit_holds_for_the_inflated_body(small_topic: TopicApi) -> None:
    gzipped = {"Content-Encoding": "gzip"}
    good = b'{"records":[{"data":1}]}'
    refused(
        small_topic.api.post(small_topic.path, gzip.compress(good.ljust(20_001)), gzipped), 413, "payload_too_large"
    )
    bomb = gzip.compress(b" " * 10_000_000)
    assert len(bomb) < 20_000
    refused(small_topic.api.post(small_topic.path, bomb, gzipped), 413, "payload_too_large")
    assert not small_topic.exists()
    assert small_topic.api.post(small_topic.path, gzip.compress(good.ljust(20_000)), gzipped).status == 201


# Paths and methods


@pytest.mark.parametrize(
    "path",
    [
        "/v0",
        "/v0/",
        "/v1/topics",
        "/v0/topic",
        "/v0/topics/a/b",
        "/v0/topics/a/diff/b",
        "/v0/topics/a/delete/",
        "/v0/health/",
        "/v0/healthz",
        "/health",
        "/v0//topics",
        "/V0/topics",
        "/v0/Topics",
        "//v0/topics",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
def test_an_unknown_path_is_not_found(api: Api, method: str, path: str) -> None:
    refused(api.send(method, path, b"{}", JSON_TYPE), 404, "not_found")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v0/topics", {"GET", "HEAD"}),
        ("/v0/topics/a", {"GET", "HEAD", "PUT", "POST", "DELETE"}),
        ("/v0/topics/a/diff", {"POST"}),
        ("/v0/topics/a/delete", {"POST"}),
        ("/v0/health", {"GET", "HEAD"}),
        ("/v0/ready", {"GET", "HEAD"}),
    ],
)
def test_a_known_path_names_the_methods_that_work(api: Api, path: str, allowed: set[str]) -> None:
    for method in {"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"} - allowed:
        answer = refused(api.send(method, path, b"{}", JSON_TYPE), 405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) == allowed


def test_unknown_method_is_not_allowed(api: Api) -> None:
    refused(api.send("BREW", "/v0/topics/a", b"{}", JSON_TYPE), 405, "method_not_allowed")


# Connections


def test_a_connection_survives_a_hundred_refusals(topic: TopicApi) -> None:
    connection = topic.api.connection()
    connection.connect()
    port = connection.sock.getsockname()[1]
    for turn in range(25):
        refused(topic.api.post(topic.path, b"{" * turn), 400, "invalid_request")
        refused(topic.api.send("POST", topic.path, b"{}"), 415, "unsupported_media_type")
        refused(topic.api.get("/v0/nothing"), 404, "not_found")
        refused(topic.api.get(topic.path), 404, "topic_not_found")
    assert topic.api.connection().sock.getsockname()[1] == port


def test_requests_behind_a_refused_one_are_served(topic: TopicApi) -> None:
    """All in one write: a refusal must not swallow what follows it."""
    bad = b'{"records":[{"data":NaN}]}'
    good = b'{"records":[{"data":1}]}'
    head = f"POST {topic.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    sent = b"".join([head + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in (bad, good, bad, good)])
    with socket.create_connection((topic.api.host, topic.api.port), timeout=20) as client:
        client.sendall(sent)
        received = b""
        while received.count(b"HTTP/1.1 ") < 4 or not received.endswith(b"}"):
            part = client.recv(65536)
            assert part
            received += part
    statuses = [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [400, 201, 400, 200]
    assert topic.seqs() == [1, 2]


def test_every_error_tells_how_long_it_took_and_nothing_but_the_error(topic: TopicApi) -> None:
    answer = refused(topic.api.get(topic.path), 404, "topic_not_found")
    assert json.loads(answer.body)["performance"]["server_total_ms"] >= 0
    assert answer.detail == {"topic": topic.name}
