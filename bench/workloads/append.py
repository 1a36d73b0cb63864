"""Appends: against Redis Streams and NATS JetStream, and the whole matrix of batch, connections, size and class."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from bench.load import NatsPublish, append_body, nats_stream, post_script, redis_benchmark, run_loops, wrk
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import ServerProcess, TopicsServer, echo_server, nats_server, redis_server

REDIS_OPERATIONS_PER_SECOND = 100_000
SIZES = {"100 B": 100, "1 KB": 1000, "16 KB": 16_000}
CLASSES = ("ephemeral", "memory", "disk", "fsync")


def append_contender(server: TopicsServer, options: Options, batch: int, connections: int, size: int) -> Contender:
    script = post_script(append_body(batch, size))
    url = server.url("/v0/topics/t" if batch == 1 else "/v0/topics/t?return_seqs=false")

    def measure() -> Sample:
        requests = wrk(url, script, connections, options.seconds)
        return Sample(requests * batch, requests * max(1, round(options.seconds)) * batch)

    return Contender(measure, server)


def _against_peers(
    durability: str, batch: int, connections: int, size: int, *, cap: int = 0, echo: bool = False
) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with ExitStack() as stack:
            made: Contenders = {}
            for server in stack.enter_context(options.v0_servers()):
                server.must("PUT", "/v0/topics/t", {"durability": durability, "cap_records": cap})
                made[server.name] = append_contender(server, options, batch, connections, size)
            redis = stack.enter_context(redis_server("always" if durability == "fsync" else "everysec"))
            made["redis"] = _redis(redis, options, batch, connections, size, cap, durability)
            if durability != "fsync" and not cap and batch == 1:
                nats = stack.enter_context(nats_server())
                nats_stream(nats.port, "t")
                made["nats"] = _nats(nats, options, connections, size)
            if echo:
                bare = stack.enter_context(echo_server())
                made["echo"] = _echo(bare, options, connections, size)
            yield made

    return contenders


def _redis(
    server: ServerProcess, options: Options, batch: int, connections: int, size: int, cap: int, durability: str
) -> Contender:
    limit = ("MAXLEN", "~", str(cap)) if cap else ()
    command = ("XADD", "s", *limit, "*", "d", "x" * size)
    rate = 5000 if durability == "fsync" else REDIS_OPERATIONS_PER_SECOND * (3 if batch > 1 else 1) * 100 // size
    requests = max(2000, int(rate * options.seconds))

    def measure() -> Sample:
        return Sample(redis_benchmark(server.port, connections, requests, command, pipeline=batch), requests)

    return Contender(measure, server)


def _nats(server: ServerProcess, options: Options, connections: int, size: int) -> Contender:
    def measure() -> Sample:
        operations, seconds = run_loops(server.port, connections, lambda: NatsPublish("t", size), options.seconds)
        return Sample(operations / seconds, operations)

    return Contender(measure, server)


def _echo(server: ServerProcess, options: Options, connections: int, size: int) -> Contender:
    script = post_script(append_body(1, size))
    url = f"http://127.0.0.1:{server.port}/v0/topics/t"

    def measure() -> Sample:
        requests = wrk(url, script, connections, options.seconds)
        return Sample(requests, requests * max(1, round(options.seconds)))

    return Contender(measure, server)


WORKLOADS = [
    Workload("append", f"1 record of 100 B, disk, {connections} connection{'s' * (connections > 1)}", "records/s",
             _against_peers("disk", 1, connections, 100, echo=True))
    for connections in (1, 16, 64)
] + [
    Workload("append", "1 record of 100 B, disk, 16 connections, capped at 100,000 records", "records/s",
             _against_peers("disk", 1, 16, 100, cap=100_000)),
    Workload("append", "100 records of 100 B per request, disk, 16 connections", "records/s",
             _against_peers("disk", 100, 16, 100)),
    Workload("append", "1 record of 1 KB, disk, 16 connections", "records/s", _against_peers("disk", 1, 16, 1000)),
    Workload("append", "1 record of 16 KB, disk, 16 connections", "records/s", _against_peers("disk", 1, 16, 16_000)),
] + [
    Workload("append", f"1 record of 100 B, fsync, {connections} connection{'s' * (connections > 1)}", "records/s",
             _against_peers("fsync", 1, connections, 100))
    for connections in (1, 16, 64)
]  # fmt: skip


def _ours_only(
    durability: str, batch: int, connections: int, size: int
) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with options.v0_servers() as servers:
            for server in servers:
                server.must("PUT", "/v0/topics/t", {"durability": durability})
            yield {server.name: append_contender(server, options, batch, connections, size) for server in servers}

    return contenders


MATRIX = [
    Workload("append matrix", f"{batch} × {label}, {connections} connections, {durability}", "records/s",
             _ours_only(durability, batch, connections, size), rounds=1)
    for durability in CLASSES for label, size in SIZES.items() for batch in (1, 16, 100, 1000) for connections in (1, 16, 64)
    # More than 16 MB in flight measures the network stack.
    if batch * size * connections <= 16_000_000
]  # fmt: skip
