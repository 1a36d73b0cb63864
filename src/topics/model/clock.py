"""The clock that packages without side effects get as an argument; they never read the clock of the machine.

The engine is handed numbers, not a clock. `broker.SystemClock` is the real one, `testing.ManualClock` the one
that tests move.
"""

from typing import Protocol


class Clock(Protocol):
    """Two clocks in one, for the two questions that must not be mixed up."""

    def now_ms(self) -> int:
        """What time it is: milliseconds since 1970 UTC. May jump, forwards and backwards."""

    def perf(self) -> float:
        """How long something took: seconds from some fixed moment. Never runs backwards."""
