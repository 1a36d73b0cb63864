"""One log: what it stores, what it removes, and what a reader at any cursor gets.

The plain tests pin down single rules; the last one plays random histories against a model of a few lines.
"""

import json
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.partitions.small_partition import (
    MUCH,
    START_MS,
    append,
    delete_below,
    delete_tag,
    evict,
    new_partition,
    read,
    select,
    seqs,
)
from topics.engine.cache import Cache
from topics.engine.partitions.hot_segment import LARGE_RECORDS, HotSegment
from topics.engine.partitions.partition import Partition, Totals
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import View
from topics.engine.partitions.segment import PAGE_RECORDS
from topics.model.config import TopicConfig
from topics.model.facts import CAP, TTL, Deleted, DeletedRuns
from topics.model.records.page import RECORD_OVERHEAD, make_page


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
    found = read_records(partition, from_seq, limit, budget, view)
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
