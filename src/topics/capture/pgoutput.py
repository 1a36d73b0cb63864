"""pgoutput: the messages of PostgreSQL's own logical decoding plugin, protocol version 1, as values.

A Relation message describes the columns of a table before its first row; every other message is independent. The module
converts bytes to values and does no I/O.
"""

import struct
from struct import Struct as Layout

from msgspec import Struct

# Microseconds from 1970 to 2000, the epoch of PostgreSQL timestamps.
_EPOCH_US = 946_684_800_000_000

_BEGIN = Layout(">qqi")
_COMMIT = Layout(">bqqq")
_I32 = Layout(">i")
_U32 = Layout(">I")
_I16 = Layout(">h")
_TRUNCATE = Layout(">ib")

UNCHANGED = object()
"""A large value that an update did not change; the log does not contain it."""

Tuple = list[bytes | None | object]
"""One value for each column: its text, None for null, or UNCHANGED."""


class Begin(Struct):
    commit_lsn: int
    commit_ms: int
    xid: int


class CommitMade(Struct):
    end_lsn: int


class RelationColumn(Struct):
    name: str
    type_oid: int
    in_identity: bool


class Relation(Struct):
    oid: int
    namespace: str
    name: str
    # d: primary key, i: an index, f: the whole row, n: nothing.
    identity: str
    columns: list[RelationColumn]


class RowChanged(Struct):
    """A changed row. `old` holds the identity columns, or all columns (`old_is_whole`), if the log has them."""

    relation: int
    op: str
    old: Tuple | None
    old_is_whole: bool
    new: Tuple | None


class Truncated(Struct):
    relations: list[int]


Message = Begin | CommitMade | Relation | RowChanged | Truncated


class WrongMessage(ValueError):
    """The bytes are not a message of this protocol."""


def decode(data: bytes) -> Message | None:
    """Decode a message; None for one that does not concern rows. Raises WrongMessage."""
    kind = data[:1]
    try:
        if kind == b"B":
            commit_lsn, commit_us, xid = _BEGIN.unpack_from(data, 1)
            return Begin(commit_lsn, (commit_us + _EPOCH_US) // 1000, xid & 0xFFFFFFFF)
        if kind == b"C":
            return CommitMade(_COMMIT.unpack_from(data, 1)[2])
        if kind == b"R":
            return _relation(data)
        if kind in (b"I", b"U", b"D"):
            return _row(kind, data)
        if kind == b"T":
            count, _ = _TRUNCATE.unpack_from(data, 1)
            return Truncated([_U32.unpack_from(data, 6 + 4 * number)[0] for number in range(count)])
    except (IndexError, ValueError, struct.error) as error:
        raise WrongMessage(f"a message of kind {kind!r} with {len(data)} bytes: {error}") from None
    if kind in (b"Y", b"O", b"M"):
        return None
    raise WrongMessage(f"a message of kind {kind!r}")


def _relation(data: bytes) -> Relation:
    oid = _U32.unpack_from(data, 1)[0]
    namespace, at = _text(data, 5)
    name, at = _text(data, at)
    identity = chr(data[at])
    count = _I16.unpack_from(data, at + 1)[0]
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _text(data, at + 1)
        columns.append(RelationColumn(column, _U32.unpack_from(data, at)[0], bool(flags & 1)))
        at += 8
    if at != len(data):
        raise ValueError("its columns do not fill it")
    # An empty namespace means pg_catalog, which is never captured.
    return Relation(oid, namespace, name, identity, columns)


def _row(kind: bytes, data: bytes) -> RowChanged:
    relation = _U32.unpack_from(data, 1)[0]
    at = 5
    old: Tuple | None = None
    whole = False
    new: Tuple | None = None
    mark = data[at : at + 1]
    if mark in (b"K", b"O"):
        whole = mark == b"O"
        old, at = _tuple(data, at + 1)
        mark = data[at : at + 1]
    if mark == b"N":
        new, at = _tuple(data, at + 1)
    op = {b"I": "insert", b"U": "update", b"D": "delete"}[kind]
    if at != len(data) or (new is None) != (op == "delete") or (op == "delete" and old is None):
        raise ValueError("its parts do not go together")
    return RowChanged(relation, op, old, whole, new)


def _tuple(data: bytes, at: int) -> tuple[Tuple, int]:
    count = _I16.unpack_from(data, at)[0]
    at += 2
    values: Tuple = []
    for _ in range(count):
        mark = data[at]
        at += 1
        if mark == 0x6E:  # n
            values.append(None)
        elif mark == 0x75:  # u
            values.append(UNCHANGED)
        elif mark == 0x74:  # t
            length = _I32.unpack_from(data, at)[0]
            at += 4
            if length < 0 or at + length > len(data):
                raise ValueError("a value is longer than the message")
            values.append(data[at : at + length])
            at += length
        else:
            raise ValueError(f"a value marked {mark}")
    return values, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1
