"""Null in a request body: for an optional field it says no more than leaving the field out.

Bodies are decoded strictly, into structs. Only one that was refused is looked at again, without its empty fields: those that
have a default, are null, and whose type has no null. A type that has one gives it a meaning of its own: `"priority": null`
takes a priority away. Everything else keeps the bytes it came with.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

T = TypeVar("T")

# In a body with more objects and arrays than this to look into, nulls stay what they are: it would take too long.
LOOKS_MOST = 10_000

_NULL = b"null"
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_elements = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode


def decode_again(body: bytes, decoder: msgspec.json.Decoder[T], refused: msgspec.ValidationError) -> T:
    """Decode what the decoder refused without its empty fields. Raises `refused`, or why it is refused still."""
    shape = _shape_of(cast(Hashable, decoder.type)) if _NULL in body else None
    if shape is None:
        raise refused
    try:
        filled = _Pruning().prune(body, shape)
    except (msgspec.MsgspecError, RecursionError, _TooMany):
        raise refused from None
    return decoder.decode(filled)


class _Shape(Struct, frozen=True):
    """Where empty fields can be in the values of a type."""

    # Of an object: fields that may be left out, fields to look into, or what all its values are.
    droppable: frozenset[str] = frozenset()
    fields: dict[str, _Shape] = {}
    values: _Shape | None = None
    # What the elements of an array are.
    elements: _Shape | None = None


class _TooMany(Exception):
    pass


class _Pruning:
    def __init__(self) -> None:
        self._left = LOOKS_MOST

    def prune(self, text: bytes, shape: _Shape) -> bytes:
        text = text.strip()
        if text.startswith(b"{"):
            self._look()
            members: list[bytes] = []
            for name, raw in _members(text).items():
                value = bytes(raw)
                if value == _NULL and name in shape.droppable:
                    continue
                inner = shape.fields.get(name, shape.values)
                members.append(b"%b:%b" % (_encode(name), value if inner is None else self.prune(value, inner)))
            return b"{%b}" % b",".join(members)
        if text.startswith(b"[") and shape.elements is not None:
            self._look()
            inner = shape.elements
            return b"[%b]" % b",".join([self.prune(bytes(raw), inner) for raw in _elements(text)])
        return text

    def _look(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMany


@cache
def _shape_of(kind: Any) -> _Shape | None:
    # Loaded with the first body that needs it.
    from msgspec import inspect

    def shape(found: inspect.Type) -> _Shape | None:
        """None when nothing in such a value can be left out."""
        match found:
            case inspect.StructType(fields=fields):
                droppable = frozenset(
                    [field.encode_name for field in fields if not field.required and not takes_null(field.type)]
                )
                inner = {field.encode_name: each for field in fields if (each := shape(field.type)) is not None}
                return _Shape(droppable, inner) if droppable or inner else None
            case inspect.DictType(value_type=value):
                values = shape(value)
                return None if values is None else _Shape(values=values)
            case inspect.ListType(item_type=item):
                elements = shape(item)
                return None if elements is None else _Shape(elements=elements)
            case inspect.UnionType(types=types):
                # A body is never one of two kinds of object.
                return next((each for each in map(shape, types) if each is not None), None)
        return None

    def takes_null(found: inspect.Type) -> bool:
        if isinstance(found, inspect.UnionType):
            return any([takes_null(each) for each in found.types])
        return isinstance(found, inspect.NoneType | inspect.AnyType | inspect.RawType)

    return shape(inspect.type_info(kind))
