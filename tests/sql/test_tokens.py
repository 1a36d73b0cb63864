"""Every character of a statement is a token, a space, or an error with its place."""

import pytest

from topics.model.errors import InvalidRequest
from topics.sql.tokens import MAX_TEXT_CHARS, MAX_TOKENS, SqlError, tokenize


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.value) for token in tokenize(text)[:-1]]


def test_every_kind_of_token() -> None:
    assert kinds("a_1 $2 ? 'it''s' \"x\"\"y\" `a``b` 1 1.5 .5 2e10 <=> || ::") == [
        ("word", "a_1"),
        ("parameter", "$2"),
        ("parameter", "?"),
        ("string", "it's"),
        ("quoted", 'x"y'),
        ("quoted", "a`b"),
        ("number", "1"),
        ("number", "1.5"),
        ("number", ".5"),
        ("number", "2e10"),
        ("sign", "<=>"),
        ("sign", "||"),
        ("sign", "::"),
    ]


@pytest.mark.parametrize("text", ["a--b\nc", "a/* b */c", "a/***/c", "a/* '\" */c", "a\r\n\tc", "a -- \u202e\n c"])
def test_comments_and_spaces_separate(text: str) -> None:
    assert kinds(text) == [("word", "a"), ("word", "c")]


def test_a_backslash_is_an_ordinary_character_of_a_string() -> None:
    assert kinds(r"'a\' b") == [("string", "a\\"), ("word", "b")]


def test_places_count_lines_and_columns_from_one() -> None:
    places = [(token.text, token.line, token.column) for token in tokenize("a\n  b 'x\ny' c\n/*\n*/d")]
    assert places == [("a", 1, 1), ("b", 2, 3), ("'x\ny'", 2, 5), ("c", 3, 4), ("d", 5, 3), ("", 5, 4)]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [("'x", 1, 1), ("a\n \"x", 2, 2), ("`x", 1, 1), ("/* x", 1, 1), ("a\0", 1, 2), ("\u00a0", 1, 1), ("é", 1, 1),
     ("a\u200bb", 1, 2), ("1x", 1, 1), ("1.2.3", 1, 1), ("a # b", 1, 3), ("\x0c", 1, 1), ("１", 1, 1), ("\ufeffa", 1, 1), ("$x", 1, 1),
     ("a\\b", 1, 2)],
)  # fmt: skip
def test_anything_else_is_an_error_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(SqlError) as caught:
        tokenize(text)
    assert caught.value.detail is not None
    assert (caught.value.detail["line"], caught.value.detail["column"]) == (line, column)


def test_length_and_number_of_tokens_are_bounded() -> None:
    tokenize(" " * MAX_TEXT_CHARS)
    with pytest.raises(InvalidRequest):
        tokenize(" " * (MAX_TEXT_CHARS + 1))
    tokenize("a " * MAX_TOKENS)
    with pytest.raises(SqlError):
        tokenize("a " * (MAX_TOKENS + 1))


@pytest.mark.parametrize(
    "text", ["/" * 200_000, "/*" * 100_000, "'" * 200_001, "-" * 200_000, '"' * 200_001, "a." * 10_000]
)
def test_no_text_takes_long(text: str) -> None:
    """Nothing in the tokenizer looks back: the time-out of the test run would show it."""
    try:
        tokenize(text)
    except InvalidRequest:
        pass
