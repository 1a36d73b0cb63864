"""Start, stop and recovery, in seconds, process start included."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.load import append_body, post_script, wrk
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import TopicsServer

RECORDS = 1_000_000


def _restart(
    write: Callable[[TopicsServer, Options], None], end: str, timed: str = "start"
) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with options.v0_servers() as servers:
            for server in servers:
                write(server, options)
            yield {server.name: Contender(_timed_restart(server, end, timed)) for server in servers}

    return contenders


def _timed_restart(server: TopicsServer, end: str, timed: str) -> Callable[[], Sample]:
    def measure() -> Sample:
        head = server.call("GET", "/v0/topics/t")[1].get("head_seq")
        if timed == "stop":
            # Something is left to write at the end.
            head = server.must("POST", "/v0/topics/t", {"records": [{"data": 1}]})["head_seq"]
        stopping_at = time.perf_counter()
        if end == "kill":
            server.kill()
        else:
            server.stop()
        stop_seconds = time.perf_counter() - stopping_at
        start_seconds = server.start()
        assert server.call("GET", "/v0/topics/t")[1].get("head_seq") == head, "records were lost"
        return Sample(stop_seconds if timed == "stop" else start_seconds, 1)

    return measure


def _nothing(server: TopicsServer, options: Options) -> None:
    pass


def _single_writes(server: TopicsServer, options: Options) -> None:
    """Records written one per request, so that each is a frame of the log."""
    server.must("PUT", "/v0/topics/t", {})
    while int(str(server.must("GET", "/v0/topics/t")["head_seq"])) < options.scaled(RECORDS):
        wrk(server.url("/v0/topics/t"), post_script(append_body(1)), 64, 4)


WORKLOADS = [
    Workload("lifecycle", "start with an empty directory", "s", _restart(_nothing, "stop"), lower_is_better=True, rounds=3),
    Workload("lifecycle", "start after kill -9 with 1,000,000 single writes", "s", _restart(_single_writes, "kill"), lower_is_better=True, rounds=2),
    Workload("lifecycle", "start after a clean stop with 1,000,000 records", "s", _restart(_single_writes, "stop"), lower_is_better=True, rounds=2),
    Workload("lifecycle", "clean stop with 1,000,000 records", "s", _restart(_single_writes, "stop", "stop"), lower_is_better=True, rounds=2),
]  # fmt: skip
