"""The log: appends, reads, memory and recovery, side by side with a bare echo server and with Redis 7."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.tools import (
    PAYLOAD,
    Measures,
    Row,
    append_body,
    at_least,
    at_most,
    echo_server,
    fill,
    median_of,
    median_of_processes,
    need,
    post_script,
    redis_benchmark,
    redis_server,
    topics_server,
    wrk,
)

ROUNDS = 5
SECONDS = 2
ONE = post_script(append_body(1))
HUNDRED = post_script(append_body(100))
XADD = ("XADD", "s", "*", "d", PAYLOAD)


def main(quick: bool = False) -> Iterator[Row]:
    need("wrk", "redis-server", "redis-benchmark")
    for section in SECTIONS[:-2] if quick else SECTIONS:
        yield from section()


def single_appends() -> list[Row]:
    @contextmanager
    def start() -> Iterator[Measures]:
        with topics_server() as server, echo_server() as echo, redis_server("everysec") as redis:
            yield (
                lambda: wrk(server.url("/v0/topics/one"), ONE, 16, SECONDS),
                lambda: wrk(f"http://127.0.0.1:{echo}/v0/topics/one", ONE, 16, SECONDS),
                lambda: redis_benchmark(redis, 16, 150_000, *XADD),
            )

    # At the edge of its target, and the row that moves most.
    topics, floor, peer = median_of_processes(2 * ROUNDS - 1, start)
    what = "append, 1 record of 100 bytes, disk, 16 connections"
    return [
        at_least(what, topics, floor, 0.6, "req/s", "echo on the same stack"),
        at_least(what, topics, peer, 0.8, "req/s", "Redis XADD, everysec"),
    ]


def batch_appends() -> list[Row]:
    @contextmanager
    def start() -> Iterator[Measures]:
        with topics_server() as server, redis_server("everysec") as redis:
            yield (
                lambda: wrk(server.url("/v0/topics/hundred?return_seqs=false"), HUNDRED, 16, SECONDS) * 100,
                lambda: redis_benchmark(redis, 16, 500_000, *XADD, pipeline=100),
            )

    topics, peer = median_of_processes(ROUNDS, start)
    return [
        at_least("append, 100 records a request, disk", topics, peer, 2.5, "records/s", "Redis XADD pipelined by 100")
    ]


def synced_appends() -> list[Row]:
    @contextmanager
    def start() -> Iterator[Measures]:
        with topics_server() as server, redis_server("always") as redis:
            server.call("PUT", "/v0/topics/synced", {"durability": "fsync"})
            yield (
                lambda: wrk(server.url("/v0/topics/synced"), ONE, 64, SECONDS),
                lambda: redis_benchmark(redis, 64, 50_000, *XADD),
            )

    topics, peer = median_of_processes(ROUNDS, start)
    return [at_least("append, 1 record, fsync, 64 connections", topics, peer, 1.0, "req/s", "Redis XADD, always")]


def reads() -> list[Row]:
    records = 2_000_000
    with topics_server() as server, redis_server("everysec") as redis:
        fill(server, "read", records)
        redis_benchmark(redis, 16, 200_000, *XADD, pipeline=100)
        tail = post_script(f'{{"from_seq":{records - 5000},"limit":256}}')
        # Each request reads another page, so that what was read before does not help.
        sealed = (
            'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nlocal page = 0\n'
            "request = function()\n  page = (page + 97) % 5000\n"
            '  return wrk.format(nil, nil, nil, string.format(\'{"from_seq":%d,"limit":256}\', page * 256))\nend\n'
        )
        hot, cold, peer = median_of(
            ROUNDS,
            lambda: wrk(server.url("/v0/topics/read/diff"), tail, 16, SECONDS) * 256,
            lambda: wrk(server.url("/v0/topics/read/diff"), sealed, 16, SECONDS) * 256,
            lambda: redis_benchmark(redis, 16, 20_000, "XRANGE", "s", "-", "+", "COUNT", "256") * 256,
        )
    return [
        at_least("diff of 256 from the hot tail", hot, peer, 1.5, "records/s", "Redis XRANGE COUNT 256"),
        at_least(
            "diff of 256 from sealed segments, not cached", cold, peer, 0.75, "records/s", "Redis XRANGE COUNT 256"
        ),
    ]


def retained() -> list[Row]:
    """A topic of 10 million records: what it weighs, and what it costs to append to it."""
    with topics_server() as server:
        fill(server, "large", 10_000_000)
        time.sleep(3)
        weight = server.rss_mb()
        large, empty = median_of(
            ROUNDS,
            lambda: 1e6 / wrk(server.url("/v0/topics/large"), ONE, 16, SECONDS),
            lambda: 1e6 / wrk(server.url(f"/v0/topics/empty-{time.monotonic_ns()}"), ONE, 16, SECONDS),
        )
    return [
        at_most("resident memory with 10 M records of 100 bytes", weight, 400, "MB"),
        Row(
            "append to 10 M records, against an empty topic",
            f"{large:.2f} us",
            f"{empty:.2f} us",
            large / empty,
            "<= 1.1",
            large / empty <= 1.1,
        ),
    ]


def recovery() -> list[Row]:
    """A million records written one per request, then an end without warning, then a clean one."""
    with topics_server() as server:
        while True:
            # A server that others keep from working refuses some; here that does not matter.
            wrk(server.url("/v0/topics/many"), ONE, 64, 4, may_refuse=True)
            head = server.call("GET", "/v0/topics/many")[1]["head_seq"]
            assert isinstance(head, int)
            if head >= 1_000_000:
                break
        server.kill()
        killed = server.start()
        found = server.call("GET", "/v0/topics/many")[1]["head_seq"]
        assert found == head, (found, head)
        server.stop()
        clean = server.start()
        assert server.call("GET", "/v0/topics/many")[1]["head_seq"] == head
    return [
        at_most(f"ready after kill -9 with {head:,} single-record writes (process start included)", killed, 3.0, "s"),
        at_most("ready after a clean stop (process start included)", clean, 0.5, "s"),
    ]


SECTIONS = (single_appends, batch_appends, synced_appends, reads, retained, recovery)
