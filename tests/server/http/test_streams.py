"""Answers in pieces."""

import asyncio

import pytest

from tests.server.http.wire import Client, Server, get, request_bytes, serving, until
from topics.server.http import Stream


async def streaming(server: Server, receive_buffer: int | None = None) -> tuple[Client, Stream]:
    client = await server.connect(receive_buffer)
    await client.send(get("/later"))
    stream = (await server.app.next()).stream(b"Cache-Control: no-store\r\n")
    status, headers, _ = await client.head()
    assert status == 200
    assert headers == {
        "content-type": "text/event-stream",
        "transfer-encoding": "chunked",
        "cache-control": "no-store",
    }
    return client, stream


@serving()
async def test_each_write_is_on_its_way_at_once(server: Server) -> None:
    client, stream = await streaming(server)
    for number in range(20):
        stream.write(b"event: record\ndata: %d\n\n" % number)
        assert await client.chunk() == b"event: record\ndata: %d\n\n" % number


@serving()
async def test_empty_write_does_not_end_the_stream(server: Server) -> None:
    client, stream = await streaming(server)
    stream.write(b"")
    stream.write(b"x")
    assert await client.chunk() == b"x"


@serving()
async def test_connection_is_good_after_the_stream(server: Server) -> None:
    client, stream = await streaming(server)
    stream.on_close(lambda: pytest.fail("not for a close of our own"))
    await client.send(get("/waiting"))
    stream.write(b"x")
    stream.close()
    stream.close()
    stream.write(b"dropped")
    assert [chunk async for chunk in client.chunks()] == [b"x"]
    assert (await client.answer()).json["path"] == "/waiting"
    assert await client.is_usable()


@serving()
async def test_http_1_0_gets_the_bare_bytes_until_the_end_of_the_connection(server: Server) -> None:
    client = await server.connect()
    await client.send(b"GET /later HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    stream = (await server.app.next()).stream()
    stream.write(b"one ")
    stream.write(b"two")
    stream.close()
    answer = await client.answer()
    assert answer.headers["connection"] == "close"
    assert "transfer-encoding" not in answer.headers
    assert answer.body == b"one two"


@serving()
async def test_client_that_asked_to_close_is_closed_after_the_stream(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later", "Connection: close"))
    stream = (await server.app.next()).stream()
    stream.write(b"x")
    stream.close()
    answer = await client.answer()
    assert (answer.headers["connection"], answer.body) == ("close", b"x")
    assert await client.is_closed()


@pytest.mark.parametrize("leave", ["abort", "reset", "end"])
@serving()
async def test_idle_stream_learns_that_its_client_is_gone(server: Server, leave: str) -> None:
    client, stream = await streaming(server)
    gone: list[int] = []
    stream.on_close(lambda: gone.append(1))
    getattr(client, leave)()
    await until(lambda: gone)
    assert stream.closed
    stream.write(b"dropped")
    stream.close()
    await until(lambda: not server.listener.connections)
    assert gone == [1]


@serving()
async def test_stream_is_not_begun_for_a_client_that_has_closed_its_sending_side(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    request = await server.app.next()
    client.end()
    await until(lambda: server.connection().input_ended)
    stream = request.stream()
    gone: list[int] = []
    stream.on_close(lambda: gone.append(1))
    assert gone == [1]
    assert await client.is_closed()


@serving()
async def test_stream_tells_how_much_waits_and_when_it_is_gone(server: Server) -> None:
    client, stream = await streaming(server, receive_buffer=4096)
    client.writer.transport.pause_reading()
    drained: list[int] = []
    stream.on_drain(lambda: drained.append(stream.buffered))
    assert stream.buffered == 0
    for _ in range(10_000):
        stream.write(b"x" * 10_000)
        if stream.buffered > 200_000:
            break
    assert stream.buffered > 200_000
    assert not drained
    client.writer.transport.resume_reading()
    while not drained:
        await client.chunk()
    assert drained[0] <= server.limits.write_low_bytes
    stream.write(b"more")


@serving(write_timeout=60)
async def test_stream_whose_client_takes_nothing_is_cut_off_although_more_is_written(server: Server) -> None:
    client, stream = await streaming(server, receive_buffer=4096)
    client.writer.transport.pause_reading()
    gone: list[int] = []
    stream.on_close(lambda: gone.append(1))
    while stream.buffered < 100_000:
        stream.write(b"x" * 10_000)
    server.pass_time(1)
    for _ in range(3):
        stream.write(b"x")
        server.pass_time(20)
        assert not gone
    server.pass_time(1)
    await until(lambda: gone)


@serving(write_timeout=60)
async def test_quiet_stream_is_never_cut_off(server: Server) -> None:
    client, stream = await streaming(server)
    for _ in range(100):
        server.pass_time(1000)
    stream.write(b"still there")
    assert await client.chunk() == b"still there"


@serving(hold_bytes=10_000)
async def test_client_that_floods_its_own_stream_is_cut_off(server: Server) -> None:
    client, stream = await streaming(server)
    gone: list[int] = []
    stream.on_close(lambda: gone.append(1))
    await client.send(b"x" * 11_000)
    await until(lambda: gone)


@serving()
async def test_stream_to_head_is_an_error_of_the_application(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("HEAD", "/later"))
    request = await server.app.next()
    with pytest.raises(RuntimeError, match="HEAD"):
        request.stream()
    request.respond(405, b"{}")
    assert (await client.answer("HEAD")).status == 405


class Failing:
    def handle(self, request: object) -> None:
        stream = request.stream()  # type: ignore[attr-defined]
        stream.write(b"x")
        raise ValueError("half way")


@serving(Failing)
async def test_stream_whose_handler_fails_is_cut_off_not_ended(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = await server.connect()
    await client.send(get("/"))
    await client.head()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await client.answer_body()
    assert "half way" in caplog.text
