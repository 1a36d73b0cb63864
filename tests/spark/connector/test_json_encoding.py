"""Columns as JSON texts: what each type becomes, and that encoding by column and by value agree."""

import datetime
import decimal
import json
import random
import re
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from topics.spark.connector.json_encoding import json_column

pytest.importorskip("pyspark")


def test_anything_but_text_is_encoded_as_json() -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    value = {
        "n": 1,
        "f": float("nan"),
        "d": decimal.Decimal("1.50"),
        "at": moment,
        "day": datetime.date(2026, 1, 2),
        "raw": b"\x00\x01",
        "list": [1, None],
        "map": [("k", 1)],
        "empty": [],
    }
    kind = pa.struct(
        [
            ("n", pa.int64()),
            ("f", pa.float64()),
            ("d", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("list", pa.list_(pa.int32())),
            ("map", pa.map_(pa.string(), pa.int32())),
            ("empty", pa.map_(pa.string(), pa.int32())),
        ]
    )
    (text, nothing) = json_column(pa.chunked_array([pa.array([value, None], kind)])).to_pylist()
    assert nothing is None
    assert '"d":1.50' in text
    assert json.loads(text) == {
        "n": 1,
        "f": None,
        "d": 1.5,
        "at": "2026-01-02T03:04:05Z",
        "day": "2026-01-02",
        "raw": "AAE=",
        "list": [1, None],
        "map": {"k": 1},
        "empty": {},
    }


def test_keys_keep_their_order_and_numbers_all_their_digits() -> None:
    kind = pa.struct([("z", pa.int64()), ("a", pa.decimal128(38, 10)), ("m", pa.float64()), ("f", pa.float32())])
    value = {"z": 2**63 - 1, "a": decimal.Decimal("1234567890123456789012345678.0000000001"), "m": 0.1 + 0.2, "f": 0.1}
    assert texts(pa.array([value], kind)) == [
        '{"z":9223372036854775807,"a":1234567890123456789012345678.0000000001,"m":0.30000000000000004,"f":0.1}'
    ]


def test_escapes_are_those_of_json() -> None:
    values = ['plain "quoted" \\ back', "line\nfeed\ttab\rreturn", "\u0000\u001f\u007f", "ünïcode 😀", "", None]
    struct = pa.array([{"text": value} for value in values])
    assert [json.loads(text)["text"] for text in texts(struct)] == values
    assert texts(struct.slice(1, 1)) == ['{"text":"line\\nfeed\\ttab\\rreturn"}']
    # A name needs its escapes too.
    assert json.loads(texts(pa.array([{'a"b\\c': 1}]))[0]) == {'a"b\\c': 1}


def test_times_have_the_offset_of_their_zone() -> None:
    moments = pa.array([0, 1_500_000, 1_720_000_000_000_000, None]).cast(pa.timestamp("us", "Europe/Berlin"))
    assert texts(moments) == [
        '"1970-01-01T01:00:00+01:00"',
        '"1970-01-01T01:00:01.500000+01:00"',
        '"2024-07-03T11:46:40+02:00"',
        None,
    ]


def texts(column: Any) -> list[str | None]:
    encoded: list[str | None] = json_column(pa.chunked_array([column])).to_pylist()
    return encoded


LEAVES: list[tuple[Any, Any]] = [
    (pa.int32(), lambda chance: chance.randrange(-(2**31), 2**31)),
    (pa.int64(), lambda chance: chance.randrange(-(2**63), 2**63)),
    (pa.bool_(), lambda chance: chance.random() < 0.5),
    (pa.string(), lambda chance: "".join(chance.choices('ab"\\\n\t\x00é😀', k=chance.randrange(6)))),
    (pa.string(), lambda chance: "".join(chance.choices("abc/ é", k=chance.randrange(6)))),
    (pa.float64(), lambda chance: chance.choice([0.0, -0.0, 1.0, 0.1, 1e300, 5e-324, chance.random(), float("nan")])),
    (pa.decimal128(20, 5), lambda chance: decimal.Decimal(chance.randrange(-(10**18), 10**18)).scaleb(-5)),
    (pa.date32(), lambda chance: datetime.date(1, 1, 1) + datetime.timedelta(days=chance.randrange(3_000_000))),
    (
        pa.timestamp("us", "UTC"),
        lambda chance: (
            datetime.datetime(1900, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=chance.randrange(2**33))
        ),
    ),
    (pa.binary(), lambda chance: chance.randbytes(chance.randrange(5))),
]


def generated(chance: random.Random, depth: int) -> tuple[Any, Any]:
    """A type, and a function that makes values of it."""
    shape = chance.choice(["leaf", "leaf", "struct", "list", "map"]) if depth else "leaf"
    if shape == "leaf":
        kind, make = chance.choice(LEAVES)
        return kind, lambda: None if chance.random() < 0.1 else make(chance)
    if shape == "struct":
        fields = {f"f{index}": generated(chance, depth - 1) for index in range(chance.randrange(1, 4))}
        made = pa.struct([(name, kind) for name, (kind, _) in fields.items()])
        return made, lambda: None if chance.random() < 0.1 else {name: make() for name, (_, make) in fields.items()}
    inner, make_inner = generated(chance, depth - 1)
    if shape == "list":
        return pa.list_(
            inner
        ), lambda: None if chance.random() < 0.1 else [make_inner() for _ in range(chance.randrange(4))]
    return pa.map_(
        pa.string(), inner
    ), lambda: None if chance.random() < 0.1 else [(f"k{index}", make_inner()) for index in range(chance.randrange(4))]


@pytest.mark.parametrize("seed", range(40))
def test_encoding_by_column_is_encoding_by_value(seed: int) -> None:
    """But for the exponents of floating-point numbers, every byte is the same; slices included."""
    chance = random.Random(seed)
    kind, make = generated(chance, 3)
    if pa.types.is_string(kind):
        kind, make = pa.struct([("text", kind)]), lambda make=make: {"text": make()}
    column = pa.array([make() for _ in range(60)], kind)
    encode = msgspec.json.Encoder(decimal_format="number").encode
    for part in (column, column.slice(7, 30), column.slice(60)):
        values = part.to_pylist(maps_as_pydicts="strict")
        expected = [None if value is None else encode(value).decode() for value in values]
        assert [text and _without_signs(text) for text in texts(part)] == [
            text and _without_signs(text) for text in expected
        ]


def _without_signs(text: str) -> str:
    return re.sub(r"(?<=\d)e\+(?=\d)", "e", text)
