"""Every clock answers the two questions of the protocol."""

import pytest

from topics.model.clock import Clock
from topics.runtime.clock import SystemClock
from topics.testing.clock import ManualClock


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
def test_a_clock_gives_milliseconds_since_1970_and_steady_seconds(clock: Clock) -> None:
    assert isinstance(clock.now_ms(), int)
    assert clock.now_ms() > 1_600_000_000_000
    assert clock.perf() <= clock.perf()
