"""A clock that a test moves, so that it never waits and never races.

Like the machine it has two hands. `advance` is time passing: both hands move, and timers that come due run on
the way, each seeing the moment it was set for. `set` corrects the wall clock: only `now_ms` jumps,
backwards if asked to; no time has passed, so no timer runs.
"""

import heapq
import itertools
from collections.abc import Callable

START_MS = 1_748_450_000_000

# A timer that sets itself again with no delay never lets time pass; a test should fail then, not hang.
MAX_TIMERS_PER_ADVANCE = 1_000_000


class ManualClock:
    def __init__(self, start_ms: int = START_MS) -> None:
        self._wall_ms = start_ms
        self._elapsed_ms = 0
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()

    def now_ms(self) -> int:
        return self._wall_ms

    def perf(self) -> float:
        return self._elapsed_ms / 1000

    def set(self, now_ms: int) -> None:
        """The wall clock shows `now_ms`. `perf` and the timers do not notice."""
        self._wall_ms = now_ms

    def advance(self, ms: int) -> None:
        """`ms` have passed, and every timer that was due by then has run, in the order they came due.

        Timers set by a callback run too if they fall in the same span. An error in a callback comes out here;
        the clock then has the time at which that timer was due.
        """
        if ms < 0:
            raise ValueError("time does not pass backwards; `set` moves the wall clock")
        until_ms = self._elapsed_ms + ms
        for _ in range(MAX_TIMERS_PER_ADVANCE):
            if not self._timers or self._timers[0][0] > until_ms:
                self._pass_until(until_ms)
                return
            due_ms, _order, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self._pass_until(due_ms)
                timer.callback()
        raise RuntimeError(f"{MAX_TIMERS_PER_ADVANCE} timers ran and more are due: do they set each other?")

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> "Timer":
        """`callback` runs inside the `advance` that reaches `delay_ms` from now; those due together run as set."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (self._elapsed_ms + max(delay_ms, 0), next(self._order), timer))
        return timer

    def _pass_until(self, elapsed_ms: int) -> None:
        # A callback may have advanced the clock itself, past what this step asks for.
        passed_ms = max(elapsed_ms - self._elapsed_ms, 0)
        self._elapsed_ms += passed_ms
        self._wall_ms += passed_ms


class Timer:
    """What `call_later` returns."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """The callback will not run. Harmless when it has run already."""
        self.cancelled = True
