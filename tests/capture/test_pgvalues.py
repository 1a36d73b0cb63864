"""Values of every type become the JSON that says the same."""

from typing import Any

import msgspec
import pytest

from topics.capture.pgvalues import PgType, json_value

ARRAYS = {1007: 23, 1009: 25, 1231: 1700, 1001: 17, 199: 114, 1020: 603}


def types(oid: int) -> PgType:
    return PgType(oid, ARRAYS.get(oid, 0))


@pytest.mark.parametrize(
    ("text", "oid", "expected"),
    [
        (None, 23, "null"),
        (b"t", 16, "true"),
        (b"f", 16, "false"),
        (b"-42", 20, "-42"),
        (b"12345678901234567890.123456789000", 1700, "12345678901234567890.123456789000"),
        (b"NaN", 1700, '"NaN"'),
        (b"-Infinity", 701, '"-Infinity"'),
        (b"1e-07", 701, "1e-07"),
        (b'{"a" : [1, 2.50]}', 114, '{"a" : [1, 2.50]}'),
        (b"null", 3802, "null"),
        (b"\\x00ff10", 17, '"AP8Q"'),
        (b"\\x", 17, '""'),
        (b"2026-01-02 03:04:05.123456+00", 1184, '"2026-01-02T03:04:05.123456Z"'),
        (b"2026-01-02 03:04:05", 1114, '"2026-01-02T03:04:05"'),
        (b"infinity", 1184, '"infinity"'),
        (b"0044-03-15 00:00:00+00 BC", 1184, '"0044-03-15 00:00:00+00 BC"'),
        (b"2026-01-02", 1082, '"2026-01-02"'),
        ("käse \\ \"'".encode(), 25, '"käse \\\\ \\"\'"'),
        (b"{}", 1007, "[]"),
        (b"{1,NULL,3}", 1007, "[1,null,3]"),
        (b"{{1,2},{3,4}}", 1007, "[[1,2],[3,4]]"),
        (b"[0:1]={5,6}", 1007, "[5,6]"),
        (b'{a,"b,c","d\\"e","\\\\f","NULL",""}', 1009, '["a","b,c","d\\"e","\\\\f","NULL",""]'),
        (b"{1.10,NaN}", 1231, '[1.10,"NaN"]'),
        (b'{"\\\\x6869"}', 1001, '["aGk="]'),
        (b'{"{\\"a\\": 1}"}', 199, '[{"a": 1}]'),
        (b"{(1,1),(0,0);(3,3),(2,2)}", 1020, '["(1,1),(0,0)","(3,3),(2,2)"]'),
    ],
)
def test_value(text: bytes | None, oid: int, expected: str) -> None:
    assert msgspec.json.encode(json_value(text, oid, types)).decode() == expected


@pytest.mark.parametrize("text", [b"", b"{", b"{1", b"1", b"{1}x", b'{"a', b'{"a"b}'])
def test_a_text_that_is_not_an_array_is_refused(text: bytes) -> None:
    def read() -> Any:
        return json_value(text, 1009, types)

    with pytest.raises((ValueError, IndexError)):
        read()
