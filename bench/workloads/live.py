"""Watchers over SSE and WebSocket: deliveries per second, and the time from a write to its delivery.

The writer and all watchers are this process. It reads with epoll and only counts a mark in the received bytes, so that
most of what is measured is the server. The same code drives Redis pub/sub.
"""

import base64
import contextlib
import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from bench.load import http_request, percentiles, resp
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import ServerProcess, TopicsServer, redis_server

# One byte that occurs once in every record and nowhere else.
MARK = b"~"
RECORD = b"x" * 97 + MARK
DELIVERIES = {1: 20_000, 100: 400_000, 1000: 400_000, 10_000: 400_000}
# Records that the writer may be ahead of the slowest watcher.
MAX_AHEAD = 2000
# One process holds all watchers, and its descriptors are limited.
MAX_PEER_WATCHERS = 1000
WRITES_PER_SECOND = 50
LATENCY_SECONDS = 4
DEADLINE_SECONDS = 120.0
# A refused write would lengthen the measured time without being work of the server.
SETTINGS = {"TOPICS_THROTTLE_LAG_MS": "0"}


class Streams:
    """Many sockets, read as they become ready."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        self._sockets = {each.fileno(): each for each in sockets}
        self._epoll = select.epoll()
        for each in sockets:
            each.setblocking(False)
            self._epoll.register(each.fileno(), select.EPOLLIN)

    def __len__(self) -> int:
        return len(self._sockets)

    def poll(self, seconds: float, received: Callable[[int, bytes], None]) -> None:
        for number, _ in self._epoll.poll(seconds, 1024):
            data = self._sockets[number].recv(1 << 18)
            assert data, "the server closed a stream"
            received(number, data)

    def close(self) -> None:
        self._epoll.close()
        for each in self._sockets.values():
            each.close()


class Writer:
    """One connection that writes without waiting for responses."""

    def __init__(self, port: int, message: Callable[[int], bytes]) -> None:
        self._socket = connect(port)
        self._message = message

    def send(self, records: int) -> None:
        self._socket.sendall(self._message(records))

    def discard_responses(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(1 << 18, socket.MSG_DONTWAIT):
                pass

    def close(self) -> None:
        self._socket.close()


def connect(port: int) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def open_sse(server: TopicsServer, topic: str) -> socket.socket:
    """A watch session and its stream, on one connection."""
    opened = connect(server.port)
    body = json.dumps({"topics": {topic: {"tail": True}}, "heartbeat_ms": 60_000}).encode()
    opened.sendall(http_request("POST", "/v0/watch", body))
    response = opened.recv(65536)
    assert response.startswith(b"HTTP/1.1 200"), response
    wid = json.loads(response.partition(b"\r\n\r\n")[2])["wid"].encode()
    opened.sendall(b"GET /v0/watch/%b HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n" % wid)
    return opened


def open_websocket(server: TopicsServer, topic: str) -> socket.socket:
    """A WebSocket that has subscribed to the topic."""
    opened = connect(server.port)
    key = base64.b64encode(os.urandom(16))
    opened.sendall(
        b"GET /v0/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % key
    )
    response = opened.recv(65536)
    assert response.startswith(b"HTTP/1.1 101"), response
    text = json.dumps({"op": "subscribe", "topic": topic, "tail": True}).encode()
    # A text frame; the mask of zeros leaves the bytes as they are.
    opened.sendall(struct.pack("!BB4x", 0x81, 0x80 | len(text)) + text)
    return opened


@contextmanager
def watchers(
    server: TopicsServer, count: int, opened: Callable[[TopicsServer, str], socket.socket], caught_up: bytes
) -> Iterator[Streams]:
    """This many watchers of the topic `t`, all caught up."""
    streams = Streams([opened(server, "t") for _ in range(count)])
    missing = count

    def received(_number: int, data: bytes) -> None:
        nonlocal missing
        missing -= data.count(caught_up)

    try:
        deadline = time.perf_counter() + DEADLINE_SECONDS
        while missing and time.perf_counter() < deadline:
            streams.poll(1, received)
        assert not missing, f"{missing} of {count} streams did not open"
        yield streams
    finally:
        streams.close()


TRANSPORTS = {"SSE": (open_sse, b"event: caught-up"), "WebSocket": (open_websocket, b'"op":"caught_up"')}


@contextmanager
def subscribers(redis: ServerProcess, count: int) -> Iterator[Streams]:
    sockets = []
    for _ in range(count):
        opened = connect(redis.port)
        opened.sendall(resp(b"SUBSCRIBE", b"t"))
        assert b"subscribe" in opened.recv(4096)
        sockets.append(opened)
    streams = Streams(sockets)
    try:
        yield streams
    finally:
        streams.close()


def append_messages(per_request: int) -> Callable[[int], bytes]:
    """Pipelined appends that carry a number of records."""
    body = b'{"records":[%b]}' % b",".join([b'{"data":"%b"}' % RECORD] * per_request)
    request = http_request("POST", "/v0/topics/t?return_seqs=false", body)
    return lambda records: request * (records // per_request)


def deliver_all(streams: Streams, writer: Writer, records: int, step: int) -> float:
    """Seconds until every watcher has every record."""
    total = records * len(streams)
    seen = sent = 0

    def received(_number: int, data: bytes) -> None:
        nonlocal seen
        seen += data.count(MARK)

    started = time.perf_counter()
    while seen < total:
        if sent < records and sent - seen / len(streams) < MAX_AHEAD:
            writer.send(step)
            sent += step
        streams.poll(0 if sent < records else 1, received)
        writer.discard_responses()
        assert time.perf_counter() - started < DEADLINE_SECONDS, f"{seen} of {total} deliveries"
    return time.perf_counter() - started


def _fan_out(transport: str, count: int, per_request: int) -> Callable[[Options], AbstractContextManager[Contenders]]:
    opened, caught_up = TRANSPORTS[transport]

    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        step = min(100, max(per_request, DELIVERIES[count] // count // 4))
        records = max(step, options.scaled(DELIVERIES[count]) // count // step * step)

        def contender(server: ServerProcess, streams: Streams, writer: Writer) -> Contender:
            def measure() -> Sample:
                total = records * len(streams)
                return Sample(total / deliver_all(streams, writer, records, step), total)

            return Contender(measure, server)

        with ExitStack() as stack:
            made: Contenders = {}
            for server in stack.enter_context(options.v0_servers(**SETTINGS)):
                server.must("PUT", "/v0/topics/t", {})
                streams = stack.enter_context(watchers(server, count, opened, caught_up))
                writer = stack.enter_context(contextlib.closing(Writer(server.port, append_messages(per_request))))
                made[server.name] = contender(server, streams, writer)
            if count > MAX_PEER_WATCHERS:
                yield made
                return
            redis = stack.enter_context(redis_server("no"))
            streams = stack.enter_context(subscribers(redis, count))
            publish = resp(b"PUBLISH", b"t", RECORD)
            writer = stack.enter_context(contextlib.closing(Writer(redis.port, lambda number: publish * number)))
            made["redis"] = contender(redis, streams, writer)
            yield made

    return contenders


def _latency(transport: str, count: int) -> Callable[[Options], AbstractContextManager[Contenders]]:
    opened, caught_up = TRANSPORTS[transport]

    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with ExitStack() as stack:
            made: Contenders = {}
            for server in stack.enter_context(options.v0_servers(**SETTINGS)):
                server.must("PUT", "/v0/topics/t", {})
                streams = stack.enter_context(watchers(server, count, opened, caught_up))
                writer = stack.enter_context(contextlib.closing(Writer(server.port, append_messages(1))))
                made[server.name] = Contender(_write_and_time(streams, writer, options), server)
            redis = stack.enter_context(redis_server("no"))
            streams = stack.enter_context(subscribers(redis, count))
            publish = resp(b"PUBLISH", b"t", RECORD)
            writer = stack.enter_context(contextlib.closing(Writer(redis.port, lambda number: publish * number)))
            made["redis"] = Contender(_write_and_time(streams, writer, options), redis)
            yield made

    return contenders


def _write_and_time(streams: Streams, writer: Writer, options: Options) -> Callable[[], Sample]:
    """Milliseconds from sending a write to its arrival at each watcher; one write is under way at a time."""

    def measure() -> Sample:
        times: list[float] = []
        writes = options.scaled(WRITES_PER_SECOND * LATENCY_SECONDS)
        due = time.perf_counter()
        for _ in range(writes):
            started = time.perf_counter()
            arrived = 0

            def received(_number: int, data: bytes, started: float = started) -> None:
                nonlocal arrived
                marks = data.count(MARK)
                arrived += marks
                times.extend([1000 * (time.perf_counter() - started)] * marks)

            writer.send(1)
            while arrived < len(streams):
                streams.poll(1, received)
                assert time.perf_counter() - started < DEADLINE_SECONDS, f"{arrived} of {len(streams)} deliveries"
            writer.discard_responses()
            due += 1 / WRITES_PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
        figures = percentiles(times)
        return Sample(figures["p99"], writes, {"p50": figures["p50"]})

    return measure


WORKLOADS = [
    Workload("live", f"single records to {count:,} {transport} watchers", "deliveries/s",
             _fan_out(transport, count, 1), rounds=3)
    for transport in TRANSPORTS for count in (1, 100, 1000, 10_000)
] + [
    Workload("live", "100 records per request to 100 SSE watchers", "deliveries/s", _fan_out("SSE", 100, 100), rounds=3)
] + [
    Workload("live", f"write to delivery, {count:,} SSE watchers, p99", "ms", _latency("SSE", count),
             lower_is_better=True, rounds=3)
    for count in (1, 100, 1000)
]  # fmt: skip
