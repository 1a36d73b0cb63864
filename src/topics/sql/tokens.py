"""Tokens: what a statement is made of.

    word        letters, digits, underscores and $, ASCII, not beginning with a digit; case does not matter for keywords
    quoted      "name" or `name`; the quote itself is doubled
    string      'text'; a quote is doubled, a backslash is an ordinary character
    number      digits, with a fraction or an exponent
    parameter   ? or $1
    sign        everything else that has a meaning

Comments run from -- to the end of the line, or between /* and */. Space, tab and line ends separate; any other character
outside of quotes, strings and comments is refused, so that a character that only looks like a space or a letter is not accepted.
"""

import re
from typing import Literal

from msgspec import Struct

from topics.model.errors import InvalidRequest

MAX_TEXT_CHARS = 256 << 10
MAX_TOKENS = 20_000

Kind = Literal["word", "quoted", "string", "number", "parameter", "sign", "end"]

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n]+ | --[^\n]* | /\*(?:[^*]|\*(?!/))*\*/)
  | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_$.]))
  | (?P<string>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")*" | `(?:[^`]|``)*`)
  | (?P<parameter>\?|\$[0-9]+)
  | (?P<sign><=>|<=|>=|<>|!=|==|\|\||::|/(?!\*)|[(){}\[\],.;=<>+\-*%!|&^~:@])
    """,
    re.VERBOSE,
)
_UNFINISHED = {"'": "the closing ' of this text", '"': 'the closing " of this name', "`": "the closing ` of this name"}


class SqlError(InvalidRequest):
    """The text is not a valid statement. `detail` says the line, the column and what was expected there."""

    def __init__(self, message: str, line: int, column: int, expected: str | None = None) -> None:
        detail: dict[str, object] = {"line": line, "column": column}
        if expected is not None:
            detail["expected"] = expected
        super().__init__(f"line {line}, column {column}: {message}", detail=detail)


class Token(Struct, frozen=True, gc=False):
    """`text` is as it was written; `value` without quotes."""

    kind: Kind
    text: str
    value: str
    start: int
    line: int
    column: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, given in upper case."""
        return self.kind == "word" and self.text.upper() in words

    def is_sign(self, sign: str) -> bool:
        return self.kind == "sign" and self.text == sign

    def shown(self) -> str:
        """For messages; short, however long the token is."""
        if self.kind == "end":
            return "the end of the statement"
        return self.text if len(self.text) <= 40 else self.text[:40] + "..."


def tokenize(text: str) -> list[Token]:
    """All tokens, followed by an `end`. Raises SqlError for text that is not a token."""
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidRequest(
            f"a statement has at most {MAX_TEXT_CHARS} characters",
            detail={"max": MAX_TEXT_CHARS, "length": len(text)},
        )
    tokens: list[Token] = []
    at, line, line_start = 0, 1, 0
    length = len(text)
    match_at = _TOKEN.match
    while at < length:
        column = at - line_start + 1
        match = match_at(text, at)
        if match is None:
            raise _no_token(text, at, line, column)
        piece = match.group()
        kind = match.lastgroup
        if kind != "space":
            if len(tokens) == MAX_TOKENS:
                raise SqlError(f"a statement has at most {MAX_TOKENS} words and signs", line, column)
            tokens.append(Token(kind, piece, _value(kind, piece), at, line, column))  # type: ignore[arg-type]
        if "\n" in piece:
            line += piece.count("\n")
            line_start = at + piece.rindex("\n") + 1
        at = match.end()
    tokens.append(Token("end", "", "", length, line, length - line_start + 1))
    return tokens


def _value(kind: str | None, piece: str) -> str:
    if kind == "string" or kind == "quoted":
        quote = piece[0]
        return piece[1:-1].replace(quote * 2, quote)
    return piece


def _no_token(text: str, at: int, line: int, column: int) -> SqlError:
    character = text[at]
    if character in _UNFINISHED:
        return SqlError(f"{_UNFINISHED[character]} is missing", line, column, _UNFINISHED[character])
    if text.startswith("/*", at):
        return SqlError("the */ of this comment is missing", line, column, "*/")
    if character.isascii() and character.isdigit():
        return SqlError("this number has a letter or a second point", line, column, "a number")
    shown = f"U+{ord(character):04X}" if not character.isascii() or not character.isprintable() else character
    return SqlError(f"{shown} has no meaning here", line, column)
