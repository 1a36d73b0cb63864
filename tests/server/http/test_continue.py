"""Expect: 100-continue: asked before the body, answered only if the body is wanted."""

import pytest

from tests.server.http.test_bounds import Guarded
from tests.server.http.wire import Client, Server, get, request_bytes, serving, until


def expecting(length: int, path: str = "/", *lines: str) -> bytes:
    return request_bytes("POST", path, f"Content-Length: {length}", "Expect: 100-continue", *lines)


async def invited(client: Client) -> bool:
    return await client.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"


@serving()
async def test_100_continue_is_sent_before_the_body(server: Server) -> None:
    client = await server.connect()
    for _ in range(3):
        await client.send(expecting(5))
        assert await invited(client)
        assert (await client.ask(b"hello")).json["body"] == "hello"


@serving()
async def test_100_continue_is_sent_before_a_chunked_body(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/", "Transfer-Encoding: chunked", "expect: 100-Continue"))
    assert await invited(client)
    assert (await client.ask(b"5\r\nhello\r\n0\r\n\r\n")).json["body"] == "hello"


@serving()
async def test_100_continue_is_not_sent_after_the_body_has_begun(server: Server) -> None:
    client = await server.connect()
    for _ in range(2):
        assert (await client.ask(expecting(5) + b"hello")).json["body"] == "hello"
    await client.send(expecting(5) + b"hel")
    await until(lambda: server.connection().in_message)
    assert (await client.ask(b"lo")).json["body"] == "hello"


@serving()
async def test_100_continue_is_not_sent_without_a_body(server: Server) -> None:
    client = await server.connect()
    for _ in range(2):
        assert (await client.ask(get("/", "Expect: 100-continue"))).status == 200


@serving()
async def test_100_continue_is_not_sent_to_http_1_0(server: Server) -> None:
    client = await server.connect()
    await client.send(b"POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert (await client.ask(b"hello")).status == 200


@serving(max_body_bytes=1000)
async def test_refused_body_gets_its_error_and_no_100_continue(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(expecting(1001))
    assert (answer.status, answer.code) == (413, "payload_too_large")
    # Whether the body follows is up to the client, so where its next request begins is not known.
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()


@serving(Guarded)
async def test_application_admits_the_head_before_100_continue(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(expecting(10))
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert await client.is_closed()
    client = await server.connect()
    await client.send(expecting(5, "/", "Authorization: Bearer k"))
    assert await invited(client)
    assert (await client.ask(b"hello")).status == 200


@serving()
async def test_100_continue_waits_for_earlier_responses(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later") + get("/second") + expecting(5))
    (await server.app.next()).respond(200, b'"first"')
    assert (await client.answer()).json == "first"
    assert (await client.answer()).json["path"] == "/second"
    assert await invited(client)
    assert (await client.ask(b"hello")).json["body"] == "hello"


@pytest.mark.parametrize("value", ["200-ok", "100-continue, more", ""])
@serving()
async def test_other_expectations_are_not_met(server: Server, value: str) -> None:
    client = await server.connect()
    answer = await client.ask(request_bytes("POST", "/", "Content-Length: 5", f"Expect: {value}") + b"hello")
    assert (answer.status, answer.code) == (417, "expectation_failed")
    assert await client.is_closed()
