"""Both ways to render records give the same JSON."""

import json

import pytest

from topics.engine.partitions.render import Rendering, View, record_heads, render_records, render_run
from topics.model.records.page import Page, make_page

RICH = make_page(998, 4, 1000, b'1\0{"a": 2}\0null\0"x"', b'\0{"m":1}\0\0', b'"n"\0\0"o"\0', b'\0\0"t"\0')


@pytest.mark.parametrize("page", [RICH, make_page(1, 3, 7, b"1\x002\x003")], ids=["rich", "plain"])
def test_a_run_equals_its_records_rendered_one_by_one(page: Page) -> None:
    for start in range(page.count):
        for stop in range(start + 1, page.count + 1):
            expected = b",".join(render_records(page, range(start, stop), View()))
            assert render_run(page, start, stop) == expected
            assert Rendering(page).cut(start, stop) == expected


def test_a_view_leaves_out_parts_and_nodes() -> None:
    view = View(tags=True, metas=False, data=False, without_nodes=frozenset([b'"n"']))
    rendered = [json.loads(text) for text in render_records(RICH, range(4), view)]
    assert rendered == [
        {"$seq": 999, "$ts": 1000},
        {"$seq": 1000, "$ts": 1000, "$node": "o", "$tag": "t"},
        {"$seq": 1001, "$ts": 1000},
    ]


def test_heads_of_records_with_equal_digits_are_made_in_bulk() -> None:
    found = record_heads(1998, 3, b",X")
    assert found is not None
    text, length = found
    assert text == b"".join([b'},{"$seq":%d,X' % seq for seq in (1998, 1999, 2000)])
    assert length * 3 == len(text)
    assert record_heads(9999, 2, b"") is None
    assert record_heads(5, 2, b"") is None
