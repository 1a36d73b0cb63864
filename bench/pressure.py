"""Load for two claims about a server under pressure.

A high-priority topic keeps its p99 while a flood hits a low-priority one, with the throttle compared to without it. The
flood ignores `Retry-After`: a refused connection sends its next request at once. Its records have distinct tags: the
server indexes each one, so 192 connections keep more than 10 ms of work queued on the event loop.

A scrape of the metrics with 10,000 topics does not delay writes.
"""

import asyncio
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing

from bench.servers import topics_server

FLOOD_CONNECTIONS = 192
FLOOD_RECORDS = 1000
TOPICS = 10_000
HEADERS = {"content-type": "application/json"}


class Flooded:
    """Latencies of writes to the high-priority topic, and responses to the flood by status."""

    def __init__(self, times: list[float], flood: dict[str, int]) -> None:
        self.p50_ms = quantile(times, 0.5)
        self.p99_ms = quantile(times, 0.99)
        self.writes = len(times)
        self.flood = flood

    def __repr__(self) -> str:
        return f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms of {self.writes}; flood {self.flood}"


def flooded(seconds: float, *, lag_ms: int) -> Flooded:
    """Write single records to a high-priority topic while another process floods a low-priority one."""
    with (
        topics_server(TOPICS_THROTTLE_LAG_MS=str(lag_ms), TOPICS_LOG_LEVEL="error") as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection,
    ):
        for name, priority in (("high", 1000), ("low", -1000)):
            send(connection, "PUT", f"/v0/topics/{name}", {"priority": priority, "cap_records": 100_000})
        flood = subprocess.Popen(
            [sys.executable, "-m", "bench.pressure", str(server.port), str(seconds + 1)], stdout=subprocess.PIPE
        )
        time.sleep(1.0)
        times = timed(seconds, lambda: send(connection, "POST", "/v0/topics/high", {"records": [{"data": 1}]}))
        out, _ = flood.communicate(timeout=60)
        return Flooded(times, json.loads(out))


def scrapes(seconds: float) -> tuple[float, float, float]:
    """The p99 of writes without and with scrapes going on beside them, and the longest scrape, in ms."""
    with (
        topics_server(TOPICS_LOG_LEVEL="error") as server,
        closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection,
    ):
        asyncio.run(create(server.port, TOPICS))
        write = lambda: send(connection, "POST", "/v0/topics/t1", {"records": [{"data": 1}]})  # noqa: E731
        quiet = quantile(timed(seconds / 2, write), 0.99)
        scraper = subprocess.Popen(
            [sys.executable, "-m", "bench.pressure", str(server.port), str(seconds / 2), "scrape"],
            stdout=subprocess.PIPE,
        )
        scraped = quantile(timed(seconds / 2, write), 0.99)
        out, _ = scraper.communicate(timeout=60)
        return quiet, scraped, max(json.loads(out))


def send(connection: http.client.HTTPConnection, method: str, path: str, body: object = None) -> bytes:
    connection.request(method, path, None if body is None else json.dumps(body), HEADERS)
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status < 300, content
    return content


def timed(seconds: float, act: Callable[[], object]) -> list[float]:
    """Call `act` for `seconds`, 2 ms apart; return the duration of each call in ms."""
    times = []
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        act()
        times.append((time.perf_counter() - started) * 1000)
        time.sleep(0.002)
    return times


def quantile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


async def create(port: int, count: int) -> None:
    async def some(start: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(start, count, 16):
            await exchange(reader, writer, post(f"t{number}", b'{"records":[{"data":1}]}'))
        writer.close()

    await asyncio.gather(*[some(start) for start in range(16)])


async def flood(port: int, seconds: float) -> dict[str, int]:
    """Write to the low topic without a pause; return the number of responses by status."""
    body = b'{"records":[%b]}' % b",".join(
        [b'{"tag":"customer-%d","data":{"n":1}}' % number for number in range(FLOOD_RECORDS)]
    )
    request = post("low?return_seqs=false", body)
    statuses: dict[str, int] = {}
    end = time.perf_counter() + seconds

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            status = await exchange(reader, writer, request)
            statuses[status] = statuses.get(status, 0) + 1
        writer.close()

    await asyncio.gather(*[one() for _ in range(FLOOD_CONNECTIONS)])
    return statuses


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> str:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return head[9:12].decode()


def post(name: str, body: bytes) -> bytes:
    head = f"POST /v0/topics/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def scrape(port: int, seconds: float) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    return timed(seconds, lambda: send(connection, "GET", "/v0/metrics"))


if __name__ == "__main__":
    port, seconds, *rest = sys.argv[1:]
    print(json.dumps(scrape(int(port), float(seconds)) if rest else asyncio.run(flood(int(port), float(seconds)))))
