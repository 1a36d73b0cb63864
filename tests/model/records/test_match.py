"""The tag predicate: three forms, one wildcard, and everything else is refused."""

import pytest

from topics.model.errors import InvalidRequest
from topics.model.records.match import parse_match


@pytest.mark.parametrize(
    ("value", "hits", "misses"),
    [
        ("a", ["a"], ["A", "ab", "", None]),
        ("a*", ["a", "ab", "a*"], ["b", "A", None]),
        ("*", ["", "a"], [None]),
        ("", [""], ["a", None]),
        (["tag", "Eq", "a*"], ["a*"], ["a", "ab"]),
        (["tag", "Glob", "a*b*"], ["a*b", "a*bc"], ["axb", "ab"]),
        (["tag", "Glob", "a?*"], ["a?", "a?x"], ["ax"]),
    ],
)
def test_what_matches_and_what_does_not(value: object, hits: list[str], misses: list[str | None]) -> None:
    match = parse_match(value)
    assert [match.matches(tag) for tag in hits] == [True] * len(hits)
    assert [match.matches(tag) for tag in misses] == [False] * len(misses)


@pytest.mark.parametrize(
    "value",
    [
        5,
        None,
        True,
        {},
        [],
        ["tag"],
        ["tag", "Eq"],
        ["tag", "Eq", "x", "y"],
        ["node", "Eq", "x"],
        ["tag", "eq", "x"],
        ["tag", "Glob", "x"],
        ["tag", "Glob", ""],
        ["tag", "Eq", 5],
        ["tag", "Glob", None],
        ["tag", 5, "x"],
    ],
    ids=str,
)
def test_everything_else_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest):
        parse_match(value)
