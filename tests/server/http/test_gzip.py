"""gzip in both directions."""

import gzip
import random
import zlib

import pytest

from tests.server.http.wire import Server, chunked, get, post, request_bytes, serving, until
from topics.server.http.messages.body import INLINE_BYTES, Inflation, deflate
from topics.server.http.messages.refusal import PAYLOAD_TOO_LARGE, Refused

MEBIBYTE = 1 << 20


def zipped(body: bytes, *lines: str, path: str = "/") -> bytes:
    return post(path, gzip.compress(body), "Content-Encoding: gzip", *lines)


@pytest.mark.parametrize("size", [0, 1, 1000, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, 5 * MEBIBYTE])
@serving()
async def test_compressed_body_arrives_inflated(server: Server, size: int) -> None:
    client = await server.connect()
    body = random.Random(size).randbytes(size // 2) + b"a" * (size - size // 2)
    await client.send(zipped(body, path="/later") + get("/next"))
    request = await server.app.next()
    assert request.body == body
    request.respond(200, b"{}")
    assert (await client.answer()).status == 200
    assert (await client.answer()).json["path"] == "/next"


@pytest.mark.parametrize("coding", ["GZIP", "x-gzip", "identity", " gzip "])
@serving()
async def test_coding_may_be_spelled_in_other_ways(server: Server, coding: str) -> None:
    body = b"hello" if coding == "identity" else gzip.compress(b"hello")
    client = await server.connect()
    for _ in range(2):
        assert (await client.ask(post("/", body, f"Content-Encoding: {coding}"))).json["body"] == "hello"


@serving()
async def test_compressed_body_may_come_in_chunks(server: Server) -> None:
    packed = gzip.compress(b"hello" * 1000)
    message = chunked("/", packed[:10], packed[10:]).replace(b"Host:", b"Content-Encoding: gzip\r\nHost:")
    assert (await server.ask(message)).json["body"] == "hello" * 1000


@serving()
async def test_members_one_after_the_other_are_one_body(server: Server) -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")
    assert (await server.ask(post("/", packed, "Content-Encoding: gzip"))).json["body"] == "one two"


@pytest.mark.parametrize("coding", ["deflate", "br", "gzip, gzip", "gzip, br", "zstd"])
@serving()
async def test_other_codings_are_refused_and_the_connection_stays(server: Server, coding: str) -> None:
    client = await server.connect()
    answer = await client.ask(post("/", b"body", f"Content-Encoding: {coding}"))
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert await client.is_usable()


GOOD = gzip.compress(b"hello" * 100)
CORRUPT = {
    "not gzip": b"hello",
    "cut short": GOOD[:-1],
    "cut in the middle": GOOD[: len(GOOD) // 2],
    "header only": GOOD[:10],
    "bad checksum": GOOD[:-8] + bytes(4) + GOOD[-4:],
    "bad length": GOOD[:-4] + bytes(4),
    "garbage after it": GOOD + b"garbage",
    "zlib": zlib.compress(b"hello"),
}


@pytest.mark.parametrize("what", CORRUPT)
@serving()
async def test_corrupt_body_is_refused_and_the_connection_stays(server: Server, what: str) -> None:
    client = await server.connect()
    answer = await client.ask(post("/", CORRUPT[what], "Content-Encoding: gzip"))
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert await client.is_usable()
    assert len(server.app.requests) == 1


@serving()
async def test_every_cut_of_a_compressed_body_is_noticed(server: Server) -> None:
    client = await server.connect()
    for cut in range(1, len(GOOD)):
        assert (await client.ask(post("/", GOOD[:cut], "Content-Encoding: gzip"))).status == 400


@serving(max_body_bytes=MEBIBYTE)
async def test_inflated_size_has_the_limit_of_a_body(server: Server) -> None:
    client = await server.connect()
    await client.send(zipped(b"a" * MEBIBYTE, path="/later"))
    request = await server.app.next()
    assert len(request.body) == MEBIBYTE
    request.respond(200, b"{}")
    await client.answer()
    answer = await client.ask(zipped(b"a" * (MEBIBYTE + 1)))
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert await client.is_usable()


@serving()
async def test_bomb_is_refused_while_others_are_served(server: Server) -> None:
    """A gigabyte in a megabyte. It is given up at the limit, in a thread."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(MEBIBYTE)
    bomb = b"".join(deflater.compress(zeros) for _ in range(100)) + deflater.flush()
    bomber = await server.connect()
    await bomber.send(post("/", bomb, "Content-Encoding: gzip"))
    other = await server.connect()
    assert await other.is_usable()
    answer = await bomber.answer()
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert await bomber.is_usable()


def test_inflating_stops_after_its_step() -> None:
    packed = gzip.compress(bytes(10 * MEBIBYTE))
    inflation = Inflation(packed, 64 * MEBIBYTE, PAYLOAD_TOO_LARGE)
    assert inflation.run(INLINE_BYTES) is None
    assert inflation.output_bytes <= INLINE_BYTES
    assert inflation.finish() == bytes(10 * MEBIBYTE)


def test_empty_members_are_work_too_and_have_an_end() -> None:
    empty = gzip.compress(b"")
    inflation = Inflation(empty * 9_999, MEBIBYTE, PAYLOAD_TOO_LARGE)
    assert inflation.run(INLINE_BYTES) is None
    assert inflation.members <= 1 + INLINE_BYTES // 4096
    assert inflation.finish() == b""
    with pytest.raises(Refused):
        Inflation(empty * 10_001, MEBIBYTE, PAYLOAD_TOO_LARGE).finish()


@serving()
async def test_client_may_leave_while_its_body_is_inflated(server: Server) -> None:
    client = await server.connect()
    await client.send(zipped(bytes(20 * MEBIBYTE)))
    client.reset()
    other = await server.connect()
    await other.ask(zipped(bytes(2 * MEBIBYTE)))
    assert [len(request.body) for request in server.app.requests] in ([2 * MEBIBYTE], [20 * MEBIBYTE, 2 * MEBIBYTE])


@serving(max_held_bytes=100_000)
async def test_compressed_bodies_that_wait_for_a_thread_have_a_bound(server: Server) -> None:
    client = await server.connect()
    packed = gzip.compress(random.Random(1).randbytes(300_000))
    server.listener.held.total += 100_000 - len(packed) // 2
    answer = await client.ask(post("/", packed, "Content-Encoding: gzip"))
    assert (answer.status, answer.code) == (503, "overloaded")
    server.listener.held.total = -1_000_000
    assert (await client.ask(post("/", packed, "Content-Encoding: gzip"))).status == 200
    assert server.listener.held.total == -1_000_000


@pytest.mark.parametrize("size", [1024, 100_000, INLINE_BYTES + 1, 3 * MEBIBYTE])
@serving()
async def test_response_is_compressed_if_accepted(server: Server, size: int) -> None:
    client = await server.connect()
    for _ in range(2):
        await client.send(get("/later", "Accept-Encoding: gzip") + get("/next"))
        (await server.app.next()).respond(200, b"a" * size)
        answer = await client.answer()
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["vary"] == "Accept-Encoding"
        assert len(answer.body) < size / 10
        assert gzip.decompress(answer.body) == b"a" * size
        assert (await client.answer()).json["path"] == "/next"
        await server.app.next()


@serving()
async def test_small_response_is_not_compressed(server: Server) -> None:
    client = await server.connect()
    for lines, size, compressible in (
        (["Accept-Encoding: gzip"], 1023, True),
        (["Accept-Encoding: gzip"], 5000, False),
        (["Accept-Encoding: gzip;q=0"], 5000, True),
        ([], 5000, True),
    ):
        await client.send(get("/later", *lines))
        (await server.app.next()).respond(200, b"a" * size, compressible=compressible)
        answer = await client.answer()
        assert "content-encoding" not in answer.headers
        assert "vary" not in answer.headers
        assert answer.body == b"a" * size


@serving()
async def test_head_has_the_headers_of_a_compressed_answer_to_get(server: Server) -> None:
    client = await server.connect()
    headers = []
    for method in ("GET", "HEAD"):
        await client.send(request_bytes(method, "/later", "Accept-Encoding: gzip"))
        (await server.app.next()).respond(200, b"a" * 5000)
        headers.append((await client.answer(method)).headers)
    assert headers[0] == headers[1]
    assert headers[0]["content-encoding"] == "gzip"


@serving()
async def test_streams_are_never_compressed(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later", "Accept-Encoding: gzip"))
    stream = (await server.app.next()).stream()
    stream.write(b"a" * 5000)
    stream.close()
    answer = await client.answer()
    assert "content-encoding" not in answer.headers
    assert answer.body == b"a" * 5000


@serving()
async def test_client_may_leave_while_its_answer_is_compressed(server: Server) -> None:
    client = await server.connect()
    await client.send(get("/later", "Accept-Encoding: gzip"))
    request = await server.app.next()
    request.respond(200, random.Random(1).randbytes(5 * MEBIBYTE))
    client.reset()
    await until(lambda: not server.listener.connections)
    assert (await server.ask(get("/"))).status == 200


def test_deflated_is_plain_gzip() -> None:
    assert gzip.decompress(deflate(b"hello" * 1000)) == b"hello" * 1000
