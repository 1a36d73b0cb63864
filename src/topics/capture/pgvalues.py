"""Values of PostgreSQL as JSON: from the text a type writes to the JSON a reader expects, without losing anything.

    bool                       true, false
    integers, numeric, floats  numbers with all their digits; NaN and the infinities as texts
    json, jsonb                as they are
    bytea                      base64
    timestamptz, timestamp     2026-01-02T03:04:05.123456Z, and without the Z
    arrays                     arrays, of any depth
    everything else            the text that the type writes

The texts are those of a session with ISO dates in UTC and hex bytea (see `postgres.SESSION`).
"""

import base64
import re
from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct

BOOL, BYTEA, JSON, JSONB = 16, 17, 114, 3802
TIMESTAMP, TIMESTAMPTZ, BOX = 1114, 1184, 603
NUMBERS = {20, 21, 23, 26, 700, 701, 1700}

_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_TIMESTAMP = re.compile(r"([0-9]{4,6}-[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)(\+00)?")


class PgType(Struct, frozen=True):
    """A type's oid and, for an array, the oid of its elements; `element` is 0 otherwise."""

    oid: int
    element: int = 0


Types = Callable[[int], PgType]
"""Looks up a type by its oid; for a domain it returns the base type."""


def json_value(text: bytes | None, type_oid: int, types: Types) -> Any:
    """Convert a value to an object that can be encoded as JSON."""
    if text is None:
        return None
    known = types(type_oid)
    if known.element:
        return _array(text.decode(), known.element, types)
    return _scalar(text, known.oid)


def _scalar(text: bytes, oid: int) -> Any:
    if oid in NUMBERS:
        return Raw(text) if _NUMBER.fullmatch(text) else text.decode()
    if oid == BOOL:
        return text == b"t"
    if oid in (JSON, JSONB):
        return Raw(text)
    if oid == BYTEA:
        return base64.b64encode(bytes.fromhex(text[2:].decode())).decode() if text[:2] == b"\\x" else text.decode()
    if oid in (TIMESTAMP, TIMESTAMPTZ):
        return _timestamp(text.decode())
    return text.decode()


def _timestamp(text: str) -> str:
    """Convert to ISO 8601. Infinity and years BC have no such form and stay unchanged."""
    match = _TIMESTAMP.fullmatch(text)
    return text if match is None else f"{match[1]}T{match[2]}{'Z' if match[3] else ''}"


def _array(text: str, element: int, types: Types) -> list[Any]:
    """Parse an array text such as `{1,NULL,"a b"}`, with or without a prefix of explicit bounds."""
    at = text.index("=") + 1 if text.startswith("[") else 0
    delimiter = ";" if element == BOX else ","
    value, end = _array_at(text, at, element, types, delimiter)
    if end != len(text):
        raise ValueError(f"something follows an array at {end}")
    return value


def _array_at(text: str, at: int, element: int, types: Types, delimiter: str) -> tuple[list[Any], int]:
    if text[at] != "{":
        raise ValueError(f"an array begins with a brace, not with {text[at]!r}")
    at += 1
    values: list[Any] = []
    if text[at] == "}":
        return values, at + 1
    while True:
        if text[at] == "{":
            value, at = _array_at(text, at, element, types, delimiter)
            values.append(value)
        elif text[at] == '"':
            quoted, at = _quoted(text, at + 1)
            values.append(json_value(quoted.encode(), element, types))
        else:
            end = at
            while text[end] not in (delimiter, "}"):
                end += 1
            bare = text[at:end]
            values.append(None if bare == "NULL" else json_value(bare.encode(), element, types))
            at = end
        if text[at] == "}":
            return values, at + 1
        if text[at] != delimiter:
            raise ValueError(f"no {delimiter} between the elements of an array at {at}")
        at += 1


def _quoted(text: str, at: int) -> tuple[str, int]:
    pieces: list[str] = []
    while text[at] != '"':
        if text[at] == "\\":
            at += 1
        pieces.append(text[at])
        at += 1
    return "".join(pieces), at + 1
