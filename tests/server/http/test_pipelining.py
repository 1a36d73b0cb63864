"""Many requests at once on one connection: in order, bounded, and fair to the others."""

import asyncio
import json

import pytest

from tests.server.http.wire import Server, chunked, get, post, serving, until
from topics.server.http import Request
from topics.server.http.protocol import ANSWERS_A_WRITE, Connection


@serving()
async def test_answers_come_in_the_order_of_requests(server: Server) -> None:
    client = await server.connect()
    await client.send(b"".join(post(f"/{n}", b"x" * n) for n in range(100)))
    for number in range(100):
        answer = (await client.answer()).json
        assert (answer["path"], len(answer["body"])) == (f"/{number}", number)
    assert await client.is_usable()


@serving()
async def test_mixed_bodies_are_told_apart(server: Server) -> None:
    client = await server.connect()
    await client.send(
        get("/a") + chunked("/b", b"bb", b"b" * 9000) + post("/c", b"c" * 9000) + chunked("/d", b"d") + get("/e")
    )
    answers = [(await client.answer()).json for _ in range(5)]
    assert [(answer["path"], len(answer["body"])) for answer in answers] == [
        ("/a", 0),
        ("/b", 9002),
        ("/c", 9000),
        ("/d", 1),
        ("/e", 0),
    ]


@serving()
async def test_request_waits_until_the_one_before_is_answered(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later/1") + get("/later/2") + get("/3"))
    first = await server.app.next()
    await asyncio.sleep(0.01)
    assert not server.app.requests
    first.respond(200, b'"first"')
    second = await server.app.next()
    assert second.path == b"/later/2"
    second.respond(200, b'"second"')
    assert [(await client.answer()).json for _ in range(2)] == ["first", "second"]
    assert (await client.answer()).json["path"] == "/3"


@serving()
async def test_answers_to_requests_that_came_together_leave_together(server: Server) -> None:
    client = await server.connect()
    await client.ask(get("/"))
    connection = server.connection()
    writes: list[bytes] = []

    class Wire:
        """Counts what would be sent, and sends it."""

        def __init__(self, transport: asyncio.Transport) -> None:
            self._transport = transport

        def write(self, data: bytes) -> None:
            writes.append(data)
            self._transport.write(data)

        def __getattr__(self, name: str) -> object:
            return getattr(self._transport, name)

    connection._transport = Wire(connection._transport)  # type: ignore[assignment]
    await client.send(get("/x") * 32)
    for _ in range(32):
        await client.answer()
    assert 0 < len(writes) <= 5
    # Together, but not all of them however many there are.
    assert max(data.count(b"HTTP/1.1 200") for data in writes) <= ANSWERS_A_WRITE


@serving(hold_bytes=10_000)
async def test_client_that_pipelines_without_end_is_no_longer_read_from(server: Server) -> None:
    client = await server.connect()
    client.writer.write(get("/later"))
    flood = get("/flood")
    count = 20_000_000 // len(flood)
    client.writer.write(flood * count)
    request = await server.app.next()
    connection = server.connection()
    await until(lambda: not connection._reading)
    await asyncio.sleep(0.01)
    held = len(connection._unparsed)
    assert held < 10_000 + 2 * 256 * 1024
    assert not connection._waiting
    # Nobody else notices, and once it is answered it goes on where it stopped.
    assert (await server.ask(get("/"))).status == 200
    request.respond(200, b"{}")
    await client.answer()
    for _ in range(5000):
        await client.answer()
    assert client.writer.transport.get_write_buffer_size() < len(flood) * count


@serving(hold_bytes=10_000)
async def test_client_that_goes_on_while_its_request_is_pending_is_no_longer_read_from(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    request = await server.app.next()
    client.writer.write(get("/flood") * 500_000)
    await until(lambda: not server.connection()._reading)
    assert len(server.connection()._unparsed) < 10_000 + 2 * 256 * 1024
    request.respond(200, b"{}")
    for _ in range(1000):
        await client.answer()


@serving()
async def test_flood_of_requests_leaves_others_their_turn(server: Server) -> None:
    flooder = await server.connect()
    flooder.writer.write(get("/flood") * 20_000)
    await until(lambda: server.app.requests)
    other = await server.connect()
    await other.ask(get("/other"))
    order = [request.path for request in server.app.requests]
    assert order.index(b"/other") < 10_000
    for _ in range(20_000):
        await flooder.answer()


class Generous:
    """Answers much to little."""

    def __init__(self) -> None:
        self.handled = 0

    def handle(self, request: Request) -> None:
        self.handled += 1
        request.respond(200, json.dumps("x" * 100_000).encode(), compressible=False)


@serving(Generous)
async def test_client_that_does_not_read_gets_no_more_requests_handled(server: Server) -> None:
    client = await server.connect(receive_buffer=4096)
    client.writer.transport.pause_reading()
    client.writer.write(get("/much") * 200)
    await until(lambda: server.app.handled and not server.connection()._writable)
    handled = server.app.handled
    await asyncio.sleep(0.01)
    assert server.app.handled == handled < 100
    assert server.connection().buffered() < 400_000
    # It gets the rest as it reads.
    client.writer.transport.resume_reading()
    for _ in range(200):
        assert len((await client.answer()).body) == 100_002
    assert server.app.handled == 200


@serving()
async def test_who_answers_a_request_does_not_suffer_for_the_one_behind_it(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await server.connect()
    await client.send(get("/later/1") + get("/2"))
    request = await server.app.next()
    connection = server.connection()
    await until(lambda: connection.busy)

    def fail(*_: object) -> None:
        raise OSError("something nobody has thought of")

    monkeypatch.setattr(Connection, "_hand_over", fail)
    request.respond(200, b"{}")
    assert (await client.answer()).body == b"{}"
    assert await client.is_closed()
    assert "cannot go on" in caplog.text
