"""What a reader at any cursor gets: records, limits, tombstones."""

from array import array
from collections.abc import Iterator

import pytest

from tests.engine.partitions.small_partition import (
    START_MS,
    append,
    delete_below,
    delete_tag,
    evict,
    new_partition,
    read,
    seqs,
)
from topics.engine.partitions.reading import MAX_SCAN_BYTES, MIN_SCAN_COST, plan_read, read_records
from topics.engine.partitions.render import View
from topics.engine.partitions.segment import MAX_PAGE_RECORDS
from topics.model.facts import RESTART, Lost
from topics.model.records.page import RECORD_OVERHEAD


def test_next_from_seq_passes_what_is_invisible_at_the_tail() -> None:
    partition = new_partition()
    append(partition, 2)
    append(partition, 2, tag="gone")
    append(partition, 2, node="own")
    delete_tag(partition, "gone")
    found = read(partition, view=View(without_nodes=frozenset({b'"own"'})))
    assert (seqs(found), found.next_from_seq, found.scanned) == ([1, 2], 6, 6)


class Asked(frozenset[bytes]):
    """A set of nodes that supports membership tests and fails when it is iterated."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("a reader went through all its nodes")


def test_a_reader_with_many_nodes_takes_no_longer() -> None:
    partition = new_partition()
    append(partition, 300, node="own")
    append(partition, 2, node="other")
    append(partition, 300, node="mine")
    append(partition, 3)
    found = read(partition, view=View(without_nodes=Asked([b'"own"', b'"mine"', b'"absent"'])))
    assert seqs(found) == [301, 302, 603, 604, 605]


def test_a_filtered_read_stops_after_one_step_also_before_the_first_match() -> None:
    partition = new_partition()
    step = MAX_SCAN_BYTES // MIN_SCAN_COST
    for _ in range(3 * step // 500):
        append(partition, 500, node="own")
    append(partition, node="other")
    view = View(without_nodes=frozenset([b'"own"']))
    cursor, steps = 0, 0
    found = read(partition, view=view)
    while found.unfinished:
        assert (found.count, found.tombstone) == (0, None)
        assert cursor < found.next_from_seq <= cursor + step + 1
        cursor, steps = found.next_from_seq, steps + 1
        found = read(partition, cursor, view=view)
    assert steps >= 2
    assert (seqs(found), found.next_from_seq) == ([partition.head_seq], partition.head_seq)


def test_a_read_that_has_found_something_stops_after_one_step() -> None:
    partition = new_partition()
    step = MAX_SCAN_BYTES // MIN_SCAN_COST
    append(partition, node="other")
    for _ in range(2 * step // 500):
        append(partition, 500, node="own")
    found = read(partition, view=View(without_nodes=frozenset([b'"own"'])))
    assert (seqs(found), found.unfinished) == ([1], False)
    assert 1 < found.next_from_seq <= step + MAX_PAGE_RECORDS


def test_deleted_records_are_passed_however_many_there_are() -> None:
    partition = new_partition()
    for _ in range(200):
        append(partition, 500, tag="gone")
    append(partition, 2)
    partition.kill(array("Q", range(2, 100_001)))
    found = read(partition, limit=2)
    assert (seqs(found), found.next_from_seq) == ([1, 100_001], 100_001)


def test_a_limit_stops_at_the_last_delivered_record() -> None:
    partition = new_partition()
    append(partition, 10)
    found = read(partition, 2, limit=3)
    assert (seqs(found), found.next_from_seq) == ([3, 4, 5], 5)


@pytest.mark.parametrize("budget", [1, RECORD_OVERHEAD, 2 * (RECORD_OVERHEAD + 1), 5 * (RECORD_OVERHEAD + 1)])
def test_a_budget_gives_at_least_one_record_and_skips_none(budget: int) -> None:
    partition = new_partition()
    append(partition, 4)
    for _ in range(5):
        append(partition)
    cursor, collected = 0, []
    while cursor < partition.head_seq:
        found = read(partition, cursor, budget=budget)
        assert 1 <= found.count <= max(1, budget // (RECORD_OVERHEAD + 1))
        collected += seqs(found)
        cursor = found.next_from_seq
    assert collected == list(range(1, 10))


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_bulk_read_never_passes_records_it_did_not_deliver(extra: int) -> None:
    # The budget ends right before, at, and right behind the end of the first segment.
    partition = new_partition()
    append(partition, 10)
    segment_bytes = partition.bytes
    partition.close_hot()
    append(partition, 10)
    delivered: list[int] = []
    cursor, pages = 0, 0
    while cursor < partition.head_seq:
        plan = plan_read(partition, cursor, 1000, segment_bytes + extra)
        found = [seq for run in plan.runs for seq in range(run.first, run.last + 1)]
        assert found[0] == cursor + 1
        assert found[-1] == plan.next_from_seq
        delivered += found
        cursor = plan.next_from_seq
        pages += 1
    assert delivered == list(range(1, 21))
    assert pages >= 2


def test_a_cursor_beyond_the_head_belongs_to_another_instance() -> None:
    partition = new_partition()
    append(partition, 3)
    assert read(partition, 3).tombstone is None
    found = read(partition, 4)
    assert found.tombstone is not None
    assert (found.tombstone.reason, found.next_from_seq, seqs(found)) == ("recreated", 3, [1, 2, 3])
    assert (found.tombstone.gap_from, found.tombstone.gap_to, found.tombstone.missed_estimate) == (0, 0, 0)


def test_hole_is_reported_when_a_reader_reaches_it() -> None:
    partition = new_partition()
    append(partition, 3)
    partition.apply_lost(Lost(1, 0, 4, 6, RESTART))
    append(partition, 2)
    assert partition.head_seq == 8
    first = read(partition)
    assert (seqs(first), first.next_from_seq, first.tombstone) == ([1, 2, 3], 3, None)
    second = read(partition, first.next_from_seq)
    assert second.tombstone is not None
    assert (second.tombstone.gap_from, second.tombstone.gap_to, second.tombstone.cause) == (4, 6, "restart")
    assert (seqs(second), second.next_from_seq) == ([7, 8], 8)
    assert read(partition, 6).tombstone is None
    assert read(partition, 5).tombstone is not None


def test_a_delete_does_not_silence_a_loss_that_came_before_it() -> None:
    partition = new_partition()
    append(partition, 3)
    partition.apply_lost(Lost(1, 0, 4, 6, RESTART))
    append(partition, 2)
    delete_below(partition, 8)
    found = read(partition, 3)
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to) == (4, 6)
    assert seqs(found) == [8]
    # An eviction beyond it tells of both.
    append(partition, 1)
    evict(partition, cap_records=1)
    assert partition.holes == []
    found = read(partition, 3)
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to) == (4, 8)


@pytest.mark.parametrize("bound", [None, 4])
def test_hole_after_deleted_records_is_reported_in_the_first_answer(bound: int | None) -> None:
    partition = new_partition()
    append(partition, 3)
    partition.apply_lost(Lost(1, 0, 4, 6, RESTART))
    append(partition, 2)
    if bound is None:
        partition.kill([1, 2, 3])
    else:
        delete_below(partition, bound)
    for cursor in (0, 2, 3):
        found = read(partition, cursor)
        assert found.tombstone is not None
        assert (found.tombstone.gap_from, found.tombstone.gap_to, found.tombstone.missed_estimate) == (4, 6, 3)
        assert (seqs(found), found.next_from_seq) == ([7, 8], 8)
    # Not to a reader that does not reach it.
    assert read_records(partition, 0, 10, 1 << 20, View(), to_seq=3).tombstone is None
    assert plan_read(partition, 0, 10, 1 << 20).tombstone == read(partition).tombstone


def test_one_hole_is_reported_per_answer_with_only_deleted_records_between_two() -> None:
    partition = new_partition()
    append(partition, 1)
    partition.apply_lost(Lost(1, 0, 2, 3, RESTART))
    append(partition, 1)
    partition.apply_lost(Lost(1, 0, 5, 6, RESTART))
    append(partition, 1)
    partition.kill([1, 4])
    first = read(partition)
    assert first.tombstone is not None
    assert (first.tombstone.gap_from, first.tombstone.gap_to, seqs(first)) == (2, 3, [])
    second = read(partition, first.next_from_seq)
    assert second.tombstone is not None
    assert (second.tombstone.gap_from, second.tombstone.gap_to, seqs(second)) == (5, 6, [7])


def test_an_ephemeral_log_after_a_restart_tells_that_its_records_are_gone() -> None:
    partition = new_partition()
    partition.apply_head(7)
    assert (partition.head_seq, partition.earliest_seq, partition.next_seq, partition.count) == (7, 8, 8, 0)
    found = read(partition)
    assert found.tombstone is not None
    assert (found.tombstone.gap_from, found.tombstone.gap_to, found.next_from_seq) == (1, 7, 7)
    assert read(partition, 7).tombstone is None


@pytest.mark.parametrize(
    ("ts", "seq"), [(0, 1), (START_MS, 1), (START_MS + 1, 3), (START_MS + 9, 5), (START_MS + 10, 7)]
)
def test_the_first_record_at_or_after_a_time(ts: int, seq: int) -> None:
    partition = new_partition()
    append(partition, 2, ts=START_MS)
    append(partition, 2, ts=START_MS + 5, tag="five")
    append(partition, 2, ts=START_MS + 9)
    assert partition.first_at_or_after(ts) == seq
    delete_tag(partition, "five")
    assert partition.first_at_or_after(START_MS + 2) == 5


def test_single_records_can_be_found() -> None:
    partition = new_partition()
    append(partition, 5)
    delete_below(partition, 3)
    assert partition.find(2) is None
    assert partition.find(6) is None
    page = partition.find(4)
    assert page is not None
    assert page.first_seq <= 4 <= page.last_seq
    assert (partition.next_live(1), partition.next_live(5), partition.next_live(6)) == (3, 5, None)
