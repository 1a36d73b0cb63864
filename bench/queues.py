"""Queues: produce, claim and ack, side by side with a Redis stream group driven by the same loop over the same sockets.

Workers are connections of one driver process: claim (XREADGROUP), read the ids, ack them (XACK), again, until the queue
is empty. Redis only marks an entry as acknowledged; here the job is deleted and the delete is in the log.
"""

import asyncio
import http.client
import itertools
import json
import re
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

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
SECONDS = 1
XADD = ("XADD", "s", "*", "d", PAYLOAD)
# Jobs of one run, by the batch: about a second each. A run over a backlog in sealed segments is a row of its own.
JOBS = {1: 16_000, 16: 60_000}
SEALED_JOBS = 300_000
CLAIMS = 300


def main(quick: bool = False) -> Iterator[Row]:
    need("wrk", "redis-server", "redis-benchmark")
    rounds = 1 if quick else ROUNDS
    with topics_server() as server, redis_server("everysec") as redis:
        yield from produce(server, redis, rounds)
        queues = Queues(server, redis)
        for workers, batch, target in ((16, 16, 1.0), (100, 16, 1.0), (16, 1, 0.5), (100, 1, 0.5)):
            yield queues.consume(workers, batch, target, JOBS[batch], rounds)
        if not quick:
            yield queues.consume(16, 16, 1.0, SEALED_JOBS, 1)
    with topics_server() as server:
        yield from claim_cost(server, 100_000 if quick else 1_000_000, 20_000 if quick else 100_000)


def produce(server: TopicsServer, redis: int, rounds: int) -> list[Row]:
    rows = []
    server.call("PUT", "/v0/topics/p", {"type": "queue"})
    for workers in (16, 100):
        for batch in (1, 16):
            script = post_script(append_body(batch))
            ours, peer = median_of(
                rounds,
                lambda workers=workers, batch=batch, script=script: (
                    wrk(server.url("/v0/topics/p?return_seqs=false"), script, workers, SECONDS) * batch
                ),
                lambda workers=workers, batch=batch: redis_benchmark(
                    redis, workers, 20_000 if batch == 1 else 100_000, *XADD, pipeline=batch
                ),
            )
            what = f"produce, {workers} workers, batch {batch}"
            rows.append(at_least(what, ours, peer, 0.8, "jobs/s", "Redis XADD, everysec"))
    server.call("DELETE", "/v0/topics/p")
    redis_call(redis, b"DEL", b"s")
    return rows


class Queues:
    """The same backlog in both, drained by the same loop; one server each for all runs."""

    def __init__(self, server: TopicsServer, redis: int) -> None:
        self._server = server
        self._redis = redis
        self._numbers = itertools.count()

    def consume(self, workers: int, batch: int, target: float, jobs: int, rounds: int) -> Row:
        topics, other = median_of(
            rounds, lambda: self._ours(workers, batch, jobs), lambda: self._peer(workers, batch, jobs)
        )
        what = f"claim and ack, {workers} workers, batch {batch}, {jobs:,} jobs"
        return at_least(what, topics, other, target, "jobs/s", "Redis XREADGROUP + XACK, everysec")

    def _ours(self, workers: int, batch: int, jobs: int) -> float:
        name = f"q{next(self._numbers)}"
        server = self._server
        server.call("PUT", f"/v0/topics/{name}", {"type": "queue"})
        fill(server, name, jobs)
        speed = jobs / drain(server.port, workers, lambda: TopicsWorker(name, batch))
        server.call("DELETE", f"/v0/topics/{name}")
        return speed

    def _peer(self, workers: int, batch: int, jobs: int) -> float:
        redis = self._redis
        redis_call(redis, b"DEL", b"s")
        redis_benchmark(redis, 16, jobs, *XADD, pipeline=100)
        redis_call(redis, b"XGROUP", b"CREATE", b"s", b"g", b"0")
        return jobs / drain(redis, workers, lambda: RedisWorker(batch))


def claim_cost(server: TopicsServer, many: int, leases: int) -> list[Row]:
    """A claim of 16 as the server times it, with few and with many jobs ready, and under many leases.

    Each queue is filled once and keeps its size, because every claim is acked and replaced; they are asked in turn.
    """
    with ClaimCost(server, "few", 1000, 0) as few_ready, ClaimCost(server, "many", many, 0) as many_ready:
        few, deep = median_of(ROUNDS, few_ready.claim_us, many_ready.claim_us)
    with ClaimCost(server, "free", leases, 0) as none_held, ClaimCost(server, "crowded", 10_000, leases) as many_held:
        free, crowded = median_of(ROUNDS, none_held.claim_us, many_held.claim_us)
    return [
        Row(f"claim of 16 from {many:,} ready jobs", f"{deep:.1f} us", f"{few:.1f} us (1,000 ready)", deep / few,
            "<= 1.2", deep / few <= 1.2),
        Row(f"claim of 16 with {leases:,} jobs in flight", f"{crowded:.1f} us", f"{free:.1f} us (none in flight)",
            crowded / free, "<= 1.2", crowded / free <= 1.2),
    ]  # fmt: skip


class ClaimCost:
    """A queue with so many jobs ready and so many held."""

    def __init__(self, server: TopicsServer, name: str, ready: int, in_flight: int) -> None:
        self._server = server
        self._name = name
        self._ready = ready
        self._in_flight = in_flight
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self._refill = json.loads(append_body(16))

    def __enter__(self) -> "ClaimCost":
        self._server.call("PUT", f"/v0/topics/{self._name}", {"type": "queue", "lease_ms": 3_600_000})
        fill(self._server, self._name, self._ready + self._in_flight)
        # Sealing what was filled in goes on for a moment, on the same processor.
        time.sleep(0.2 + (self._ready + self._in_flight) / 500_000)
        for _ in range(self._in_flight // 1000):
            self._post("/claim", {"node": "holder", "max": 1000})
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._server.call("DELETE", f"/v0/topics/{self._name}")

    def claim_us(self) -> float:
        times = []
        for _ in range(CLAIMS):
            answer = self._post("/claim", {"node": "w", "max": 16})
            times.append(answer["performance"]["server_total_ms"] * 1000)
            self._post("/ack", {"node": "w", "seqs": [job["$seq"] for job in answer["claimed"]]})
            self._post("", self._refill)
        return statistics.median(times)

    def _post(self, action: str, body: dict[str, object]) -> Any:
        self._connection.request("POST", f"/v0/topics/{self._name}{action}", json.dumps(body), JSON)
        return json.loads(self._connection.getresponse().read())


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
