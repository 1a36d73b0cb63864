"""Deletes by tag: of one record among many, and of many at once."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import JSON, TopicsServer

RECORDS = 1_000_000
TAGS = 1000
DELETES = 300


def _tagged(first: int, count: int) -> str:
    return json.dumps({"records": [{"data": "x" * 98, "tag": f"t{number}"} for number in range(first, first + count)]})


@contextmanager
def _one_of_many(options: Options) -> Iterator[Contenders]:
    records = options.scaled(RECORDS)
    with options.v0_servers() as servers:
        for server in servers:
            for first in range(0, records, 5000):
                server.fill("t", _tagged(first, 5000), 1)
        yield {server.name: Contender(_single_deletes(server, records), server) for server in servers}


def _single_deletes(server: TopicsServer, records: int) -> Callable[[], Sample]:
    numbers = iter(range(0, records, 7))

    def measure() -> Sample:
        started = time.perf_counter()
        with server.connected() as connection:
            for _ in range(DELETES):
                connection.request("POST", "/v0/topics/t/delete", json.dumps({"match": f"t{next(numbers)}"}), JSON)
                assert json.loads(connection.getresponse().read())["deleted"] == 1
        return Sample(1e6 * (time.perf_counter() - started) / DELETES, DELETES)

    return measure


@contextmanager
def _many_at_once(options: Options) -> Iterator[Contenders]:
    records = options.scaled(200_000)
    with options.v0_servers() as servers:
        yield {server.name: Contender(_prefix_delete(server, records), server) for server in servers}


def _prefix_delete(server: TopicsServer, records: int) -> Callable[[], Sample]:
    def measure() -> Sample:
        name = f"d{time.monotonic_ns()}"
        for first in range(0, records, 5000):
            server.fill(name, _tagged(first, 5000), 1)
        started = time.perf_counter()
        assert server.must("POST", f"/v0/topics/{name}/delete", {"match": "t*"})["deleted"] == records
        taken = time.perf_counter() - started
        server.must("DELETE", f"/v0/topics/{name}")
        return Sample(records / taken, records)

    return measure


WORKLOADS = [
    Workload("delete", "by tag, one of 1,000,000 records", "µs per call", _one_of_many, lower_is_better=True, rounds=3),
    Workload("delete", "by tag prefix, 200,000 records in one call", "records/s", _many_at_once, rounds=2),
]
