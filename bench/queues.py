"""Queues: produce, claim and ack, side by side with a Redis stream group driven by the same loop over the same sockets.

Workers are connections of one driver process: claim (XREADGROUP), read the ids, ack them (XACK), again, until the queue
is empty. Redis only marks an entry as acknowledged; here the job is deleted and the delete is in the log.
"""

import asyncio
import http.client
import json
import re
import socket
import statistics
import time
from collections.abc import Callable

import uvloop

from bench.tools import (
    JSON,
    PAYLOAD,
    Row,
    TopicsServer,
    append_body,
    at_least,
    fill,
    median_of,
    need,
    post_script,
    redis_benchmark,
    redis_server,
    topics_server,
    wrk,
)

ROUNDS = 3
SECONDS = 2
XADD = ("XADD", "s", "*", "d", PAYLOAD)


def main(quick: bool = False) -> list[Row]:
    need("wrk", "redis-server", "redis-benchmark")
    rows = produce()
    for workers, batch, target in ((16, 16, 1.0), (100, 16, 1.0), (16, 1, 0.5), (100, 1, 0.5)):
        rows += consume(workers, batch, target, 40_000 if batch == 1 else 200_000)
    return rows + claim_cost(100_000 if quick else 1_000_000)


def produce() -> list[Row]:
    rows = []
    with topics_server() as server, redis_server("everysec") as redis:
        server.call("PUT", "/v0/topics/p", {"type": "queue"})
        for workers in (16, 100):
            for batch in (1, 16):
                script = post_script(append_body(batch))
                ours, peer = median_of(
                    ROUNDS,
                    lambda workers=workers, batch=batch, script=script: (
                        wrk(server.url("/v0/topics/p?return_seqs=false"), script, workers, SECONDS) * batch
                    ),
                    lambda workers=workers, batch=batch: redis_benchmark(
                        redis, workers, 150_000, *XADD, pipeline=batch
                    ),
                )
                what = f"produce, {workers} workers, batch {batch}"
                rows.append(at_least(what, ours, peer, 0.8, "jobs/s", "Redis XADD, everysec"))
    return rows


def consume(workers: int, batch: int, target: float, jobs: int) -> list[Row]:
    numbers = iter(range(1000))

    def ours() -> float:
        name = f"q{next(numbers)}"
        server.call("PUT", f"/v0/topics/{name}", {"type": "queue"})
        fill(server, name, jobs)
        return jobs / drain(server.port, workers, lambda: TopicsWorker(name, batch))

    def peer() -> float:
        redis_call(redis, b"DEL", b"s")
        redis_benchmark(redis, 16, jobs, *XADD, pipeline=100)
        redis_call(redis, b"XGROUP", b"CREATE", b"s", b"g", b"0")
        return jobs / drain(redis, workers, lambda: RedisWorker(batch))

    with topics_server() as server, redis_server("everysec") as redis:
        topics, other = median_of(ROUNDS, ours, peer)
    what = f"claim and ack, {workers} workers, batch {batch}"
    return [at_least(what, topics, other, target, "jobs/s", "Redis XREADGROUP + XACK, everysec")]


def claim_cost(many: int) -> list[Row]:
    """A claim of 16 as the server times it, with few and with many jobs ready, and under many leases."""
    with topics_server() as server:
        few, deep = median_of(ROUNDS, lambda: claim_us(server, 1000, 0), lambda: claim_us(server, many, 0))
        free, crowded = median_of(
            ROUNDS, lambda: claim_us(server, 110_000, 0), lambda: claim_us(server, 10_000, 100_000)
        )
    return [
        Row(f"claim of 16 from {many:,} ready jobs", f"{deep:.1f} us", f"{few:.1f} us (1,000 ready)", deep / few,
            "<= 1.2", deep / few <= 1.2),
        Row("claim of 16 with 100,000 jobs in flight", f"{crowded:.1f} us", f"{free:.1f} us (none in flight)",
            crowded / free, "<= 1.2", crowded / free <= 1.2),
    ]  # fmt: skip


def claim_us(server: TopicsServer, ready: int, in_flight: int) -> float:
    name = f"cost-{time.monotonic_ns()}"
    server.call("PUT", f"/v0/topics/{name}", {"type": "queue", "lease_ms": 3_600_000})
    fill(server, name, ready + in_flight)
    # Sealing what was filled in goes on for a moment, on the same processor.
    time.sleep(1 + (ready + in_flight) / 250_000)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def post(action: str, body: dict[str, object]) -> dict[str, object]:
        connection.request("POST", f"/v0/topics/{name}{action}", json.dumps(body), JSON)
        answer: dict[str, object] = json.loads(connection.getresponse().read())
        return answer

    for _ in range(in_flight // 1000):
        post("/claim", {"node": "holder", "max": 1000})
    times = []
    refill = json.loads(append_body(16))
    for _ in range(400):
        answer = post("/claim", {"node": "w", "max": 16})
        times.append(answer["performance"]["server_total_ms"] * 1000)  # type: ignore[index]
        post("/ack", {"node": "w", "seqs": [job["$seq"] for job in answer["claimed"]]})  # type: ignore[attr-defined]
        post("", refill)
    connection.close()
    server.call("DELETE", f"/v0/topics/{name}")
    return statistics.median(times)


def drain(port: int, workers: int, worker: Callable[[], "Worker"]) -> float:
    """Seconds until so many workers have emptied the queue."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        protocols = [(await loop.create_connection(worker, "127.0.0.1", port))[1] for _ in range(workers)]
        started = time.perf_counter()
        for protocol in protocols:
            protocol.claim()
        await asyncio.gather(*[protocol.done for protocol in protocols])
        return time.perf_counter() - started

    return uvloop.run(run())


class Worker(asyncio.Protocol):
    """Claims and acks in turn until a claim comes back empty."""

    CLAIM: bytes

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = b""
        self._claiming = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = transport.write  # type: ignore[attr-defined]
        self._close = transport.close

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server closed the connection"))

    def claim(self) -> None:
        self._claiming = True
        self._write(self.CLAIM)

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data if self._received else data
        if not self.complete(received):
            return
        self._received = b""
        if not self._claiming:
            self.claim()
            return
        ids = self.ids(received)
        if ids:
            self._claiming = False
            self._write(self.ack(ids))
        else:
            self.done.set_result(None)
            self._close()

    def complete(self, received: bytes) -> bool:
        raise NotImplementedError

    def ids(self, received: bytes) -> list[bytes]:
        raise NotImplementedError

    def ack(self, ids: list[bytes]) -> bytes:
        raise NotImplementedError


class TopicsWorker(Worker):
    _find = staticmethod(re.compile(rb'"\$seq":(\d+)').findall)

    def __init__(self, topic: str, batch: int) -> None:
        super().__init__()
        head = "POST /v0/topics/%s/%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        body = b'{"node":"w","max":%d}' % batch
        self.CLAIM = (head % (topic, "claim")).encode() + b"%d\r\n\r\n%b" % (len(body), body)
        self._ack = (head % (topic, "ack")).encode()

    def complete(self, received: bytes) -> bool:
        start = received.find(b"\r\n\r\n")
        if start < 0:
            return False
        assert received.startswith(b"HTTP/1.1 200"), received
        at = received.index(b"Content-Length: ") + 16
        return len(received) >= start + 4 + int(received[at : received.index(b"\r", at)])

    def ids(self, received: bytes) -> list[bytes]:
        return self._find(received)

    def ack(self, ids: list[bytes]) -> bytes:
        body = b'{"node":"w","seqs":[%b]}' % b",".join(ids)
        return b"%b%d\r\n\r\n%b" % (self._ack, len(body), body)


class RedisWorker(Worker):
    _find = staticmethod(re.compile(rb"\r\n(\d+-\d+)\r\n").findall)
    _end = PAYLOAD.encode() + b"\r\n"

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.CLAIM = resp(b"XREADGROUP", b"GROUP", b"g", b"w", b"COUNT", b"%d" % batch, b"STREAMS", b"s", b">")

    def complete(self, received: bytes) -> bool:
        if not self._claiming or received[:1] == b":" or received in (b"*-1\r\n", b"$-1\r\n"):
            return received.endswith(b"\r\n")
        parts = received.split(b"\r\n", 5)
        return len(parts) > 5 and received.count(self._end) == int(parts[4][1:])

    def ids(self, received: bytes) -> list[bytes]:
        return self._find(received)

    def ack(self, ids: list[bytes]) -> bytes:
        return resp(b"XACK", b"s", b"g", *ids)


def redis_call(port: int, *parts: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(resp(*parts))
        answer = connection.recv(1000)
    assert not answer.startswith(b"-"), answer


def resp(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])
