"""How large bodies and lists may be, checked before they are decoded or even inflated."""

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.acceptance.test_websocket import socket_to
from tests.server.house import House, error_of, in_house
from topics.api.common import MAX_NODES
from topics.api.operation import MAX_CONTROL_BODY_BYTES
from topics.api.ops import MAX_LOGIN_BODY_BYTES
from topics.server.live.websocket import MAX_MESSAGE_BYTES
from topics.server.ops.settings import load_settings
from topics.testing.http import Api
from topics.testing.server import running_server

GZIP = ("Content-Encoding: gzip",)

# Paths that carry no records, each with what makes its body large.
CONTROL_PATHS = [
    "/v0/topics/t/diff",
    "/v0/topics/t/claim",
    "/v0/topics/t/ack",
    "/v0/topics/t/nack",
    "/v0/topics/t/extend",
    "/v0/topics/t/delete",
    "/v0/heads",
    "/v0/watch",
    "/api/sql",
    "/api/topics/consume",
]


def nodes(count: int, length: int) -> list[str]:
    return [f"{number:0{length}d}" for number in range(count)]


@pytest.mark.parametrize("path", CONTROL_PATHS)
@in_house()
async def test_body_without_records_has_a_small_limit(house: House, path: str) -> None:
    await house.ask("PUT", "/v0/topics/t", {"type": "queue"})
    too_large = b'{"x":"%b"}' % (b"x" * MAX_CONTROL_BODY_BYTES)
    for body, headers in ((too_large, ()), (gzip.compress(too_large), GZIP)):
        answer = await house.ask("POST", path, body, headers=headers)
        assert (answer.status, error_of(answer)["code"]) == (413, "payload_too_large")
        assert str(MAX_CONTROL_BODY_BYTES) in error_of(answer)["message"]
    just_fits = b'{"x":"%b"}' % (b"x" * (MAX_CONTROL_BODY_BYTES - 8))
    for body, headers in ((just_fits, ()), (gzip.compress(just_fits), GZIP)):
        assert (await house.ask("POST", path, body, headers=headers)).status != 413


@in_house()
async def test_body_with_records_may_be_as_large_as_the_server_allows(house: House) -> None:
    record = {"data": "x" * 900_000}
    body = {"records": [record, record, record]}
    assert (await house.ask("POST", "/v0/topics/t", body)).status == 201
    assert (await house.ask("POST", "/v0/stages?topic=t", body)).status == 201
    assert (await house.ask("POST", "/v0/commits", {"writes": [{"topic": "t", **body}]})).status == 200


@pytest.mark.parametrize("length", [1, 100])
@in_house()
async def test_a_reader_may_name_a_thousand_nodes_and_not_one_more(house: House, length: int) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1, "node": "n"}]})
    for path, more in (("/v0/topics/t/diff", {}), ("/v0/watch", {"topics": {"t": {}}})):
        answer = await house.ask("POST", path, {"node": nodes(MAX_NODES, length), **more})
        assert answer.status == 200
        answer = await house.ask("POST", path, {"node": nodes(MAX_NODES + 1, length), **more})
        assert (answer.status, error_of(answer)["code"]) == (400, "invalid_request")
        assert error_of(answer)["detail"] == {"max": MAX_NODES}


@in_house()
async def test_long_list_of_nodes_is_refused_wherever_it_is_in_the_body(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]})
    many = json.dumps(nodes(200_000, 1)).encode()
    for body in (b'{"node":%b}', b'{"limit":5,"filter":{"a":["x"]}, "node" : %b,"wait_ms":0}'):
        answer = await house.ask("POST", "/v0/topics/t/diff", body.replace(b"%b", many[:900_000] + b'"]'))
        assert error_of(answer)["detail"] == {"max": MAX_NODES}


@in_house()
async def test_names_of_nodes_may_hold_commas_quotes_and_brackets(house: House) -> None:
    await house.ask("POST", "/v0/topics/t", {"records": [{"data": 1, "node": 'a","b],'}]})
    names = [f'{number}\\","],[{{' + "x" * 90 for number in range(MAX_NODES - 1)] + ['a","b],']
    answer = await house.ask("POST", "/v0/topics/t/diff", {"node": names})
    assert answer.status == 200
    assert answer.json["records"] == []


@pytest.mark.parametrize("operation", ["ack", "nack", "extend"])
@in_house()
async def test_too_many_seqs_or_leases_are_refused(house: House, operation: str) -> None:
    await house.ask("PUT", "/v0/topics/q", {"type": "queue"})
    base: dict[str, Any] = {"node": "n", "lease_ms": 1000}
    for more in ({"seqs": [1] * 100_000}, {"seqs": [1], "lease_ids": ["x" * 40] * 20_000}):
        answer = await house.ask("POST", f"/v0/topics/q/{operation}", {**base, **more})
        assert (answer.status, error_of(answer)["code"]) == (400, "batch_too_large")


@in_house()
async def test_too_many_topics_to_watch_are_refused_before_they_are_decoded(house: House) -> None:
    topics = {f"topic-{number}": {} for number in range(20_000)}
    answer = await house.ask("POST", "/v0/watch", {"topics": topics})
    assert (answer.status, error_of(answer)["code"]) == (400, "invalid_request")
    assert error_of(answer)["detail"] == {"max": house.settings.limits.max_watch_topics}


def test_login_body_is_small_and_not_compressed(tmp_path: Path) -> None:
    config = tmp_path / "server.toml"
    config.write_text('[[users]]\nname = "ada"\npassword = "secret"\n', encoding="utf-8")
    settings = load_settings(
        {"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data"), "TOPICS_CONFIG": str(config)}
    )
    good = {"username": "ada", "password": "secret"}
    with running_server(settings) as url, Api(url) as api:
        for path in ("/api/auth/login", "/v1/api/auth/login"):
            assert api.post(path, good).status == 200
            padded = json.dumps({**good, "x": ""}).encode()
            padded = padded.replace(b'"x": ""', b'"x": "%b"' % (b"x" * (MAX_LOGIN_BODY_BYTES - len(padded))))
            assert len(padded) == MAX_LOGIN_BODY_BYTES
            assert api.post(path, padded).status == 200
            for body in (padded + b" ", padded.ljust(100_000)):
                answer = api.post(path, body)
                assert (answer.status, answer.code) == (413, "payload_too_large")
            for body in (gzip.compress(json.dumps(good).encode()), gzip.compress(b" " * 60_000_000)):
                answer = api.post(path, body, {"Content-Encoding": "gzip"})
                assert (answer.status, answer.code) == (415, "unsupported_media_type")
            chunked = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
            connection = api.connection()
            connection.request("POST", path, iter([b"x" * 5000] * 4), chunked, encode_chunked=True)
            response = connection.getresponse()
            assert response.status == 413
            response.read()


def test_socket_message_has_a_limit_of_its_own(tmp_path: Path) -> None:
    settings = load_settings({"TOPICS_PORT": "0", "TOPICS_DATA_DIR": str(tmp_path / "data")})
    with running_server(settings) as url:
        with socket_to(url) as client:
            answer = client.ask(op="subscribe", topic="t", node=["n"] * 500_000)
            assert (answer["op"], answer["code"]) == ("error", "invalid_request")
            answer = client.ask(op="subscribe", topics={f"topic-{number}": {} for number in range(20_000)})
            assert (answer["op"], answer["code"]) == ("error", "invalid_request")
            answer = client.ask(op="publish", topic="t", records=[{"data": "x" * 1_000_000}] * 7)
            assert answer["op"] == "ack"
        with socket_to(url) as client:
            with suppress(ConnectionClosed):  # the close may come before all of the message has gone out
                client.connection.send("x" * (MAX_MESSAGE_BYTES + 1))
            assert client.close_code() == 1009
