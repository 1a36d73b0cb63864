"""Workers: every job finishes, failures are retried and then dead letters, leases are renewed, a killed worker's job finishes elsewhere."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.client.conftest import QUICK, write_lone_surrogate
from tests.served import server_settings
from topics.client import AsyncClient, Client, Conflict, InvalidRequest, Job, QueueCounts, Retry
from topics.client.jobs import WorkerOptions, delay_s
from topics.testing.server import running_server


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, retry=QUICK) as client:
        yield client


def counts(client: Client, queue: str) -> QueueCounts:
    found = client.info(queue).queue
    assert found is not None
    return found


def run_until(
    client: Client, queue: str, done: Callable[[], bool], handler: Callable[..., Any], **options: Any
) -> None:
    """Run a worker until `done`, which is looked at after each job."""
    worker = client.worker(queue, **options)

    if asyncio.iscoroutinefunction(handler):

        @worker.handler
        async def call_async(job: Job) -> None:
            try:
                await handler(job)
            finally:
                if done():
                    worker.stop()
    else:

        @worker.handler
        def call(job: Job) -> None:
            try:
                handler(job)
            finally:
                if done():
                    worker.stop()

    worker.run()


@pytest.mark.parametrize("push", [False, True], ids=["poll", "push"])
def test_all_jobs_run_and_are_finished(client: Client, topic: str, push: bool) -> None:
    client.create(topic, type="queue")
    client.append(topic, list(range(50)))
    seen: list[int] = []
    threads: set[str] = set()

    def handle(job: Job) -> None:
        threads.add(threading.current_thread().name)
        seen.append(job.data)

    run_until(client, topic, lambda: len(seen) >= 50, handle, concurrency=4, push=push)
    assert sorted(seen) == list(range(50))
    assert counts(client, topic) == QueueCounts(ready=0, in_flight=0, dead_lettered=0)
    assert all([name.startswith("topics-worker") for name in threads]), "functions run in threads of their own"


def test_coroutine_functions_run_on_the_loop_and_at_once(client: Client, topic: str) -> None:
    client.create(topic, type="queue")
    client.append(topic, list(range(6)))
    barrier_count = 0
    together = asyncio.Event()
    seen: list[int] = []

    async def handle(job: Job) -> None:
        nonlocal barrier_count
        barrier_count += 1
        if barrier_count == 6:
            together.set()
        await asyncio.wait_for(together.wait(), 20)
        seen.append(job.data)

    run_until(client, topic, lambda: len(seen) >= 6, handle, concurrency=6)
    assert sorted(seen) == list(range(6))


def test_async_worker_runs_beside_other_tasks(url: str, client: Client, topic: str) -> None:
    client.create(topic, type="queue")

    async def main() -> list[Any]:
        seen: list[Any] = []
        async with AsyncClient(url) as other:
            worker = other.worker(topic)

            @worker.handler
            async def handle(job: Job) -> None:
                seen.append(job.data)
                if len(seen) == 2:
                    worker.stop()

            running = asyncio.create_task(worker.run())
            await other.topic(topic).append("a")
            await other.topic(topic).append("b")
            await asyncio.wait_for(running, 20)
        return seen

    assert asyncio.run(main()) == ["a", "b"]


def test_a_failed_job_is_retried_with_growing_delays_and_then_a_dead_letter_with_its_reason(
    client: Client, topic: str
) -> None:
    client.append(topic, ["bad", "good"], config={"type": "queue"})
    deliveries: list[tuple[str, int, float]] = []

    def handle(job: Job) -> None:
        deliveries.append((job.data, job.deliveries, time.monotonic()))
        if job.data == "bad":
            raise ValueError("out of paper")

    run_until(client, topic, lambda: len(deliveries) >= 4, handle, retries=2, first_delay_s=0.1, concurrency=2)
    bad = [(count, at) for data, count, at in deliveries if data == "bad"]
    assert [count for count, _ in bad] == [1, 2, 3]
    assert bad[1][1] - bad[0][1] >= 0.1
    assert bad[2][1] - bad[1][1] >= 0.2
    client.claim(topic, "another", wait_ms=2000)
    (dead,) = client.read(f"{topic}.dead")
    assert dead.data == "bad"  # type: ignore[union-attr]
    assert dead.meta["$dead_letter_reason"] == "ValueError: out of paper"  # type: ignore[union-attr, index]
    assert counts(client, topic).dead_lettered == 1


def test_retry_sets_the_delay_and_the_reason(client: Client, topic: str) -> None:
    client.append(topic, ["job"], config={"type": "queue"})
    times: list[float] = []

    def handle(job: Job) -> None:
        times.append(time.monotonic())
        if job.deliveries == 1:
            raise Retry("not yet", delay_s=0.2)

    run_until(client, topic, lambda: len(times) >= 2, handle, first_delay_s=1000)
    assert times[1] - times[0] >= 0.2


def test_delays_double_up_to_the_longest() -> None:
    def delays(backoff: Any) -> list[float]:
        options = WorkerOptions(1, 5, backoff, 1.0, 5.0, "dead", 30_000, 30.0, False)
        return [delay_s(options, deliveries) for deliveries in (1, 2, 3, 4, 1000)]

    assert delays("exponential") == [1, 2, 4, 5, 5]
    assert delays("constant") == [1, 1, 1, 1, 1]
    assert delays(lambda deliveries: deliveries / 2) == [0.5, 1, 1.5, 2, 5]


def test_leases_are_renewed_while_a_job_runs(client: Client, topic: str) -> None:
    client.append(topic, ["long"], config={"type": "queue"})
    runs: list[int] = []

    def handle(job: Job) -> None:
        runs.append(job.deliveries)
        ends_at = time.monotonic() + 1.2
        while time.monotonic() < ends_at:
            assert client.claim(topic, "another").claimed == [], "the lease of 0.3 s is renewed"

    run_until(client, topic, lambda: True, handle, lease_s=0.3)
    assert runs == [1]
    assert counts(client, topic) == QueueCounts(ready=0, in_flight=0, dead_lettered=0)


def test_jobs_of_all_partitions_are_taken(client: Client, topic: str) -> None:
    client.create(topic, type="queue", partitions=3)
    handle_of = client.topic(topic)
    for number in range(9):
        handle_of.append(number)
    seen: list[int] = []
    run_until(client, topic, lambda: len(seen) >= 9, lambda job: seen.append(job.data), concurrency=2)
    assert sorted(seen) == list(range(9))
    assert counts(client, topic).ready == 0


class Picture(msgspec.Struct):
    url: str


def test_payloads_are_decoded_and_one_that_does_not_fit_is_a_dead_letter(client: Client, topic: str) -> None:
    client.append(topic, [{"url": 7}, {"url": "a.png"}], config={"type": "queue"})
    seen: list[Any] = []
    run_until(client, topic, lambda: bool(seen), lambda job: seen.append(job.data), type=Picture, retries=0)
    assert seen == [Picture("a.png")]
    client.claim(topic, "another")
    (dead,) = client.read(f"{topic}.dead")
    assert "Expected `str`" in dead.meta["$dead_letter_reason"]  # type: ignore[union-attr, index]


def test_a_queue_that_does_not_exist_is_created(client: Client, topic: str) -> None:
    worker = client.worker(topic, retries=3)
    worker.handler(lambda job: None)
    worker.stop()
    worker.run()
    config = client.info(topic).config
    assert (config.type, config.max_deliveries, config.dead_letter) == ("queue", 4, f"{topic}.dead")


def test_settings_of_the_queue_stay_without_retries(client: Client, topic: str) -> None:
    client.create(topic, type="queue", max_deliveries=9)
    worker = client.worker(topic, retries=None)
    worker.handler(lambda job: None)
    worker.stop()
    worker.run()
    assert (client.info(topic).config.max_deliveries, client.info(topic).config.dead_letter) == (9, None)


def test_a_topic_that_is_no_queue_is_refused(client: Client, topic: str) -> None:
    client.create(topic)
    worker = client.worker(topic, retries=None)
    worker.handler(lambda job: None)
    with pytest.raises(Conflict, match="queue"):
        worker.run()


def test_a_worker_without_a_handler_and_wrong_options_are_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="handler"):
        client.worker("jobs").run()
    for options in ({"concurrency": 0}, {"retries": -1}, {"lease_s": 0.01}, {"backoff": "sometimes"}):
        with pytest.raises(InvalidRequest):
            client.worker("jobs", **options)  # type: ignore[arg-type]


PROGRAM = """
import os, sys, time
from topics.client import Client

url, queue, marks, mode = sys.argv[1:]
worker = Client(url).worker(queue, lease_s=1, drain_s=20, concurrency=2, push=mode == "push")

@worker.handler
def handle(job):
    open(os.path.join(marks, f"started-{os.getpid()}"), "w").close()
    while not os.path.exists(os.path.join(marks, "finish")):
        time.sleep(0.01)
    open(os.path.join(marks, f"finished-{os.getpid()}"), "w").close()

worker.run()
"""


class Program:
    """A worker in a process of its own, whose job ends when the test lets it."""

    def __init__(self, url: str, queue: str, marks: Path, mode: str = "poll") -> None:
        self.marks = marks
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, url, queue, str(marks), mode])

    def wait_for(self, mark: str) -> None:
        path = self.marks / f"{mark}-{self.process.pid}"
        ends_at = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < ends_at, f"no {mark}"
            assert self.process.poll() is None or path.exists()
            time.sleep(0.01)

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)


@pytest.mark.parametrize("mode", ["poll", "push"])
def test_the_job_of_a_killed_worker_finishes_in_another(
    client: Client, url: str, topic: str, tmp_path: Path, mode: str
) -> None:
    client.append(topic, ["job"], config={"type": "queue"})
    with Program(url, topic, tmp_path, mode) as first:
        first.wait_for("started")
        first.process.kill()
        first.process.wait(30)
    with Program(url, topic, tmp_path, mode) as second:
        second.wait_for("started")
        (tmp_path / "finish").touch()
        second.wait_for("finished")
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(30) == 0
    assert counts(client, topic) == QueueCounts(ready=0, in_flight=0, dead_lettered=0)
    assert not (tmp_path / f"finished-{first.process.pid}").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_finish_and_takes_no_other(
    client: Client, url: str, topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    client.append(topic, ["job"], config={"type": "queue"})
    with Program(url, topic, tmp_path) as program:
        program.wait_for("started")
        os.kill(program.process.pid, number)
        # The worker listens no more when a claim of ours gets what is appended from now on.
        ends_at, later = time.monotonic() + 30, 0
        while not client.claim(topic, "another", wait_ms=50).claimed:
            assert time.monotonic() < ends_at
            client.append(topic, ["later"])
            later += 1
        (tmp_path / "finish").touch()
        assert program.process.wait(30) == 0
    finished = [path.name for path in tmp_path.glob("finished-*")]
    assert finished == [f"finished-{program.process.pid}"]
    left = counts(client, topic)
    assert left.ready + left.in_flight == later, "the finished job is acknowledged"


def test_a_second_sigint_ends_a_worker_at_once(client: Client, url: str, topic: str, tmp_path: Path) -> None:
    client.append(topic, ["job"], config={"type": "queue"})
    with Program(url, topic, tmp_path) as program:
        program.wait_for("started")
        os.kill(program.process.pid, signal.SIGINT)
        ends_at = time.monotonic() + 30
        while not client.claim(topic, "another", wait_ms=50).claimed:
            assert time.monotonic() < ends_at
            client.append(topic, ["later"])
        os.kill(program.process.pid, signal.SIGINT)
        assert program.process.wait(5) == -signal.SIGINT
    assert not list(tmp_path.glob("finished-*"))


def test_a_worker_continues_when_the_server_answers_again(tmp_path: Path, topic: str) -> None:
    settings = server_settings(tmp_path)
    with running_server(settings) as url:
        port = int(url.rpartition(":")[2])
        client = Client(url, retry=QUICK)
        client.create(topic, type="queue")
        seen: list[Any] = []
        worker = client.worker(topic, handle_signals=False)

        @worker.handler
        def handle(job: Job) -> None:
            seen.append(job.data)
            if job.data == "after":
                worker.stop()

        thread = threading.Thread(target=worker.run)
        thread.start()
        client.append(topic, ["before"])
        ends_at = time.monotonic() + 30
        while counts(client, topic) != QueueCounts(ready=0, in_flight=0, dead_lettered=0) or not seen:
            assert time.monotonic() < ends_at
    with running_server(server_settings(tmp_path, port)):
        client.append(topic, ["after"])
        thread.join(30)
        assert not thread.is_alive()
    assert seen == ["before", "after"]


@pytest.mark.parametrize("push", [False, True], ids=["poll", "push"])
@pytest.mark.parametrize("choice", ["replace", "raw"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_job_with_a_lone_surrogate_runs_with_its_payload_as_asked(
    url: str, client: Client, topic: str, choice: Any, push: bool, asynchronous: bool
) -> None:
    client.create(topic, type="queue")
    write_lone_surrogate(url, topic)
    seen: dict[int, tuple[Any, Any]] = {}

    async def run_async() -> None:
        async with AsyncClient(url, lone_surrogates=choice) as other:
            worker = other.worker(topic, push=push)

            @worker.handler
            async def handle(job: Job) -> None:
                seen[job.seq] = (job.data, job.meta)
                if len(seen) == 3:
                    worker.stop()

            await worker.run()

    if asynchronous:
        asyncio.run(run_async())
    else:
        with Client(url, lone_surrogates=choice) as other:
            run_until(
                other,
                topic,
                lambda: len(seen) == 3,
                lambda job: seen.update({job.seq: (job.data, job.meta)}),
                push=push,
            )
    lone = {
        "replace": ({"a": "x\ufffdy"}, {"m": "\ufffd"}),
        "raw": (rb'{"a":"x\ud800y"}', rb'{"m":"\udc00"}'),
    }
    assert seen == {1: (1, None), 2: lone[choice], 3: ("\U0001f600", None)}
    assert counts(client, topic) == QueueCounts(ready=0, in_flight=0, dead_lettered=0)


@pytest.mark.parametrize("push", [False, True], ids=["poll", "push"])
def test_a_job_with_a_lone_surrogate_becomes_a_dead_letter_when_an_error_is_asked_for(
    url: str, client: Client, topic: str, push: bool
) -> None:
    client.create(topic, type="queue")
    write_lone_surrogate(url, topic)
    seen: list[Any] = []
    with Client(url, lone_surrogates="error") as strict:
        run_until(strict, topic, lambda: len(seen) == 2, lambda job: seen.append(job.data), push=push, retries=0)
    assert seen == [1, "\U0001f600"]
    assert counts(client, topic) == QueueCounts(ready=0, in_flight=0, dead_lettered=1)
