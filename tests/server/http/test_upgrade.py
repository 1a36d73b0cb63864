"""Leaving HTTP for a WebSocket, and staying when something else is offered."""

import pytest

from tests.server.http.wire import Client, Server, chunked, get, post, serving, until
from topics.server.http import Duplex

OFFER = ("Connection: keep-alive, Upgrade", "Upgrade: websocket")
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")


async def upgraded(server: Server, early: bytes = b"") -> tuple[Client, Duplex]:
    client = await server.connect()
    await client.send(get("/later", *OFFER) + early)
    request = await server.app.next()
    assert request.head.offers_websocket
    return client, request.upgrade()


@serving()
async def test_bytes_pass_both_ways(server: Server) -> None:
    client, duplex = await upgraded(server)
    got: list[bytes] = []
    duplex.on_data(got.append)
    duplex.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
    assert await client.reader.readexactly(36)
    for number in range(5):
        # Looks like HTTP, and is none of ours.
        await client.send(get(f"/{number}"))
        await until(lambda number=number: b"".join(got).endswith(get(f"/{number}")))
    duplex.write(b"\x00\xff" * 100_000)
    assert await client.reader.readexactly(200_000) == b"\x00\xff" * 100_000
    assert not server.app.requests


@serving()
async def test_bytes_sent_with_the_offer_are_handed_over(server: Server) -> None:
    client, duplex = await upgraded(server, b"early " * 10)
    got: list[bytes] = []
    duplex.on_data(got.append)
    assert got == [b"early " * 10]
    await client.send(b"and later")
    await until(lambda: got[1:] == [b"and later"])


@serving()
async def test_duplex_without_a_listener_is_not_read_from(server: Server) -> None:
    client, duplex = await upgraded(server)
    client.writer.write(b"x" * 10_000_000)
    await until(lambda: not server.connection().reading)
    assert len(duplex.early) <= 2 * 256 * 1024
    total = 0

    def count(data: bytes) -> None:
        nonlocal total
        total += len(data)

    duplex.on_data(count)
    await until(lambda: total == 10_000_000)


@serving()
async def test_duplex_can_be_paused(server: Server) -> None:
    client, duplex = await upgraded(server)
    got: list[bytes] = []
    duplex.on_data(got.append)
    duplex.pause()
    await client.send(b"hello")
    assert (await server.ask(get("/"))).status == 200
    assert not got
    duplex.resume()
    await until(lambda: got == [b"hello"])


@serving()
async def test_closing_a_duplex_sends_what_was_written(server: Server) -> None:
    client, duplex = await upgraded(server)
    duplex.on_close(lambda: pytest.fail("not for a close of our own"))
    duplex.write(b"x" * 3_000_000)
    duplex.close()
    duplex.close()
    duplex.write(b"dropped")
    assert await client.reader.read() == b"x" * 3_000_000
    client.end()
    await until(lambda: not server.listener.connections)


@serving()
async def test_client_that_is_still_sending_can_read_what_a_closed_duplex_wrote(server: Server) -> None:
    client, duplex = await upgraded(server)
    duplex.write(b"the last words")
    duplex.close()
    for _ in range(100):
        client.writer.write(b"x" * 100_000)
        await client.writer.drain()
    assert await client.reader.read() == b"the last words"
    client.end()
    await until(lambda: not server.listener.connections)


@pytest.mark.parametrize("leave", ["abort", "reset", "end"])
@serving()
async def test_duplex_learns_that_its_client_is_gone(server: Server, leave: str) -> None:
    client, duplex = await upgraded(server)
    gone: list[int] = []
    duplex.on_close(lambda: gone.append(1))
    getattr(client, leave)()
    await until(lambda: gone)
    await until(lambda: not server.listener.connections)
    duplex.write(b"dropped")
    duplex.close()
    assert gone == [1]
    assert duplex.closed


@serving()
async def test_offer_may_be_declined_and_http_goes_on(server: Server) -> None:
    client = await server.connect()
    for _ in range(3):
        await client.send(get("/later", *OFFER) + get("/next"))
        (await server.app.next()).respond(400, b'"no"')
        answer = await client.answer()
        assert (answer.status, answer.json) == (400, "no")
        assert (await client.answer()).json["path"] == "/next"
        await server.app.next()


@serving()
async def test_upgrade_of_what_offers_none_is_an_error_of_the_application(server: Server) -> None:
    client = await server.connect()
    for lines in ([], ["Upgrade: websocket"], ["Connection: upgrade"], list(H2C)):
        await client.send(get("/later", *lines))
        request = await server.app.next()
        assert not request.head.offers_websocket
        with pytest.raises(RuntimeError, match="offers no upgrade"):
            request.upgrade()
        request.respond(200, b"{}")
        await client.answer()


@serving()
async def test_other_upgrades_are_ignored_and_the_body_is_read(server: Server) -> None:
    """Java's client offers h2c with every request, bodies included."""
    client = await server.connect()
    for _ in range(3):
        assert (await client.ask(post("/x", b"hello", *H2C))).json["body"] == "hello"
        message = chunked("/y", b"hello", b" you").replace(b"Host:", "\r\n".join(H2C).encode() + b"\r\nHost:")
        assert (await client.ask(message)).json["body"] == "hello you"
        assert (await client.ask(get("/z", *H2C))).json["path"] == "/z"
    big = post("/big", b"x" * 300_000, *H2C)
    await client.send(big + get("/next"))
    assert len((await client.answer()).json["body"]) == 300_000
    assert (await client.answer()).json["path"] == "/next"


@serving()
async def test_websocket_offer_with_a_body_or_another_method_is_ignored(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(post("/x", b"hello", *OFFER))).json["body"] == "hello"
    await client.send(get("/later", "Content-Length: 3", *OFFER) + b"abc")
    request = await server.app.next()
    while request.path != b"/later":
        request = await server.app.next()
    assert request.body == b"abc"
    assert not request.head.offers_websocket


@serving()
async def test_ignored_upgrade_does_not_lift_the_bounds(server: Server) -> None:
    client = await server.connect()
    length = server.limits.max_body_bytes + 1
    message = post("/x", b"", *H2C).replace(b"Content-Length: 0", b"Content-Length: %d" % length)
    assert (await client.ask(message)).status == 413
