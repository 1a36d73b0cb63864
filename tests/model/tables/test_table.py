"""What is known about a table goes together, and holds no secret."""

from typing import Any

import msgspec
import pytest

from topics.model.errors import InvalidRequest
from topics.model.tables.table import Table, check_table

TABLE = Table("chat.messages", "push", None, ("id",), {"id": "bigint", "Text": "string"}, 1)


def changed(**fields: Any) -> Table:
    return msgspec.structs.replace(TABLE, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"columns": {}},
        {"key_columns": ()},
        {"key_columns": ("ID",)},
        {"kind": "delta", "location": "s3://lake/messages"},
        {"kind": "delta", "location": "/data/messages"},
        {"kind": "postgres", "location": "host=db dbname=chat user=ada"},
        {"kind": "postgres", "location": "postgresql://ada@db:5432/chat?sslmode=require"},
    ],
)
def test_a_sound_table_is_taken(fields: dict[str, Any]) -> None:
    assert check_table(changed(**fields)) == changed(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"location": "s3://x"},
        {"kind": "delta"},
        {"kind": "postgres"},
        {"kind": "delta", "location": ""},
        {"kind": "delta", "location": "x" * 2001},
        {"kind": "delta", "location": "s3://a\nb"},
        {"kind": "delta", "location": "http://[x"},
        {"kind": "delta", "location": "https://store/x?sig=abc"},
        {"kind": "postgres", "location": "postgresql://ada:secret@db/chat"},
        {"kind": "postgres", "location": "postgresql://ada@db/chat?password=secret"},
        {"kind": "postgres", "location": "host=db PASSWORD = 'secret'"},
        {"key_columns": ("id", "id")},
        {"key_columns": ("other",)},
        {"key_columns": ("",)},
        {"columns": {"": "x"}, "key_columns": ()},
        {"columns": {}, "key_columns": tuple([f"c{number}" for number in range(65)])},
        {"columns": {f"c{number}": "" for number in range(2001)}, "key_columns": ()},
    ],
)
def test_a_table_that_contradicts_itself_or_tells_a_secret_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_table(changed(**fields))
    assert "secret" not in caught.value.message


def test_columns_are_unknown_only_when_the_schema_is_known() -> None:
    assert TABLE.unknown(["id", "text"]) is None
    assert TABLE.unknown(["id", "nope"]) == "nope"
    assert changed(columns={}).unknown(["nope"]) is None
