"""Routers: what forwarding costs in records a second, in waiting, and in bytes of log.

    python -m bench routers

Writers append batches of 100 records of 100 bytes to one topic while its routers forward them; the clock stops when the
last copy is readable. Latency is measured with one writer of single records: from the write's answer to the moment a
long poll on the dest has the copy.
"""

import http.client
import json
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

from bench.tools import JSON, PAYLOAD, Row, TopicsServer, at_most, topics_server

BATCH = 100
WRITERS = 4


def main(quick: bool) -> Iterator[Row]:
    batches = 1000 if quick else 5000
    rates: dict[int, float] = {}
    log: dict[int, float] = {}
    for routers in (0, 1, 20):
        with topics_server() as server:
            for number in range(routers):
                _put(server, number)
            before = _wal_bytes(server)
            rates[routers] = _write(server, routers, batches if routers < 20 else batches // 5)
            written = batches if routers < 20 else batches // 5
            log[routers] = (_wal_bytes(server) - before) / (written * BATCH)
    for routers, target in ((1, 0.5), (20, 0.05)):
        ratio = rates[routers] / rates[0]
        yield Row(
            f"source records through {routers} router{'s' * (routers > 1)}, all copies readable",
            f"{rates[routers]:,.0f} records/s ({rates[routers] * routers:,.0f} copies/s)",
            f"{rates[0]:,.0f} records/s (no router)",
            ratio,
            f">= {target}",
            ratio >= target,
        )
    yield Row(
        "log bytes per source record with 1 router",
        f"{log[1]:.1f}",
        f"{log[0]:.1f} (no router)",
        log[1] / log[0],
        "<= 1.05",
        log[1] <= log[0] * 1.05,
    )
    yield Row(
        "log bytes per source record with 20 routers",
        f"{log[20]:.1f}",
        f"{log[0]:.1f} (no router)",
        log[20] / log[0],
        "<= 1.1",
        log[20] <= log[0] * 1.1,
    )
    for routers in (1, 20):
        with topics_server() as server:
            for number in range(routers):
                _put(server, number)
            added = _latencies(server, 200 if quick else 1000)
        yield at_most(f"write answered to copy readable, {routers} routers, median", added[0], 2.0, "ms")
        yield at_most(f"write answered to copy readable, {routers} routers, p99", added[1], 25.0, "ms")


def _put(server: TopicsServer, number: int) -> None:
    status, answer = server.call("PUT", f"/v0/routers/r{number}", {"source": "s", "dest": f"d{number}"})
    assert status == 201, answer


def _write(server: TopicsServer, routers: int, batches: int) -> float:
    """Source records a second, from the first write to the last copy."""
    body = json.dumps({"records": [{"data": PAYLOAD}] * BATCH})
    started = time.perf_counter()

    def write() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        for _ in range(batches // WRITERS):
            connection.request("POST", "/v0/topics/s?return_seqs=false", body, JSON)
            connection.getresponse().read()
        connection.close()

    writers = [threading.Thread(target=write) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    records = batches // WRITERS * WRITERS * BATCH
    for number in range(routers):
        while server.call("GET", f"/v0/routers/r{number}")[1]["lag"]:
            time.sleep(0.002)
        head: Any = server.call("GET", f"/v0/topics/d{number}")[1]["head_seq"]
        assert head == records, f"d{number} has {head} of {records}"
    return records / (time.perf_counter() - started)


def _latencies(server: TopicsServer, count: int) -> tuple[float, float]:
    """Median and 99th percentile, in ms."""
    writer = http.client.HTTPConnection("127.0.0.1", server.port)
    reader = http.client.HTTPConnection("127.0.0.1", server.port)
    answered: dict[int, float] = {}
    found: dict[int, float] = {}

    def read() -> None:
        cursor = 0
        while cursor < count:
            poll = json.dumps({"from_seq": cursor, "wait_ms": 10_000})
            reader.request("POST", "/v0/topics/d0/diff", poll, JSON)
            answer = json.loads(reader.getresponse().read())
            now = time.perf_counter()
            for record in answer["records"]:
                found[record["$seq"]] = now
            cursor = answer["next_from_seq"]

    following = threading.Thread(target=read)
    following.start()
    for number in range(1, count + 1):
        writer.request("POST", "/v0/topics/s", json.dumps({"records": [{"data": PAYLOAD}]}), JSON)
        writer.getresponse().read()
        answered[number] = time.perf_counter()
        time.sleep(0.001)
    following.join()
    writer.close()
    reader.close()
    waits = sorted([(found[number] - answered[number]) * 1000 for number in answered])
    return max(0.0, statistics.median(waits)), max(0.0, waits[int(len(waits) * 0.99) - 1])


def _wal_bytes(server: TopicsServer) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/v0/metrics", headers={"Accept": "application/json"})
    figures = json.loads(connection.getresponse().read())
    connection.close()
    return float(figures["topics_wal_bytes_written_total"])
