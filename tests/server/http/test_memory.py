"""Cached request heads give the same result as parsed ones."""

import asyncio
import random
import re
from collections.abc import Callable

import pytest

from tests.server.http.wire import ManualTime, Recorder, Server, Sink, get, post, request_bytes, serving
from topics.server.http import HttpLimits, Listener, Request
from topics.server.http.connection.connection import Connection
from topics.server.http.messages.head_memory import FORGET_SECONDS, MAX_HEADS


class Bench:
    """A connection without a socket: what is fed to it, how it is cut, and what comes out."""

    def __init__(self, **settings: object) -> None:
        self.app = Recorder()
        self.listener = Listener(self.app, HttpLimits(clock=ManualTime(), **settings))
        self.listener.loop = asyncio.get_event_loop()

    def play(self, pieces: list[bytes]) -> tuple[bytes, bool, list[tuple[bytes, bytes, bytes, tuple[object, ...]]]]:
        sink = Sink()
        connection = Connection(self.listener)
        connection.connection_made(sink)  # type: ignore[arg-type]
        for piece in pieces:
            connection.data_received(piece)
        connection.connection_lost(None)
        requests = [
            (request.method, request.path, request.body, tuple(sorted(request.head.headers.items())))
            for request in self.app.requests
        ]
        self.app.requests.clear()
        return sink.written, sink.ended, requests


@pytest.fixture
def bench() -> object:
    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))
        asyncio.set_event_loop(runner.get_loop())
        yield Bench()


CONVERSATION = [
    post("/a", b"12345", "Content-Type: application/json"),
    post("/a", b"54321", "Content-Type: application/json"),
    post("/a", b"123456789", "Content-Type: application/json"),
    post("/a", b"", "Content-Type: application/json"),
    get("/b?c=d", "X: y"),
    get("/b?c=d", "X: y"),
    post("/a", b"GET / HTTP/1.1\r\n\r\n"),
    request_bytes("POST", "/c", "content-length: 3", "X: y") + b"abc",
    request_bytes("POST", "/c", "content-length: 4", "X: y") + b"abcd",
]


def test_every_cut_of_a_conversation_gives_the_same_answers(bench: Bench) -> None:
    whole = b"".join(CONVERSATION)
    expected = bench.play(CONVERSATION)
    assert len(expected[2]) == len(CONVERSATION)
    assert bench.play([whole]) == expected
    for cut in range(1, len(whole)):
        assert bench.play([whole[:cut], whole[cut:]]) == expected


def test_every_cut_of_pipelined_requests_with_remembered_heads_gives_the_same_answers(bench: Bench) -> None:
    expected = bench.play(CONVERSATION * 2)
    whole = b"".join(CONVERSATION)
    for cut in range(1, len(whole)):
        assert bench.play([*CONVERSATION, whole[:cut], whole[cut:]]) == expected


def test_pipelined_requests_with_equal_heads_share_what_the_application_derived_from_the_first() -> None:
    with asyncio.Runner() as runner:
        runner.run(asyncio.sleep(0))
        asyncio.set_event_loop(runner.get_loop())
        bench = Bench()
        handled: list[Request] = []
        answer = bench.listener.handle

        def handle(request: Request) -> None:
            handled.append(request)
            answer(request)

        bench.listener.handle = handle
        bench.play([post("/a", b"1"), post("/a", b"2") + post("/a", b"333") + post("/b", b"4")])
    heads = [request.head for request in handled]
    assert heads[0] is heads[1] is heads[2]
    assert heads[3] is not heads[0]


@pytest.mark.parametrize("message", CONVERSATION)
def test_every_cut_of_a_remembered_message_gives_the_same_answer(bench: Bench, message: bytes) -> None:
    expected = bench.play([message] * 4)
    for cut in range(1, len(message)):
        assert bench.play([message, message, message[:cut], message[cut:], message]) == expected


@pytest.mark.parametrize("message", CONVERSATION)
def test_remembered_message_is_not_answered_before_its_last_byte(bench: Bench, message: bytes) -> None:
    """Above all not before its blank line: a head that is not over may get more lines."""
    for cut in range(1, len(message)):
        assert len(bench.play([message, message, message[:cut]])[2]) == 2
    start = message.partition(b"\r\n\r\n")[0]
    longer = [message, start, b"\r\nAuthorization: more" + message[len(start) :]]
    requests = bench.play(longer)[2]
    assert len(requests) == 2
    assert (b"authorization", b"more") in requests[1][3]


def test_one_byte_at_a_time_gives_the_same_answers(bench: Bench) -> None:
    whole = b"".join(CONVERSATION)
    assert bench.play([whole[n : n + 1] for n in range(len(whole))]) == bench.play(CONVERSATION)


def test_blank_lines_between_messages_are_skipped_however_they_are_cut(bench: Bench) -> None:
    message = CONVERSATION[0]
    expected = bench.play([message, message])
    for blank in ([b"\r\n"], [b"\r", b"\n"], [b"\r\n\r"], [b"\n"], [b"\r\n\r\n", b"\r"]):
        assert bench.play([message, *blank, message]) == expected
        assert bench.play([message, b"".join(blank) + message]) == expected


def mutations(message: bytes, random: random.Random, count: int) -> list[bytes]:
    """The message with a byte or a slice changed, doubled, dropped or moved, as an attacker would try it."""
    bits = [b"\r\n", b"\n", b"\0", b" ", b":", b"0", b"9", b"Content-Length: 3\r\n", b"content-length: ", b"\r\n\r\n"]
    found = []
    for _ in range(count):
        changed = bytearray(message)
        for _ in range(random.randint(1, 3)):
            place = random.randrange(len(changed) + 1)
            if random.random() < 0.4:
                changed[place:place] = random.choice(bits)
            elif random.random() < 0.5:
                del changed[place : place + random.randint(1, 12)]
            else:
                changed[place : place + 1] = bytes([random.randrange(256)])
        found.append(bytes(changed))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_whatever_follows_is_read_as_if_nothing_were_remembered(
    bench: Bench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each mutation after the message it was made from, alone and pipelined, with the memory and without."""
    chance = random.Random(seed)
    conversations = []
    for message in CONVERSATION:
        for mutation in mutations(message, chance, 60):
            conversations += [[message, *CONVERSATION, mutation], [*CONVERSATION, message + mutation + message]]

    def played() -> list[object]:
        return [(refused(written), *rest) for written, *rest in map(bench.play, conversations)]

    remembered = played()
    monkeypatch.setattr(Connection, "learn_head", lambda *_: None)
    assert played() == remembered


def refused(written: bytes) -> bytes:
    """Responses without the last one if it is a refusal: an unknown method gets 405 only where a read begins, else 400."""
    return re.sub(rb"HTTP/1\.1 (400|405) (?!.*HTTP/1\.1 ).*", b"refused", written, flags=re.DOTALL)


def test_memory_is_used_at_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above would compare the long way with itself."""
    fed: list[int] = []
    borrow: Callable[[], object] = bench.listener.borrow_assembler
    monkeypatch.setattr(bench.listener, "borrow_assembler", lambda: (fed.append(1), borrow())[1])
    bench.play([post("/a", b"x" * 10)] * 100)
    assert len(fed) == 1
    bench.play([post("/a", b"x" * n) for n in range(100)])
    assert len(fed) == 2
    bench.play([get("/a")] * 100)
    assert len(fed) == 3


@pytest.mark.parametrize(
    "message",
    [
        get("/", "Connection: close"),
        get("/", "Connection: upgrade", "Upgrade: websocket"),
        post("/", b"12345", "Expect: 100-continue"),
        post("/", b"12345", "Content-Encoding: gzip"),
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"\r\n" + get("/"),
        get("/", "X: " + "a" * 4000),
    ],
)
def test_heads_that_need_more_than_reading_are_not_remembered(bench: Bench, message: bytes) -> None:
    connection = Connection(bench.listener)
    connection.connection_made(Sink())  # type: ignore[arg-type]
    connection.data_received(message)
    assert not connection.remembered_heads


def test_memory_has_an_edge() -> None:
    async def main() -> None:
        bench = Bench()
        connection = Connection(bench.listener)
        connection.connection_made(Sink())  # type: ignore[arg-type]
        for number in range(100):
            connection.data_received(post(f"/{number}", b"x"))
            assert 0 < connection.remembered_heads <= MAX_HEADS

    asyncio.run(main())


@serving()
async def test_tokens_are_forgotten_soon_after_the_last_request(server: Server) -> None:
    client = await server.connect()
    await client.ask(get("/", "Authorization: Bearer secret"))
    assert server.connection().remembered_heads
    server.pass_time(FORGET_SECONDS + 1)
    assert not server.connection().remembered_heads
    assert await client.is_usable()
