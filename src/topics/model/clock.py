"""The clock that packages without side effects get as an argument; they never read the clock of the machine.

The engine is handed numbers, not a clock. `broker.SystemClock` is the real one, `testing.ManualClock` the one
that tests move.
"""

from typing import Protocol


class Clock(Protocol):
    """The wall clock and a steady clock. Durations are measured with the steady one only."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970 UTC. May jump, forwards and backwards."""

    def perf(self) -> float:
        """Steady seconds since some fixed moment, to measure durations. Never runs backwards."""
