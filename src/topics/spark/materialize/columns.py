"""Columns of a materialised table: their types, and how the JSON values of change events are converted to them.

A column has the type that the server knows for it (`topics table add T --columns id:bigint,price:decimal(10,2)`), otherwise
the type of its first value that is not null:

    true, false          boolean
    a whole number       bigint
    another number       double
    a text               string
    anything else        string, as its JSON text: objects, arrays, numbers with more digits than bigint or double hold

A value that the type of its column cannot hold without loss is an error that names the column: the table would not be
equal to its source any more.
"""

import datetime
import decimal
import math
import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta

TIMESTAMP = pa.timestamp("us", "UTC")
_NAMED = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "double precision": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMP,
    "binary": pa.binary(),
    "bytea": pa.binary(),
}
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_INT64_BITS = 63
# The smallest number that a 32-bit float would round to infinity.
FLOAT32_END = 2.0**128 - 2.0**103
# A double holds every number of MIN_DOUBLE_DIGITS digits, and no double needs more than MAX_DOUBLE_DIGITS.
MIN_DOUBLE_DIGITS = 15
MAX_DOUBLE_DIGITS = 17


class BadValue(Exception):
    """A value that its column cannot hold. Names the column, its type and the value."""


def named_type(name: str) -> Any:
    """The Arrow type of a column whose type the server knows. Types that are not listed here are kept as texts."""
    text = name.strip().lower()
    found = _DECIMAL.fullmatch(text)
    if found is not None and int(found[1]) <= 38:
        return pa.decimal128(int(found[1]), int(found[2] or 0))
    return _NAMED.get(text, pa.string())


def inferred_type(value: bytes) -> Any | None:
    """The Arrow type for a JSON value of a column of unknown type; None for null, which says nothing."""
    first = value[:1]
    if value == b"null":
        return None
    if first in (b"t", b"f"):
        return pa.bool_()
    if first in (b'"', b"{", b"["):
        return pa.string()
    decoded = msgspec.json.decode(value)
    if isinstance(decoded, int) and decoded.bit_length() <= _INT64_BITS:
        return pa.int64()
    return pa.string() if _loses_digits(value) else pa.float64()


def value_decoder(name: str, kind: Any) -> Callable[[bytes], Any]:
    """A function from the JSON of a value to the Python value for Arrow. It raises BadValue."""
    decode = _decoder(kind)

    def decoded(value: bytes) -> Any:
        if value == b"null":
            return None
        try:
            return decode(value)
        except (msgspec.MsgspecError, ValueError, ArithmeticError, pa.ArrowException) as error:
            raise BadValue(
                f"column {name} is {kind} and cannot hold {value[:100].decode(errors='replace')}: {error}. Name its type with "
                f"topics table add ... --columns {name}:TYPE and materialise to a new location."
            ) from None

    return decoded


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_decimal(kind):
        return lambda value: pa.scalar(_as_decimal(value), kind).as_py()
    if pa.types.is_integer(kind):
        as_int = msgspec.json.Decoder(int).decode
        return lambda value: pa.scalar(as_int(value), kind).as_py()
    if pa.types.is_floating(kind):
        finite = _as_float32 if pa.types.is_float32(kind) else _double
        return lambda value: finite(value) if value not in _NON_FINITE else _NON_FINITE[value]
    python_type: Any = None
    if pa.types.is_boolean(kind):
        python_type = bool
    elif pa.types.is_date(kind):
        python_type = datetime.date
    elif pa.types.is_binary(kind):
        python_type = bytes
    return msgspec.json.Decoder(python_type).decode


def _double(value: bytes) -> float:
    if _loses_digits(value):
        raise ValueError(f"a double has {MAX_DOUBLE_DIGITS} digits")
    return _as_float(value)


def _loses_digits(value: bytes) -> bool:
    """Whether a JSON number has digits that a double cannot hold.

    A fraction of up to MAX_DOUBLE_DIGITS digits is taken for the text of a double, which some sources do not write in its
    shortest form.
    """
    if len(value) <= MIN_DOUBLE_DIGITS:
        return False
    number = _as_decimal(value)
    if b"." in value and len(number.as_tuple().digits) <= MAX_DOUBLE_DIGITS:
        return False
    return decimal.Decimal(repr(_as_float(value))) != number


_as_float = msgspec.json.Decoder(float).decode
_as_float32 = msgspec.json.Decoder(Annotated[float, Meta(gt=-FLOAT32_END, lt=FLOAT32_END)]).decode
# As change events write the numbers that JSON does not have.
_NON_FINITE = {b'"NaN"': math.nan, b'"Infinity"': math.inf, b'"-Infinity"': -math.inf}
_as_decimal = msgspec.json.Decoder(decimal.Decimal).decode


def _text(value: bytes) -> str:
    """Return a text unchanged, any other value as its JSON."""
    return msgspec.json.decode(value, type=str) if value[:1] == b'"' else value.decode()


_as_datetime = msgspec.json.Decoder(datetime.datetime).decode


def _timestamp(value: bytes) -> datetime.datetime:
    found = _as_datetime(value)
    return found.replace(tzinfo=datetime.UTC) if found.tzinfo is None else found
