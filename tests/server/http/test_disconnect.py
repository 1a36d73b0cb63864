"""A client that goes away is noticed, whatever the connection is doing."""

import pytest

from tests.server.http.wire import Client, Server, get, serving, until
from topics.server.http import Request


def leave_by_abort(client: Client) -> None:
    client.abort()


def leave_by_reset(client: Client) -> None:
    client.reset()


def leave_by_close(client: Client) -> None:
    client.writer.close()


def leave_by_end(client: Client) -> None:
    client.end()


WAYS = [leave_by_abort, leave_by_reset, leave_by_close, leave_by_end]


@pytest.mark.parametrize("leave", WAYS)
@serving()
async def test_pending_request_learns_that_its_client_is_gone(server: Server, leave: object) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    request = await server.app.next()
    gone: list[bool] = []
    request.on_disconnect(lambda: gone.append(request.closed))
    leave(client)
    await until(lambda: gone)
    await until(lambda: not server.listener.connections)
    request.respond(200, b"not read")
    assert len(gone) == 1
    assert request.closed
    assert request.peer is None


@serving()
async def test_request_that_was_answered_hears_nothing(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    request = await server.app.next()
    gone: list[int] = []
    request.on_disconnect(lambda: gone.append(1))
    request.respond(200, b"{}")
    await client.answer()
    client.abort()
    await until(lambda: not server.listener.connections)
    assert not gone


@serving()
async def test_asking_after_the_client_is_gone_is_answered_at_once(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    request = await server.app.next()
    client.reset()
    await until(lambda: request.closed)
    gone: list[int] = []
    request.on_disconnect(lambda: gone.append(1))
    assert gone == [1]
    stream = request.stream()
    stream.on_close(lambda: gone.append(2))
    stream.write(b"x")
    stream.close()
    assert gone == [1, 2]
    assert stream.buffered == 0


@serving()
async def test_client_gone_before_its_second_request_is_handled_costs_nothing(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later/1") + get("/later/2"))
    first = await server.app.next()
    client.reset()
    await until(lambda: first.closed)
    first.respond(200, b"{}")
    assert (await server.ask(get("/other"))).status == 200
    assert [request.path for request in server.app.requests] == [b"/other"]


@serving()
async def test_on_disconnect_fires_at_once_after_half_close(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    client.end()
    request = await server.app.next()
    await until(lambda: server.connection().input_ended)
    gone: list[int] = []
    request.on_disconnect(lambda: gone.append(1))
    assert gone == [1]
    assert await client.is_closed()


class Ender:
    """Answers when its client leaves, as a long poll might."""

    def handle(self, request: Request) -> None:
        request.on_disconnect(lambda: request.respond(200, b'"goodbye"'))


@serving(Ender)
async def test_answer_given_at_the_end_of_input_still_arrives(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/"))
    await until(lambda: server.connection().current)
    client.end()
    assert (await client.answer()).json == "goodbye"
    assert await client.is_closed()


@pytest.mark.parametrize("leave", WAYS)
@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"])
@serving()
async def test_connection_of_a_client_that_leaves_early_is_forgotten(
    server: Server, leave: object, sent: bytes
) -> None:
    client = await server.connect()
    await client.send(sent)
    await until(lambda: server.listener.connections and (not sent or server.connection().in_message))
    leave(client)
    await until(lambda: not server.listener.connections)
    assert not server.app.requests
