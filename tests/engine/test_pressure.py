"""From the loop's lag to who has to wait."""

import pytest

from topics.engine.pressure import MAX_ADMITTED, MAX_CUTOFF, MIN_ADMITTED, MIN_CUTOFF, Pressure
from topics.engine.topics.priority import HALF_LIFE_MS, RECENT, effective_priority, rank
from topics.model.config import TopicConfig

NOW = 1_800_000_000_000


def under(lag_ms: float, samples: int = 50) -> Pressure:
    pressure = Pressure(100)
    for _ in range(samples):
        pressure.sample(lag_ms)
    return pressure


def test_one_long_turn_is_not_pressure() -> None:
    pressure = Pressure(100)
    pressure.sample(300)
    assert not pressure.on


def test_many_long_turns_are_pressure_and_it_ends_well_below_where_it_began() -> None:
    pressure = under(150)
    assert pressure.on
    for _ in range(50):
        pressure.sample(70)
    assert pressure.on, "70 of 100 is too much to let go"
    for _ in range(50):
        pressure.sample(30)
    assert not pressure.on


def test_lag_below_what_is_tolerated_never_is_pressure() -> None:
    assert not under(99).on


def test_zero_tolerated_lag_means_no_write_waits() -> None:
    pressure = Pressure(0)
    for _ in range(100):
        pressure.sample(10_000)
    assert not pressure.on


def test_cutoff_rises_with_the_pressure_and_never_above_the_highest_priority() -> None:
    cutoffs = [under(lag).cutoff() for lag in (0, 99, 101, 150, 200, 250, 300, 100_000)]
    assert cutoffs == sorted(cutoffs)
    assert cutoffs[0] == cutoffs[1] == MIN_CUTOFF
    assert cutoffs[4] == pytest.approx(501, abs=2)
    assert cutoffs[-1] == MAX_CUTOFF


def test_fewer_are_let_in_while_it_is_bad_and_more_when_it_is_better_but_always_some() -> None:
    pressure = Pressure(100)
    growing = [pressure.sample(10) for _ in range(20)]
    assert growing == sorted(growing)
    assert growing[-1] == MAX_ADMITTED
    shrinking = [pressure.sample(500) for _ in range(20)]
    assert shrinking == sorted(shrinking, reverse=True)
    assert shrinking[-1] == MIN_ADMITTED > 0


def test_refused_writers_are_sent_away_longer_the_worse_it_is() -> None:
    times = [under(lag).retry_after_ms() for lag in (0, 100, 200, 400, 1000, 10**9)]
    assert times == sorted(times)
    assert times[0] == 100
    assert times[-1] == 5000


def test_manual_priority_beats_everything_else() -> None:
    assert effective_priority(TopicConfig(priority=-7), NOW, NOW) == -7
    assert effective_priority(TopicConfig(priority=0), NOW, NOW) == 0


def test_recent_look_counts_and_half_of_it_is_gone_after_the_half_life() -> None:
    config = TopicConfig()
    ages = [0, HALF_LIFE_MS, 2 * HALF_LIFE_MS, 20 * HALF_LIFE_MS]
    assert [effective_priority(config, NOW - age, NOW) for age in ages] == [RECENT, RECENT // 2, RECENT // 4, 0]
    assert effective_priority(config, None, NOW) == 0
    assert effective_priority(TopicConfig(auto_priority=False), NOW, NOW) == 0
    assert effective_priority(config, NOW + 5000, NOW) == RECENT, "a clock that was set back"


def test_waiting_makes_up_for_priority() -> None:
    assert rank(500, 1000) < rank(0, 1000)
    assert rank(0, 1000) < rank(0, 1001)
    assert rank(-1000, 0) < rank(1000, 1001), "after a second the least important is before the most important"
    assert rank(-1000, 0) > rank(1000, 999)
