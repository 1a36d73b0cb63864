"""Change events: what happened to one row of a table, in our own form or in Debezium's, made into one form.

    ours      {"op": "insert", "ts": 1730000000000, "key": {"id": 1}, "before": null, "after": {"id": 1, ...},
               "source": {"name": "orders-db"}, "position": 17}
    Debezium  {"before": ..., "after": ..., "op": "c", "ts_ms": ..., "source": {...}}, bare or as the `payload` beside a
              `schema`; as the value of a message {"key": ..., "value": ...} or by itself; null is a tombstone

An event becomes a `Change`: a row's values stay the client's own bytes, so that no number loses a digit. An event that
contradicts itself is refused with a reason; the others of its request are accepted.

A position says how far the source had come. It never goes back within one source, so that an event at or before the
last one is a repeat. Several events may share a position (rows written together by the source): then the digest of the
event distinguishes repeats from other events. Positions are compared as lists of whole numbers and texts; a text of digits is a number and
a PostgreSQL LSN such as `16/B374D848` is two.
"""

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from xxhash import xxh3_64_digest

from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from topics.model.names import check_topic_name
from topics.model.records.batch import check_text
from topics.model.records.json_walk import JsonWalk, ValueTooLong
from topics.model.records.large_batch import MAX_FIELD_BYTES
from topics.model.steps import Steps, finish

CHANGES = "changes:"
MAX_KEY_COLUMNS = 64
MAX_POSITION_PARTS = 8
MAX_POSITION_CHARS = 256
MAX_SOURCE_CHARS = 256
MAX_TS = 253_402_300_799_999  # the end of the year 9999
# Events that are parsed in one step.
STEP_EVENTS = 16

Row = dict[str, Raw]
Position = tuple[int | str, ...]


def change_topic(table: str) -> str:
    """The topic that holds the changes of the table. Raises InvalidRequest for what is no name of a table."""
    name = CHANGES + table
    check_topic_name(table, "table")
    return check_topic_name(name, "table")


class Change(Struct, gc=False):
    """One change of one row, checked."""

    op: str
    # None for a truncate.
    key: Row | None
    # As the change topic holds it.
    data: bytes
    # Which source of the table it comes from; positions of different sources have nothing to do with each other.
    source: str
    # None when the source says none: then nothing is known about repeats.
    position: Position | None
    # Distinguishes this event from others at its position.
    digest: bytes
    # All changes of a key go to the partition that this text hashes to.
    partition_key: str
    # Its place in the request.
    index: int = 0


class Refused(Struct):
    """An event that is not taken, by its place in the request."""

    index: int
    message: str


class Events(Struct):
    """The events of one request. `tombstones` counts those that only repeat that a key was deleted."""

    changes: list[Change]
    refused: list[Refused]
    tombstones: int


class Defaults(Struct):
    """What holds for the events of a request that do not say it themselves."""

    now_ms: int
    key_columns: tuple[str, ...] = ()
    source: str = ""
    max_bytes: int = 1 << 20


class _Body(Struct):
    changes: list[Raw]
    source: str = ""
    key_columns: list[str] = []


class _Event(Struct):
    """The fields of an event, whichever form it has; all are looked at with care later."""

    op: Any = None
    ts: Any = None
    ts_ms: Any = None
    key: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    before: Raw = Raw(b"null")
    after: Raw = Raw(b"null")
    source: Raw = Raw(b"null")
    position: Any = None


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_row = msgspec.json.Decoder(Row).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

_NULL = b"null"
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_OPS = {"insert": "insert", "update": "update", "delete": "delete", "truncate": "truncate"}
_DEBEZIUM_OPS = {"c": "insert", "r": "insert", "u": "update", "d": "delete", "t": "truncate"}


class _Bad(Exception):
    """Why an event is refused."""


def decode_changes(body: bytes, defaults: Defaults, max_events: int) -> Events:
    """The events of a request body: `{"changes": [...]}`, an array of events, or a single one.

    Raises InvalidRequest when the body as a whole cannot be read; every other error is reported for its event.
    """
    if not body.isascii():
        check_text(body)
    try:
        events, defaults = _items(body, defaults)
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(str(error)) from None
    if len(events) > max_events:
        raise BatchTooLarge(
            f"{len(events)} events in one request; at most {max_events}",
            detail={"max": max_events, "count": len(events)},
        )
    return finish(_parse_all(events, defaults))


def decode_large_changes(body: bytes, defaults: Defaults, max_events: int) -> Steps[Events]:
    """The same in steps. The body is refused when it has more than `max_events` events, or one that is far too large."""
    walk = JsonWalk(body)
    # The event may be wrapped in a message, and that in a schema.
    max_bytes = 2 * defaults.max_bytes + MAX_FIELD_BYTES
    events: list[Raw] = []
    try:
        if walk.peek() == b"[":
            yield from _walk_list(walk, events, max_events, max_bytes)
        else:
            others: list[bytes] = []
            named = listed = False
            walk.enter(b"{")
            more = not walk.is_empty(b"}")
            while more:
                walk.peek()
                start = walk.position
                key = walk.key()
                named = named or key == "changes"
                if key == "changes" and walk.peek() == b"[":
                    listed = True
                    events.clear()
                    yield from _walk_list(walk, events, max_events, max_bytes)
                else:
                    _, end = walk.skip(max_bytes)
                    others.append(body[start:end])
                    yield
                more = walk.next_item(b"}")
            if named:
                if listed:
                    others.append(b'"changes":[]')
                defaults = _with_fields(b"{%b}" % b",".join(others), defaults)
            elif len(body) > max_bytes:
                raise ValueTooLong("")
            else:
                events.append(Raw(body.strip(b" \t\r\n")))
        walk.finish()
    except ValueTooLong:
        raise RecordTooLarge(f"an event takes more than {max_bytes} bytes", detail={"max": max_bytes}) from None
    for event in events:
        text = bytes(event)
        if not text.isascii():
            check_text(text)
            yield
    return (yield from _parse_all(events, defaults))


def _walk_list(walk: JsonWalk, events: list[Raw], max_events: int, max_bytes: int) -> Steps[None]:
    walk.enter(b"[")
    more = not walk.is_empty(b"]")
    while more:
        start, end = walk.skip(max_bytes)
        events.append(Raw(walk.text[start:end].rstrip(b" \t\r\n")))
        if len(events) > max_events:
            raise BatchTooLarge(f"more than {max_events} events in one request", detail={"max": max_events})
        yield
        more = walk.next_item(b"]")


def _with_fields(text: bytes, defaults: Defaults) -> Defaults:
    check_text(text)
    try:
        return _changed(defaults, _decode_body(text))
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(str(error)) from None


def _parse_all(events: list[Raw], defaults: Defaults) -> Steps[Events]:
    if not events:
        raise InvalidRequest("changes must hold at least one event")
    outcome = Events([], [], 0)
    for index, event in enumerate(events):
        if not index % STEP_EVENTS:
            yield
        try:
            change = parse_change(event, defaults)
        except _Bad as error:
            outcome.refused.append(Refused(index, str(error)))
            continue
        except RecursionError:
            outcome.refused.append(Refused(index, "the event is nested too deeply"))
            continue
        except msgspec.MsgspecError as error:
            outcome.refused.append(Refused(index, str(error)))
            continue
        if change is None:
            outcome.tombstones += 1
        else:
            change.index = index
            outcome.changes.append(change)
    return outcome


def _items(body: bytes, defaults: Defaults) -> tuple[list[Raw], Defaults]:
    start = body.lstrip(b" \t\r\n")[:1]
    if start == b"[":
        return _decode_list(body), defaults
    if start == b"{" and b'"changes"' in body:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
        if "changes" in fields:
            whole = _decode_body(body)
            return whole.changes, _changed(defaults, whole)
    return [msgspec.json.decode(body, type=Raw)], defaults


def _changed(defaults: Defaults, whole: _Body) -> Defaults:
    if len(whole.source) > MAX_SOURCE_CHARS:
        raise InvalidRequest(f"source has at most {MAX_SOURCE_CHARS} characters")
    return msgspec.structs.replace(
        defaults,
        source=whole.source or defaults.source,
        key_columns=tuple(whole.key_columns) or defaults.key_columns,
    )


def parse_change(text: bytes | Raw, defaults: Defaults) -> Change | None:
    """Decode an event; None for a tombstone. Raises for every invalid event."""
    if bytes(text) == _NULL:
        return None
    event = _event(text)
    key: Raw | UnsetType = event.key
    for _ in range(2):
        # A message has a value, and a value with a schema has a payload.
        inner = event.value if event.value is not UNSET else event.payload
        if inner is UNSET:
            break
        if bytes(inner) == _NULL:
            return None
        event = _event(inner)
        if event.key is not UNSET:
            key = event.key
    op = event.op
    if not isinstance(op, str):
        raise _Bad("op is missing: insert, update, delete or truncate, or one of Debezium's c, u, d, r, t")
    debezium = op in _DEBEZIUM_OPS
    known = _DEBEZIUM_OPS.get(op) or _OPS.get(op.lower())
    if known is None:
        raise _Bad(f"op {op[:20]!r} is none of insert, update, delete and truncate, nor of Debezium's c, u, d, r, t")
    before, after = _row("before", event.before), _row("after", event.after)
    _check_images(known, before, after, debezium=debezium)
    key_row = _key(key, known, before, after, defaults)
    source = _source(event.source, defaults)
    position = _normal_position(event.position) if event.position is not None else None
    if debezium:
        if op == "r":
            source["snapshot"] = True
        elif position is None:
            position = _debezium_position(source)
    name = _source_name(source, debezium=debezium)
    if event.position is not None:
        source["position"] = event.position
    data = _encode(
        {
            "op": known,
            "ts": _ts(event, source, defaults, debezium=debezium),
            "key": key_row,
            "before": before,
            "after": after,
            "source": source or None,
        }
    )
    if len(data) > defaults.max_bytes:
        raise _Bad(f"the event takes {len(data)} bytes as a record; at most {defaults.max_bytes}")
    canonical = "" if key_row is None else canonical_key(key_row)
    digest = xxh3_64_digest(_encode([known, canonical, before, after]))
    return Change(known, key_row, data, name, position, digest, canonical)


def canonical_key(key: Row) -> str:
    """The key as one text, the same however its numbers, texts and order were written."""
    return _encode_sorted({name: _plain(_decode(value)) for name, value in key.items()}).decode()


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53 else value


def _event(text: bytes | Raw) -> _Event:
    if not bytes(text).startswith(b"{"):
        raise _Bad("an event is an object")
    return _decode_event(text)


def _row(what: str, text: Raw) -> Row | None:
    if bytes(text) == _NULL:
        return None
    if not bytes(text).startswith(b"{"):
        raise _Bad(f"{what} is an object or null")
    return _decode_row(text)


def _check_images(op: str, before: Row | None, after: Row | None, *, debezium: bool) -> None:
    if op in ("insert", "update") and after is None:
        raise _Bad(f"{op} without after: the row as it is now")
    if op == "insert" and before is not None:
        raise _Bad("insert with before: there was no row before it")
    if op == "delete" and after is not None:
        raise _Bad("delete with after: there is no row after it")
    if op == "truncate" and (before is not None or after is not None):
        raise _Bad("truncate is about all rows: it has no before and no after")
    if debezium and op == "delete" and before is None:
        raise _Bad("delete without before: let the table's replica identity hold at least its key")


def _key(key: Raw | UnsetType, op: str, before: Row | None, after: Row | None, defaults: Defaults) -> Row | None:
    """The key of the row: as given, or the key columns of its image. Raises when image and key disagree."""
    if op == "truncate":
        return None
    image = before if op == "delete" else after
    row: Row | None = None
    if key is not UNSET and bytes(key) != _NULL:
        row = _row("key", key)
        assert row is not None
        if set(row) == {"schema", "payload"}:
            row = _row("payload of key", row["payload"])
    if row is None:
        if not defaults.key_columns:
            raise _Bad("no key: give key, or name the key columns of the table")
        missing = [name for name in defaults.key_columns if image is None or name not in image]
        if image is None or missing:
            raise _Bad(f"no key, and the row does not hold its key column {missing[0]!r}")
        row = {name: image[name] for name in defaults.key_columns}
    if not row:
        raise _Bad("key names no column")
    if len(row) > MAX_KEY_COLUMNS:
        raise _Bad(f"key has more than {MAX_KEY_COLUMNS} columns")
    for name, text in row.items():
        value = _decode(text)
        if value is None or isinstance(value, dict | list):
            raise _Bad(f"key column {name!r} is null or no plain value")
        for what, other in (("before", before), ("after", after)):
            if other is None or name not in other or bytes(other[name]) == bytes(text):
                continue
            if _plain(_decode(other[name])) != _plain(value):
                if op == "update" and what == "before":
                    raise _Bad(f"key column {name!r} changed: send a delete and an insert")
                raise _Bad(f"key and {what} disagree about {name!r}")
    return row


def _source(text: Raw, defaults: Defaults) -> dict[str, Any]:
    value = _decode(text)
    if value is None:
        return {"name": defaults.source} if defaults.source else {}
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        raise _Bad("source is an object or the name of one")
    if "name" in value and not isinstance(value["name"], str):
        raise _Bad("the name of source is a text")
    if defaults.source:
        value.setdefault("name", defaults.source)
    return value


def _source_name(source: dict[str, Any], *, debezium: bool) -> str:
    parts = [source.get("name", "")]
    if debezium:
        # Another server after a fail-over counts its own positions.
        parts += [str(source[field]) for field in ("connector", "server_id") if source.get(field) is not None]
    name = ":".join(parts)
    if len(name) > MAX_SOURCE_CHARS:
        raise _Bad(f"the name of source has more than {MAX_SOURCE_CHARS} characters")
    return name


def _ts(event: _Event, source: dict[str, Any], defaults: Defaults, *, debezium: bool) -> int:
    """When the change was made, in milliseconds: as the source says, or now."""
    for value in (source.get("ts_ms"), event.ts_ms) if debezium else (event.ts,):
        if value is None or (debezium and value == 0):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TS:
            raise _Bad("ts is a time in milliseconds since 1970")
        return value
    return defaults.now_ms


# Positions


def _normal_position(value: Any) -> Position:
    parts = value if isinstance(value, list) else [value]
    if not 0 < len(parts) <= MAX_POSITION_PARTS:
        raise _Bad(f"position is a whole number, a text, or a list of 1 to {MAX_POSITION_PARTS} of them")
    normal: list[int | str] = []
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, int | str):
            raise _Bad("position is a whole number, a text, or a list of them")
        if isinstance(part, int):
            if not -(2**63) <= part < 2**64:
                raise _Bad("position is larger than 64 bits hold")
            normal.append(part)
            continue
        if not 0 < len(part) <= MAX_POSITION_CHARS:
            raise _Bad(f"a position that is a text has 1 to {MAX_POSITION_CHARS} characters")
        if part.isascii() and part.isdigit() and len(part) <= 19:
            normal.append(int(part))
        elif _LSN.fullmatch(part):
            high, _, low = part.partition("/")
            normal += [int(high, 16), int(low, 16)]
        else:
            normal.append(part)
    return tuple(normal)


def _debezium_position(source: dict[str, Any]) -> Position | None:
    """The position in a Debezium source whose order is known to be that of its events; None for others.

    A lone `lsn` of PostgreSQL is none: transactions that overlap make it go back. `sequence` (last commit, lsn) does not.
    """
    connector = source.get("connector")
    if connector == "postgresql":
        try:
            sequence = _decode(source.get("sequence") or "null")
        except (msgspec.MsgspecError, TypeError):
            return None
        if isinstance(sequence, list) and len(sequence) == 2 and all([isinstance(part, str) for part in sequence]):
            return _normal_position(sequence)
    elif connector in ("mysql", "mariadb"):
        file, pos, row = source.get("file"), source.get("pos"), source.get("row", 0)
        number = re.fullmatch(r".*?([0-9]{1,18})", file) if isinstance(file, str) else None
        if number is not None and isinstance(pos, int) and isinstance(row, int):
            return _normal_position([int(number[1]), pos, row])
    elif connector == "sqlserver":
        parts = [source.get("commit_lsn"), source.get("change_lsn"), source.get("event_serial_no", 0)]
        if all([isinstance(part, str) and part for part in parts[:2]]) and isinstance(parts[2], int):
            return _normal_position(parts)
    return None


def is_after(position: Position, last: Position) -> bool | None:
    """Whether the position comes after the last one; None when the two cannot be compared."""
    for ours, theirs in zip(position, last, strict=False):
        if isinstance(ours, str) != isinstance(theirs, str):
            return None
        if ours != theirs:
            return ours > theirs  # type: ignore[operator]
    return len(position) > len(last)
