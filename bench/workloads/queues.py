"""Queues: produce, then claim and acknowledge until empty; against Redis stream groups, Redis lists and NATS.

Redis only marks an entry of a group as acknowledged; a job here is deleted and the delete is in the log. The Redis list
moves a job to a list of the worker (LMOVE) and removes it from there (LREM).
"""

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from bench.load import (
    Loop,
    NatsPublish,
    NatsWork,
    append_body,
    http_complete,
    http_head,
    http_request,
    nats_call,
    nats_stream,
    post_script,
    redis_benchmark,
    redis_call,
    resp,
    run_loops,
    wrk,
)
from bench.measure import Contender, Contenders, Options, Sample, Workload
from bench.servers import ServerProcess, TopicsServer, nats_server, redis_server

JOB = b"x" * 100
# Jobs of one measurement, by batch: about a second.
JOBS = {1: 16_000, 16: 60_000}


class TopicsWorker(Loop):
    """Claim, acknowledge, again, until a claim is empty."""

    _seqs = staticmethod(re.compile(rb'"\$seq":(\d+)').findall)

    def __init__(self, topic: str, batch: int) -> None:
        super().__init__()
        # Made once: the time of the load generator is not that of the server.
        self._ack_head = http_head("POST", f"/v0/topics/{topic}/ack")
        self._claim = http_request("POST", f"/v0/topics/{topic}/claim", b'{"node":"w","max":%d}' % batch)
        self._claiming = True

    def first_request(self) -> bytes:
        return self._claim

    def is_complete(self, received: bytes) -> bool:
        return http_complete(received)

    def next_request(self, response: bytes) -> bytes | None:
        if not self._claiming:
            self._claiming = True
            return self._claim
        seqs = self._seqs(response)
        if not seqs:
            return None
        self._claiming = False
        self.operations += len(seqs)
        body = b'{"node":"w","seqs":[%b]}' % b",".join(seqs)
        return b"%b%d\r\n\r\n%b" % (self._ack_head, len(body), body)


class RedisGroupWorker(Loop):
    """XREADGROUP, XACK, again, until nothing is left."""

    _ids = staticmethod(re.compile(rb"\r\n(\d+-\d+)\r\n").findall)

    def __init__(self, batch: int) -> None:
        super().__init__()
        self._read = resp(b"XREADGROUP", b"GROUP", b"g", b"w", b"COUNT", b"%d" % batch, b"STREAMS", b"s", b">")
        self._reading = True

    def first_request(self) -> bytes:
        return self._read

    def is_complete(self, received: bytes) -> bool:
        if not self._reading or received in (b"*-1\r\n", b"$-1\r\n"):
            return received.endswith(b"\r\n")
        parts = received.split(b"\r\n", 5)
        return len(parts) > 5 and received.count(JOB + b"\r\n") == int(parts[4][1:])

    def next_request(self, response: bytes) -> bytes | None:
        if not self._reading:
            self._reading = True
            return self._read
        ids = self._ids(response)
        if not ids:
            return None
        self._reading = False
        self.operations += len(ids)
        return resp(b"XACK", b"s", b"g", *ids)


class RedisListWorker(Loop):
    """LMOVE to the worker's own list, LREM from there, again, until nothing is left."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        own = b"w%d" % next(self._numbers)
        self._move = resp(b"LMOVE", b"jobs", own, b"LEFT", b"RIGHT")
        self._remove = resp(b"LREM", own, b"1", JOB)
        self._moving = True

    def first_request(self) -> bytes:
        return self._move

    def is_complete(self, received: bytes) -> bool:
        if received.startswith(b"$") and not received.startswith(b"$-1"):
            return received.endswith(JOB + b"\r\n")
        return received.endswith(b"\r\n")

    def next_request(self, response: bytes) -> bytes | None:
        if not self._moving:
            self._moving = True
            return self._move
        if response.startswith(b"$-1"):
            return None
        self._moving = False
        self.operations += 1
        return self._remove


def _produce(workers: int, batch: int) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        script = post_script(append_body(batch))

        def topics(server: TopicsServer) -> Contender:
            server.must("PUT", "/v0/topics/q", {"type": "queue"})

            def measure() -> Sample:
                requests = wrk(server.url("/v0/topics/q?return_seqs=false"), script, workers, options.seconds)
                return Sample(requests * batch, requests * batch * max(1, round(options.seconds)))

            return Contender(measure, server)

        def redis(server: ServerProcess, command: tuple[str, ...]) -> Contender:
            jobs = int((100_000 if batch == 1 else 300_000) * options.seconds)

            def measure() -> Sample:
                return Sample(redis_benchmark(server.port, workers, jobs, command, pipeline=batch), jobs)

            return Contender(measure, server)

        with ExitStack() as stack:
            made = {server.name: topics(server) for server in stack.enter_context(options.v0_servers())}
            streams = stack.enter_context(redis_server("everysec"))
            lists = stack.enter_context(redis_server("everysec"))
            made["redis"] = redis(streams, ("XADD", "s", "*", "d", JOB.decode()))
            made["redis list"] = redis(lists, ("RPUSH", "jobs", JOB.decode()))
            yield made

    return contenders


def _consume(workers: int, batch: int) -> Callable[[Options], AbstractContextManager[Contenders]]:
    @contextmanager
    def contenders(options: Options) -> Iterator[Contenders]:
        jobs = options.scaled(JOBS[batch])
        numbers = itertools.count()

        def drained(server: ServerProcess, worker: Callable[[], Loop]) -> Sample:
            operations, seconds = run_loops(server.port, workers, worker)
            assert operations == jobs, f"{operations} of {jobs} jobs"
            return Sample(jobs / seconds, jobs)

        def topics(server: TopicsServer) -> Contender:
            def measure() -> Sample:
                name = f"q{next(numbers)}"
                server.must("PUT", f"/v0/topics/{name}", {"type": "queue"})
                server.fill(name, append_body(1000), jobs // 1000)
                server.fill(name, append_body(1), jobs % 1000)
                sample = drained(server, lambda: TopicsWorker(name, batch))
                server.must("DELETE", f"/v0/topics/{name}")
                return sample

            return Contender(measure, server)

        def redis_group(server: ServerProcess) -> Contender:
            def measure() -> Sample:
                redis_call(server.port, b"DEL", b"s")
                redis_benchmark(server.port, 1, jobs, ("XADD", "s", "*", "d", JOB.decode()), pipeline=100)
                redis_call(server.port, b"XGROUP", b"CREATE", b"s", b"g", b"0")
                return drained(server, lambda: RedisGroupWorker(batch))

            return Contender(measure, server)

        def redis_list(server: ServerProcess) -> Contender:
            def measure() -> Sample:
                redis_call(server.port, b"DEL", b"jobs")
                redis_benchmark(server.port, 1, jobs, ("RPUSH", "jobs", JOB.decode()), pipeline=100)
                return drained(server, RedisListWorker)

            return Contender(measure, server)

        def nats(server: ServerProcess) -> Contender:
            def measure() -> Sample:
                name = f"q{next(numbers)}"
                nats_stream(server.port, name)
                consumer = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 10_000}
                nats_call(
                    server.port, f"$JS.API.CONSUMER.DURABLE.CREATE.{name}.c", {"stream_name": name, "config": consumer}
                )
                _publish(server, name, jobs)
                return drained(server, lambda: NatsWork(name, "c"))

            return Contender(measure, server)

        with ExitStack() as stack:
            made = {server.name: topics(server) for server in stack.enter_context(options.v0_servers())}
            made["redis"] = redis_group(stack.enter_context(redis_server("everysec")))
            if batch == 1:
                made["redis list"] = redis_list(stack.enter_context(redis_server("everysec")))
                made["nats"] = nats(stack.enter_context(nats_server()))
            yield made

    return contenders


def _publish(server: ServerProcess, subject: str, jobs: int) -> None:
    """Fill a stream of NATS."""

    class Publish(NatsPublish):
        def next_request(self, response: bytes) -> bytes | None:
            following = super().next_request(response)
            return following if self.operations < jobs else None

    run_loops(server.port, 1, lambda: Publish(subject, len(JOB)))


WORKLOADS = [
    Workload("queues", f"produce, {workers} connections, {batch} per request", "jobs/s", _produce(workers, batch), rounds=3)
    for workers, batch in ((16, 1), (16, 16), (100, 1))
] + [
    Workload("queues", f"claim and ack, {workers} workers, {batch} at a time", "jobs/s", _consume(workers, batch), rounds=3)
    for workers, batch in ((16, 1), (100, 1), (16, 16), (100, 16))
]  # fmt: skip
