"""Live readers: from a write to its delivery, how many deliveries a second, and what an idle or a stuck one costs.

The writer and all watchers are this one process, reading with epoll and doing as little as possible, so that what is
measured is mostly the server. Fan-out at saturation is a fixed load: so many records, written as fast as they are taken, until
every watcher has every one of them; the same code drives Redis pub/sub.
"""

import contextlib
import dataclasses
import json
import select
import socket
import statistics
import time
from collections.abc import Callable, Iterator

from bench.tools import Row, TopicsServer, at_least, at_most, need, redis_server, topics_server

WATCHERS = (1, 10, 100, 1000)
WRITES_A_SECOND = 50
SECONDS = 5
# p99 of write-to-delivery, in milliseconds.
TARGETS_MS = {100: 5.0, 1000: 25.0}
SATURATION_WATCHERS = 100
SATURATION_RECORDS = 20_000
PIPELINE = 100
# Once in every record and nowhere else, and never cut in two.
MARK = b"~"
PAYLOAD = b"x" * 97 + MARK
IDLE_STREAMS = 2000
# Refused writes would make nobody late: without the throttle.
SETTINGS = {"TOPICS_THROTTLE_LAG_MS": "0"}
STUCK_MB = 200
STUCK_SAMPLES = 8


def main(quick: bool = False) -> Iterator[Row]:
    need("redis-server")
    yield from latencies()
    yield from saturation()
    if not quick:
        yield from idle_memory()
        yield from stuck_memory()


def latencies() -> list[Row]:
    rows = []
    for count in WATCHERS:
        with topics_server(**SETTINGS) as server:
            server.call("PUT", "/v0/topics/live", {})
            with watchers(server, "live", count) as streams, Writer(server, "live") as writer:
                figures = write_and_time(streams, writer)
        p50, p99 = percentile(figures, 50), percentile(figures, 99)
        what = f"write to delivery, {count} watchers, {WRITES_A_SECOND} writes/s"
        if count in TARGETS_MS:
            rows.append(at_most(f"{what}: p99 (p50 {p50:.2f} ms)", p99, TARGETS_MS[count], "ms"))
        else:
            rows.append(Row(f"{what}: p99 (p50 {p50:.2f} ms)", f"{p99:.2f} ms", "", 1.0, "", True))
    return rows


def write_and_time(streams: "Streams", writer: "Writer") -> list[float]:
    """Milliseconds from sending each write to each watcher's having it."""
    figures: list[float] = []
    rests: dict[int, bytes] = {}

    def received(number: int, data: bytes) -> None:
        now = time.perf_counter_ns()
        data = rests.pop(number, b"") + data
        if not data.endswith(b"\n\n\r\n"):
            rests[number] = data
            return
        at = data.find(b'"t":')
        while at >= 0:
            figures.append((now - int(data[at + 4 : data.index(b"}", at)])) / 1e6)
            at = data.find(b'"t":', at + 4)

    interval = 1 / WRITES_A_SECOND
    writes = WRITES_A_SECOND * SECONDS
    due = time.perf_counter()
    for _ in range(writes):
        writer.send(b'{"records":[{"data":{"t":%d}}]}' % time.perf_counter_ns())
        due += interval
        while (left := due - time.perf_counter()) > 0:
            streams.poll(left, received)
            writer.drop_answers()
    deadline = time.perf_counter() + 10
    while len(figures) < writes * len(streams) and time.perf_counter() < deadline:
        streams.poll(0.1, received)
    assert len(figures) == writes * len(streams), f"{len(figures)} deliveries of {writes} to {len(streams)}"
    # The first writes meet cold caches.
    return figures[len(figures) // 10 :]


def saturation() -> list[Row]:
    total = SATURATION_RECORDS * SATURATION_WATCHERS
    ours = {}
    for count in (1, PIPELINE):
        body = b'{"records":[%b]}' % b",".join([b'{"data":"%b"}' % PAYLOAD] * count)
        with topics_server(**SETTINGS) as server:
            server.call("PUT", "/v0/topics/live", {})
            with watchers(server, "live", SATURATION_WATCHERS) as streams, Writer(server, "live") as writer:
                ours[count] = total / flood(streams, writer.send, body * (PIPELINE // count), writer.drop_answers)
    command = b"*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n$98\r\n%b\r\n" % PAYLOAD
    with (
        redis_server("no") as port,
        subscribers(port, SATURATION_WATCHERS) as streams,
        contextlib.closing(connect(port)) as publisher,
    ):
        theirs = total / flood(streams, publisher.sendall, command * PIPELINE, lambda: drop(publisher))
    what = f"fan-out to {SATURATION_WATCHERS} watchers, 1 writer,"
    rows = [
        at_least(f"{what} {count} records a request, pipelined", figure, theirs, 0.0, "deliveries/s", "Redis pub/sub")
        for count, figure in ours.items()
    ]
    return [dataclasses.replace(row, target="side by side") for row in rows]


def flood(streams: "Streams", send: Callable[[bytes], None], messages: bytes, after: Callable[[], None]) -> float:
    """Seconds until every watcher has everything; `messages` are PIPELINE of them, sent again and again."""
    total = SATURATION_RECORDS * len(streams)
    seen = 0

    def received(_number: int, data: bytes) -> None:
        nonlocal seen
        seen += data.count(MARK)

    started = time.perf_counter()
    sent = 0
    while seen < total:
        # At most a few thousand records ahead of the readers: a fair load for both, neither may drop anybody.
        if sent < SATURATION_RECORDS and sent - seen / len(streams) < 2000:
            send(messages)
            sent += PIPELINE
        streams.poll(0 if sent < SATURATION_RECORDS else 1, received)
        after()
        if time.perf_counter() - started > 120:
            raise AssertionError(f"only {seen} of {total} deliveries")
    return time.perf_counter() - started


def idle_memory() -> list[Row]:
    with topics_server(**SETTINGS) as server:
        server.call("PUT", "/v0/topics/live", {})
        with watchers(server, "live", 100):
            pass
        before = server.rss_mb()
        with watchers(server, "live", IDLE_STREAMS):
            after = server.rss_mb()
    return [at_most("memory of one idle stream with its session", (after - before) * 1024 / IDLE_STREAMS, 20.0, "KiB")]


def stuck_memory() -> list[Row]:
    """A client that never reads beside a writer that never stops."""
    with topics_server(**SETTINGS, TOPICS_SLOW_CONSUMER_TIMEOUT_MS="600000", TOPICS_HOT_BYTES="8388608") as server:
        server.call("PUT", "/v0/topics/live", {"cap_bytes": 4 << 20})
        body = b'{"records":[{"data":"%b"}]}' % (b"x" * 50_000)
        with Writer(server, "live") as writer, contextlib.closing(open_stream(server, "live")):
            figures = []
            for _ in range(2 * STUCK_SAMPLES):
                for _ in range(STUCK_MB * 20 // STUCK_SAMPLES):
                    writer.send(body)
                    writer.wait_for_answer()
                figures.append(server.rss_mb())
    # The log's own buffers and segments come and go, by some twenty megabytes: medians.
    growth = statistics.median(figures[STUCK_SAMPLES:]) - statistics.median(figures[:STUCK_SAMPLES])
    what = f"growth beside a stuck client while {STUCK_MB} MB are written"
    return [at_most(what, max(0.0, growth), 32.0, "MB")]


class Streams:
    """Many sockets, read as they have something."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._by_number = {each.fileno(): each for each in sockets}
        self._epoll = select.epoll()
        for each in sockets:
            each.setblocking(False)
            self._epoll.register(each.fileno(), select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._by_number)

    def poll(self, seconds: float, received: Callable[[int, bytes], None]) -> None:
        for number, _ in self._epoll.poll(seconds, 1024):
            data = self._by_number[number].recv(1 << 18)
            assert data, "a stream has ended"
            received(number, data)

    def close(self) -> None:
        self._epoll.close()
        for each in self._by_number.values():
            each.close()


class Writer:
    """One connection that writes without waiting for the answers."""

    def __init__(self, server: TopicsServer, topic: str) -> None:
        self._socket = connect(server.port)
        self._topic = topic.encode()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, bodies: bytes) -> None:
        """One write for each body; several may stand behind each other."""
        count = bodies.count(b'{"records"')
        size = len(bodies) // count
        head = (
            b"POST /v0/topics/%b?return_seqs=false HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            % self._topic
        )
        head += b"Content-Length: %d\r\n\r\n" % size
        self._socket.sendall(b"".join([head + bodies[at : at + size] for at in range(0, len(bodies), size)]))

    def drop_answers(self) -> None:
        drop(self._socket)

    def wait_for_answer(self) -> None:
        answer = self._socket.recv(65536)
        assert answer.startswith(b"HTTP/1.1 20"), answer


@contextlib.contextmanager
def watchers(server: TopicsServer, topic: str, count: int) -> Iterator[Streams]:
    """So many open streams of a session each, all caught up."""
    streams = Streams([open_stream(server, topic) for _ in range(count)])
    waiting = count

    def received(_number: int, data: bytes) -> None:
        nonlocal waiting
        waiting -= data.count(b"event: caught-up")

    try:
        deadline = time.perf_counter() + 30
        while waiting and time.perf_counter() < deadline:
            streams.poll(1, received)
        assert not waiting, f"{waiting} streams did not open"
        yield streams
    finally:
        streams.close()


def open_stream(server: TopicsServer, topic: str) -> socket.socket:
    body = json.dumps({"topics": {topic: {"tail": True}}, "heartbeat_ms": 60_000}).encode()
    opened = connect(server.port)
    opened.sendall(
        b"POST /v0/watch HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    answer = opened.recv(65536)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    wid = json.loads(answer.partition(b"\r\n\r\n")[2])["wid"].encode()
    opened.sendall(b"GET /v0/watch/%b HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n" % wid)
    return opened


@contextlib.contextmanager
def subscribers(port: int, count: int) -> Iterator[Streams]:
    sockets = []
    for _ in range(count):
        each = connect(port)
        each.sendall(b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n")
        assert b"subscribe" in each.recv(4096)
        sockets.append(each)
    streams = Streams(sockets)
    try:
        yield streams
    finally:
        streams.close()


def connect(port: int) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def drop(source: socket.socket) -> None:
    """Read away what has come, without waiting."""
    with contextlib.suppress(BlockingIOError):
        while source.recv(1 << 18, socket.MSG_DONTWAIT):
            pass


def percentile(figures: list[float], percent: int) -> float:
    return statistics.quantiles(figures, n=100)[percent - 1]
