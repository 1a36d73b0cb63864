"""A worker for programs without an event loop: `AsyncWorker` in a loop of its own."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw

from topics.client.jobs import WorkerOptions
from topics.client.options import Backoff
from topics.client.values import Job
from topics.model.errors import InvalidRequest

if TYPE_CHECKING:
    import asyncio

    from topics.client.asynchronous.worker import AsyncWorker
    from topics.client.sync.client import Client

H = TypeVar("H", bound=Callable[..., Any])


class Worker:
    """A worker for the jobs of a queue.

    The handler gets a `Job`; its payload is `job.data`. When it returns, the job is finished. When it raises, the job is
    tried again after a delay, and goes to the dead-letter topic after `retries` of them. A function runs in a thread, a
    coroutine function on an event loop. While a job runs its lease is renewed; a worker that dies loses its jobs to others
    after `lease_s`. A job can run twice: make handlers repeatable.

    Example:

        worker = client.worker("jobs", concurrency=8, retries=5, backoff="exponential")

        @worker.handler
        def resize(job):
            print(job.data)
            worker.stop()

        client.append("jobs", [{"url": "a.png"}], config={"type": "queue"})
        worker.run()
    """

    def __init__(
        self,
        client: "Client",
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
        self.name = name
        self._client = client
        self._options = WorkerOptions(
            concurrency, retries, backoff, first_delay_s, max_delay_s, dead_letter or f"{queue}.dead",
            int(lease_s * 1000), drain_s, push,
        )  # fmt: skip
        self._options.check()
        self._decoder = decoder
        self._handle_signals = handle_signals
        self._handler: Callable[[Job[Any]], Any] | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._worker: AsyncWorker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"<Worker of queue {self.queue!r}>"

    def handler(self, function: H) -> H:
        """Run this function for each job. Use it as a decorator.

        Example:

            worker = client.worker("jobs")

            @worker.handler
            def resize(job):
                print(job.data["url"])
        """
        self._handler = function
        return function

    def stop(self) -> None:
        """Take no more jobs; `run` returns when those that run have ended, or after `drain_s`. From any thread.

        Example:

            worker = client.worker("jobs")

            @worker.handler
            def only_one(job):
                worker.stop()

            worker.run()
        """
        with self._lock:
            self._stopped = True
            if self._worker is not None and self._loop is not None:
                self._loop.call_soon_threadsafe(self._worker.stop)

    def run(self) -> None:
        """Take and run jobs until `stop`, SIGTERM or SIGINT (Ctrl-C). Raises what the server says about the queue itself.

        The jobs that run are finished first; a second SIGINT ends the process at once.

        Example:

            worker = client.worker("jobs", concurrency=2)

            @worker.handler
            def resize(job):
                worker.stop()  # without it `run` returns after SIGTERM or Ctrl-C

            worker.run()
        """
        # 50 ms that programs without a worker need not wait for.
        import asyncio

        if self._handler is None:
            raise InvalidRequest("the worker has no handler: decorate a function with @worker.handler")
        asyncio.run(self._run(self._handler))

    async def _run(self, handler: Callable[[Job[Any]], Any]) -> None:
        import asyncio

        from topics.client.asynchronous.client import AsyncClient
        from topics.client.asynchronous.worker import AsyncWorker

        options = self._options
        async with AsyncClient.from_settings(self._client.settings) as client:
            worker = AsyncWorker(
                client,
                self.queue,
                concurrency=options.concurrency,
                retries=options.retries,
                backoff=options.backoff,
                first_delay_s=options.first_delay_s,
                max_delay_s=options.max_delay_s,
                dead_letter=options.dead_letter,
                lease_s=options.lease_ms / 1000,
                drain_s=options.drain_s,
                push=options.push,
                decoder=self._decoder,
                name=self.name,
                handle_signals=self._handle_signals,
            )
            worker.handler(handler)
            with self._lock:
                self._worker, self._loop = worker, asyncio.get_running_loop()
                if self._stopped:
                    worker.stop()
            try:
                await worker.run()
            finally:
                with self._lock:
                    self._worker, self._loop = None, None
