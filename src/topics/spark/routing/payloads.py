"""Payloads made in Python: `diff`, and those that SQL cannot cut out of the event. Values keep the bytes of the event.

    key    {"id": 7}                                    the key columns of the row
    full   {"id": 7, "text": "hello"}                   the row as it is; for a delete, as it was
    diff   {"key": {"id": 7}, "changed": {"text": {"old": "hi", "new": "hello"}}}

Of an insert every column has changed, from null; of a delete there is only the key. `old` is left out when the event does
not have the value before.
"""

from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Raw, Struct

from topics.model.records.surrogates import cover_halves
from topics.model.tables.change import canonical_key
from topics.spark.routing.events import Event, Row, parsed, row_of

_encode = msgspec.json.encode
_decode_exact = msgspec.json.Decoder(float_hook=Decimal).decode
_NULL = Raw(b"null")


class NoPayload(ValueError):
    """The event does not hold what the payload is made of. The message names what is missing."""


class _Source(Struct):
    unchanged: Any = None


class Payloads:
    """The payloads of one event, each made once for all routes that need it."""

    def __init__(self, text: str) -> None:
        self._covered = None
        try:
            self._event = parsed(text)
            self._made: dict[Any, bytes] = {"full": bytes(self._event.image)}
        except (msgspec.MsgspecError, RecursionError):
            self._covered = cover_halves(text.encode())
            if self._covered is None:
                raise
            self._event = parsed(self._covered.body)
            self._made = {"full": self._covered.uncover(bytes(self._event.image))}

    @property
    def ts(self) -> int | None:
        ts = self._event.ts
        return ts if isinstance(ts, int) and not isinstance(ts, bool) else None

    def get(self, mode: str, key_columns: tuple[str, ...]) -> bytes:
        """The payload as JSON. Raises NoPayload."""
        if mode == "full":
            return self._made["full"]
        wanted = (mode, key_columns)
        found = self._made.get(wanted)
        if found is None:
            key = _key(self._event, key_columns)
            found = _encode(key if mode == "key" else {"key": key, "changed": _changed(self._event)})
            if self._covered is not None:
                found = self._covered.uncover(found)
            self._made[wanted] = found
        return found

    def key_text(self) -> str:
        """The row's key as one text, as the change topic hashes it."""
        return canonical_key(row_of(self._event.key))


def _key(event: Event, key_columns: tuple[str, ...]) -> Row:
    try:
        key = row_of(event.key)
        if not key_columns:
            if not key:
                raise NoPayload("the event has no key: name the key columns of the route")
            return key
        row = row_of(event.image)
    except msgspec.MsgspecError as error:
        raise NoPayload(f"the event has no key and row that can be read: {error}") from None
    chosen = {name: row.get(name, key.get(name)) for name in key_columns}
    missing = [name for name, value in chosen.items() if value is None]
    if missing:
        raise NoPayload(f"the row has no column {missing[0]!r}, which the key of the route names")
    return {name: value for name, value in chosen.items() if value is not None}


def _changed(event: Event) -> dict[str, dict[str, Raw]]:
    if event.op == "delete":
        return {}
    after = row_of(event.after)
    if event.op == "insert":
        return {name: {"old": _NULL, "new": value} for name, value in after.items()}
    before = row_of(event.before)
    changed = {}
    for name, value in after.items():
        if name not in before:
            changed[name] = {"new": value}
        elif not _same(before[name], value):
            changed[name] = {"old": before[name], "new": value}
    gone = [name for name in before if name not in after]
    if gone:
        unchanged = _unchanged(event.source)
        changed |= {name: {"old": before[name]} for name in gone if name not in unchanged}
    return changed


def _same(ours: Raw, theirs: Raw) -> bool:
    """Whether two values are equal, however they are written: 1.0 equals 1.00, with any number of digits."""
    if bytes(ours) == bytes(theirs):
        return True
    return bool(_decode_exact(ours) == _decode_exact(theirs)) and _kind(ours) == _kind(theirs)


def _kind(value: Raw) -> str:
    """True and 1 are the same to Python."""
    start = bytes(value)[:1]
    return "number" if start in b"-0123456789" else start.decode()


def _unchanged(source: Raw) -> list[str]:
    """Columns with large values that the source left out because they did not change."""
    if not bytes(source).startswith(b"{"):
        return []
    named = msgspec.json.decode(source, type=_Source).unchanged
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
