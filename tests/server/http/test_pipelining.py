"""Many requests at once on one connection: in order, bounded, and fair to the others."""

import json

import pytest

from tests.server.http.wire import Server, Sink, chunked, get, post, serving, until
from topics.server.http import Request
from topics.server.http.connection.connection import Connection
from topics.server.http.connection.pipelining import MAX_RESPONSES_PER_WRITE
from topics.server.http.connection.state import State


@serving()
async def test_answers_come_in_the_order_of_requests(server: Server) -> None:
    client = await server.connect()
    await client.send(b"".join(post(f"/{n}", b"x" * n) for n in range(100)))
    for number in range(100):
        answer = (await client.answer()).json
        assert (answer["path"], len(answer["body"])) == (f"/{number}", number)
    assert await client.is_usable()


@serving()
async def test_pipelined_requests_with_mixed_bodies_are_separated(server: Server) -> None:
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


async def handled_meanwhile(server: Server) -> list[bytes]:
    """The paths of the requests that are handled while those of another connection are answered, one after the other.

    Each answer takes turns of the loop in which the server reads all connections that it reads from at all.
    """
    for _ in range(5):
        assert (await server.ask(get("/other"))).status == 200
    paths = [request.path for request in server.app.requests]
    server.app.requests.clear()
    return [path for path in paths if path != b"/other"]


@serving()
async def test_request_waits_until_the_one_before_is_answered(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later/1") + get("/later/2") + get("/3"))
    first = await server.app.next()
    # The server has received the second one, and handles requests of others meanwhile.
    await until(lambda: server.connection().state is State.PIPELINED)
    assert await handled_meanwhile(server) == []
    first.respond(200, b'"first"')
    second = await server.app.next()
    assert second.path == b"/later/2"
    second.respond(200, b'"second"')
    assert [(await client.answer()).json for _ in range(2)] == ["first", "second"]
    assert (await client.answer()).json["path"] == "/3"


@serving()
async def test_answers_to_requests_that_came_together_leave_together(server: Server) -> None:
    writes: list[bytes] = []

    class RecordingSink(Sink):
        def write(self, data: bytes) -> None:
            writes.append(data)

    connection = Connection(server.listener)
    RecordingSink.plugged_into(connection)
    connection.data_received(get("/x") * 32)
    assert 0 < len(writes) <= 5
    # Each write has a bounded number of responses.
    assert max(data.count(b"HTTP/1.1 200") for data in writes) <= MAX_RESPONSES_PER_WRITE


@serving(hold_bytes=10_000)
async def test_client_that_pipelines_without_end_is_no_longer_read_from(server: Server) -> None:
    client = await server.connect()
    client.writer.write(get("/later"))
    flood = get("/flood")
    count = 20_000_000 // len(flood)
    client.writer.write(flood * count)
    request = await server.app.next()
    connection = server.connection()
    await until(lambda: not connection.reading)
    held = connection.unparsed_bytes
    assert held < 10_000 + 2 * 256 * 1024
    # The requests of others are handled, and nothing more is read of this one meanwhile.
    assert await handled_meanwhile(server) == []
    assert connection.unparsed_bytes == held
    # Once it is answered it goes on where it stopped.
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
    await until(lambda: not server.connection().reading)
    assert server.connection().unparsed_bytes < 10_000 + 2 * 256 * 1024
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
    await until(lambda: server.app.handled and not server.connection().writable)
    connection, handled = server.connection(), server.app.handled
    others = 5
    for _ in range(others):
        assert (await server.ask(get("/other"))).status == 200
    assert server.app.handled - others == handled < 100
    assert connection.buffered() < 400_000
    # It gets the rest as it reads.
    client.writer.transport.resume_reading()
    for _ in range(200):
        assert len((await client.answer()).body) == 100_002
    assert server.app.handled - others == 200


@serving()
async def test_who_answers_a_request_does_not_suffer_for_the_one_behind_it(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await server.connect()
    # Input of more than 4 KiB is parsed one message at a time: the second after the first is answered.
    await client.send(get("/later/1") + get("/2", "X: " + "a" * 8000))
    request = await server.app.next()
    connection = server.connection()
    await until(lambda: connection.state is State.PIPELINED)

    def fail(*_: object) -> None:
        raise OSError("an unexpected error")

    monkeypatch.setattr(server.listener, "borrow_assembler", fail)
    request.respond(200, b"{}")
    assert (await client.answer()).body == b"{}"
    assert await client.is_closed()
    assert "the connection is aborted" in caplog.text
