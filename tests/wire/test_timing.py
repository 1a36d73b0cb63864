"""Times of a response as JSON numbers."""

import json

import pytest

from topics.wire.timing import MAX_TABLE_US, commit_timing, milliseconds


@pytest.mark.parametrize("us", [0, 1, 999, 1000, MAX_TABLE_US - 1, MAX_TABLE_US, 1_234_567])
def test_milliseconds_have_three_decimals(us: int) -> None:
    assert milliseconds((us + 0.5) / 1e6) == b"%d.%03d" % divmod(us, 1000)


def test_the_time_of_the_sync_is_zero_without_one() -> None:
    assert json.loads(b"{%b}" % commit_timing(1.5, 0.0)) == {"wal_append_ms": 1.5, "fsync_ms": 0.0}
    assert json.loads(b"{%b}" % commit_timing(1.5, 2.25)) == {"wal_append_ms": 1.5, "fsync_ms": 2.25}
