"""A segment counts and finds its records; shown with a hot one."""

import pytest

from topics.engine.partitions.hot_segment import HotSegment
from topics.model.records.page import make_page


@pytest.fixture
def segment() -> HotSegment:
    """Records 10 to 15 with times 100 to 105, in three pages."""
    segment = HotSegment(10)
    for first in (10, 12, 14):
        times = b"".join([(90 + seq).to_bytes(8, "little") for seq in (first, first + 1)])
        segment.append(make_page(first, 2, times, b"1\x002"))
    return segment


def test_live_records_are_found_from_a_seq_on(segment: HotSegment) -> None:
    segment.kill([11, 12])
    assert [segment.next_live(seq) for seq in (10, 11, 13)] == [10, 13, 13]
    assert segment.live_run(13, 2) == (13, 15)
    assert segment.last_live_below(13) == 10
    assert segment.live_between(10, 14) == 3


def test_the_first_record_at_or_after_a_time_is_found(segment: HotSegment) -> None:
    assert segment.first_at_or_after(0) == 10
    assert segment.first_at_or_after(103) == 13
    assert segment.first_at_or_after(106) is None
