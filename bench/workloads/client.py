"""The Python client: single calls, a producer, a consumer and a worker. Each is one thread with its own connections."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count, repeat

from bench.load import append_body, payload
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import TopicsServer
from topics.client import Client, Job, Record

READ_RECORDS = 50_000
JOBS = 5_000
BATCH_RECORDS = 5_000
WORKER_JOBS_AT_ONCE = 16
Action = Callable[[Client, Options], float]
_group_numbers = count()


def _with_client(
    prepare: Callable[[TopicsServer, Options], object], act: Action
) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        with options.v0_servers() as servers:

            def measure(server: TopicsServer) -> Callable[[], Sample]:
                def run() -> Sample:
                    prepare(server, options)
                    with Client(server.url("")) as client:
                        started = time.perf_counter()
                        done = act(client, options)
                        return Sample(done / (time.perf_counter() - started), done)

                return run

            yield {server.name: Contender(measure(server), server) for server in servers}

    return contenders


def _append(batch: int) -> Action:
    def act(client: Client, options: Options) -> float:
        records = [payload(100)] * batch
        calls = options.scaled(5000 if batch == 1 else 500)
        for _ in range(calls):
            client.append("t", records)
        return float(calls * batch)

    return act


def _produce(client: Client, options: Options) -> float:
    records = options.scaled(50_000)
    with client.producer() as producer:
        for data in repeat(payload(100), records):
            producer.send("t", data)
    return float(records)


def _read(client: Client, options: Options) -> float:
    return float(sum([isinstance(item, Record) for item in client.read("t")]))


def _consume(client: Client, options: Options) -> float:
    group = f"g{next(_group_numbers)}"
    with client.consumer("t", group, ack="timed", follow=False, limit=1000, handle_signals=False) as consumer:
        return float(sum([1 for _ in consumer]))


def _work(client: Client, options: Options) -> float:
    jobs = options.scaled(JOBS)
    left = jobs
    worker = client.worker("q", concurrency=WORKER_JOBS_AT_ONCE, handle_signals=False)

    @worker.handler
    def handle(job: Job[str]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            worker.stop()

    worker.run()
    return float(jobs)


def _nothing(server: TopicsServer, options: Options) -> None:
    pass


def _fill_log(server: TopicsServer, options: Options) -> None:
    if server.call("GET", "/v0/topics/t")[0] == 404:
        server.fill("t", append_body(BATCH_RECORDS), max(1, options.scaled(READ_RECORDS) // BATCH_RECORDS))


def _fill_queue(server: TopicsServer, options: Options) -> None:
    server.must("PUT", "/v0/topics/q", {"type": "queue"})
    server.fill("q", append_body(options.scaled(JOBS)), 1)


WORKLOADS = [
    Workload("client", "append of 1 record", "records/s", _with_client(_nothing, _append(1))),
    Workload("client", "append of 100 records", "records/s", _with_client(_nothing, _append(100))),
    Workload("client", "producer: send of 1 record", "records/s", _with_client(_nothing, _produce)),
    Workload("client", f"read of {READ_RECORDS:,} records", "records/s", _with_client(_fill_log, _read)),
    Workload("client", f"consumer: {READ_RECORDS:,} messages", "messages/s", _with_client(_fill_log, _consume)),
    Workload("client", f"worker: {WORKER_JOBS_AT_ONCE} jobs at once", "jobs/s", _with_client(_fill_queue, _work)),
]
