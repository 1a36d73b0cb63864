"""Which records a router forwards in one run, and what its source lost before them."""

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Partition, Totals
from topics.engine.routers.forwarding import lost_after, run_bound
from topics.model.facts import Evicted, Lost
from topics.model.records.page import make_page


def partition_with_a_hole() -> Partition:
    """Records 1 to 3 and 7 to 8; 4 to 6 are lost."""
    partition = Partition(1, 0, Cache(0), Totals())
    partition.apply_append(make_page(1, 3, 5, b"1\x002\x003"))
    partition.apply_lost(Lost(1, 0, 4, 6, 4))
    partition.apply_append(make_page(7, 2, 5, b"7\x008"))
    return partition


def test_a_run_ends_before_the_next_hole() -> None:
    partition = partition_with_a_hole()
    assert run_bound(partition, 0) == 3
    assert run_bound(partition, 6) == 8


def test_a_hole_is_reported_when_the_records_before_it_are_forwarded() -> None:
    partition = partition_with_a_hole()
    assert lost_after(partition, 0) is None
    assert lost_after(partition, 3) == (4, 6)
    assert lost_after(partition, 5) == (6, 6)
    assert lost_after(partition, 6) is None


def test_evicted_records_that_were_not_forwarded_are_reported() -> None:
    partition = partition_with_a_hole()
    partition.apply_evicted(Evicted(1, 0, 3, 1))
    assert lost_after(partition, 0) == (1, 2)
    assert lost_after(partition, 2) is None
