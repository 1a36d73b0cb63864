"""A page of records as an Arrow stream: deleted and filtered records are left out."""

from typing import Any

import pyarrow as pa

from topics.model.records.match import TagMatch
from topics.model.records.page import make_page
from topics.storage.segments.columns import record_batch
from topics.wire.arrow_page import ArrowOptions, encode_page

PAGE = make_page(5, 3, 1000, b"1\x002\x003", None, b'"n"\0\0"m"', b'"a"\0"ab"\0')
ALL = ArrowOptions(frozenset(), None, tags=True, data=True, metas=True)


def rows(options: ArrowOptions, flags: bytes | None = None) -> tuple[list[dict[str, Any]], int]:
    body, count = encode_page([(record_batch(pa, [PAGE]), flags)], {"head_seq": b"7"}, options)
    with pa.ipc.open_stream(body) as stream:
        assert stream.schema.metadata == {b"head_seq": b"7"}
        return stream.read_all().to_pylist(), count


def test_all_records_with_their_columns() -> None:
    found, count = rows(ALL)
    assert count == 3
    assert [(row["seq"], row["node"], row["tag"], row["data"]) for row in found] == [
        (5, "n", "a", "1"),
        (6, None, "ab", "2"),
        (7, "m", None, "3"),
    ]


def test_deleted_records_are_left_out() -> None:
    assert [row["seq"] for row in rows(ALL, b"\0\1\0")[0]] == [5, 7]


def test_records_of_excluded_nodes_and_other_tags_are_left_out() -> None:
    assert [row["seq"] for row in rows(ArrowOptions(frozenset([b'"n"']), None, True, True, True))[0]] == [6, 7]
    assert [row["seq"] for row in rows(ArrowOptions(frozenset(), TagMatch("a", True), True, True, True))[0]] == [5, 6]
    assert [row["seq"] for row in rows(ArrowOptions(frozenset(), TagMatch("a", False), True, True, True))[0]] == [5]


def test_columns_that_are_not_asked_for_are_null() -> None:
    found, _ = rows(ArrowOptions(frozenset(), None, tags=False, data=False, metas=True))
    assert {(row["tag"], row["data"]) for row in found} == {(None, None)}
