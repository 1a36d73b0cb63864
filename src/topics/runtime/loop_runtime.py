"""The runtime of a real server: an asyncio event loop, and one thread per lane for work that blocks."""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from topics.runtime.interface import Timer

Work = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]


class LoopRuntime:
    """Belongs to one running loop. Threads are daemons: they must not keep a process alive that has decided to end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lanes: dict[str, queue.SimpleQueue[Work | None]] = {}
        # Bound here once: both are called in every turn.
        self.perf = time.perf_counter
        self.call_soon = loop.call_soon

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    perf: Callable[[], float]

    call_soon: Callable[[Callable[[], object]], object]

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, callback)

    def run_in_thread(
        self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        waiting = self._lanes.get(lane)
        if waiting is None:
            waiting = self._lanes[lane] = queue.SimpleQueue()
            threading.Thread(target=self._run_lane, args=(waiting,), name=f"topics-{lane}", daemon=True).start()
        waiting.put((work, done))

    def stop(self) -> None:
        """Let the threads end once their queues are empty."""
        for waiting in self._lanes.values():
            waiting.put(None)
        self._lanes = {}

    def _run_lane(self, waiting: "queue.SimpleQueue[Work | None]") -> None:
        while (item := waiting.get()) is not None:
            work, done = item
            result: Any = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - passed to `done`
                error = raised
            # The loop may have been closed meanwhile; then the result is not needed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, result, error)
