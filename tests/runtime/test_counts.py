"""Counts for the metrics."""

from topics.runtime.counts import Counts


def test_reads_records_and_tombstones_are_counted() -> None:
    counts = Counts()
    counts.count_read(5, lost=False)
    counts.count_read(0, lost=True)
    assert (counts.reads, counts.records_read, counts.tombstones) == (2, 5, 1)
