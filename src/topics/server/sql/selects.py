"""SELECTs under way: up to MAX_WORKERS run at once, each in a worker process of its own; the others wait in order.

    reserve a slot -> gather the tables (on the loop) -> wait for a free worker -> run (on its thread) -> free both

A slot is given back exactly once, however the query ends. All of this runs on the event loop; only `SelectProcess.run`
blocks, and runs on the thread of its worker.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from topics.model.errors import Throttled, TopicsError
from topics.runtime.interface import Runtime
from topics.sql.select import Reply, Request, SelectProcess

# Each worker that has run a query keeps about 70 MB, of which 45 MB are shared libraries, until the server stops.
MAX_WORKERS = 4
# SELECTs that run or wait; each may run for seconds.
MAX_SELECTS = 16

log = logging.getLogger("topics.server")

Done = Callable[[Reply | TopicsError], None]


class Worker(Protocol):
    """Runs one query at a time, on whatever thread calls it."""

    def run(self, request: Request) -> Reply: ...

    def close(self) -> None: ...


class Slot:
    """The right to run one SELECT. `release` may be called any number of times."""

    __slots__ = ("_pool", "_released")

    def __init__(self, pool: "SelectPool") -> None:
        self._pool = pool
        self._released = False

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._pool.reserved -= 1


class SelectPool:
    """The workers of a server. None is started before it is needed."""

    def __init__(self, workers: Sequence[Worker] | None = None) -> None:
        self.reserved = 0
        self._workers = workers or [SelectProcess() for _ in range(MAX_WORKERS)]
        # The worker used last is taken first, so that no more are started than run at once.
        self._idle = list(reversed(range(len(self._workers))))
        self._waiting: deque[Callable[[], None]] = deque()

    def reserve(self) -> Slot:
        """A slot for one SELECT. Raises Throttled when MAX_SELECTS are under way."""
        if self.reserved >= MAX_SELECTS:
            raise Throttled(
                f"{MAX_SELECTS} queries are under way already", detail={"limit": "selects", "max": MAX_SELECTS}
            )
        self.reserved += 1
        return Slot(self)

    def run(self, runtime: Runtime, slot: Slot, request: Request, done: Done) -> None:
        """Run the query as soon as a worker is free, release the slot, then call `done` with the rows or the error."""

        def start() -> None:
            number = self._idle.pop()
            worker = self._workers[number]

            def ran(reply: Reply | None, error: BaseException | None) -> None:
                self._idle.append(number)
                slot.release()
                if self._waiting:
                    self._waiting.popleft()()
                if reply is not None:
                    done(reply)
                elif isinstance(error, TopicsError):
                    done(error)
                else:
                    log.error("exception while running a SELECT", exc_info=error)
                    done(TopicsError("internal error"))

            runtime.run_in_thread(f"sql-{number}", lambda: worker.run(request), ran)

        if self._idle:
            start()
        else:
            self._waiting.append(start)

    def close(self) -> None:
        """End the workers. A query that runs fails; later ones are refused."""
        for worker in self._workers:
            worker.close()
