"""Latency of single appends at half of saturation: requests are sent on schedule, whether or not earlier ones returned.

Saturation is what 16 connections of the same Python program reach with one request in flight each.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import uvloop

from bench.load import RepeatedRequest, append_body, http_request, percentiles, run_loops
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import TopicsServer

CONNECTIONS = 16
TICK_SECONDS = 0.001
REQUEST = http_request("POST", "/v0/topics/t", append_body(1).encode())


class ScheduledConnection(asyncio.Protocol):
    """Sends requests at given times, and measures each response from the moment the request was due."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._due: list[float] = []
        self._answered = 0
        self._finished: asyncio.Event | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop are not instances of asyncio.Transport.
        self.transport: Any = transport

    def send(self, due: float) -> None:
        self._due.append(due)
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        for _ in range(data.count(b"HTTP/1.1 20")):
            self.times.append(1000 * (now - self._due[self._answered]))
            self._answered += 1
        if self._finished is not None and self._answered == len(self._due):
            self._finished.set()

    async def all_answered(self) -> None:
        """Wait for the responses to all requests that were sent."""
        self._finished = asyncio.Event()
        if self._answered < len(self._due):
            await self._finished.wait()


def _half_load(durability: str) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with options.v0_servers() as servers:
            made: Contenders = {}
            for server in servers:
                server.must("PUT", "/v0/topics/t", {"durability": durability})
                made[server.name] = Contender(_scheduled(server, options), server)
            yield made

    return contenders


def _scheduled(server: TopicsServer, options: Options) -> Callable[[], Sample]:
    def measure() -> Sample:
        operations, seconds = run_loops(server.port, CONNECTIONS, lambda: RepeatedRequest(REQUEST), options.seconds)
        rate = operations / seconds / 2
        times = uvloop.run(_send_on_schedule(server.port, rate, 2 * options.seconds))
        figures = percentiles(times)
        return Sample(figures["p99"], len(times) + operations, {**figures, "rate": rate})

    return measure


async def _send_on_schedule(port: int, rate: float, seconds: float) -> list[float]:
    loop = asyncio.get_running_loop()
    opened = [await loop.create_connection(ScheduledConnection, "127.0.0.1", port) for _ in range(CONNECTIONS)]
    connections = [protocol for _, protocol in opened]
    started = time.perf_counter()
    sent = 0
    while (now := time.perf_counter()) < started + seconds:
        while sent < (now - started) * rate:
            connections[sent % CONNECTIONS].send(started + sent / rate)
            sent += 1
        await asyncio.sleep(TICK_SECONDS)
    await asyncio.wait_for(asyncio.gather(*[connection.all_answered() for connection in connections]), 10)
    for transport, _ in opened:
        transport.close()
    return [value for connection in connections for value in connection.times]


WORKLOADS = [
    Workload("latency", f"append at half of saturation, {durability}, p99", "ms", _half_load(durability),
             lower_is_better=True, rounds=3)
    for durability in ("disk", "fsync")
]  # fmt: skip
