"""Which packed segments are merged."""

from topics.engine.topics.packing import PackLimits, merge_count

LIMITS = PackLimits(pack_bytes=1 << 20, entry_bytes=100_000, merge_count=3)


def test_segments_are_merged_when_enough_of_about_one_size_exist() -> None:
    assert merge_count([600], 600, LIMITS) == 0
    assert merge_count([600, 600], 600, LIMITS) == 2
    assert merge_count([600, 600, 90_000], 600, LIMITS) == 2


def test_no_entry_grows_beyond_its_limit() -> None:
    assert merge_count([60_000, 60_000], 60_000, LIMITS) == 0
