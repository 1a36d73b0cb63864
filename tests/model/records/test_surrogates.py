r"""Half surrogate pairs can be covered and uncovered without touching anything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.model.limits import Limits
from topics.model.records.batch import decode_batch
from topics.model.records.surrogates import cover_halves

ESCAPES = [
    b"\\ud800",
    b"\\uD800",
    b"\\udbff",
    b"\\udc00",
    b"\\uDFFF",
    b"\\ud83d\\ude00",
    b"\\\\",
    b"\\\\ud800",
    b"\\n",
    b"\\u0041",
    b"\\ue000",
    b"\\uE001",
    b"\xee\x80\x82",
    b"x",
    b"ud800",
]


@given(st.lists(st.sampled_from(ESCAPES), max_size=12).map(b"".join))
def test_any_text_that_json_allows_is_kept_as_it_was_sent(text: bytes) -> None:
    data = b'{"' + text + b'":["' + text + b'"]}'
    json.loads(data)
    batch = decode_batch(b'{"records":[{"data":' + data + b',"meta":' + data + b"}]}", Limits())
    assert (batch.data, batch.metas) == (data, data)


@given(st.lists(st.sampled_from(ESCAPES), max_size=12).map(b"".join))
def test_a_covered_body_has_the_same_length_and_no_half_left(text: bytes) -> None:
    covered = cover_halves(b'"' + text + b'"')
    if covered is not None:
        assert len(covered.body) == len(text) + 2
        json.loads(covered.body).encode()
        assert covered.uncover(covered.body) == b'"' + text + b'"'


@pytest.mark.parametrize("body", [b"", b"plain", b'"\\ud83d\\ude00"', b'"\\\\ud800"', b'"\\u0041"'])
def test_there_is_nothing_to_cover_in_whole_characters(body: bytes) -> None:
    assert cover_halves(body) is None


def test_a_text_that_holds_half_a_character_is_noticed() -> None:
    covered = cover_halves(b'"\\ud800 \\ue000"')
    assert covered is not None
    assert covered.touches(json.loads(covered.body))
    assert not covered.touches("\ue000")


def test_a_body_too_large_to_look_through_is_left_alone() -> None:
    assert cover_halves(b'"\\ud800"') is not None
    assert cover_halves(b'"\\ud800"' + b" " * (2 << 20)) is None
