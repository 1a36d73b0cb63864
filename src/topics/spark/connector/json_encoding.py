"""Columns of Arrow as JSON texts, a column at a time: no Python object per row.

    struct, map     object, keys in the order of the fields or entries, nulls written out
    list            array
    string          text with the escapes that JSON requires
    integer         all digits
    decimal         a number with all digits and zeros, 1.50; below 0.000001 with an exponent, 1E-7
    double, float   the shortest text that reads back as the same value: 0.1, 1.0, 1e+20; null if it is not finite
    timestamp       ISO 8601 with Z or an offset, microseconds only if there are any
    date            2026-01-02
    VARIANT         its own JSON
    binary          base64
    anything else   as msgspec encodes the Python object

VARIANT, binary and the last kind are encoded by value: no kernel of Arrow does it.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(decimal_format="number")
_NEEDS_ESCAPE = re.compile(rb'[\x00-\x1f"\\]')
# Control characters without a short escape. Rare, so a column that has one is encoded by value.
_RARE_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_SHORT_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def json_column(column: Any) -> Any:
    """Encode a column as JSON texts, NULL where it is NULL. Strings are taken as JSON and returned unchanged."""
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array([_texts(chunk) for chunk in chunks], pa.string())


def _texts(column: Any) -> Any:
    """JSON texts of the values; NULL where the value is NULL."""
    import pyarrow as pa

    kind = column.type
    encode = _by_value
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        encode = _cast
    elif pa.types.is_string(kind):
        encode = _string
    elif pa.types.is_floating(kind):
        encode = _float
    elif pa.types.is_date32(kind):
        encode = _date
    elif pa.types.is_timestamp(kind):
        encode = _timestamp
    elif pa.types.is_map(kind):
        encode = _map
    elif pa.types.is_list(kind):
        encode = _list
    elif pa.types.is_struct(kind) and not _is_variant(kind):
        encode = _struct
    return encode(column)


def _cast(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.string())


def _quoted(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise('"', texts, '"', "")


def _string(column: Any) -> Any:
    """Only columns that have something to escape are searched for it, one kind of character at a time."""
    import pyarrow.compute as pc

    content = _content(column)
    if _NEEDS_ESCAPE.search(content) is None:
        return _quoted(column)
    if _RARE_CONTROL.search(content) is not None:
        return _by_value(column)
    escaped = column
    for character, escape in _SHORT_ESCAPES:
        if character.encode() in content:
            escaped = pc.replace_substring(escaped, character, escape)
    return _quoted(escaped)


def _content(column: Any) -> bytes:
    """The bytes of all strings of the column, one after another."""
    import pyarrow as pa

    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return b""
    ends = pa.Array.from_buffers(pa.int32(), len(column) + 1, [None, offsets], offset=column.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    return bytes(data[first:last])


def _float(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = column.cast(pa.string())
    # A whole number gets `.0`, which shows that the column is floating-point.
    texts = pc.replace_substring_regex(texts, r"^(-?\d+)$", r"\1.0")
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() in (True, None):
        return texts
    return pc.if_else(finite, texts, "null")


def _date(column: Any) -> Any:
    return _quoted(_cast(column))


def _timestamp(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = column.cast(pa.timestamp("us", column.type.tz))
    if column.type.tz is None:
        return _quoted(_local_texts(micros))
    local = pc.local_timestamp(micros)
    offsets = pc.subtract(local.cast(pa.int64()), micros.cast(pa.int64()))
    zones = pa.nulls(len(column), pa.string())
    for offset in pc.unique(offsets.drop_null()).to_pylist():
        zones = pc.if_else(pc.equal(offsets, offset), _offset_text(offset), zones)
    return pc.binary_join_element_wise('"', _local_texts(local), zones, '"', "")


def _local_texts(micros: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    # A cast takes a tenth of the time of strftime.
    texts = pc.replace_substring(micros.cast(pa.string()), " ", "T")
    whole = pc.ends_with(texts, ".000000")
    return pc.if_else(whole, pc.utf8_slice_codeunits(texts, 0, -7), texts)


def _offset_text(offset_us: int) -> str:
    if not offset_us:
        return "Z"
    # msgspec rounds to minutes too: zones had seconds only before they were standardised.
    minutes = round(abs(offset_us) / 60_000_000)
    return f"{'-' if offset_us < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _struct(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not column.type.num_fields:
        texts = pa.repeat(pa.scalar("{}", pa.string()), len(column))
    else:
        parts: list[Any] = []
        for index, field in enumerate(column.type):
            parts.append(("," if index else "{") + msgspec.json.encode(field.name).decode() + ":")
            parts.append(_texts(column.field(index)).fill_null("null"))
        texts = pc.binary_join_element_wise(*parts, "}", "")
    return _null_where(column, texts)


def _list(column: Any) -> Any:
    values, offsets = _children(column, column.values)
    lists = _joined(_texts(values).fill_null("null"), offsets)
    import pyarrow.compute as pc

    return _null_where(column, pc.binary_join_element_wise("[", lists, "]", ""))


def _map(column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys, offsets = _children(column, column.keys)
    values, _ = _children(column, column.items)
    names = _texts(keys)
    if not (pa.types.is_string(keys.type) or pa.types.is_date32(keys.type) or pa.types.is_timestamp(keys.type)):
        if not (pa.types.is_integer(keys.type) or pa.types.is_decimal(keys.type)):
            return _by_value(column)
        names = _quoted(names)
    entries = pc.binary_join_element_wise(names, ":", _texts(values).fill_null("null"), "")
    return _null_where(column, pc.binary_join_element_wise("{", _joined(entries, offsets), "}", ""))


def _children(column: Any, values: Any) -> tuple[Any, Any]:
    """The values of the lists or maps of this column, which may be a slice, and where each begins and ends in them."""
    import pyarrow.compute as pc

    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return values.slice(first, last - first), pc.subtract(offsets, first)


def _joined(texts: Any, offsets: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")


def _null_where(column: Any, texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


def _by_value(column: Any) -> Any:
    import pyarrow as pa

    encode = _encoder.encode
    values = column.to_pylist(maps_as_pydicts="strict")
    restore = _variant_restorer(column.type)
    if restore is not None:
        values = [None if value is None else restore(value) for value in values]
    return pa.array([None if value is None else encode(value).decode() for value in values], pa.string())


def _is_variant(kind: Any) -> bool:
    from pyspark.sql.pandas.types import is_variant

    return bool(is_variant(kind))


def _variant_restorer(kind: Any) -> Callable[[Any], Any] | None:
    """A function that replaces each VARIANT in a value of this Arrow type by its JSON; None when there is none in it."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        if _is_variant(kind):
            from pyspark.sql.types import VariantVal

            return lambda value: msgspec.Raw(VariantVal(value["value"], value["metadata"]).toJson().encode())
        inner = {field.name: restore for field in kind if (restore := _variant_restorer(field.type)) is not None}
        if not inner:
            return None
        return lambda value: {
            name: inner[name](each) if name in inner and each is not None else each for name, each in value.items()
        }
    if pa.types.is_map(kind):
        restore_item = _variant_restorer(kind.item_type)
        if restore_item is None:
            return None
        return lambda value: {name: None if each is None else restore_item(each) for name, each in value.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        restore_each = _variant_restorer(kind.value_type)
        if restore_each is None:
            return None
        return lambda value: [None if each is None else restore_each(each) for each in value]
    return None
