"""The gate before the writes: who waits, who goes in first, who is refused."""

import pytest

from topics.engine.pressure import MIN_ADMITTED
from topics.model.errors import Throttled
from topics.server.topics import throttle as throttle_module
from topics.server.topics.throttle import Throttle
from topics.testing.runtime import ManualRuntime

LAG_MS = 100
WAIT_MS = 250


class Writes:
    """Writes at a gate, and what became of them."""

    def __init__(self, throttle: Throttle, runtime: ManualRuntime) -> None:
        self.throttle = throttle
        self.runtime = runtime
        self.entered: list[str] = []
        self.waited: dict[str, float] = {}
        self.refused: dict[str, Throttled] = {}

    def come(self, name: str, priority: int = 0, *, size: int = 10, insists: bool = False) -> str:
        def enter(waited_ms: float) -> None:
            self.entered.append(name)
            self.waited[name] = waited_ms

        def refuse(error: Throttled) -> None:
            self.refused[name] = error

        if not self.throttle.closed or not self.throttle.park(priority, size, enter, refuse, lambda: insists):
            return "in"
        return "refused" if name in self.refused else "parked"

    def press(self, lag_ms: float = LAG_MS * 1.5, samples: int = 30) -> None:
        for _ in range(samples):
            self.throttle.observe(lag_ms)

    def pass_ms(self, ms: int) -> None:
        self.runtime.clock.advance(ms)


@pytest.fixture
def writes() -> Writes:
    runtime = ManualRuntime()
    throttle = Throttle(lag_ms=LAG_MS, wait_ms=WAIT_MS)
    # Started without its own timer: the tests say what is observed.
    throttle.runtime = runtime
    return Writes(throttle, runtime)


def test_without_pressure_no_write_waits(writes: Writes) -> None:
    assert writes.come("a", -1000) == "in"
    writes.press(LAG_MS * 0.9)
    assert writes.come("b", -1000) == "in"


def test_under_pressure_low_priorities_wait_and_high_ones_do_not(writes: Writes) -> None:
    writes.press()
    assert writes.come("low", 0) == "parked"
    assert writes.come("lowest", -1000) == "parked"
    assert writes.come("read lately", 500) == "in"
    assert writes.come("high", 1000) == "in"
    writes.press(LAG_MS * 10)
    assert writes.come("read lately 2", 500) == "parked"
    assert writes.come("high 2", 1000) == "in"


def test_parked_writes_are_admitted_by_priority_and_then_by_age(writes: Writes) -> None:
    writes.press()
    for name, priority in (("d", -100), ("b", 0), ("a", 0), ("c", -50)):
        writes.come(name, priority)
    writes.throttle.observe(0)
    assert writes.entered == ["b", "a", "c", "d"]


def test_waiting_long_enough_beats_priority(writes: Writes) -> None:
    writes.press()
    writes.come("old", -100, insists=True)
    writes.pass_ms(60)
    writes.come("new", 0)
    writes.throttle.observe(0)
    assert writes.entered == ["old", "new"]


def test_only_some_go_in_at_once(writes: Writes) -> None:
    writes.press()
    for number in range(100):
        writes.come(str(number))
    writes.throttle.observe(LAG_MS * 2)
    assert len(writes.entered) == MIN_ADMITTED
    first = len(writes.entered)
    writes.throttle.observe(0)
    assert len(writes.entered) > 2 * first


def test_write_that_waited_too_long_is_refused_with_retry_after(writes: Writes) -> None:
    writes.press(LAG_MS * 3)
    for number in range(100):
        writes.come(str(number))
    writes.pass_ms(WAIT_MS)
    writes.throttle.observe(LAG_MS * 3)
    assert len(writes.entered) + len(writes.refused) == 100
    assert writes.entered
    error = next(iter(writes.refused.values()))
    assert error.code == "throttled"
    assert 100 <= error.retry_after_ms <= 5000
    assert writes.throttle.throttled_total == len(writes.refused)
    assert writes.throttle.parked == 0


def test_who_insists_is_never_refused_but_goes_in_in_the_end(writes: Writes) -> None:
    writes.press(LAG_MS * 3)
    for number in range(100):
        assert writes.come(str(number), -1000, insists=True) == "parked"
    for _ in range(100):
        writes.pass_ms(1000)
        writes.throttle.observe(LAG_MS * 3)
    assert len(writes.entered) == 100
    assert writes.refused == {}


def test_time_waited_is_reported(writes: Writes) -> None:
    writes.press()
    writes.come("a")
    writes.pass_ms(40)
    writes.throttle.observe(0)
    assert writes.waited == {"a": pytest.approx(40)}
    assert writes.throttle.waited_ms_total == pytest.approx(40)


def test_throttle_opens_when_the_pressure_ends_and_no_write_is_parked(writes: Writes) -> None:
    writes.press()
    for number in range(20):
        writes.come(str(number), insists=True)
    writes.press(0, samples=1)
    assert writes.throttle.closed
    writes.press(0)
    assert not writes.throttle.closed
    assert len(writes.entered) == 20
    assert writes.come("later") == "in"


def test_what_is_parked_is_bounded_in_number_and_bytes(writes: Writes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle_module, "MAX_PARKED_WRITES", 3)
    monkeypatch.setattr(throttle_module, "MAX_PARKED_BYTES", 100)
    writes.press()
    assert writes.come("big", size=101) == "refused"
    assert writes.come("big but insisting", size=101, insists=True) == "in"
    assert [writes.come(str(number)) for number in range(4)] == ["parked", "parked", "parked", "refused"]
    assert writes.come("insisting", insists=True) == "in"
    writes.throttle.observe(0)
    assert (writes.throttle.parked, writes.throttle.parked_bytes) == (0, 0)
    assert writes.come("again") == "parked"


def test_stopping_lets_everybody_in(writes: Writes) -> None:
    writes.press()
    for number in range(50):
        writes.come(str(number))
    writes.throttle.stop()
    assert len(writes.entered) == 50
    assert writes.come("later") == "in"


def test_throttle_that_is_off_never_closes() -> None:
    throttle = Throttle(lag_ms=0)
    throttle.runtime = ManualRuntime()
    for _ in range(100):
        throttle.observe(10_000)
    assert not throttle.closed


def test_lag_is_how_late_the_timer_comes() -> None:
    class LateRuntime(ManualRuntime):
        late = 0.0

        def perf(self) -> float:
            return super().perf() + self.late

    runtime = LateRuntime()
    throttle = Throttle(lag_ms=LAG_MS)
    throttle.start(runtime)
    runtime.clock.advance(200)
    assert throttle.pressure.lag_ms == pytest.approx(0, abs=1e-6)
    runtime.late = 0.3
    runtime.clock.advance(20)
    assert throttle.lag_ms_max == pytest.approx(300)
    assert throttle.pressure.lag_ms == pytest.approx(90)


def test_largest_lag_is_kept_for_a_minute_however_often_it_is_read(writes: Writes) -> None:
    writes.throttle.observe(300.0)
    for _ in range(5):
        writes.pass_ms(10_000)
        writes.throttle.observe(1.0)
        assert writes.throttle.lag_ms_max == 300.0
        assert writes.throttle.lag_ms_max == 300.0
    writes.pass_ms(20_000)
    writes.throttle.observe(2.0)
    assert writes.throttle.lag_ms_max == 2.0


def test_largest_lag_is_zero_when_nothing_was_measured_lately(writes: Writes) -> None:
    writes.throttle.observe(300.0)
    writes.pass_ms(600_000)
    assert writes.throttle.lag_ms_max == 0.0
