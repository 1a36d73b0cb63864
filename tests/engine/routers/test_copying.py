"""Copies are the records they were made of, to the byte, however they are selected and wherever they stand."""

from hypothesis import given
from hypothesis import strategies as st

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Partition, Totals
from topics.engine.partitions.reading import read_records
from topics.engine.partitions.render import USUAL
from topics.engine.routers.copying import (
    CLEAR_NODE,
    CLEAR_TAG,
    Columns,
    chosen_bits,
    chosen_seqs,
    gather,
    joined,
    matching,
    picked,
    select,
    shaped,
    stamp_prefix,
    stamped,
    stamped_seqs,
)
from topics.model.facts import RESTART, DeletedBelow, Lost
from topics.model.records.match import TagMatch
from topics.model.records.page import SEPARATOR, column, make_page, page_size

Text = tuple[bytes, bytes, bytes, bytes]
texts = st.tuples(
    st.sampled_from([b"1", b'"two"', b"null", b'{"a": 1.0}']),
    st.sampled_from([b"", b"{}", b'{"m":1}']),
    st.sampled_from([b"", b'"n1"', b'"n2"']),
    st.sampled_from([b"", b'"t:1"', b'"t:2"', b'"u"']),
)


def columns_of(records: list[Text]) -> Columns:
    data, metas, nodes, tags = [
        SEPARATOR.join([record[position] for record in records])
        if any([record[position] for record in records])
        else None
        for position in range(4)
    ]
    assert data is not None
    return Columns(len(records), data, metas, nodes, tags, page_size(len(records), data, metas, nodes, tags))


def records_of(columns: Columns) -> list[Text]:
    parts = [column(text, columns.count) for text in (columns.data, columns.metas, columns.nodes, columns.tags)]
    return list(zip(*parts, strict=True))


def partition_of(batches: list[list[Text]]) -> tuple[Partition, dict[int, Text]]:
    partition = Partition(1, 0, Cache(1 << 20), Totals())
    expected: dict[int, Text] = {}
    for batch in batches:
        columns = columns_of(batch)
        first = partition.head_seq + 1
        page = make_page(first, columns.count, 1000, columns.data, columns.metas, columns.nodes, columns.tags)
        partition.apply_append(page)
        expected |= dict(enumerate(batch, first))
    return partition, expected


@given(
    st.lists(st.lists(texts, min_size=1, max_size=9), min_size=1, max_size=12),
    st.sets(st.integers(1, 60)),
    st.integers(1, 20),
    st.integers(1, 7),
    st.sampled_from([30, 200, 1 << 20]),
)
def test_runs_visit_every_live_record_once_in_order(
    batches: list[list[Text]], gone: set[int], below: int, most: int, most_bytes: int
) -> None:
    partition, expected = partition_of(batches)
    partition.kill(sorted(gone & set(expected)))
    partition.apply_deleted_below(DeletedBelow(1, 0, min(below, partition.head_seq + 1)))
    for seq in gone | set(range(1, below)):
        expected.pop(seq, None)
    cursor = 0
    found: dict[int, Text] = {}
    while cursor < partition.head_seq:
        selection = select(partition, cursor, partition.head_seq, most, most_bytes)
        assert selection.last > cursor
        assert len(selection.seqs) <= most
        bits = chosen_bits(selection, selection.seqs)
        assert list(chosen_seqs(selection.first, selection.last, bits)) == list(selection.seqs) or not selection.seqs
        pieces = gather(partition.find, selection.seqs)
        assert all([isinstance(piece, Columns) for piece in pieces])
        records = [record for piece in pieces if isinstance(piece, Columns) for record in records_of(piece)]
        for piece in pieces:
            assert isinstance(piece, Columns)
            assert piece.size == page_size(piece.count, piece.data, piece.metas, piece.nodes, piece.tags)
        found |= dict(zip(selection.seqs, records, strict=True))
        cursor = selection.last
    assert found == expected


@given(st.lists(texts, min_size=1, max_size=20), st.data())
def test_picked_and_joined_records_are_the_same_records(records: list[Text], data: st.DataObject) -> None:
    columns = columns_of(records)
    positions = sorted(data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1)))
    chosen = picked(columns, positions)
    assert records_of(chosen) == [records[position] for position in positions]
    cut = data.draw(st.integers(1, len(records)))
    parts = [columns_of(part) for part in (records[:cut], records[cut:]) if part]
    assert records_of(joined(parts)) == records
    assert joined(parts).size == columns.size


@given(st.lists(texts, min_size=1, max_size=20))
def test_filters_see_tags_as_deletes_do(records: list[Text]) -> None:
    columns = columns_of(records)
    for match in (TagMatch("t:1", False), TagMatch("t:", True), TagMatch("", True), TagMatch("t", False)):
        tags = [record[3].decode().strip('"') or None for record in records]
        assert matching(columns, match) == [position for position, tag in enumerate(tags) if match.matches(tag)]


def test_node_and_tag_are_cleared_as_asked() -> None:
    columns = columns_of([(b"1", b"{}", b'"n"', b'"t"')])
    assert records_of(shaped(columns, CLEAR_NODE)) == [(b"1", b"{}", b"", b'"t"')]
    assert records_of(shaped(columns, CLEAR_TAG)) == [(b"1", b"{}", b'"n"', b"")]
    assert shaped(columns, 0) is columns
    bare = shaped(columns, CLEAR_NODE | CLEAR_TAG)
    assert bare.size == page_size(1, b"1", b"{}", None, None)


def test_records_that_are_not_known_are_counted() -> None:
    partition, _ = partition_of([[(b"1", b"", b"", b"")] * 3])
    pieces = gather(lambda seq: partition.find(seq) if seq <= 3 else None, [2, 3, 4, 5, 7])
    assert [piece if isinstance(piece, int) else piece.count for piece in pieces] == [2, 3]


def test_a_stamp_comes_first_keeps_the_rest_and_replaces_an_earlier_one() -> None:
    records = [
        (b"1", meta, b"", b"") for meta in (b"", b"{}", b'{ "a" :1.0 }', b'{"b":2,"_topics_router":{"key":"x"}}')
    ]
    once = stamped(columns_of(records), [5, 6, 7, 8], "s->d", "s", 3, 0)
    metas = column(once.metas, 4)
    stamp = b'{"_topics_router":{"key":"s->d/3/0/%d","router":"s->d","source":"s","epoch":3,"partition":0,"seq":%d}'
    assert metas == [
        stamp % (5, 5) + b"}",
        stamp % (6, 6) + b"}",
        stamp % (7, 7) + b',"a" :1.0 }',
        stamp % (8, 8) + b',"b":2}',
    ]
    page = once.page(101, 1)
    assert stamped_seqs(page, stamp_prefix("s->d", 3, 0)) == [(5, 101), (6, 102), (7, 103), (8, 104)]
    assert stamped_seqs(page, stamp_prefix("s->d", 2, 0)) == []
    again = stamped(once, [1, 2, 3, 4], "d->e", "d", 9, 0)
    assert [meta.count(b"_topics_router") for meta in column(again.metas, 4)] == [1, 1, 1, 1]
    assert column(again.metas, 4)[2].endswith(b',"a":1.0}')


def test_records_that_turn_up_again_leave_no_hole_and_are_counted() -> None:
    partition, _ = partition_of([[(b"1", b"", b"", b"")] * 2])
    partition.apply_lost(Lost(1, 0, 3, 9, RESTART))
    partition.apply_append(make_page(10, 1, 1000, b"10"))
    partition.refill(make_page(5, 2, 1000, SEPARATOR.join([b"5", b"6"])))
    assert [(hole.first, hole.last) for hole in partition.holes] == [(3, 4), (7, 9)]
    assert partition.count == 5
    assert [partition.next_live(seq) for seq in (3, 6, 7)] == [5, 6, 10]
    assert (
        read_records(partition, 4, 10, 1 << 20, USUAL).records
        == b'{"$seq":5,"$ts":1000,"data":5},{"$seq":6,"$ts":1000,"data":6}'
    )
