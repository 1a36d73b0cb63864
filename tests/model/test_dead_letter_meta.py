"""Where a dead letter came from, in its meta."""

import json

import pytest

from topics.model.dead_letter_meta import origin_of, with_origin, without_origin


@pytest.mark.parametrize("meta", [b"", b"{}", b'{"a": 1.50}', b'{"b":{"c":[]}}'])
def test_the_origin_is_added_and_removed_and_other_keys_keep_their_bytes(meta: bytes) -> None:
    marked = with_origin(meta, "queue", 3, 7, "expired")
    fields = json.loads(marked)
    assert fields["$dead_letter_from"] == "queue"
    assert (fields["$dead_letter_deliveries"], fields["$dead_letter_src_seq"]) == (3, 7)
    assert origin_of(marked) == "queue"
    before = without_origin(marked)
    assert json.loads(before or b"{}") == json.loads(meta or b"{}")
    assert b"1.50" not in meta or b"1.50" in before


def test_the_origin_of_an_earlier_move_is_replaced() -> None:
    again = with_origin(with_origin(b'{"a":1}', "first", 1, 1), "second", 2, 2)
    assert again.count(b"$dead_letter_from") == 1
    assert origin_of(again) == "second"


def test_other_records_have_no_origin() -> None:
    assert origin_of(b"") is None
    assert origin_of(b'{"a":"$dead_letter_from"}') is None
