"""Times, durations and sizes as people write them."""

import time

import pytest

from topics.cli.shared.times import parse_duration, parse_size, parse_time, show_size


@pytest.mark.parametrize(("text", "ago_ms"), [("-1h", 3_600_000), ("-2d", 172_800_000), ("-500ms", 500), ("now", 0)])
def test_relative_times_count_back_from_now(text: str, ago_ms: int) -> None:
    before = time.time_ns() // 1_000_000
    found = parse_time(text)
    assert before - ago_ms <= found <= time.time_ns() // 1_000_000 - ago_ms


def test_dates_are_utc_unless_they_name_a_zone_and_numbers_are_milliseconds() -> None:
    assert parse_time("2026-11-01") == 1793491200000
    assert parse_time("2026-11-01T12:30:00Z") == 1793536200000
    assert parse_time("2026-11-01T13:30:00+01:00") == 1793536200000
    assert parse_time("1793536200000") == 1793536200000


@pytest.mark.parametrize("text", ["yesterday", "1h", "-1x", "", "2026-13-01", "-h"])
def test_other_texts_are_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="-1h, 2026-11-01"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "ms"), [("500", 500), ("30s", 30_000), ("1.5m", 90_000), ("1h30m", 5_400_000), ("7d", 604_800_000)]
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(("text", "size"), [("10", 10), ("64KB", 64_000), ("1.5mb", 1_500_000), ("2GiB", 2 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["many", "-5MB", "5 pounds"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_sizes_are_shown_in_their_unit() -> None:
    assert [show_size(size) for size in (0, 999, 1500, 2_000_000, 3e12)] == [
        "0 B",
        "999 B",
        "1.5 KB",
        "2.0 MB",
        "3.0 TB",
    ]
