"""One log: what it stores, what it removes, and what a reader at any cursor gets.

The plain tests pin down single rules; the last one plays random histories against a model of a few lines.
"""

import json
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.engine.cache import Cache
from topics.engine.partitions.partition import MAX_SCAN_BYTES, MIN_SCAN_COST, Partition, Read, Totals
from topics.engine.partitions.render import USUAL, View
from topics.engine.partitions.segment import LARGE_RECORDS, MAX_PAGE_RECORDS, PAGE_RECORDS, HotSegment
from topics.engine.partitions.selection import Selection
from topics.model.config import TopicConfig
from topics.model.facts import CAP, RESTART, TTL, Deleted, DeletedRuns, Lost
from topics.model.records.match import TagMatch
from topics.model.records.page import RECORD_OVERHEAD, make_page
from topics.model.steps import finish

START_MS = 1_700_000_000_000
MUCH = 1 << 40


def new_partition(cache_bytes: int = 1 << 20) -> Partition:
    return Partition(1, 0, Cache(cache_bytes), Totals())


def append(
    partition: Partition, count: int = 1, ts: int = START_MS, tag: str | None = None, node: str | None = None
) -> None:
    first = partition.next_seq
    data = b"\0".join([b"%d" % seq for seq in range(first, first + count)])
    tags = None if tag is None else b"\0".join([json.dumps(tag).encode()] * count)
    nodes = None if node is None else b"\0".join([json.dumps(node).encode()] * count)
    partition.apply_append(make_page(first, count, ts, data, None, nodes, tags))


def evict(partition: Partition, now_ms: int = START_MS, **config: Any) -> None:
    fact = partition.decide_eviction(TopicConfig(**config), now_ms)
    if fact is not None:
        partition.apply_evicted(fact)


def delete_tag(partition: Partition, tag: str, before_seq: int | None = None) -> int:
    return partition.apply_selection(select(partition, tag, before_seq))


def select(partition: Partition, tag: str, before_seq: int | None = None) -> Selection:
    bound = partition.head_seq + 1
    return finish(partition.select(TagMatch(tag, False), bound if before_seq is None else min(bound, before_seq)))


def delete_below(partition: Partition, before_seq: int) -> int:
    return partition.apply_deleted_below(partition.decide_delete_below(before_seq))


def read(partition: Partition, from_seq: int = 0, limit: int = 1000, budget: int = MUCH, view: View = USUAL) -> Read:
    return partition.read(from_seq, limit, budget, view)


def seqs(found: Read) -> list[int]:
    records = json.loads(b"[" + found.records + b"]")
    assert len(records) == found.count
    assert found.tombstone is None or found.tombstone.gap_from <= found.tombstone.gap_to
    assert all([record["data"] == record["$seq"] for record in records])
    return [record["$seq"] for record in records]


# Appending


def test_a_repeated_page_changes_nothing() -> None:
    partition = new_partition()
    page = make_page(1, 2, START_MS, b"1\x002")
    partition.apply_append(page)
    before = (partition.head_seq, partition.count, partition.bytes)
    partition.apply_append(page)
    assert (partition.head_seq, partition.count, partition.bytes) == before == (2, 2, 2 * RECORD_OVERHEAD + 2)


def test_many_small_pages_are_folded_and_none_is_lost() -> None:
    partition = new_partition()
    for _ in range(3 * PAGE_RECORDS + 5):
        append(partition)
    (segment,) = partition.segments
    assert isinstance(segment, HotSegment)
    assert segment.page_count < 10
    found = read(partition)
    assert seqs(found) == list(range(1, 3 * PAGE_RECORDS + 6))


def test_pages_that_are_large_already_are_not_copied_and_small_ones_around_them_are_folded() -> None:
    partition = new_partition()
    counts = [1, 1, 1, 100, 1, 1, LARGE_RECORDS, 100, LARGE_RECORDS - 1, 1]
    for count in counts:
        append(partition, count)
    (segment,) = partition.segments
    assert isinstance(segment, HotSegment)
    segment.close()
    assert [page.count for page in segment.pages] == [3, 100, 2, LARGE_RECORDS, 100, LARGE_RECORDS]
    assert seqs(read(partition)) == list(range(1, sum(counts) + 1))
    assert [segment.page_at(seq).first_seq for seq in (1, 4, 103, 104)] == [1, 4, 4, 104]


def test_a_large_page_is_split() -> None:
    partition = new_partition()
    append(partition, 5 * PAGE_RECORDS)
    (segment,) = partition.segments
    assert isinstance(segment, HotSegment)
    assert segment.page_count == 5
    assert len(seqs(read(partition, limit=10_000))) == 5 * PAGE_RECORDS


def test_totals_follow_every_change() -> None:
    totals = Totals()
    one, other = Partition(1, 0, Cache(0), totals), Partition(2, 0, Cache(0), totals)
    append(one, 5, tag="t")
    append(other, 3)
    assert (totals.records, totals.bytes) == (8, one.bytes + other.bytes)
    delete_tag(one, "t", 3)
    evict(other, cap_records=1)
    assert (totals.records, totals.bytes) == (4, one.bytes + other.bytes)
    one.drop_all()
    assert (totals.records, totals.bytes) == (1, other.bytes)


# Evicting


@pytest.mark.parametrize(("cap", "left"), [(0, 10), (10, 10), (9, 9), (1, 1), (11, 10)])
def test_a_cap_of_records_leaves_the_newest(cap: int, left: int) -> None:
    partition = new_partition()
    append(partition, 10)
    evict(partition, cap_records=cap)
    assert seqs(read(partition)) == list(range(11 - left, 11))
    assert (partition.count, partition.earliest_seq) == (left, 11 - left)


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_cap_of_bytes_leaves_as_much_as_fits(extra: int) -> None:
    partition = new_partition()
    for _ in range(5):
        append(partition)
    three = 3 * (RECORD_OVERHEAD + 1)
    evict(partition, cap_bytes=three + extra)
    assert partition.count == (2 if extra < 0 else 3)
    assert partition.bytes <= three + extra


def test_a_topic_that_rejects_never_evicts_for_its_cap() -> None:
    partition = new_partition()
    append(partition, 5)
    evict(partition, cap_records=1, cap_bytes=1, discard="reject")
    assert partition.count == 5


@pytest.mark.parametrize(("now", "left"), [(99, [1, 2, 3]), (100, [2, 3]), (109, [2, 3]), (110, [3]), (120, [])])
def test_a_record_expires_when_its_age_reaches_the_ttl(now: int, left: list[int]) -> None:
    partition = new_partition()
    for ts in (0, 10, 20):
        append(partition, ts=START_MS + ts)
    evict(partition, START_MS + now, ttl_ms=100)
    assert seqs(read(partition)) == left


def test_the_floor_stops_behind_the_last_record_that_was_lost() -> None:
    partition = new_partition()
    append(partition, 2)
    append(partition, 3, tag="gone")
    append(partition, 1)
    delete_tag(partition, "gone")
    evict(partition, cap_records=1)
    assert (partition.evict_floor, partition.earliest_seq) == (3, 6)
    assert read(partition, 2).tombstone is None
    assert read(partition, 1).tombstone is not None


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"cap_records": 4}, {"cap_records": 3}, "cap"),
        ({"cap_records": 4}, {"ttl_ms": 1}, "mixed"),
        ({"ttl_ms": 1}, {}, "ttl"),
    ],
)
def test_the_reason_of_a_loss(first: dict[str, int], second: dict[str, int], reason: str) -> None:
    partition = new_partition()
    append(partition, 5)
    evict(partition, START_MS + 5, **first)
    evict(partition, START_MS + 5, **second)
    tombstone = read(partition).tombstone
    assert tombstone is not None
    assert tombstone.reason == reason


def test_an_eviction_already_made_is_not_decided_again_and_changes_nothing_twice() -> None:
    partition = new_partition()
    append(partition, 5)
    fact = partition.decide_eviction(TopicConfig(cap_records=2), START_MS)
    assert fact is not None
    assert (fact.floor, fact.reasons) == (4, CAP)
    for _ in range(2):
        partition.apply_evicted(fact)
        assert (partition.count, partition.evict_floor) == (2, 4)
    assert partition.decide_eviction(TopicConfig(cap_records=2), START_MS) is None
    lower = partition.decide_eviction(TopicConfig(ttl_ms=1), START_MS + 5)
    assert lower is not None
    assert lower.reasons == TTL


# Deleting


def test_deleting_below_a_seq_is_bounded_by_the_head() -> None:
    partition = new_partition()
    append(partition, 3)
    fact = partition.decide_delete_below(1000)
    append(partition, 2)
    assert partition.apply_deleted_below(fact) == 3
    assert partition.apply_deleted_below(fact) == 0
    assert seqs(read(partition)) == [4, 5]


def test_a_delete_by_tag_is_decided_once_and_applied_to_what_is_still_there() -> None:
    partition = new_partition()
    append(partition, 3, tag="t")
    selection = select(partition, "t")
    append(partition, 1, tag="t")
    delete_below(partition, 2)
    assert partition.apply_selection(selection) == 2
    assert partition.apply_selection(selection) == 0
    assert isinstance(selection.fact, DeletedRuns)
    assert partition.apply_deleted_runs(selection.fact) == 0
    assert seqs(read(partition)) == [4]


def test_facts_about_seqs_that_are_not_there_change_nothing() -> None:
    partition = new_partition()
    append(partition, 2)
    evict(partition, cap_records=1)
    assert partition.apply_deleted(Deleted(1, 0, array("Q", [1, 5, 1000]).tobytes())) == 0
    assert partition.count == 1


def test_a_front_deleted_record_by_record_holds_no_memory() -> None:
    partition = new_partition()
    for number in range(5 * PAGE_RECORDS):
        append(partition, tag=f"t{number}")
    for number in range(5 * PAGE_RECORDS - 1):
        delete_tag(partition, f"t{number}")
    (segment,) = partition.segments
    assert isinstance(segment, HotSegment)
    assert segment.page_count <= 40
    assert len(segment.tags) <= 40 * PAGE_RECORDS // 5
    assert seqs(read(partition)) == [5 * PAGE_RECORDS]


# Reading


def test_next_from_seq_passes_what_is_invisible_at_the_tail() -> None:
    partition = new_partition()
    append(partition, 2)
    append(partition, 2, tag="gone")
    append(partition, 2, node="own")
    delete_tag(partition, "gone")
    found = read(partition, view=View(without_nodes=frozenset({b'"own"'})))
    assert (seqs(found), found.next_from_seq, found.scanned) == ([1, 2], 6, 6)


class Asked(frozenset[bytes]):
    """Nodes of which there may be any number: they can be asked for one, not gone through."""

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
        plan = partition.plan(cursor, 1000, segment_bytes + extra)
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
    assert partition.read(0, 10, 1 << 20, View(), to_seq=3).tombstone is None
    assert partition.plan(0, 10, 1 << 20).tombstone == read(partition).tombstone


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


# Against a model


class Model:
    """Live records as a dict, and the floor below which loss is reported."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[int, str | None, str | None, int]] = {}
        self.head = 0
        self.floor = 1
        self.last_ts = START_MS

    def append(self, count: int, ts: int, tag: str | None, node: str | None) -> None:
        for _ in range(count):
            self.head += 1
            size = (
                RECORD_OVERHEAD + len(str(self.head)) + sum(len(text) + 2 for text in (tag, node) if text is not None)
            )
            self.records[self.head] = (ts, tag, node, size)
        self.last_ts = ts

    def evict(self, cap_records: int, cap_bytes: int, ttl_ms: int) -> None:
        for seq, (ts, _, _, _) in sorted(self.records.items()):
            over = (cap_records and len(self.records) > cap_records) or (
                cap_bytes and sum(record[3] for record in self.records.values()) > cap_bytes
            )
            if over or (ttl_ms and ts <= self.last_ts - ttl_ms):
                del self.records[seq]
                self.floor = seq + 1

    def delete(self, tag: str | None, before_seq: int) -> int:
        gone = [seq for seq, record in self.records.items() if seq < before_seq and (tag is None or record[1] == tag)]
        for seq in gone:
            del self.records[seq]
        return len(gone)

    def visible(self, from_seq: int, node: str | None) -> list[int]:
        return [seq for seq, record in self.records.items() if seq > from_seq and (node is None or record[2] != node)]


TAGS = st.sampled_from([None, "a", "b"])
ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 40), st.integers(0, 3), TAGS, TAGS),
    st.tuples(st.just("append"), st.integers(250, 600), st.integers(0, 3), TAGS, TAGS),
    st.tuples(st.just("delete_tag"), st.sampled_from(["a", "b"]), st.integers(0, 50)),
    st.tuples(st.just("delete_below"), st.integers(0, 50)),
    st.tuples(st.just("evict"), st.integers(0, 60), st.integers(0, 3000), st.integers(0, 10)),
    st.tuples(st.just("read"), st.integers(0, 60), st.integers(1, 300), st.integers(1, 9000), TAGS, st.booleans()),
)


@settings(max_examples=150)
@given(st.lists(ACTIONS, max_size=40))
def test_any_history_reads_like_the_model(actions: list[tuple[Any, ...]]) -> None:
    partition, model = new_partition(cache_bytes=20_000), Model()
    for name, *arguments in actions:
        if name == "append":
            count, step, tag, node = arguments
            append(partition, count, model.last_ts + step, tag, node)
            model.append(count, model.last_ts + step, tag, node)
        elif name == "delete_tag":
            tag, back = arguments
            bound = max(0, model.head - back)
            assert delete_tag(partition, tag, bound) == model.delete(tag, bound)
        elif name == "delete_below":
            bound = max(0, model.head - arguments[0])
            assert delete_below(partition, bound) == model.delete(None, bound)
        elif name == "evict":
            cap_records, cap_bytes, ttl_ms = arguments
            evict(partition, model.last_ts, cap_records=cap_records, cap_bytes=cap_bytes, ttl_ms=ttl_ms)
            model.evict(cap_records, cap_bytes, ttl_ms)
        else:
            check_read(partition, model, *arguments)
        assert partition.head_seq == model.head
        assert partition.count == len(model.records)
        assert partition.bytes == sum(record[3] for record in model.records.values())
        assert partition.earliest_seq == min(model.records, default=model.head + 1)
        assert partition.evict_floor == model.floor <= partition.earliest_seq
    check_read(partition, model, 10**9, 10**9, MUCH, None, False)


def check_read(
    partition: Partition, model: Model, back: int, limit: int, budget: int, node: str | None, include_tags: bool
) -> None:
    from_seq = max(0, model.head - back)
    view = View(
        tags=include_tags, without_nodes=frozenset() if node is None else frozenset({json.dumps(node).encode()})
    )
    found = partition.read(from_seq, limit, budget, view)
    visible = model.visible(from_seq, node)
    given_seqs = seqs(found)
    assert given_seqs == visible[: len(given_seqs)]
    assert len(given_seqs) <= limit
    # Nothing visible is passed, and everything invisible up to there is.
    left = [seq for seq in visible if seq > found.next_from_seq]
    assert visible[len(given_seqs) :] == left
    if not left and len(given_seqs) < limit:
        assert found.next_from_seq == model.head
    assert given_seqs or not visible
    if from_seq + 1 < model.floor:
        assert found.tombstone is not None
        assert (found.tombstone.gap_from, found.tombstone.gap_to) == (from_seq + 1, partition.earliest_seq - 1)
    else:
        assert found.tombstone is None
    for record in json.loads(b"[" + found.records + b"]"):
        ts, tag, own, _ = model.records[record["$seq"]]
        assert record["$ts"] == ts
        assert record.get("$node") == own
        assert record.get("$tag") == (tag if include_tags else None)
