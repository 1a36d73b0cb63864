"""The clock of the machine."""

import time

from topics.runtime.clock import SystemClock


def test_the_system_clock_is_that_of_the_machine() -> None:
    clock = SystemClock()
    before = time.time() * 1000
    assert before - 1 <= clock.now_ms() <= time.time() * 1000
    assert clock.perf() <= time.perf_counter()
