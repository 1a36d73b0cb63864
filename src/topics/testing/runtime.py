"""A runtime for tests: callbacks and thread work run only when the test runs them, always in the same order."""

from collections import deque
from collections.abc import Callable
from typing import Any

from topics.runtime.interface import Timer
from topics.testing.clock import ManualClock


class ManualRuntime:
    """Callbacks wait in a queue until `run`. Work for threads runs one by one, in the order of submission."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self._soon: deque[Callable[[], object]] = deque()
        self._aside: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def perf(self) -> float:
        return self.clock.perf()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return self.clock.call_later(int(delay_ms), callback)

    def run_in_thread(
        self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        self._aside.append((work, done))

    def run(self) -> None:
        """Run until nothing waits. Timers run only when the clock is advanced."""
        while self._soon or self._aside:
            self.turn()
            if self._aside:
                self.finish_one()

    def turn(self) -> None:
        """Run one turn of the loop: the waiting callbacks and those they add."""
        while self._soon:
            self._soon.popleft()()

    def single_turn(self) -> int:
        """Run one turn as a real loop does: callbacks added meanwhile wait for the next. Return how many were called."""
        waiting = list(self._soon)
        self._soon.clear()
        for callback in waiting:
            callback()
        return len(waiting)

    def take_thread_work(self) -> tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]:
        """Remove the oldest work for a thread from the queue. The caller runs it and calls `done` when it wants to."""
        return self._aside.popleft()

    def finish_one(self) -> None:
        """Run the oldest work of a thread, and queue its callback."""
        work, done = self.take_thread_work()
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - passed to `done`
            error = raised
        self._soon.append(lambda: done(result, error))

    @property
    def waiting_aside(self) -> int:
        return len(self._aside)
