"""A worker: takes jobs of a queue, runs a handler for each, and acknowledges or returns them.

    claim or push -> job task: handler -> ack, or nack with a delay and a reason
                     one task renews the leases of all jobs that run

A worker that dies loses its leases when they end, and its jobs go to another worker. Stopping waits for the jobs that
run; those that do not end in time go back to the queue.
"""

import asyncio
import inspect
import logging
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from topics.client import calls
from topics.client.asynchronous.concurrency import StopSignals
from topics.client.call import Call, path, query
from topics.client.errors import ServerUnreachable
from topics.client.jobs import MAX_REASON_CHARS, Retry, WorkerOptions, decode_job, delay_s, pushed_job
from topics.client.options import Backoff
from topics.client.typed import RawClaimed
from topics.client.values import Job
from topics.model.errors import Conflict, Forbidden, InvalidRequest, NotFound, Throttled, TopicsError, Unavailable

if TYPE_CHECKING:
    from topics.client.asynchronous.client import AsyncClient

H = TypeVar("H", bound=Callable[..., Any])
log = logging.getLogger("topics.client")
# How long one claim waits on the server: for a queue with one partition, and for one of several that are asked in turn.
CLAIM_WAIT_MS = 20_000
SHARED_CLAIM_WAIT_MS = 250
MAX_PAUSE_S = 5.0


class AsyncWorker:
    """A worker for the jobs of a queue.

    The handler gets a `Job`; its payload is `job.data`. When it returns, the job is finished. When it raises, the job is
    tried again after a delay, and goes to the dead-letter topic after `retries` of them. A function runs in a thread, a
    coroutine function on the event loop. While a job runs its lease is renewed; a worker that dies loses its jobs to others
    after `lease_s`. A job can run twice: make handlers repeatable.

    Example:

        worker = client.worker("jobs", concurrency=8, retries=5, backoff="exponential")

        @worker.handler
        async def resize(job):
            print(job.data)
            worker.stop()

        await client.append("jobs", [{"url": "a.png"}], config={"type": "queue"})
        await worker.run()
    """

    def __init__(
        self,
        client: "AsyncClient",
        queue: str,
        *,
        concurrency: int = 1,
        retries: int | None = 5,
        backoff: Backoff | Callable[[int], float] = "exponential",
        first_delay_s: float = 1.0,
        max_delay_s: float = 300.0,
        dead_letter: str | None = None,
        lease_s: float = 30.0,
        drain_s: float = 30.0,
        push: bool = False,
        decoder: Callable[[bytes | Raw], Any] | None = None,
        name: str | None = None,
        handle_signals: bool = True,
    ) -> None:
        self.queue = queue
        self.name = name or f"worker-{os.getpid()}-{os.urandom(4).hex()}"
        self._client = client
        self._options = WorkerOptions(
            concurrency, retries, backoff, first_delay_s, max_delay_s, dead_letter or f"{queue}.dead",
            int(lease_s * 1000), drain_s, push,
        )  # fmt: skip
        self._options.check()
        self._decoder = decoder or msgspec.json.decode
        self._handle_signals = handle_signals
        self._handler: Callable[[Job[Any]], Any] | None = None
        self._stop = asyncio.Event()
        # Jobs that run, by partition and seq, and finished ones that are not acknowledged yet.
        self._running: dict[tuple[int, int], Job[Any]] = {}
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._finished: dict[int, list[Job[Any]]] = {}
        self._changed = asyncio.Event()
        self._acking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<AsyncWorker {self.name!r} of queue {self.queue!r}>"

    def handler(self, function: H) -> H:
        """Run this function for each job. Use it as a decorator.

        Example:

            worker = client.worker("jobs")

            @worker.handler
            async def resize(job):
                print(job.data["url"])
        """
        self._handler = function
        return function

    def stop(self) -> None:
        """Take no more jobs; `run` returns when those that run have ended, or after `drain_s`.

        Example:

            worker = client.worker("jobs")

            @worker.handler
            async def only_one(job):
                worker.stop()

            await worker.run()
        """
        self._stop.set()

    async def run(self) -> None:
        """Take and run jobs until `stop`, SIGTERM or SIGINT (Ctrl-C). Raises what the server says about the queue itself.

        The jobs that run are finished first; a second SIGINT ends the process at once.

        Example:

            worker = client.worker("jobs", concurrency=2)

            @worker.handler
            async def resize(job):
                worker.stop()  # without it `run` returns after SIGTERM or Ctrl-C

            await worker.run()
        """
        if self._handler is None:
            raise InvalidRequest("the worker has no handler: decorate a function with @worker.handler")
        # SIG_DFL: after KeyboardInterrupt the interpreter would wait for the threads of the handlers.
        signals = StopSignals(self.stop, second_interrupt=signal.SIG_DFL)
        if self._handle_signals:
            signals.listen()
        executor = ThreadPoolExecutor(self._options.concurrency, thread_name_prefix="topics-worker")
        try:
            partitions = await self._prepare()
            await self._work(partitions, executor)
        finally:
            signals.unlisten()
            executor.shutdown(wait=False, cancel_futures=True)

    async def _prepare(self) -> int:
        """Create or configure the queue if need be; the number of its partitions."""
        options = self._options
        try:
            info = await self._client.info(self.queue, touch=False)
        except NotFound:
            info = None
        wanted = {} if options.retries is None else {
            "max_deliveries": options.retries + 1, "dead_letter": options.dead_letter
        }  # fmt: skip
        if info is None or any([info.config[name] != value for name, value in wanted.items()]):
            try:
                await self._client.create(self.queue, type="queue", **wanted)  # type: ignore[arg-type]
            except Forbidden:
                log.warning(
                    "the key may not configure queue %r: set max_deliveries and dead_letter with a key that has the "
                    "scope admin, or pass retries=None",
                    self.queue,
                )
        elif info.type != "queue":
            raise Conflict(f'topic "{self.queue}" is not a queue', code="not_a_queue")
        return (len(info.partitions) or 1) if info is not None else 1

    async def _work(self, partitions: int, executor: ThreadPoolExecutor) -> None:
        source = self._receive(partitions, executor) if self._options.push else self._claim(partitions, executor)
        tasks = [
            asyncio.create_task(source),
            asyncio.create_task(self._renew()),
            asyncio.create_task(self._acknowledge()),
        ]
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            log.info("%r stops; %d jobs are running", self, len(self._running))
            if not self._options.push:
                tasks[0].cancel()
            await self._drain()
        finally:
            stopped.cancel()
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _drain(self) -> None:
        """Wait for the jobs that run; those that take too long go back to the queue."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=self._options.drain_s)
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._send_acks()

    # Taking jobs

    async def _claim(self, partitions: int, executor: ThreadPoolExecutor) -> None:
        """Claim jobs, as many as can be started; several partitions in turn."""
        wait_ms = CLAIM_WAIT_MS if partitions == 1 else SHARED_CLAIM_WAIT_MS
        partition, empty, failures = 0, 0, 0
        while True:
            free = self._options.concurrency - len(self._running)
            if not free:
                self._changed.clear()
                await self._changed.wait()
                continue
            # One round over all partitions without waiting, then a wait at each.
            wait = wait_ms if empty >= partitions or partitions == 1 else 0
            plain = calls.claim(
                self.queue, self.name, free, lease_ms=self._options.lease_ms, wait_ms=wait, partition=partition
            )
            call = Call("POST", plain.path, RawClaimed, plain.body, repeatable=False, wait_s=plain.wait_s)
            # Payloads are decoded when their job starts, so that one that cannot be decoded fails no other.
            call.lone_surrogates = "raw"
            try:
                claimed = (await self._client.run(call)).claimed
                failures = 0
            except (ServerUnreachable, Throttled, Unavailable) as error:
                failures += 1
                await self._pause(failures, error)
                continue
            empty = 0 if claimed else empty + 1
            for job in claimed:
                self._start(partition, job, executor)
            if not claimed or partitions > 1:
                partition = (partition + 1) % partitions

    async def _receive(self, partitions: int, executor: ThreadPoolExecutor) -> None:
        """Receive jobs over one open connection for each partition."""
        await asyncio.gather(*[self._receive_partition(number, executor) for number in range(partitions)])

    async def _receive_partition(self, partition: int, executor: ThreadPoolExecutor) -> None:
        fields = {"node": self.name, "max": self._options.concurrency, "lease_ms": self._options.lease_ms}
        target = query(path("/v0/topics/", self.queue, "/work"), {**fields, "partition": partition})
        failures = 0
        while True:
            problem: Exception | None = None
            try:
                # Closed at once when the worker ends, so that the server sends no more jobs over it.
                async with aclosing(self._client.events(target)) as events:
                    async for event in events:
                        failures = 0
                        if event.name == "error":
                            raise Unavailable(event.data, code="stream_ended")
                        if event.name == "job":
                            await self._start_when_free(partition, pushed_job(event.data), executor)
            except (ServerUnreachable, Throttled, Unavailable, OSError) as error:
                problem = error
            failures += 1
            await self._pause(failures, problem)

    async def _start_when_free(self, partition: int, job: Job[Any], executor: ThreadPoolExecutor) -> None:
        while len(self._running) >= self._options.concurrency:
            self._changed.clear()
            await self._changed.wait()
        if not self._stop.is_set():
            self._start(partition, job, executor)

    async def _pause(self, failures: int, error: Exception | None) -> None:
        pause_s = min(MAX_PAUSE_S, 0.1 * 2 ** min(failures, 10))
        log.warning("%r gets no jobs: %s; tries again in %.1f s", self, error or "the stream has ended", pause_s)
        await asyncio.sleep(pause_s)

    # Running jobs

    def _start(self, partition: int, job: Job[Any], executor: ThreadPoolExecutor) -> None:
        key = (partition, job.seq)
        self._running[key] = job
        task = asyncio.create_task(self._run_job(partition, job, executor))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._ended(key))

    def _ended(self, key: tuple[int, int]) -> None:
        self._running.pop(key, None)
        self._tasks.pop(key, None)
        self._changed.set()

    async def _run_job(self, partition: int, job: Job[Any], executor: ThreadPoolExecutor) -> None:
        assert self._handler is not None
        try:
            decode_job(self._decoder, self.queue, job, self._client.settings.lone_surrogates)
            if inspect.iscoroutinefunction(self._handler):
                await self._handler(job)
            else:
                await asyncio.get_running_loop().run_in_executor(executor, self._handler, job)
        except asyncio.CancelledError:
            await self._return(partition, job, 0.0, "the worker was stopped")
            raise
        except Retry as error:
            await self._return(partition, job, error.delay_s, str(error))
        except Exception as error:
            retries = self._options.retries
            # The last failure makes the job a dead letter: there is nothing to wait for.
            wait_s = 0.0 if retries is not None and job.deliveries > retries else delay_s(self._options, job.deliveries)
            log.warning(
                "job %d of queue %r failed (delivery %d): %s: %s",
                job.seq, self.queue, job.deliveries, type(error).__name__, error, exc_info=error,
            )  # fmt: skip
            await self._return(partition, job, wait_s, f"{type(error).__name__}: {error}")
        else:
            self._finished.setdefault(partition, []).append(job)
            self._changed.set()

    async def _return(self, partition: int, job: Job[Any], wait_s: float, reason: str) -> None:
        """Give the job back. If that fails, its lease ends by itself."""
        try:
            await self._client.nack(
                self.queue,
                self.name,
                [job.seq],
                lease_ids=[job.lease_id],
                delay_ms=int(wait_s * 1000),
                partition=partition,
                reason=reason[:MAX_REASON_CHARS],
            )
        except TopicsError as error:
            log.warning("job %d of queue %r could not be returned: %s", job.seq, self.queue, error)

    async def _acknowledge(self) -> None:
        """Acknowledge finished jobs: those that finish during one request go into the next."""
        while True:
            while not self._finished:
                self._changed.clear()
                await self._changed.wait()
            await self._send_acks()

    async def _send_acks(self) -> None:
        """Acknowledge the finished jobs. Returns when those of earlier calls are acknowledged too."""
        async with self._acking:
            await self._send_acks_of(self._finished)

    async def _send_acks_of(self, finished: dict[int, list[Job[Any]]]) -> None:
        self._finished = {}
        for partition, jobs in finished.items():
            seqs = [job.seq for job in jobs]
            try:
                acked = await self._client.ack(
                    self.queue, self.name, seqs, lease_ids=[job.lease_id for job in jobs], partition=partition
                )
            except TopicsError as error:
                log.warning("jobs %s of queue %r are done but could not be acknowledged: %s", seqs, self.queue, error)
                continue
            if acked.skipped:
                log.warning("jobs %s of queue %r ended after their leases and run again", acked.skipped, self.queue)

    async def _renew(self) -> None:
        """Renew the leases of the jobs that run, three times as often as they end."""
        while True:
            await asyncio.sleep(self._options.lease_ms / 3000)
            by_partition: dict[int, list[Job[Any]]] = {}
            for (partition, _), job in self._running.items():
                by_partition.setdefault(partition, []).append(job)
            for partition, jobs in by_partition.items():
                try:
                    extended = await self._client.extend(
                        self.queue,
                        self.name,
                        [job.seq for job in jobs],
                        self._options.lease_ms,
                        lease_ids=[job.lease_id for job in jobs],
                        partition=partition,
                    )
                except TopicsError as error:
                    log.warning("leases of queue %r could not be renewed: %s", self.queue, error)
                    continue
                for seq in extended.skipped:
                    if (partition, seq) in self._running:
                        log.warning("job %d of queue %r is not ours any more: its lease has ended", seq, self.queue)
