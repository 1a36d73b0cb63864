"""What becomes a row, and what cannot."""

from typing import Any

import pyarrow as pa

from topics.archive.rows import (
    FILE_SCHEMA,
    QUARANTINE_FILE_SCHEMA,
    convertible,
    quarantined_rows,
    record_rows,
    tombstone_row,
)

NOW_MS = 1_700_000_000_000


def page(data: list[bytes], ts_us: list[int] | None = None) -> Any:
    """As the server sends it, but with any bytes for payloads: nothing is checked on the way in."""
    count = len(data)
    texts = pa.array(data, pa.binary())
    data_column = pa.StringArray.from_buffers(count, *texts.buffers()[1:])
    times = pa.array(ts_us or [NOW_MS * 1000] * count, pa.timestamp("us", "UTC"))
    nothing = pa.nulls(count, pa.string())
    return pa.RecordBatch.from_arrays(
        [pa.array(range(1, count + 1), pa.int64()), times, nothing, nothing, data_column, nothing],
        names=["seq", "ts", "node", "tag", "data", "meta"],
    )


def test_a_record_keeps_all_its_fields() -> None:
    rows = record_rows(page([b'{"a":1}', b"null"]), 3, 7)
    assert rows.schema == FILE_SCHEMA
    first, second = rows.to_pylist()
    assert (first["partition"], first["epoch"], first["seq"], first["kind"]) == (3, 7, 1, "record")
    assert (first["data"], second["data"], second["gap_from"], second["reason"]) == ('{"a":1}', "null", None, None)


def test_the_seq_of_a_tombstone_is_the_end_of_its_range() -> None:
    (row,) = tombstone_row(0, 1, 5, 9, "ttl", NOW_MS).to_pylist()
    assert (row["kind"], row["gap_from"], row["seq"], row["reason"], row["data"]) == ("tombstone", 5, 9, "ttl", None)


def test_ordinary_pages_are_passed_on_as_they_are() -> None:
    given = page([b'"\\ud800"', "\u00e9\U0001f600".encode(), b""])
    kept, broken = convertible(given)
    assert kept is given
    assert broken == []


def test_a_text_that_is_not_unicode_is_quarantined_with_its_bytes_and_the_reason() -> None:
    given = page([b'"good"', b'"\xff bad"', b'"good too"', b"\xed\xa0\x80"])
    kept, broken = convertible(given)
    assert kept.column("seq").to_pylist() == [1, 3]
    assert [index for index, _ in broken] == [1, 3]
    rows = quarantined_rows(given, broken, 2, 5, NOW_MS)
    assert rows.schema == QUARANTINE_FILE_SCHEMA
    first, second = rows.to_pylist()
    assert (first["partition"], first["epoch"], first["seq"], first["data"]) == (2, 5, 2, b'"\xff bad"')
    assert first["reason"] == "its data is not UTF-8: invalid start byte at byte 1"
    assert second["data"] == b"\xed\xa0\x80"
    assert first["record_ts_ms"] == NOW_MS


def test_a_time_outside_the_range_of_dates_is_quarantined() -> None:
    edge = 253_402_300_799_000_000
    kept, broken = convertible(page([b"1", b"2", b"3"], [edge, edge + 1_000_000, 0]))
    assert kept.column("seq").to_pylist() == [1, 3]
    assert broken == [(1, "its time, 253402300800000 ms, is outside the years 1 to 9999")]


def test_an_empty_page_gives_no_rows() -> None:
    kept, broken = convertible(page([]))
    assert (kept.num_rows, broken) == (0, [])
