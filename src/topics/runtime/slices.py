"""Slices: long work runs on the event loop a few milliseconds at a time, and requests are served in between.

    slices.run(partition.select(match, bound), done)    a generator that yields often (see `model/steps.py`)
    slices.add(step)                                    a function that adds the next step itself

What `run` is given begins at once, so work that is short after all is done when `run` returns. What is left goes on in
the next turns of the loop: one slice a turn for all works together, a step of each in turn, so that ten long works do not
make a turn ten times as long.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from topics.model.steps import Steps
from topics.runtime.interface import Runtime

log = logging.getLogger("topics.broker")

# How long a slice runs before others get their turn. A step begun before that may end a little later.
SLICE_SECONDS = 0.004

Done = Callable[[Any, BaseException | None], None]


class Slices:
    """All long works of one loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # A step of each work that waits for its turn; True when it was the last one.
        self._works: deque[Callable[[], bool]] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        """Works that are not done yet."""
        return len(self._works)

    def run(self, steps: Steps[Any], done: Done) -> None:
        """Run the work to its end; then call `done` with its result and None, or with None and what it raised."""

        def work() -> bool:
            return _step(steps, done)

        until = self._runtime.perf() + SLICE_SECONDS
        while not work():
            # When others wait for their turn already, this one joins them after a single step.
            if self._works or self._runtime.perf() >= until:
                self._append(work)
                return

    def add(self, step: Callable[[], None]) -> None:
        """Run `step` when its turn comes, not at once. It adds the next step itself if there is more to do."""

        def work() -> bool:
            try:
                step()
            except Exception:
                log.exception("exception in a step of long work; the work is abandoned")
            return True

        self._append(work)

    def _append(self, work: Callable[[], bool]) -> None:
        self._works.append(work)
        if not self._scheduled:
            self._scheduled = True
            self._runtime.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        perf = self._runtime.perf
        until = perf() + SLICE_SECONDS
        works = self._works
        while works:
            work = works.popleft()
            if not work():
                works.append(work)
            if perf() >= until:
                break
        if works and not self._scheduled:
            self._scheduled = True
            self._runtime.call_soon(self._turn)


def _step(steps: Steps[Any], done: Done) -> bool:
    """Run one step; True when it was the last one, and `done` was called."""
    result: Any = None
    error: BaseException | None = None
    try:
        next(steps)
    except StopIteration as over:
        result = over.value
    except Exception as raised:  # noqa: BLE001 - passed to `done`
        error = raised
    else:
        return False
    try:
        done(result, error)
    except Exception:
        log.exception("exception at the end of long work; the other works continue")
    return True
