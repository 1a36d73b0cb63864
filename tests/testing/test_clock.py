"""The clock that tests move, and the one they stand in for."""

import time

import pytest

from topics.model.clock import Clock
from topics.runtime.clock import SystemClock
from topics.testing.clock import START_MS, ManualClock


def test_time_does_not_pass_until_it_is_moved() -> None:
    clock = ManualClock()
    assert clock.now_ms() == clock.now_ms() == START_MS == 1_748_450_000_000
    assert clock.perf() == clock.perf()


def test_advance_moves_both_hands() -> None:
    clock = ManualClock(start_ms=5_000)
    before = clock.perf()
    clock.advance(1_500)
    assert clock.now_ms() == 6_500
    assert clock.perf() - before == 1.5


def test_set_moves_the_wall_clock_alone_and_backwards_too() -> None:
    clock = ManualClock()
    before = clock.perf()
    clock.set(START_MS - 60_000)
    assert clock.now_ms() == START_MS - 60_000
    assert clock.perf() == before
    clock.advance(1)
    assert clock.now_ms() == START_MS - 59_999


def test_time_does_not_pass_backwards() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
    assert clock.now_ms() == START_MS


def test_timer_runs_when_it_is_due_and_not_before() -> None:
    clock = ManualClock()
    ran: list[int] = []
    clock.call_later(100, lambda: ran.append(clock.now_ms() - START_MS))
    clock.advance(99)
    assert ran == []
    clock.advance(1)
    assert ran == [100]
    clock.advance(1_000)
    assert ran == [100]


def test_timers_run_in_due_order_each_at_its_moment() -> None:
    clock = ManualClock()
    ran: list[tuple[str, int]] = []
    for name, delay_ms in (("c", 30), ("a", 10), ("b1", 20), ("b2", 20)):
        clock.call_later(delay_ms, lambda name=name: ran.append((name, clock.now_ms() - START_MS)))  # type: ignore[misc]
    clock.advance(1_000)
    assert ran == [("a", 10), ("b1", 20), ("b2", 20), ("c", 30)]
    assert clock.now_ms() == START_MS + 1_000


def test_cancelled_timer_never_runs() -> None:
    clock = ManualClock()
    ran: list[str] = []
    first = clock.call_later(10, lambda: second.cancel())
    second = clock.call_later(10, lambda: ran.append("second"))
    clock.call_later(10, lambda: ran.append("third"))
    clock.advance(10)
    first.cancel()
    assert ran == ["third"]


def test_timer_set_by_a_timer_runs_in_the_same_advance() -> None:
    clock = ManualClock()
    ran: list[int] = []

    def tick() -> None:
        ran.append(clock.now_ms() - START_MS)
        clock.call_later(10, tick)

    clock.call_later(10, tick)
    clock.advance(35)
    assert ran == [10, 20, 30]


def test_correcting_the_wall_clock_neither_runs_nor_delays_a_timer() -> None:
    clock = ManualClock()
    ran: list[str] = []
    clock.call_later(100, lambda: ran.append("ran"))
    clock.set(START_MS + 1_000_000)
    clock.advance(0)
    assert ran == []
    clock.set(0)
    clock.advance(100)
    assert ran == ["ran"]


def test_error_in_a_timer_comes_out_and_the_rest_can_still_run() -> None:
    clock = ManualClock()
    ran: list[str] = []
    clock.call_later(10, lambda: 1 // 0)
    clock.call_later(20, lambda: ran.append("later"))
    with pytest.raises(ZeroDivisionError):
        clock.advance(50)
    assert clock.now_ms() == START_MS + 10
    clock.advance(10)
    assert ran == ["later"]


def test_timers_that_set_each_other_without_end_fail_instead_of_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topics.testing.clock.MAX_TIMERS_PER_ADVANCE", 1_000)
    clock = ManualClock()

    def again() -> None:
        clock.call_later(0, again)

    clock.call_later(0, again)
    with pytest.raises(RuntimeError, match="due"):
        clock.advance(0)


def test_system_clock_tells_the_machines_time() -> None:
    clock: Clock = SystemClock()
    before = time.time_ns() // 1_000_000
    assert before <= clock.now_ms() <= time.time_ns() // 1_000_000
    assert clock.perf() <= clock.perf()


def test_manual_clock_is_a_clock() -> None:
    clock: Clock = ManualClock()
    assert isinstance(clock.now_ms(), int)
    assert isinstance(clock.perf(), float)
