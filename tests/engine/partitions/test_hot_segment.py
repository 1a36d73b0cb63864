"""A hot segment deletes its records, and closes with its pages."""

import pytest

from topics.engine.partitions.hot_segment import HotSegment
from topics.model.records.page import RECORD_OVERHEAD, make_page

SIZE = RECORD_OVERHEAD + 1


@pytest.fixture
def segment() -> HotSegment:
    """Records 10 to 15 with times 100 to 105, in three pages."""
    segment = HotSegment(10)
    for first in (10, 12, 14):
        times = b"".join([(90 + seq).to_bytes(8, "little") for seq in (first, first + 1)])
        segment.append(make_page(first, 2, times, b"1\x002"))
    return segment


def live(segment: HotSegment) -> list[int]:
    return [seq for seq in range(segment.first_seq, segment.last_seq + 1) if segment.is_live(seq)]


def test_deleted_records_are_counted_once(segment: HotSegment) -> None:
    assert segment.kill([11, 13]) == (2, 2 * SIZE)
    assert segment.kill([11, 12]) == (1, SIZE)
    assert live(segment) == [10, 14, 15]
    assert (segment.live, segment.live_bytes) == (3, 3 * SIZE)


def test_runs_and_records_below_a_bound_are_deleted(segment: HotSegment) -> None:
    assert segment.kill_runs([(11, 13), (14, 15)]) == (3, 3 * SIZE)
    assert live(segment) == [10, 13, 15]
    assert segment.kill_below(15) == (2, 2 * SIZE)
    assert live(segment) == [15]


def test_a_closed_segment_keeps_its_records_and_takes_no_more(segment: HotSegment) -> None:
    segment.kill([12])
    segment.close()
    assert not segment.open
    assert live(segment) == [10, 11, 13, 14, 15]
    pages, flags = segment.image()
    assert sum([page.count for page in pages]) == 6
    assert flags == b"\0\0\1\0\0\0"
