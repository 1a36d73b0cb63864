"""Pages become columns of Arrow and texts again."""

import pyarrow as pa

from topics.model.records.page import make_page
from topics.storage.segments.columns import first_not_in, has_empty, joined_texts, node_set, record_batch, tag_batch


def test_adjacent_pages_become_one_batch() -> None:
    pages = [
        make_page(5, 2, 1000, b'1\0"x"', None, b'"n"\0', b'\0"t"'),
        make_page(7, 1, 2000, b"null", b'{"m":1}', None, None),
    ]
    rows = record_batch(pa, pages).to_pylist()
    assert [row["seq"] for row in rows] == [5, 6, 7]
    assert [row["node"] for row in rows] == ["n", None, None]
    assert [row["tag"] for row in rows] == [None, "t", None]
    assert [row["data"] for row in rows] == ["1", '"x"', "null"]
    assert [row["meta"] for row in rows] == [None, None, '{"m":1}']


def test_texts_are_joined_as_pages_hold_them() -> None:
    assert joined_texts(pa.array(["1", None, "3"], pa.string())) == b"1\0\x003"


def test_tags_are_sorted_with_their_seqs() -> None:
    assert tag_batch(pa, [(b'"b"', [5, 9]), (b'"a"', 7)]).to_pylist() == [
        {"tag": '"a"', "seqs": [7]},
        {"tag": '"b"', "seqs": [5, 9]},
    ]


def test_the_first_record_of_another_node_is_found() -> None:
    nodes = node_set(pa, frozenset([b'"a"', b'"b"']))
    assert first_not_in(pa.array(["a", "b", None, "c"]), nodes) == 2
    assert first_not_in(pa.array(["a", "b"]), nodes) == -1


def test_only_an_empty_text_is_empty() -> None:
    assert has_empty(pa.array(["", "a"]))
    assert not has_empty(pa.array([None, "a"], pa.string()))
