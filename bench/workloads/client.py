"""The Python client: a producer, a reader and a worker, each one thread with one connection."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.load import append_body, payload
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import TopicsServer
from topics.client import Client, Record

Action = Callable[[Client, Options], float]


def _with_client(
    prepare: Callable[[TopicsServer], object], act: Action
) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with options.v0_servers() as servers:

            def measure(server: TopicsServer) -> Callable[[], Sample]:
                def run() -> Sample:
                    prepare(server)
                    with Client(server.url("")) as client:
                        started = time.perf_counter()
                        done = act(client, options)
                        return Sample(done / (time.perf_counter() - started), done)

                return run

            yield {server.name: Contender(measure(server), server) for server in servers}

    return contenders


def _produce(batch: int) -> Action:
    def act(client: Client, options: Options) -> float:
        records = [payload(100)] * batch
        calls = options.scaled(5000 if batch == 1 else 500)
        for _ in range(calls):
            client.append("t", records)
        return float(calls * batch)

    return act


def _read(client: Client, options: Options) -> float:
    return float(sum([isinstance(item, Record) for item in client.read("t")]))


def _work(client: Client, options: Options) -> float:
    done = 0
    for _ in range(options.scaled(500)):
        claimed = client.claim("q", "w", max=16).claimed
        client.ack("q", "w", [job.seq for job in claimed])
        done += len(claimed)
    return float(done)


def _fill_log(server: TopicsServer) -> None:
    if server.call("GET", "/v0/topics/t")[0] == 404:
        server.fill("t", append_body(5000), 10)


def _fill_queue(server: TopicsServer) -> None:
    server.must("PUT", "/v0/topics/q", {"type": "queue"})
    server.fill("q", append_body(1000), 8)


WORKLOADS = [
    Workload("client", "append of 1 record", "records/s", _with_client(lambda server: None, _produce(1)), rounds=3),
    Workload("client", "append of 100 records", "records/s", _with_client(lambda server: None, _produce(100)), rounds=3),
    Workload("client", "read of 50,000 records", "records/s", _with_client(_fill_log, _read), rounds=3),
    Workload("client", "claim and ack of 16 jobs", "jobs/s", _with_client(_fill_queue, _work), rounds=3),
]  # fmt: skip
