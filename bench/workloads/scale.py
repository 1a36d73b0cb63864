"""How the cost of an append and the memory grow with topics, retained records and idle connections.

Each row compares a loaded server (`topics`) with an empty one (`empty`).
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from bench.load import append_body
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import TopicsServer, topics_server
from bench.workloads.append import append_contender
from bench.workloads.live import open_sse

TOPICS = 100_000
RECORDS = 10_000_000
CONNECTIONS = 10_000
SETTLE_SECONDS = 3.0

Load = Callable[[TopicsServer, Options, ExitStack], None]


def _many_topics(server: TopicsServer, options: Options, stack: ExitStack) -> None:
    with server.connected() as connection:
        for number in range(options.scaled(TOPICS) - 1):
            connection.request("PUT", f"/v0/topics/idle{number}", "{}", {"content-type": "application/json"})
            connection.getresponse().read()


def _many_records(server: TopicsServer, options: Options, stack: ExitStack) -> None:
    server.fill("t", append_body(5000), options.scaled(RECORDS) // 5000)


def _many_connections(server: TopicsServer, options: Options, stack: ExitStack) -> None:
    for _ in range(options.scaled(CONNECTIONS)):
        stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))


def _many_streams(server: TopicsServer, options: Options, stack: ExitStack) -> None:
    server.must("PUT", "/v0/topics/t", {})
    for _ in range(options.scaled(CONNECTIONS) // 5):
        stack.enter_context(open_sse(server, "t"))


def _loaded(load: Load) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with ExitStack() as stack:
            full = stack.enter_context(topics_server(TOPICS_MAX_TOPICS="0"))
            empty = stack.enter_context(topics_server())
            load(full, options, stack)
            time.sleep(SETTLE_SECONDS)
            made = {}
            for name, server in (("topics", full), ("empty", empty)):
                append = append_contender(server, options, 1, 16, 100)
                made[name] = Contender(_cost(append), server)
            yield made

    return contenders


def _cost(append: Contender) -> Callable[[], Sample]:
    def measure() -> Sample:
        sample = append.measure()
        return Sample(1e6 / sample.value, sample.operations)

    return measure


def _memory(load: Load, number: int) -> Callable[[Options], AbstractContextManager[Contenders]]:
    """KiB of resident memory for each of a number of things."""

    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        def measure() -> Sample:
            with ExitStack() as stack:
                server = stack.enter_context(topics_server(TOPICS_MAX_TOPICS="0"))
                server.must("PUT", "/v0/topics/t", {})
                before = server.rss_mb()
                load(server, options, stack)
                time.sleep(SETTLE_SECONDS)
                return Sample((server.rss_mb() - before) * 1024 / options.scaled(number), number)

        yield {"topics": Contender(measure)}

    return contenders


WORKLOADS = [
    Workload("scale", "append with 100,000 topics", "µs per record", _loaded(_many_topics), lower_is_better=True, rounds=3, baseline="empty"),
    Workload("scale", "append with 10,000,000 retained records", "µs per record", _loaded(_many_records), lower_is_better=True, rounds=3, baseline="empty"),
    Workload("scale", "append with 10,000 idle connections", "µs per record", _loaded(_many_connections), lower_is_better=True, rounds=3, baseline="empty"),
    Workload("scale", "memory of an idle topic", "KiB", _memory(_many_topics, TOPICS), lower_is_better=True, rounds=1),
    Workload("scale", "memory of an idle connection", "KiB", _memory(_many_connections, CONNECTIONS), lower_is_better=True, rounds=1),
    Workload("scale", "memory of an idle SSE stream", "KiB", _memory(_many_streams, CONNECTIONS // 5), lower_is_better=True, rounds=1),
]  # fmt: skip
