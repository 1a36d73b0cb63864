"""Pages: columns can be folded, parted and split without a record changing."""

from hypothesis import given
from hypothesis import strategies as st

from topics.model.records.page import Page, column, fold, make_page, page_times, part, record_sizes, split

Record = tuple[int, bytes, bytes, bytes, bytes]

TEXTS = st.sampled_from([b"1", b'"x"', b"{}", b"null", b'{"a":[1,2]}'])
OPTIONAL = st.sampled_from([b"", b"", b'"a"', b'"bb"'])
RECORDS = st.lists(st.tuples(st.integers(0, 3), TEXTS, OPTIONAL, OPTIONAL, OPTIONAL), min_size=1, max_size=12)


def page_of(records: list[Record], first_seq: int = 1, first_ts: int = 1_000) -> Page:
    ts = first_ts
    times = b""
    for step, *_ in records:
        ts += step
        times += ts.to_bytes(8, "little", signed=True)
    columns = [b"\0".join([record[index] for record in records]) for index in range(1, 5)]
    data, *optional = columns
    metas, nodes, tags = [text if text.strip(b"\0") else None for text in optional]
    return make_page(first_seq, len(records), times, data, metas, nodes, tags)


def rows(page: Page) -> list[tuple[int, int, bytes, bytes, bytes, bytes, int]]:
    return list(
        zip(
            range(page.first_seq, page.last_seq + 1),
            page_times(page),
            page.data.split(b"\0"),
            column(page.metas, page.count),
            column(page.nodes, page.count),
            column(page.tags, page.count),
            record_sizes(page),
            strict=True,
        )
    )


@given(RECORDS, st.data())
def test_any_part_of_a_page_holds_the_same_records(records: list[Record], data: st.DataObject) -> None:
    page = page_of(records)
    start = data.draw(st.integers(0, page.count - 1))
    stop = data.draw(st.integers(start + 1, page.count))
    piece = part(page, start, stop)
    assert rows(piece) == rows(page)[start:stop]
    assert piece.size == sum(record_sizes(piece))


@given(RECORDS, st.integers(1, 12))
def test_splitting_and_folding_gives_the_page_back(records: list[Record], most: int) -> None:
    page = page_of(records)
    pieces = split(page, most)
    assert all([piece.count <= most for piece in pieces])
    assert rows(fold(pieces)) == rows(page)
    assert fold(pieces).size == page.size


def test_a_page_of_one_moment_tells_it_for_every_record() -> None:
    page = make_page(5, 3, 1234, b"1\x002\x003")
    assert page_times(page).tolist() == [1234] * 3
    assert (page.first_ts, page.last_ts, page.last_seq) == (1234, 1234, 7)


def test_first_and_last_time_of_a_page_of_many_moments() -> None:
    page = page_of([(0, b"1", b"", b"", b""), (5, b"2", b"", b"", b"")])
    assert (page.first_ts, page.last_ts) == (1000, 1005)
