"""Slow and stalled clients: time-outs of heads, bodies and responses. The clock is manual."""

from tests.server.http.wire import Client, Server, Sink, get, post, request_bytes, serving, until
from topics.server.http.connection.connection import Connection
from topics.server.http.connection.state import State


@serving(head_timeout=10)
async def test_head_that_is_not_complete_in_time_is_refused(server: Server) -> None:
    client = await server.connect()
    await client.send(b"GET / HTTP/1.1\r\n")
    await until(lambda: server.connection().in_message)
    server.pass_time(9)
    # One more line now and then does not buy more time.
    await client.send(b"X: 1\r\n")
    await until(lambda: server.connection().message_bytes == 22)
    server.pass_time(2)
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "request_timeout")
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()


@serving(head_timeout=10)
async def test_head_that_is_complete_in_time_is_served(server: Server) -> None:
    client = await server.connect()
    await client.send(b"GET /slow HTTP/1.1\r\n")
    await until(lambda: server.connection().in_message)
    server.pass_time(9)
    assert (await client.ask(b"Host: a\r\n\r\n")).json["path"] == "/slow"
    # The time of the next head starts again.
    await client.send(b"GET /slower HTTP/1.1\r\n")
    await until(lambda: server.connection().in_message)
    server.pass_time(9)
    assert (await client.ask(b"Host: a\r\n\r\n")).json["path"] == "/slower"


@serving(body_timeout=20)
async def test_body_that_stops_is_refused(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/", "Content-Length: 1000000") + b"x" * 200_000)
    await until(lambda: server.listener.held.total == 200_000)
    server.pass_time(1)
    server.pass_time(19)
    await client.send(b"x")
    await until(lambda: server.listener.held.total == 200_001)
    server.pass_time(1)
    server.pass_time(19)
    assert len(server.listener.connections) == 1
    server.pass_time(2)
    answer = await client.answer()
    assert (answer.status, answer.code) == (408, "request_timeout")
    assert await client.is_closed()
    assert server.listener.held.total == 0


@serving(body_timeout=20, min_body_rate=1000)
async def test_body_that_drips_is_refused_although_it_never_stops(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/", "Content-Length: 1000000"))
    for sent in range(1, 1000):
        await client.send(b"x")
        await until(lambda sent=sent: server.listener.held.total == sent)
        server.pass_time(5)
        if server.connection().state is State.LINGERING:
            break
    assert sent <= 6
    assert (await client.answer()).status == 408


@serving(body_timeout=20, min_body_rate=1000)
async def test_slow_body_that_keeps_the_rate_is_served(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/", "Content-Length: 500000"))
    for number in range(1, 100):
        await client.send(b"x" * 5000)
        await until(lambda number=number: server.listener.held.total == number * 5000)
        server.pass_time(5)
    assert (await client.ask(b"x" * 5000)).status == 200


@serving(body_timeout=20)
async def test_bodies_that_come_one_after_the_other_do_not_share_their_time(server: Server) -> None:
    """The sweep may find a busy connection in the middle of a body every time it looks."""
    client = await server.connect()
    for _ in range(30):
        await client.send(request_bytes("POST", "/", "Content-Length: 10") + b"12345")
        await until(lambda: server.listener.held.total == 5)
        server.pass_time(5)
        assert (await client.ask(b"67890")).json["body"] == "1234567890"


@serving(body_timeout=20, max_body_bytes=1000)
async def test_refused_body_that_stops_ends_the_connection(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(request_bytes("POST", "/", "Content-Length: 5000"))).status == 413
    server.pass_time(1)
    server.pass_time(21)
    # It has had its answer: no second one.
    assert await client.is_closed()
    server.pass_time(6)
    await until(lambda: not server.listener.connections)


@serving(keep_alive_timeout=75)
async def test_idle_connection_is_closed_without_a_word(server: Server) -> None:
    asked = await server.connect()
    await asked.ask(get("/"))
    silent = await server.connect()
    await until(lambda: len(server.listener.connections) == 2)
    server.pass_time(74)
    assert len(server.listener.connections) == 2
    server.pass_time(2)
    assert await asked.is_closed()
    assert await silent.is_closed()


@serving(keep_alive_timeout=75)
async def test_time_spent_waiting_for_an_answer_is_not_idle_time(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later"))
    request = await server.app.next()
    for _ in range(10):
        server.pass_time(60)
    request.respond(200, b"{}")
    await client.answer()
    server.pass_time(60)
    assert await client.is_usable()


@serving(keep_alive_timeout=75)
async def test_blank_lines_do_not_keep_a_connection(server: Server) -> None:
    client = await server.connect()
    await client.ask(get("/"))
    for _ in range(8):
        server.connection().data_received(b"\r\n" * 10)
        server.pass_time(10)
    assert await client.is_closed()


@serving()
async def test_blank_lines_are_not_counted_against_the_next_message(server: Server) -> None:
    client = await server.connect()
    await client.ask(get("/"))
    for _ in range(100):
        server.connection().data_received(b"\r\n" * 1000)
    other = await server.connect()
    await other.send(b"GET /other HTTP/1.1\r\n")
    await until(lambda: any(connection.in_message for connection in server.listener.connections))
    assert (await other.ask(b"Host: a\r\n\r\n")).json["path"] == "/other"
    assert await client.is_usable()


@serving(body_timeout=20, head_timeout=10, hold_bytes=1000)
async def test_clients_time_does_not_run_while_we_do_not_read(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later") + post("/second", b"x" * 100_000))
    request = await server.app.next()
    await until(lambda: not server.connection().reading)
    for _ in range(10):
        server.pass_time(30)
    request.respond(200, b"{}")
    await client.answer()
    server.pass_time(5)
    assert (await client.answer()).json["path"] == "/second"


@serving(write_timeout=60, keep_alive_timeout=1000)
async def test_client_that_does_not_take_its_answer_is_cut_off(server: Server) -> None:
    client = await server.connect(receive_buffer=4096)
    client.writer.transport.pause_reading()
    await client.send(get("/later"))
    (await server.app.next()).respond(200, b"x" * 20_000_000, compressible=False)
    server.pass_time(1)
    server.pass_time(59)
    assert len(server.listener.connections) == 1
    server.pass_time(61)
    await until(lambda: not server.listener.connections)


@serving(write_timeout=60, keep_alive_timeout=1000)
async def test_client_that_takes_its_answer_slowly_is_not_cut_off(server: Server) -> None:
    client = await server.connect(receive_buffer=4096)
    await client.send(get("/later"))
    (await server.app.next()).respond(200, b"x" * 20_000_000, compressible=False)
    await client.head()
    for _ in range(5):
        left = server.connection().buffered()
        while server.connection().buffered() == left:
            await client.reader.read(100_000)
        server.pass_time(50)
    assert len(server.listener.connections) == 1


ANSWER = b"x" * 20_000_000


async def client_with_an_answer(server: Server, *lines: str, reads: bool = False) -> Client:
    """The kernel takes some of the answer; the rest waits here."""
    client = await server.connect(receive_buffer=4096)
    if not reads:
        client.writer.transport.pause_reading()
    await client.send(get("/later", *lines))
    (await server.app.next()).respond(200, ANSWER, compressible=False)
    return client


def unsent_bytes(server: Server) -> int:
    return sum([connection.buffered() for connection in server.listener.connections])


@serving(max_unsent_bytes=50_000_000)
async def test_unsent_output_of_all_connections_is_bounded(server: Server) -> None:
    for number in range(12):
        await client_with_an_answer(server, *(["Connection: close"] if number % 2 else []))
        await until(lambda: unsent_bytes(server) <= 50_000_000)
        server.pass_time(0.01)
    assert 2 <= len(server.listener.connections) < 12


@serving(max_unsent_bytes=50_000_000)
async def test_largest_stalled_connection_is_closed_first_and_who_takes_something_is_not(server: Server) -> None:
    slow = await client_with_an_answer(server, reads=True)
    (connection,) = server.listener.connections
    await slow.head()
    taken = 0
    for _ in range(12):
        await client_with_an_answer(server)
        left = connection.buffered()
        while connection.buffered() == left and taken < len(ANSWER):
            taken += len(await slow.reader.read(100_000))
        server.pass_time(1)
    assert len(server.listener.connections) < 12
    assert taken + len(await slow.reader.readexactly(len(ANSWER) - taken)) == len(ANSWER)
    assert await slow.is_usable()


@serving(max_unsent_bytes=50_000_000)
async def test_what_was_taken_counts_no_more(server: Server) -> None:
    for _ in range(6):
        client = await client_with_an_answer(server, reads=True)
        assert len((await client.answer()).body) == len(ANSWER)
        server.pass_time(1)
    gone = await client_with_an_answer(server)
    gone.reset()
    await until(lambda: len(server.listener.connections) == 6)
    for _ in range(2):
        await client_with_an_answer(server)
    server.pass_time(1)
    assert len(server.listener.connections) == 8


@serving(max_unsent_bytes=50_000_000)
async def test_streams_and_what_they_write_later_count_too(server: Server) -> None:
    streams = []
    for _ in range(3):
        client = await server.connect(receive_buffer=4096)
        client.writer.transport.pause_reading()
        await client.send(get("/later"))
        streams.append((await server.app.next()).stream())
        streams[-1].write(b"x" * 12_000_000)
        server.pass_time(1)
    assert len(server.listener.connections) == 3
    streams[2].write(ANSWER + ANSWER)
    server.pass_time(1)
    await until(lambda: len(server.listener.connections) == 2)
    assert [stream.closed for stream in streams] == [False, False, True]


@serving(linger_timeout=5)
async def test_refused_client_that_does_not_go_is_cut_off(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(b"nonsense\r\n\r\n")).status == 400
    assert await client.is_closed()
    server.pass_time(4)
    assert len(server.listener.connections) == 1
    server.pass_time(2)
    await until(lambda: not server.listener.connections)


@serving(linger_timeout=5)
async def test_refused_client_that_goes_is_forgotten_at_once(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(b"nonsense\r\n\r\n")).status == 400
    client.end()
    await until(lambda: not server.listener.connections)


@serving(linger_bytes=100_000)
async def test_refused_client_may_send_only_so_much_more(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(b"nonsense\r\n\r\n")).status == 400
    try:
        for _ in range(1000):
            await client.send(b"x" * 10_000)
    except ConnectionError:
        pass
    await until(lambda: not server.listener.connections)


@serving(linger_timeout=5, keep_alive_timeout=75)
async def test_idle_client_that_does_not_read_is_cut_off_too(server: Server) -> None:
    """Its answer is below the write mark, so that nothing seemed wrong."""
    client = await server.connect(receive_buffer=4096)
    client.writer.transport.pause_reading()
    connection = None
    for _ in range(1000):
        await client.send(get("/later"))
        (await server.app.next()).respond(200, b"x" * 20_000, compressible=False)
        connection = server.connection()
        if connection.buffered():
            break
    assert connection is not None
    assert 0 < connection.buffered() < server.limits.write_high_bytes
    server.pass_time(76)
    server.pass_time(1)
    server.pass_time(61)
    await until(lambda: not server.listener.connections)


@serving(write_timeout=60, linger_timeout=5)
async def test_last_answer_is_not_cut_off_while_the_client_takes_it(server: Server) -> None:
    client = await server.connect(receive_buffer=4096)
    await client.send(get("/later", "Connection: close"))
    (await server.app.next()).respond(200, b"x" * 20_000_000, compressible=False)
    await client.head()
    connection = server.connection()
    total = 0
    while total < 20_000_000:
        left = connection.buffered()
        while connection.buffered() == left and total < 20_000_000:
            data = await client.reader.read(100_000)
            assert data
            total += len(data)
        server.pass_time(10)


@serving(write_timeout=60, keep_alive_timeout=75)
async def test_client_that_always_has_an_answer_on_its_way_is_not_stuck(server: Server) -> None:
    """The sweep finds something unsent every time it looks, and never less than before."""
    client = await server.connect(receive_buffer=4096)
    for number in range(20):
        await client.send(get("/later"))
        (await server.app.next()).respond(200, b"x" * (5_000_000 + number), compressible=False)
        assert server.connection().buffered()
        server.pass_time(30)
        assert len((await client.answer()).body) == 5_000_000 + number


@serving(write_timeout=60)
async def test_small_rest_of_an_answer_does_not_make_a_waiting_client_stuck(server: Server) -> None:
    """It may be the rest of another answer each time the sweep looks."""
    sink = Sink()
    sink.buffered_bytes = 1000
    connection = Connection(server.listener)
    connection.connection_made(sink)  # type: ignore[arg-type]
    connection.data_received(get("/later"))
    for _ in range(10):
        server.pass_time(50)
    assert not sink.ended
    connection.connection_lost(None)


@serving(head_timeout=10)
async def test_clients_time_does_not_run_while_its_answer_waits_to_be_read(server: Server) -> None:
    client = await server.connect(receive_buffer=4096)
    client.writer.transport.pause_reading()
    await client.send(get("/later") + b"GET /next HTTP/1.1\r\n")
    (await server.app.next()).respond(200, b"x" * 20_000_000, compressible=False)
    assert server.connection().in_message
    assert not server.connection().writable
    server.pass_time(30)
    client.writer.transport.resume_reading()
    assert len((await client.answer()).body) == 20_000_000
    assert (await client.ask(b"Host: a\r\n\r\n")).json["path"] == "/next"


@serving(write_timeout=60, keep_alive_timeout=75)
async def test_answer_after_a_long_silence_has_its_time(server: Server) -> None:
    client = await server.connect(receive_buffer=4096)
    await client.send(get("/later"))
    server.pass_time(1)
    (await server.app.next()).respond(200, b"{}")
    await client.answer()
    server.pass_time(70)
    await client.send(get("/later"))
    (await server.app.next()).respond(200, b"x" * 5_000_000, compressible=False)
    server.pass_time(1)
    assert len((await client.answer()).body) == 5_000_000


@serving(head_timeout=10, body_timeout=20, max_body_bytes=1000)
async def test_head_after_a_dropped_body_has_its_own_time(server: Server) -> None:
    client = await server.connect()
    await client.ask(request_bytes("POST", "/", "Content-Length: 100000") + b"x" * 50_000)
    server.pass_time(1)
    server.pass_time(15)
    await client.send(b"x" * 50_000 + b"GET /next HTTP/1.1\r\n")
    await until(lambda: not server.connection().in_body)
    server.pass_time(9)
    assert (await client.ask(b"Host: a\r\n\r\n")).json["path"] == "/next"


@serving()
async def test_ten_slow_heads_do_not_keep_others_waiting(server: Server) -> None:
    for _ in range(10):
        await (await server.connect()).send(b"GET / HTTP/1.1\r\nX: ")
    assert (await server.ask(get("/"))).status == 200
