"""Delays between attempts double up to a maximum."""

from topics.runtime.backoff import MIN_DELAY_MS, Backoff
from topics.testing.runtime import ManualRuntime


def attempts_at(runtime: ManualRuntime, backoff: Backoff, attempts: list[int], failures: int) -> list[int]:
    """Fail this often, and return the delay before each attempt."""
    delays = []
    for _ in range(failures):
        backoff.failed()
        started = runtime.now_ms()
        before = len(attempts)
        while len(attempts) == before:
            runtime.clock.advance(100)
        delays.append(attempts[-1] - started)
    return delays


def test_delays_double_up_to_the_maximum_and_begin_again_after_a_success() -> None:
    runtime = ManualRuntime()
    attempts: list[int] = []
    backoff = Backoff(runtime, lambda: attempts.append(runtime.now_ms()), max_delay_ms=1500)
    assert attempts_at(runtime, backoff, attempts, 4) == [500, 1000, 1500, 1500]
    backoff.succeeded()
    assert attempts_at(runtime, backoff, attempts, 1) == [MIN_DELAY_MS]


def test_one_attempt_is_scheduled_at_a_time_and_can_be_cancelled() -> None:
    runtime = ManualRuntime()
    attempts: list[int] = []
    backoff = Backoff(runtime, lambda: attempts.append(1))
    backoff.failed()
    backoff.failed()
    assert backoff.waiting
    runtime.clock.advance(10_000)
    assert attempts == [1]
    backoff.failed()
    backoff.stop()
    runtime.clock.advance(100_000)
    assert (attempts, backoff.waiting) == ([1], False)
