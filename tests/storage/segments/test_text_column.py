"""Columns of texts, read without creating an object for each value."""

import pyarrow as pa
import pytest

from topics.storage.segments.text_column import StringColumn, TextColumn


def test_rows_of_json_texts() -> None:
    texts = TextColumn(pa.array(["1", None, '"abc"'], pa.string()))
    assert texts.slice(0, 3) == [b"1", b"", b'"abc"']
    assert texts.slice(1, 3) == [b"", b'"abc"']
    assert texts.lengths([0, 1, 2]) == [1, 0, 5]
    assert texts.bytes_between(0, 3) == 6
    assert texts.joined(0, 2) == b"1\0"
    assert texts.joined(1, 2) is None


@pytest.mark.parametrize("values", [["a", None, "bc"], ["", None, "bc"], ['quo"te', None, "\n"]])
def test_strings_are_returned_as_json_strings_with_their_lengths(values: list[str | None]) -> None:
    column = StringColumn(pa.array(values, pa.string()))
    joined = column.joined(0, 3)
    assert joined is not None
    parts = joined.split(b"\0")
    assert column.lengths(range(3)) == [len(part) for part in parts]
    assert column.bytes_between(0, 3) == sum(map(len, parts))


def test_a_column_of_nulls_is_empty() -> None:
    column = StringColumn(pa.array([None, None], pa.string()))
    assert column.empty
    assert column.joined(0, 2) is None
