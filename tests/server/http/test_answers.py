"""Ordinary requests and their answers, byte by byte where the bytes matter."""

import asyncio
import socket

import pytest

from tests.server.http.wire import ManualTime, Recorder, Server, chunked, get, post, request_bytes, serving, until
from topics.server.http import Request
from topics.server.http.connection.connection import Connection


@serving()
async def test_answer_has_no_header_it_does_not_need(server: Server) -> None:
    answer = await server.ask(get("/"))
    assert answer.raw_head == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer.body)
    )


@serving()
async def test_request_is_split_into_its_parts(server: Server) -> None:
    answer = await server.ask(post("/v0/a%2Fb/c?x=1&y=%20?z", b"some body"))
    assert answer.json == {"method": "POST", "path": "/v0/a%2Fb/c", "query": "x=1&y=%20?z", "body": "some body"}


@serving()
async def test_headers_are_found_by_lower_case_name(server: Server) -> None:
    await server.ask(get("/", "CONTENT-Type:  text/plain \t", "X-List: a", "x-LIST: b"))
    request = await server.app.next()
    assert request.header(b"content-type") == b"text/plain"
    assert request.header(b"x-list") == b"a, b"
    assert request.header(b"absent") is None


@serving()
async def test_received_at_is_read_from_the_clock_of_the_limits(server: Server) -> None:
    clock = server.limits.clock
    assert isinstance(clock, ManualTime)
    clock.now = 77.5
    await server.ask(get("/"))
    assert (await server.app.next()).received_at == 77.5


@serving()
async def test_peer_is_the_address_of_the_client(server: Server) -> None:
    client = await server.connect()
    await client.ask(get("/"))
    assert (await server.app.next()).peer == client.writer.get_extra_info("sockname")


@serving(host="::1")
async def test_ipv6_is_served(server: Server) -> None:
    assert server.address[0] == "::1"
    assert (await server.ask(get("/"))).status == 200


@serving()
async def test_connection_is_kept_for_the_next_request(server: Server) -> None:
    client = await server.connect()
    for number in range(5):
        assert (await client.ask(post(f"/{number}", b"x" * number))).json["path"] == f"/{number}"


@serving()
async def test_equal_heads_bring_their_own_bodies(server: Server) -> None:
    """The second and later ones are not parsed: the connection remembers the head."""
    client = await server.connect()
    bodies = [b"one", b"two", b"longer", b"", b"three", b"x" * 5000, b"four!", b"y" * 5000]
    for body in bodies:
        answer = await client.ask(post("/same", body))
        assert answer.json == {"method": "POST", "path": "/same", "query": "", "body": body.decode()}


@serving()
async def test_chunks_become_one_body(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(chunked("/chunks", b"ab", b"c" * 10_000, b"d"))
    assert answer.json["body"] == "ab" + "c" * 10_000 + "d"
    assert await client.is_usable()


@serving()
async def test_large_body_arrives_whole(server: Server) -> None:
    body = bytes(range(32, 127)) * 50_000
    client = await server.connect()
    await client.send(post("/later", body))
    request = await server.app.next()
    assert request.body == body
    request.respond(200, b"{}")
    assert (await client.answer()).body == b"{}"


@serving()
async def test_large_answer_arrives_whole(server: Server) -> None:
    body = bytes(range(256)) * 20_000
    client = await server.connect()
    await client.send(get("/later"))
    (await server.app.next()).respond(200, body, content_type=b"application/octet-stream")
    answer = await client.answer()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.body == body
    assert await client.is_usable()


@serving()
async def test_answer_may_come_later(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    request = await server.app.next()
    request.respond(429, b'{"error":{"code":"throttled","message":"m"}}', b"Retry-After: 1\r\n")
    answer = await client.answer()
    assert answer.status == 429
    assert answer.headers["retry-after"] == "1"
    assert await client.is_usable()


@serving()
async def test_second_answer_to_one_request_is_an_error_of_the_application(server: Server) -> None:
    await server.ask(get("/"))
    request = await server.app.next()
    for again in (lambda: request.respond(200), request.stream):
        with pytest.raises(RuntimeError, match="answered already"):
            again()


@serving()
async def test_answer_to_head_has_the_length_but_no_body(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(request_bytes("HEAD", "/"))
    assert int(answer.headers["content-length"]) > 0
    assert await client.is_usable()


@serving()
async def test_answer_204_has_neither_body_nor_length(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    (await server.app.next()).respond(204, b"dropped", b"X-Kept: 1\r\n")
    answer = await client.answer()
    assert answer.raw_head == b"HTTP/1.1 204 No Content\r\nX-Kept: 1\r\n\r\n"
    assert await client.is_usable()


@serving()
async def test_connection_close_is_answered_and_done(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(get("/", "Connection: close"))
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()


@serving()
async def test_nothing_after_the_last_request_is_read(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/", "Connection: close") + get("/unwanted"))
    assert (await client.answer()).status == 200
    assert await client.is_closed()
    assert [request.path for request in server.app.requests] == [b"/"]


@serving()
async def test_http_1_0_is_closed_unless_it_asks_to_be_kept(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert answer.headers["connection"] == "keep-alive"
    answer = await client.ask(b"GET / HTTP/1.0\r\n\r\n")
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()


@pytest.mark.parametrize("more", [0, 1, 5])
@serving()
async def test_client_that_closed_only_its_sending_side_gets_its_answers(server: Server, more: int) -> None:
    client = await server.connect()
    await client.send(get("/later") + get("/after") * more)
    client.end()
    request = await server.app.next()
    await until(lambda: server.connection().input_ended)
    request.respond(200, b"{}")
    assert (await client.answer()).body == b"{}"
    for _ in range(more):
        assert (await client.answer()).json["path"] == "/after"
    assert await client.is_closed()


@serving()
async def test_failing_handler_gets_a_500_that_tells_nothing(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = await server.connect()
    for _ in range(3):
        answer = await client.ask(get("/fail"))
        assert (answer.status, answer.code) == (500, "internal")
        assert b"secret" not in answer.body
    assert "secret of the application" in caplog.text
    assert await client.is_usable()


class Explainer(Recorder):
    def error_body(self, request: Request, error: Exception) -> bytes:
        if request.query == b"twice":
            raise RuntimeError("again")
        return b'{"error":{"code":"internal","message":"request 7"}}'


@serving(Explainer)
async def test_application_may_explain_its_failures(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = await server.connect()
    assert (await client.ask(get("/fail"))).json["error"]["message"] == "request 7"
    answer = await client.ask(get("/fail?twice"))
    assert (answer.status, answer.code) == (500, "internal")
    assert "error_body failed" in caplog.text
    assert await client.is_usable()


@serving()
async def test_nagle_is_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    transports: list[asyncio.Transport] = []
    made = Connection.connection_made

    def connection_made(connection: Connection, transport: asyncio.Transport) -> None:
        transports.append(transport)
        made(connection, transport)

    monkeypatch.setattr(Connection, "connection_made", connection_made)
    await server.ask(get("/"))
    sock = transports[0].get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
