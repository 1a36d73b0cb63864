"""Limits on input: each is enforced with its documented error."""

import asyncio
import resource

import pytest

from tests.server.http.wire import Recorder, Server, chunked, get, post, request_bytes, serving, until
from topics.server.http import Refusal, RequestHead, refusal
from topics.server.http.listener import connection_capacity

MEBIBYTE = 1 << 20


@serving(max_target_bytes=100)
async def test_target_may_be_as_long_as_the_limit_and_no_longer(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(get("/" + "a" * 99))).status == 200
    answer = await client.ask(get("/" + "a" * 100))
    assert (answer.status, answer.code) == (414, "uri_too_long")
    assert await client.is_closed()


@serving(max_headers=10)
async def test_as_many_header_lines_as_the_limit_and_no_more(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(get("/", *(f"X-{n}: 1" for n in range(9))))).status == 200
    answer = await client.ask(get("/", *(f"X-{n}: 1" for n in range(10))))
    assert (answer.status, answer.code) == (431, "headers_too_large")
    assert await client.is_closed()


@serving(max_headers=10)
async def test_lines_of_one_header_count_one_by_one(server: Server) -> None:
    assert (await server.ask(get("/", *["X: 1"] * 10))).status == 431


@serving(max_head_bytes=2000)
async def test_head_may_have_as_many_bytes_as_the_limit_and_no_more(server: Server) -> None:
    client = await server.connect()
    assert (await client.ask(get("/", "X: " + "a" * 1900))).status == 200
    answer = await client.ask(get("/", "X: " + "a" * 2000))
    assert (answer.status, answer.code) == (431, "headers_too_large")
    assert await client.is_closed()


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\nX", b"GET /"])
@serving()
async def test_line_that_never_ends_is_refused_with_the_default_limits(server: Server, start: bytes) -> None:
    client = await server.connect()
    await client.send(start)
    answer = asyncio.ensure_future(client.answer())
    sent = 0
    while not answer.done() and sent < MEBIBYTE:
        await client.send(b"a" * 1000)
        sent += 1000
        await asyncio.sleep(0)
    assert (await answer).status in (414, 431)
    assert await client.is_closed()


@serving(max_body_bytes=1000)
async def test_body_may_be_as_large_as_the_limit(server: Server) -> None:
    client = await server.connect()
    for message in (post("/", b"x" * 1000), chunked("/", b"x" * 500, b"x" * 500)):
        for _ in range(2):
            assert (await client.ask(message)).json["body"] == "x" * 1000


@serving(max_body_bytes=1000)
async def test_declared_body_over_the_limit_is_refused_before_it_is_sent(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(request_bytes("POST", "/", "Content-Length: 1001"))
    assert (answer.status, answer.code) == (413, "payload_too_large")
    # The client may send it all the same, and go on.
    await client.send(b"x" * 1001)
    assert await client.is_usable()
    assert [request.path for request in server.app.requests] == [b"/still/there"]


@serving(max_body_bytes=1000)
async def test_remembered_head_does_not_let_a_larger_body_by(server: Server) -> None:
    client = await server.connect()
    for body, status in ((b"x" * 10, 200), (b"x" * 999, 200), (b"x" * 1000, 200), (b"x" * 1001, 413), (b"x", 200)):
        assert (await client.ask(post("/", body))).status == status


@serving(max_body_bytes=1000)
async def test_chunked_body_over_the_limit_is_refused_while_it_arrives(server: Server) -> None:
    client = await server.connect()
    start = request_bytes("POST", "/", "Transfer-Encoding: chunked")
    answer = await client.ask(start + b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\nx")
    assert (answer.status, answer.code) == (413, "payload_too_large")
    await client.send(b"\r\n5\r\nxxxxx\r\n0\r\n\r\n")
    assert await client.is_usable()
    assert [request.path for request in server.app.requests] == [b"/still/there"]


@serving(max_body_bytes=1000, linger_bytes=100_000)
async def test_body_too_large_even_to_be_dropped_closes_the_connection(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(request_bytes("POST", "/", "Content-Length: 100001") + b"x" * 5000)
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert answer.headers["connection"] == "close"
    assert await client.is_closed()


@serving(max_body_bytes=1000, linger_bytes=100_000)
async def test_chunked_body_that_never_ends_is_cut_off_after_its_refusal(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/", "Transfer-Encoding: chunked"))
    sent = 0
    while server.listener.connections and sent < 10_000_000:
        try:
            await client.send(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        except ConnectionError:
            break
        sent += 10_000
    assert sent < 10_000_000
    await until(lambda: not server.listener.connections)


@serving(max_body_bytes=20 * MEBIBYTE)
async def test_client_that_sends_a_large_body_before_it_reads_can_read_the_refusal(server: Server) -> None:
    """As most libraries do. Closing without reading on would destroy the answer in flight."""
    client = await server.connect()
    await client.send(post("/", b"x" * (20 * MEBIBYTE + 1)))
    answer = await client.answer()
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert await client.is_usable()


@serving(max_held_bytes=300_000)
async def test_bodies_under_way_have_one_common_bound(server: Server) -> None:
    first = await server.connect()
    await first.send(request_bytes("POST", "/first", "Content-Length: 300000") + b"x" * 200_000)
    await until(lambda: server.listener.held.total == 200_000)
    second = await server.connect()
    await second.send(request_bytes("POST", "/second", "Content-Length: 300000") + b"x" * 200_000)
    answer = await second.answer()
    assert (answer.status, answer.code) == (503, "overloaded")
    assert answer.headers["retry-after"]
    # The first is unharmed, small ones are served meanwhile, and what was held is given back.
    assert (await (await server.connect()).ask(post("/small", b"x" * 100))).status == 200
    await first.send(b"x" * 100_000)
    assert (await first.answer()).status == 200
    await second.send(b"x" * 100_000)
    assert await second.is_usable()
    assert server.listener.held.total == 0


@serving()
async def test_held_bytes_are_given_back_when_the_client_goes_away(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/first", "Content-Length: 300000") + b"x" * 200_000)
    await until(lambda: server.listener.held.total == 200_000)
    client.abort()
    await until(lambda: not server.listener.connections)
    assert server.listener.held.total == 0


@serving()
async def test_endless_chunk_extension_is_refused(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/", "Transfer-Encoding: chunked") + b"3;")
    for _ in range(100):
        await client.send(b"a" * 1000)
        await asyncio.sleep(0)
    assert (await client.answer()).code == "invalid_request"
    assert await client.is_closed()


@serving()
async def test_endless_trailers_are_refused(server: Server) -> None:
    client = await server.connect()
    await client.send(request_bytes("POST", "/", "Transfer-Encoding: chunked") + b"0\r\n")
    for number in range(10_000):
        await client.send(b"X-%d: y\r\n" % number)
    assert (await client.answer()).code == "invalid_request"
    assert await client.is_closed()


@serving()
async def test_body_in_one_byte_chunks_is_served(server: Server) -> None:
    body = b"x" * 20_000
    answer = await server.ask(chunked("/", *(body[n : n + 1] for n in range(len(body)))))
    assert answer.json["body"] == body.decode()


@serving(max_connections=3)
async def test_connection_over_the_limit_gets_503_and_is_closed(server: Server) -> None:
    clients = [await server.connect() for _ in range(3)]
    for client in clients:
        await client.ask(get("/"))
    extra = await server.connect()
    answer = await extra.answer()
    assert (answer.status, answer.code) == (503, "overloaded")
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["connection"] == "close"
    assert await extra.is_closed()
    assert all([await client.is_usable() for client in clients])
    clients[0].abort()
    await until(lambda: len(server.listener.connections) == 2)
    assert (await server.ask(get("/"))).status == 200


@serving(max_connections=1)
async def test_clients_turned_away_do_not_pile_up(server: Server) -> None:
    await (await server.connect()).ask(get("/"))
    extras = [await server.connect() for _ in range(300)]
    await until(lambda: len(server.listener.refused) <= 256)
    server.pass_time(6)
    for extra in extras:
        await extra.reader.read()
        extra.abort()
    await until(lambda: not server.listener.refused)
    assert len(server.listener.connections) == 1


@pytest.mark.parametrize("files_max", [64, 1024, 20_000, resource.RLIM_INFINITY])
def test_connections_never_take_all_the_files_the_process_may_open(
    files_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files_max, files_max))
    connections, turned_away = connection_capacity(10_000)
    assert 0 < connections <= 10_000
    assert turned_away > 0
    if files_max != resource.RLIM_INFINITY:
        assert connections + turned_away <= files_max * 3 // 4 or files_max - connections - turned_away >= 512


class Guarded(Recorder):
    """Refuses early what carries no token; sees only heads."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[RequestHead] = []

    def admit(self, head: RequestHead) -> Refusal | None:
        self.asked.append(head)
        if head.header(b"authorization") is None:
            return refusal(401, "unauthorized", "who are you?", b"WWW-Authenticate: Bearer\r\n")
        return None


@serving(Guarded)
async def test_application_may_refuse_before_a_large_body_is_sent(server: Server) -> None:
    client = await server.connect()
    answer = await client.ask(request_bytes("POST", "/", "Content-Length: 100000"))
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    await client.send(b"x" * 100_000)
    assert await client.is_usable()


@serving(Guarded)
async def test_application_is_asked_about_large_and_chunked_bodies_only(server: Server) -> None:
    client = await server.connect()
    await client.ask(get("/get"))
    await client.ask(post("/small", b"x" * 65_536))
    await client.ask(post("/large", b"x" * 65_537, "Authorization: Bearer k"))
    assert (await client.ask(chunked("/chunked", b"abc"))).status == 401
    assert [head.path for head in server.app.asked] == [b"/large", b"/chunked"]
    assert [request.path for request in server.app.requests] == [b"/get", b"/small", b"/large"]


class Broken(Recorder):
    def admit(self, head: RequestHead) -> Refusal | None:
        raise ValueError("secret of the application")


@serving(Broken)
async def test_failing_admission_gets_a_500(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = await server.connect()
    answer = await client.ask(request_bytes("POST", "/", "Content-Length: 100000"))
    assert (answer.status, answer.code) == (500, "internal")
    assert "secret of the application" in caplog.text
    await client.send(b"x" * 100_000)
    assert await client.is_usable()


@serving(Guarded, max_body_bytes=1000)
async def test_application_is_asked_before_the_size_is_judged(server: Server) -> None:
    """So that a stranger learns nothing but that he is one."""
    assert (await server.ask(request_bytes("POST", "/", "Content-Length: 100000"))).status == 401
    assert (
        await server.ask(request_bytes("POST", "/", "Content-Length: 100000", "Authorization: Bearer k"))
    ).status == 413
