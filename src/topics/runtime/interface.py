"""What the broker needs of its environment: the time, callbacks at a later time, and threads for slow work.

The server runs it on an event loop with threads; tests run it step by step, in order, with a clock they move.
"""

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Runtime(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds. May jump; the broker does not let it run backwards for what it records."""

    def perf(self) -> float:
        """Seconds, steady; for measuring."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run the callback at the end of this turn, before waiting for anything new."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...

    def run_in_thread(
        self, lane: str, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Do `work` without holding up this turn, then call `done` with its result or its exception.

        Works of one lane are done one after the other, in order.
        """
