"""Ranges: cutting and sharing lose no seq and repeat none."""

from hypothesis import given
from hypothesis import strategies as st

from topics.spark.connector.ranges import MAX_SHARED_SEQS, MIN_SHARED_SEQS, Part, SeqRange, cut, cut_to, pack, share

RANGES = st.lists(
    st.builds(
        lambda number, first, seqs: SeqRange("t", number, 1, first, first + seqs - 1),
        st.integers(0, 5),
        st.integers(1, 1000),
        st.integers(0, 300),
    ),
    max_size=6,
)


@given(RANGES, st.integers(0, 40))
def test_cutting_keeps_every_seq_once_and_in_order(ranges: list[SeqRange], least: int) -> None:
    def seqs(some: list[SeqRange]) -> list[tuple[int, int]]:
        return [(each.partition, seq) for each in some for seq in range(each.first, each.last + 1)]

    pieces = cut(ranges, least)
    assert seqs(pieces) == seqs(ranges)
    assert all([piece.seqs > 0 for piece in pieces])


@given(RANGES, st.integers(0, 10))
def test_packing_keeps_every_range_in_order_in_at_least_as_many_tasks_as_asked(
    ranges: list[SeqRange], least: int
) -> None:
    parts = [Part(each) for each in ranges]
    tasks = pack(parts, least)
    assert [part for task in tasks for part in task] == parts
    assert all(tasks)
    assert len(tasks) >= min(least, len(parts))


def test_short_ranges_share_a_task_and_long_ones_do_not() -> None:
    short = [Part(SeqRange("t", number, 1, 1, 1)) for number in range(256)]
    long = [Part(SeqRange("t", number, 1, 1, MAX_SHARED_SEQS)) for number in range(256)]
    middle = [Part(SeqRange("t", number, 1, 1, MIN_SHARED_SEQS // 2)) for number in range(3)]
    assert [len(pack(parts, 0)) for parts in (short, long, middle)] == [1, 256, 2]
    assert len(pack(short, 8)) == 8


def test_a_partition_is_cut_into_as_many_as_asked() -> None:
    assert [(each.first, each.last) for each in cut([SeqRange("t", 0, 1, 1, 10)], 3)] == [(1, 4), (5, 7), (8, 10)]
    assert len(cut([SeqRange("t", 0, 1, 1, 2)], 9)) == 2


@given(RANGES, st.integers(1, 40))
def test_there_are_at_least_as_many_ranges_as_asked_where_there_are_as_many_seqs(
    ranges: list[SeqRange], least: int
) -> None:
    assert len(cut(ranges, least)) >= min(least, sum([each.seqs for each in ranges]))


def test_a_longer_range_is_cut_more_often() -> None:
    pieces = cut([SeqRange("t", 0, 1, 1, 90), SeqRange("t", 1, 1, 1, 10)], 10)
    assert [each.partition for each in pieces].count(0) == 9


@given(st.dictionaries(st.tuples(st.just("t"), st.integers(0, 9)), st.integers(0, 1000)), st.integers(1, 500))
def test_sharing_takes_what_is_allowed_and_never_more_than_there_is(
    available: dict[tuple[str, int], int], most: int
) -> None:
    taken = share(available, most)
    having = [key for key, seqs in available.items() if seqs]
    assert sum(taken.values()) == min(max(most, len(having)), sum(available.values()))
    assert all([taken[key] for key in having])
    assert all([0 <= taken[key] <= available[key] for key in available])


def test_a_small_partition_beside_a_huge_one_gets_its_turn() -> None:
    assert share({("t", 0): 1_000_000, ("t", 1): 1}, 100) == {("t", 0): 99, ("t", 1): 1}


def test_a_task_has_at_most_as_many_seqs_as_allowed() -> None:
    ranges = [SeqRange("t", 0, 1, 1, 10), SeqRange("t", 1, 1, 1, 2), SeqRange("t", 2, 1, 5, 5)]
    tasks = pack([Part(each) for each in cut_to(ranges, 4)], 0, 4)
    assert [[(each.wanted.partition, each.wanted.first, each.wanted.last) for each in task] for task in tasks] == [
        [(0, 1, 4)],
        [(0, 5, 8)],
        [(0, 9, 10), (1, 1, 2)],
        [(2, 5, 5)],
    ]
