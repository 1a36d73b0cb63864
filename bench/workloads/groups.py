"""Consumer groups: polls of 100 messages, each acknowledged."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.load import append_body
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import JSON, TopicsServer

RECORDS = 100_000


@contextmanager
def _consume(options: Options) -> Iterator[Contenders]:
    records = options.scaled(RECORDS)
    with options.v0_servers() as servers:
        for server in servers:
            server.fill("t", append_body(1000), records // 1000)
        yield {server.name: Contender(_all_messages(server, records), server) for server in servers}


def _all_messages(server: TopicsServer, records: int) -> Callable[[], Sample]:
    def measure() -> Sample:
        group = f"g{time.monotonic_ns()}"
        poll = json.dumps({"topic": "t", "group_id": group, "start": "Earliest", "limit": 100, "timeout_seconds": 0})
        started = time.perf_counter()
        with server.connected() as connection:
            offset = 0
            while offset < records:
                connection.request("POST", "/api/topics/consume", poll, JSON)
                offset = json.loads(connection.getresponse().read())["next_offset"] - 1
                ack = json.dumps({"topic": "t", "group_id": group, "partition_id": 0, "upto_offset": offset})
                connection.request("POST", "/api/topics/ack", ack, JSON)
                connection.getresponse().read()
        return Sample(records / (time.perf_counter() - started), records)

    return measure


WORKLOADS = [Workload("groups", "poll and ack, 100 messages at a time, one consumer", "messages/s", _consume, rounds=3)]
