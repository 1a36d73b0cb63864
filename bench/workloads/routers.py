"""Routers: records per second until the last copy is readable."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.load import append_body
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import TopicsServer

RECORDS = 200_000


def _forwarded(routers: int) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        records = options.scaled(RECORDS) // max(1, routers // 4)
        with options.v0_servers() as servers:
            for server in servers:
                server.must("PUT", "/v0/topics/s", {})
                for number in range(routers):
                    server.must("PUT", f"/v0/routers/r{number}", {"source": "s", "dest": f"d{number}"})
            yield {server.name: Contender(_pass(server, routers, records), server) for server in servers}

    return contenders


def _pass(server: TopicsServer, routers: int, records: int) -> Callable[[], Sample]:
    def head(topic: str) -> int:
        return int(str(server.must("GET", f"/v0/topics/{topic}")["head_seq"]))

    def measure() -> Sample:
        target = head("s") + records // 100 * 100
        started = time.perf_counter()
        server.fill("s", append_body(100), records // 100)
        for number in range(routers):
            while head(f"d{number}") < target:
                time.sleep(0.002)
        return Sample(records / (time.perf_counter() - started), records * max(1, routers))

    return measure


WORKLOADS = [
    Workload("routers", f"source records through {routers} routers" if routers else "the same writes without a router",
             "records/s", _forwarded(routers), rounds=3)
    for routers in (0, 1, 20)
]  # fmt: skip
