"""Reads: pages from memory, from sealed segments and from cold files; a lone reader; the wake-up of a long poll."""

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.load import (
    RepeatedRequest,
    append_body,
    http_request,
    percentiles,
    post_script,
    redis_benchmark,
    redis_call,
    resp,
    run_loops,
    wrk,
)
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import JSON, ServerProcess, TopicsServer, echo_server, redis_server

PAGE = 256
FILL_BATCH = 5000
WAKE_UPS = 300


def _page_script(first: int, pages: int, step: int) -> str:
    """A wrk script that reads another page with each request."""
    body = f'string.format(\'{{"from_seq":%d,"limit":{PAGE}}}\', {first} + (n * {step} % {pages}) * {PAGE})'
    return (
        'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nlocal n = 0\n'
        f"request = function()\n  n = n + 1\n  return wrk.format(nil, nil, nil, {body})\nend\n"
    )


def _filled(server: TopicsServer, records: int) -> None:
    server.fill("t", append_body(FILL_BATCH), records // FILL_BATCH)


@contextmanager
def _hot(options: Options) -> Iterator[Contenders]:
    with ExitStack() as stack:
        made: Contenders = {}
        for server in stack.enter_context(options.v0_servers()):
            _filled(server, 20_000)
            script = post_script(json.dumps({"from_seq": 15_000, "limit": PAGE}))
            made[server.name] = _pages(server, options, script)
        made["redis"] = _xrange(stack.enter_context(redis_server("everysec")), options)
        yield made


@contextmanager
def _sealed(options: Options) -> Iterator[Contenders]:
    records = options.scaled(2_000_000)
    with ExitStack() as stack:
        made: Contenders = {}
        for server in stack.enter_context(options.v0_servers()):
            _filled(server, records)
            # The first tenth is sealed by now; steps of 97 pages never meet a page twice in a measurement.
            made[server.name] = _pages(server, options, _page_script(0, records // PAGE // 2, 97))
        made["redis"] = _xrange(stack.enter_context(redis_server("everysec")), options)
        yield made


@contextmanager
def _cold(options: Options) -> Iterator[Contenders]:
    """One pass over all records right after a start, with the files dropped from the page cache."""
    records = options.scaled(1_000_000)
    with options.v0_servers() as servers:
        made: Contenders = {}
        for server in servers:
            _filled(server, records)
            made[server.name] = Contender(_cold_pass(server, records), server)
        yield made


def _cold_pass(server: TopicsServer, records: int) -> Callable[[], Sample]:
    def measure() -> Sample:
        server.stop()
        for path in Path(server.directory, "data").rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        server.start()
        started = time.perf_counter()
        seq = count = 0
        with server.connected() as connection:
            while seq < records:
                connection.request("POST", "/v0/topics/t/diff", json.dumps({"from_seq": seq, "limit": 1000}), JSON)
                page = json.loads(connection.getresponse().read())
                seq = page["next_from_seq"]
                count += len(page["records"])
        assert count == records, f"{count} of {records} records"
        return Sample(records / (time.perf_counter() - started), records)

    return measure


def _pages(server: TopicsServer, options: Options, script: str) -> Contender:
    def measure() -> Sample:
        records = wrk(server.url("/v0/topics/t/diff"), script, 16, options.seconds) * PAGE
        return Sample(records, records * max(1, round(options.seconds)))

    return Contender(measure, server)


def _xrange(redis: ServerProcess, options: Options) -> Contender:
    redis_benchmark(redis.port, 16, 50_000, ("XADD", "s", "*", "d", "x" * 100), pipeline=100)
    requests = int(8000 * options.seconds)
    command = ("XRANGE", "s", "-", "+", "COUNT", str(PAGE))

    def measure() -> Sample:
        return Sample(redis_benchmark(redis.port, 16, requests, command) * PAGE, requests * PAGE)

    return Contender(measure, redis)


# One reader, one record per call


@contextmanager
def _lone(options: Options) -> Iterator[Contenders]:
    with ExitStack() as stack:
        made: Contenders = {}
        for server in stack.enter_context(options.v0_servers()):
            _filled(server, 20_000)
            made[server.name] = _lone_loop(server, options, "/v0/topics/t/diff")
        made["echo"] = _lone_loop(stack.enter_context(echo_server()), options, "/v0/topics/t/diff")
        yield made


def _lone_loop(server: ServerProcess, options: Options, path: str) -> Contender:
    request = http_request("POST", path, b'{"from_seq":15000,"limit":1}')

    def measure() -> Sample:
        operations, seconds = run_loops(server.port, 1, lambda: RepeatedRequest(request), options.seconds)
        return Sample(1e6 * seconds / operations, operations)

    return Contender(measure, server)


# From a write to the response of a long poll


@contextmanager
def _long_poll(options: Options) -> Iterator[Contenders]:
    with ExitStack() as stack:
        made: Contenders = {}
        for server in stack.enter_context(options.v0_servers()):
            server.must("PUT", "/v0/topics/t", {})
            made[server.name] = Contender(_wake_ups(server, options), server)
        redis = stack.enter_context(redis_server("everysec"))
        made["redis"] = Contender(_redis_wake_ups(redis, options), redis)
        yield made


def _wake_ups(server: TopicsServer, options: Options) -> Callable[[], Sample]:
    def measure() -> Sample:
        seq = int(str(server.must("GET", "/v0/topics/t")["head_seq"]))
        with server.connected() as reader, server.connected() as writer:

            def read(from_seq: int) -> None:
                reader.request("POST", "/v0/topics/t/diff", json.dumps({"from_seq": from_seq, "wait_ms": 30_000}), JSON)
                reader.getresponse().read()

            def write() -> None:
                writer.request("POST", "/v0/topics/t", append_body(1), JSON)
                writer.getresponse().read()

            return _timed_wake_ups(options.scaled(WAKE_UPS), lambda number: read(seq + number), write)

    return measure


def _redis_wake_ups(redis: ServerProcess, options: Options) -> Callable[[], Sample]:
    def measure() -> Sample:
        connection = http.client.HTTPConnection("127.0.0.1", redis.port)
        connection.connect()
        try:

            def read(_number: int) -> None:
                connection.sock.sendall(resp(b"XREAD", b"BLOCK", b"30000", b"STREAMS", b"s", b"$"))
                connection.sock.recv(65536)

            return _timed_wake_ups(
                options.scaled(WAKE_UPS), read, lambda: redis_call(redis.port, b"XADD", b"s", b"*", b"d", b"x" * 100)
            )
        finally:
            connection.close()

    return measure


def _timed_wake_ups(count: int, read: Callable[[int], None], write: Callable[[], object]) -> Sample:
    """Milliseconds from the start of a write until a reader that waits has the record."""
    times = []
    woken = threading.Event()
    finished = [0.0]

    def poll(number: int) -> None:
        read(number)
        finished[0] = time.perf_counter()
        woken.set()

    for number in range(count):
        woken.clear()
        reader = threading.Thread(target=poll, args=(number,))
        reader.start()
        # The reader must wait in the server before the write begins.
        time.sleep(0.003)
        started = time.perf_counter()
        write()
        woken.wait()
        reader.join()
        times.append(1000 * (finished[0] - started))
    figures = percentiles(times)
    return Sample(figures["p50"], count, {"p99": figures["p99"]})


WORKLOADS = [
    Workload("read", "diff of 256 records from memory, 16 connections", "records/s", _hot),
    Workload("read", "diff of 256 records from sealed segments, 16 connections", "records/s", _sealed),
    Workload("read", "all records after a start, files not in the page cache", "records/s", _cold, rounds=2),
    Workload("read", "one reader, one record per diff", "µs per call", _lone, lower_is_better=True),
    Workload("read", "write to the response of a long poll", "ms", _long_poll, lower_is_better=True, rounds=3),
]
