"""Convert values of an Arrow column to JSON without loss, in the same forms as the capture from PostgreSQL.

booleans, integers, decimals   as they are, with all their digits
floats                         numbers; NaN and the infinities as texts
timestamps                     2026-01-02T03:04:05.5Z, those without a time zone without the Z
dates                          2026-01-02
binary                         base64
lists, structs, maps           arrays, objects, objects with the keys as texts
everything else                the text Arrow writes
"""

import base64
import math
from typing import Any

import msgspec

_encode = msgspec.json.Encoder(decimal_format="number").encode


def encode(value: Any) -> bytes:
    """Encode a value that `json_values` returned as JSON."""
    return _encode(value)


def without_views(batch: Any) -> Any:
    """Cast string and binary views to plain types: delta-rs returns views, and Arrow cannot filter them yet."""
    import pyarrow as pa

    fields = [field.with_type(_without_views(pa, field.type)) for field in batch.schema]
    return batch.cast(pa.schema(fields))


def json_values(column: Any) -> list[Any]:
    """Return the values of an Arrow array in the forms documented above, for `encode`; None for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    types = pa.types
    if types.is_dictionary(kind):
        return json_values(column.dictionary_decode())
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind) or types.is_null(kind):
        return _list(column)
    if _is_text(types, kind):
        return _list(column)
    if types.is_floating(kind):
        values = _list(column.cast(pa.float64()) if types.is_float16(kind) else column)
        if types.is_float32(kind):
            # The shortest digits that identify the 32-bit value, not all digits of its 64-bit form.
            values = [None if value is None else _shortest_float32(value) for value in values]
        return [value if value is None or math.isfinite(value) else _non_finite_text(value) for value in values]
    if types.is_timestamp(kind):
        return _timestamps(pa, pc, column)
    if types.is_date(kind):
        return _list(pc.cast(column.cast(pa.date32()), pa.string()))
    if _is_binary(types, kind):
        return [None if value is None else base64.b64encode(value).decode() for value in _list(column)]
    if types.is_struct(kind):
        fields = [json_values(field) for field in column.flatten()]
        names = [kind.field(at).name for at in range(kind.num_fields)]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)] if fields else []
        return [row if valid else None for row, valid in zip(rows, _valid(column), strict=True)]
    if types.is_map(kind):
        return _maps(column)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or _is_list_view(types, kind):
        return [None if not value.is_valid else json_values(value.values) for value in column]
    return _list(column.cast(pa.string()))


def _without_views(pa: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(pa, field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_without_views(pa, kind.key_type), _without_views(pa, kind.item_type))
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(pa, kind.value_type)))
    return kind


def _list(column: Any) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found


def _valid(column: Any) -> list[bool]:
    found: list[bool] = column.is_valid().to_pylist()
    return found


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(types: Any, kind: Any) -> bool:
    plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(plain or types.is_fixed_size_binary(kind))


def _is_list_view(types: Any, kind: Any) -> bool:
    return bool(types.is_list_view(kind) or types.is_large_list_view(kind))


def _shortest_float32(value: float) -> float:
    if not math.isfinite(value):
        return value
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if _as_float32(float(text)) == value:
            return float(text)
    return value


def _as_float32(value: float) -> float:
    import struct

    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.inf


def _non_finite_text(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _timestamps(pa: Any, pc: Any, column: Any) -> list[Any]:
    """Format timestamps in UTC, without trailing zeros of the fraction."""
    zone = "Z" if column.type.tz else ""
    naive = column.cast(pa.timestamp(column.type.unit, "UTC")).cast(pa.timestamp(column.type.unit))
    texts = pc.cast(naive, pa.string())
    texts = pc.replace_substring_regex(texts, r"\.0+$", "")
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]*[1-9])0+$", r"\1")
    texts = pc.replace_substring_regex(texts, r"^([-+]?[0-9]+-[0-9]{2}-[0-9]{2}) ", r"\1T")
    return [None if text is None else text + zone for text in texts.to_pylist()]


def _maps(column: Any) -> list[Any]:
    rows: list[Any] = []
    for value in column:
        if not value.is_valid:
            rows.append(None)
            continue
        entries = value.values
        keys = [key if isinstance(key, str) else encode(key).decode() for key in json_values(entries.field(0))]
        rows.append(dict(zip(keys, json_values(entries.field(1)), strict=True)))
    return rows
