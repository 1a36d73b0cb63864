"""Reading what is sealed: the same to a reader as what it was made of, however it is put together."""

import itertools
import random
import tracemalloc
from typing import Any

import msgspec
import pytest

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Partition, Totals
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import USUAL, View, record_heads, render_run
from topics.model.config import TopicConfig
from topics.model.records.match import TagMatch
from topics.model.records.page import Page, make_page
from topics.model.steps import finish
from topics.segments.sealed_segments import SealedSegment
from topics.segments.segment_cache import MAX_REMEMBERED_READS, SegmentCache
from topics.storage.segments.segment_format import segment_base
from topics.storage.segments.segment_writer import write_segment
from topics.testing.disk.fake_disk import FakeDisk

START_MS = 1_700_000_000_000
NODES = ["a", "worker-7", "ü", 'with "quotes"', "line\nbreak", ""]
TAGS = ["red", "green", "gré", "back\\slash", ""]
VIEWS = [USUAL, View(tags=True), View(metas=False), View(data=False), View(without_nodes=frozenset([b'"a"']))]


def some_pages(chance: random.Random, first_seq: int, parts: str) -> list[Page]:
    """Pages as appends leave them; `parts` says what records may have: n(odes), m(etas), t(ags); N and T odd ones too."""
    pages: list[Page] = []
    ts = START_MS
    seq = first_seq
    for _ in range(chance.randint(1, 30)):
        count = chance.choice([1, 1, 2, 10, 100, 256])
        ts += chance.choice([0, 0, 1, 5000])

        def column(letter: str, values: list[Any], count: int = count) -> bytes | None:
            if letter not in parts or chance.random() < 0.2:
                return None
            return b"\0".join(
                [msgspec.json.encode(chance.choice(values)) if chance.random() < 0.7 else b"" for _ in range(count)]
            )

        datas = [msgspec.json.encode("x" * chance.randint(0, 60)) for _ in range(count)]
        metas = column("m", [{"k": 1}, "ü", [1, 2, 3]])
        nodes = column("n", NODES[:3]) or column("N", NODES)
        tags = column("t", TAGS[:3]) or column("T", TAGS)
        pages.append(make_page(seq, count, ts, b"\0".join(datas), metas, nodes, tags))
        seq += count
    return pages


def hot_and_sealed(pages: list[Page]) -> tuple[Partition, Partition]:
    disk = FakeDisk()
    disk.make_directory("")
    hot, sealed = Partition(1, 0, Cache(1 << 20), Totals()), Partition(1, 0, Cache(1 << 20), Totals())
    for partition in (hot, sealed):
        partition.next_seq = pages[0].first_seq
        partition.head_seq = pages[0].first_seq - 1
        for page in pages:
            partition.apply_append(page)
    closed = sealed.close_hot()
    assert closed is not None
    info = write_segment(
        disk, segment_base(1, 0, pages[0].first_seq), closed.pages, closed.tags.entries(pages[0].first_seq)
    )
    sealed.apply_sealed(SealedSegment(SegmentCache(disk, 1 << 20), 1, 0, info))
    assert [segment.sealed for segment in sealed.segments] == [True]
    return hot, sealed


@pytest.mark.parametrize("parts", ["", "m", "n", "t", "nm", "nmt", "N", "Nm", "T", "NmT"])
@pytest.mark.parametrize("first_seq", [1, 900, 1000, 9_950, 123_456_789_000])
def test_a_sealed_log_reads_as_it_did_when_it_was_hot(parts: str, first_seq: int) -> None:
    chance = random.Random(f"{parts} {first_seq}")
    hot, sealed = hot_and_sealed(some_pages(chance, first_seq, parts))
    for step in range(60):
        if step == 40:
            gone = sorted(chance.sample(range(first_seq, hot.head_seq + 1), (hot.head_seq - first_seq + 1) // 5))
            assert hot.kill(gone) == sealed.kill(gone) == len(gone)
        from_seq = chance.randint(first_seq - 1, hot.head_seq)
        limit = chance.choice([1, 7, 256, 1000, 5000])
        view = chance.choice(VIEWS)
        to_seq = chance.choice([None, from_seq + chance.randint(1, 300)])
        one, other = [read_records(each, from_seq, limit, 1 << 30, view, to_seq=to_seq) for each in (hot, sealed)]
        assert other.records == one.records
        assert (other.count, other.next_from_seq) == (one.count, one.next_from_seq)


@pytest.mark.parametrize("parts", ["", "m", "nt", "NmT"])
def test_a_sealed_log_counts_what_is_deleted_as_the_hot_one_does(parts: str) -> None:
    chance = random.Random(parts)
    hot, sealed = hot_and_sealed(some_pages(chance, 1, parts))
    (segment,) = sealed.segments
    assert isinstance(segment, SealedSegment)
    for _ in range(20):
        first = chance.randint(1, hot.head_seq)
        stop = min(hot.head_seq + 1, first + chance.choice([1, 3, 300]))
        some = sorted(chance.sample(range(1, hot.head_seq + 1), min(5, hot.head_seq)))
        assert hot.kill_runs([(first, stop)]) == sealed.kill_runs([(first, stop)])
        assert hot.kill(some) == sealed.kill(some)
        assert (sealed.count, sealed.bytes) == (hot.count, hot.bytes)
    # What the flags say after a restart is the same as well.
    segment.save_flags(segment.copy_flags())
    again = SealedSegment(segment.cache, 1, 0, segment.info)
    again.restore_flags()
    assert (again.live, again.live_bytes) == (sealed.count, sealed.bytes)


@pytest.mark.parametrize("parts", ["t", "T"])
def test_tags_are_found_in_a_sealed_segment_as_in_the_hot_one(parts: str) -> None:
    hot, sealed = hot_and_sealed(some_pages(random.Random(parts), 1, parts))
    for text, prefix in itertools.product([*TAGS, "gr", "r", "nowhere"], [False, True]):
        match = TagMatch(text, prefix)
        found = finish(hot.segments[0].tagged(match, hot.head_seq - 5))
        assert finish(sealed.segments[0].tagged(match, hot.head_seq - 5)) == found
    assert 1 in finish(hot.segments[0].tagged(TagMatch("gr", True), hot.head_seq))


@pytest.mark.parametrize("parts", ["", "nmt", "N"])
def test_a_small_budget_lets_a_reader_of_sealed_records_through_all_of_them(parts: str) -> None:
    pages = some_pages(random.Random(7), 2000, parts)
    _, sealed = hot_and_sealed(pages)
    seq, texts = 1999, []
    while seq < sealed.head_seq:
        read = read_records(sealed, seq, 100, 3000, USUAL)
        assert read.count
        # A run is rendered when it fits, and the record that does not fit is the next reader's first.
        assert len(read.records) < 3000 + 100 * 60
        texts.append(read.records)
        seq = read.next_from_seq
    assert b",".join(texts) == b",".join([render_run(page, 0, page.count) for page in pages])


def test_heads_of_records_are_those_of_records_rendered_one_by_one() -> None:
    chance = random.Random(3)
    for _ in range(300):
        first_seq = 10 ** chance.randint(3, 18) + chance.randint(0, 2000)
        seqs = range(first_seq, first_seq + chance.randint(1, 2500))
        expected = [b'},{"$seq":%d,"$ts":7' % seq for seq in seqs]
        assert record_heads(first_seq, len(seqs), b',"$ts":7') == (b"".join(expected), len(expected[0]))


@pytest.mark.parametrize(("first_seq", "count"), [(999, 2), (9999, 2), (7, 1), (9_000, 1001)])
def test_heads_of_different_length_are_not_rendered_in_bulk(first_seq: int, count: int) -> None:
    assert record_heads(first_seq, count, b"") is None


def test_only_a_repeated_read_of_sealed_records_is_cached() -> None:
    segment_cache = SegmentCache(FakeDisk(), 1 << 20)
    assert not segment_cache.is_repeated_read("a", 1, 256)
    assert segment_cache.is_repeated_read("a", 1, 256)
    for seq in range(3 * MAX_REMEMBERED_READS):
        assert not segment_cache.is_repeated_read("b", seq, 256)
    assert not segment_cache.is_repeated_read("a", 1, 256)


@pytest.mark.parametrize("view", [USUAL, View(tags=True)])
def test_memory_of_readers_does_not_grow_with_the_records_they_read(view: View) -> None:
    cache_bytes = 1 << 20
    disk = FakeDisk()
    disk.make_directory("")
    segment_cache = SegmentCache(disk, cache_bytes)
    partition = Partition(1, 0, Cache(cache_bytes), Totals())
    for number in range(20):
        first_seq = 1 + 100 * number
        datas = [b'"%b"' % (b"%d" % seq * 1000) for seq in range(first_seq, first_seq + 100)]
        partition.apply_append(make_page(first_seq, 100, START_MS, b"\0".join(datas), tags=b"\0".join([b'"t"'] * 100)))
        closed = partition.close_hot()
        assert closed is not None
        info = write_segment(disk, segment_base(1, 0, first_seq), closed.pages, closed.tags.entries(first_seq))
        segment = SealedSegment(segment_cache, 1, 0, info)
        # A file is not mapped here but copied, and that is no part of it.
        segment.open_file()
        partition.apply_sealed(segment)
    del closed, datas
    tracemalloc.start()
    try:
        seq = 0
        while seq < partition.head_seq:
            seq = read_records(partition, seq, 1000, 50_000, view).next_from_seq
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Pages and texts, each with its own cache, and the page that was looked at last.
    assert left < 2 * cache_bytes + (512 << 10)


@pytest.mark.parametrize("view", [USUAL, View(tags=True), View(without_nodes=frozenset([b'"a"']))])
def test_a_reader_of_large_records_takes_no_copy_of_all_that_follow(view: View) -> None:
    count = 800
    nodes = b"\0".join([b'"b"'] * count)
    page = make_page(1, count, START_MS, b"\0".join([b'"%b"' % (b"x" * 10_000)] * count), nodes=nodes)
    _, sealed = hot_and_sealed([page])
    read_records(sealed, 0, 1, 100, view)
    tracemalloc.start()
    try:
        read = read_records(sealed, 0, 1000, 100_000, view)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 8 <= read.count <= 10
    assert most < 2 << 20


def test_one_of_many_large_records_is_had_without_the_others() -> None:
    count = 800
    _, sealed = hot_and_sealed([make_page(1, count, START_MS, b"\0".join([b'"%b"' % (b"x" * 10_000)] * count))])
    for seq in (1, 2, 300, 512, count):
        page = sealed.page_at(seq)
        assert page.first_seq <= seq <= page.last_seq
        assert page.size <= 1 << 20
    tracemalloc.start()
    try:
        fact = sealed.decide_eviction(TopicConfig(cap_records=count - 3), START_MS)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fact is not None
    assert fact.floor == 4
    assert most < 100_000


def test_pages_of_which_nothing_is_left_are_not_kept() -> None:
    _, sealed = hot_and_sealed(some_pages(random.Random(5), 5000, "m"))
    (segment,) = sealed.segments
    assert isinstance(segment, SealedSegment)
    kept = segment.cache.pages
    for seq in range(5000, sealed.head_seq + 1):
        assert sealed.page_at(seq).first_seq <= seq
    pages = len(kept)
    assert pages > 2
    last = sealed.page_at(sealed.head_seq).first_seq
    # Every second record, then the rest: only the second time a page is done with.
    sealed.kill(list(range(5000, last, 2)))
    assert len(kept) == pages
    sealed.kill(list(range(5001, last, 2)))
    assert len(kept) == 1
    assert sealed.page_at(last).first_seq == last


@pytest.mark.parametrize("seed", range(10))
def test_the_bytes_a_write_will_evict_are_those_that_the_caps_take_after_it(seed: int) -> None:
    chance = random.Random(seed)
    for partition in hot_and_sealed(some_pages(chance, 1, "nmt")):
        partition.kill(sorted(chance.sample(range(1, partition.head_seq + 1), partition.head_seq // 4)))
        for _ in range(20):
            config = TopicConfig(
                cap_records=chance.choice([0, chance.randint(100, 1000)]),
                cap_bytes=chance.choice([0, chance.randint(10_000, 100_000)]),
            )
            count = chance.choice([chance.randint(1, 100), chance.randint(1, 2000)])
            texts = [b"1" * chance.randint(1, 100) for _ in range(count)]
            page = make_page(partition.head_seq + 1, count, START_MS + 10**9, b"\0".join(texts))
            expected = partition.bytes + page.size - partition.bytes_evicted_by(config, count, page.size, [page])
            partition.apply_append(page)
            fact = partition.decide_eviction(config, START_MS + 10**9)
            if fact is not None:
                partition.apply_evicted(fact)
            assert partition.bytes == expected
