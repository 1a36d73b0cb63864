"""Stopping: nothing that was begun is cut off before its time, nothing is left afterwards."""

import asyncio

import pytest

from tests.server.http.wire import Server, get, post, request_bytes, serving, until
from topics.server.http import Listener

# Ends as soon as everybody has gone; as a deadline it is met only by a test that fails.
LONG = 60.0


@serving()
async def test_idle_connections_are_closed_at_once(server: Server) -> None:
    asked = await server.connect()
    await asked.ask(get("/"))
    silent = await server.connect()
    await until(lambda: len(server.listener.connections) == 2)
    await server.listener.stop(LONG)
    assert await asked.is_closed()
    assert await silent.is_closed()
    with pytest.raises(ConnectionError):
        await server.connect()


@serving()
async def test_pending_answer_is_sent_and_says_that_it_is_the_last(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later") + get("/dropped"))
    request = await server.app.next()
    stopping = asyncio.create_task(server.listener.stop(LONG))
    await asyncio.sleep(0)
    request.respond(200, b"{}")
    answer = await client.answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await client.is_closed()
    client.abort()
    await stopping
    assert not server.app.requests


@serving(part_timeout=LONG)
async def test_request_half_sent_is_still_answered(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/", "Content-Length: 10") + b"12345")
    await until(lambda: server.listener.held.total == 5)
    stopping = asyncio.create_task(server.listener.stop(LONG))
    await asyncio.sleep(0)
    answer = await client.ask(b"67890")
    assert (answer.json["body"], answer.headers["connection"]) == ("1234567890", "close")
    assert await client.is_closed()
    await stopping


@pytest.mark.parametrize("sent", [b"POST / HT", request_bytes("POST", "/", "Content-Length: 10") + b"12345"])
@serving(part_timeout=0.01)
async def test_request_that_stays_half_sent_is_refused_and_does_not_delay_the_stop(server: Server, sent: bytes) -> None:
    client = await server.connect()
    await client.send(sent)
    await until(lambda: server.connection().in_message)
    await server.listener.stop(LONG)
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "shutting_down")
    assert (answer.headers["connection"], answer.headers["retry-after"]) == ("close", "1")
    assert await client.is_closed()
    assert not server.app.requests


@serving(part_timeout=0.01)
async def test_request_being_worked_on_is_not_refused_with_the_half_sent(server: Server) -> None:
    half = await server.connect()
    await half.send(get("/")[:-1])
    client = await server.connect()
    await client.send(get("/later") + get("/half")[:-1])
    request = await server.app.next()
    stopping = asyncio.create_task(server.listener.stop(LONG))
    assert (await half.answer()).status == 503
    await until(lambda: len(server.listener.connections) == 1)
    request.respond(200, b"{}")
    assert (await client.answer()).status == 200
    # An incomplete request after it does not delay the shutdown either.
    await stopping


@serving(part_timeout=0.01)
async def test_refused_client_that_does_not_go_does_not_delay_the_stop(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(b"nonsense\r\n\r\n")).status == 400
    await server.listener.stop(LONG)


@serving(part_timeout=0.01)
async def test_answer_is_taken_whole_although_half_a_request_follows_it(server: Server) -> None:
    client = await server.connect(receive_buffer=4096)
    await client.send(get("/later") + get("/half")[:-1])
    request = await server.app.next()
    stopping = asyncio.create_task(server.listener.stop(LONG))
    await asyncio.sleep(0)
    request.respond(200, b"x" * 20_000_000, compressible=False)
    await client.head()
    total = 0
    while total < 20_000_000:
        data = await client.reader.read(100_000)
        assert data
        total += len(data)
    await stopping


@serving()
async def test_shutdown_calls_on_shutdown_of_streams_before_closing(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    stream = (await server.app.next()).stream()

    def goodbye() -> None:
        stream.write(b"event: bye\n\n")
        stream.close()

    stream.on_shutdown(goodbye)
    await server.listener.stop(LONG)
    assert (await client.answer()).body == b"event: bye\n\n"
    assert await client.is_closed()


@serving()
async def test_stream_that_registers_nothing_is_ended(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    stream = (await server.app.next()).stream()
    stream.write(b"x")
    await server.listener.stop(LONG)
    assert (await client.answer()).body == b"x"
    assert await client.is_closed()


@serving()
async def test_shutdown_calls_on_shutdown_of_duplexes_before_closing(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later", "Connection: upgrade", "Upgrade: websocket"))
    duplex = (await server.app.next()).upgrade()

    def goodbye() -> None:
        duplex.write(b"bye")
        duplex.close()

    duplex.on_shutdown(goodbye)
    await server.listener.stop(LONG)
    assert await client.reader.read() == b"bye"


@serving()
async def test_stream_opened_during_shutdown_is_notified_at_once(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    request = await server.app.next()
    stopping = asyncio.create_task(server.listener.stop(LONG))
    await asyncio.sleep(0)
    stream = request.stream()
    stream.on_shutdown(stream.close)
    answer = await client.answer()
    assert (answer.body, answer.headers["connection"]) == (b"", "close")
    assert await client.is_closed()
    await stopping


@serving()
async def test_after_the_grace_everything_is_closed(server: Server) -> None:
    """A pending request, a stream that will not end, a client that does not read, half a request."""
    pending = await server.connect()
    await pending.send(get("/later"))
    gone: list[str] = []
    (await server.app.next()).on_disconnect(lambda: gone.append("pending"))
    streaming = await server.connect()
    await streaming.send(get("/later"))
    stream = (await server.app.next()).stream()
    stream.on_shutdown(lambda: None)
    stream.on_close(lambda: gone.append("stream"))
    deaf = await server.connect(receive_buffer=4096)
    deaf.writer.transport.pause_reading()
    await deaf.send(get("/later"))
    (await server.app.next()).respond(200, b"x" * 10_000_000)
    half = await server.connect()
    await half.send(post("/", b"12345")[:-1])
    await until(lambda: server.listener.held.total == 4)
    await server.listener.stop(grace=0.01)
    assert not server.listener.connections
    assert sorted(gone) == ["pending", "stream"]
    assert server.listener.held.total == 0


@serving()
async def test_stopping_twice_is_harmless(server: Server) -> None:
    await server.ask(get("/"))
    await server.listener.stop(LONG)
    await server.listener.stop(LONG)


@serving()
async def test_port_can_be_bound_again_at_once(server: Server) -> None:
    client = await server.connect()
    await client.ask(get("/"))
    await server.listener.stop(LONG)
    again = Listener(server.app)
    assert await again.start(*server.address) == server.address
    await again.stop(LONG)


@serving()
async def test_port_that_is_taken_is_an_error(server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        await Listener(server.app).start(*server.address)


@serving(host="localhost")
async def test_every_address_of_a_host_name_has_the_same_port(server: Server) -> None:
    assert (await server.ask(get("/"))).status == 200
    ports = {sock.getsockname()[1] for each in server.listener.servers for sock in each.sockets}
    assert ports == {server.address[1]}
