"""A walk through a JSON text sees what the decoder sees, one value at a time."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.model.errors import InvalidRequest
from topics.model.records.json_walk import MAX_SPACE_BYTES, JsonWalk, ValueTooLong, entries_in_object, strings_in_list

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False, width=32),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
SPACE = st.sampled_from(["", " ", "\n", "\t\r\n  "])


def walked_list(text: bytes) -> list[Any]:
    walk = JsonWalk(text)
    walk.enter(b"[")
    found = []
    more = not walk.is_empty(b"]")
    while more:
        start, end = walk.skip(len(text))
        found.append(json.loads(text[start:end]))
        more = walk.next_item(b"]")
    walk.finish()
    return found


def walked_object(text: bytes) -> list[tuple[str, Any]]:
    walk = JsonWalk(text)
    walk.enter(b"{")
    found = []
    more = not walk.is_empty(b"}")
    while more:
        key = walk.key()
        start, end = walk.skip(len(text))
        found.append((key, json.loads(text[start:end])))
        more = walk.next_item(b"}")
    walk.finish()
    return found


@given(st.lists(VALUES, max_size=6), SPACE, SPACE, st.booleans())
def test_entries_of_a_list_are_those_the_decoder_finds(values: list[Any], one: str, two: str, ascii_only: bool) -> None:
    parts = [json.dumps(value, ensure_ascii=ascii_only) for value in values]
    text = (one + "[" + two + f"{one},{two}".join(parts) + one + "]" + two).encode()
    assert walked_list(text) == values


@given(st.dictionaries(st.text(), VALUES, max_size=6), SPACE, SPACE, st.booleans())
def test_entries_of_an_object_are_those_the_decoder_finds(
    values: dict[str, Any], one: str, two: str, ascii_only: bool
) -> None:
    parts = [
        f"{json.dumps(key)}{one}:{two}{json.dumps(value, ensure_ascii=ascii_only)}" for key, value in values.items()
    ]
    text = (one + "{" + two + f"{one},{two}".join(parts) + one + "}" + two).encode()
    assert walked_object(text) == list(values.items())
    assert entries_in_object(text, len(one), 10) == len(values)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[",
        b"[1",
        b"[1,",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"[01]",
        b"[1]x",
        b"[tru]",
        b'["\\x"]',
        b'["a]',
        b"{}",
        b"[NaN]",
    ],
)
def test_what_is_no_list_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        walked_list(text)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{a:1}", b'{"a" 1}', b'{"a":1}}', b"{1:2}", b"[]", b'{"\xff":1}'],
)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        walked_object(text)


def test_value_that_does_not_end_within_its_limit_is_refused_without_reading_on() -> None:
    text = b'["' + b"x" * 1000 + b'"]'
    walk = JsonWalk(text)
    walk.enter(b"[")
    with pytest.raises(ValueTooLong):
        walk.skip(1000)
    assert walk.skip(1003) == (1, 1003)


def test_number_at_the_edge_of_its_limit_is_not_cut() -> None:
    walk = JsonWalk(b"[12345]")
    walk.enter(b"[")
    with pytest.raises(ValueTooLong):
        walk.skip(3)


def test_endless_white_space_is_refused() -> None:
    walk = JsonWalk(b" " * (MAX_SPACE_BYTES + 1) + b"[")
    with pytest.raises(InvalidRequest, match="white space"):
        walk.peek()


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="deep"):
        walked_list(b"[" * 100_000)


@given(st.lists(st.text(), max_size=8), SPACE, st.integers(0, 8))
def test_strings_are_counted_up_to_the_limit(strings: list[str], space: str, most: int) -> None:
    text = ("[" + f"{space},{space}".join([json.dumps(each) for each in strings]) + "]").encode()
    assert strings_in_list(text, 1, most) == min(len(strings), most + 1)
