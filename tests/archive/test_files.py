"""Parquet files: their days, their row groups and their statistics."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.archive.test_rows import NOW_MS, page
from topics.archive.files import ROW_GROUP_ROWS, FileWriter
from topics.archive.place import Place, local_path
from topics.archive.rows import FILE_SCHEMA, record_rows, tombstone_row

DAY_US = 86_400_000_000


def writer(place: Place) -> FileWriter:
    return FileWriter(place, "app:events", "1-0", FILE_SCHEMA)


def test_rows_are_written_to_the_file_of_their_utc_day(tmp_path: Path) -> None:
    midnight = NOW_MS * 1000 // DAY_US * DAY_US
    files = writer(Place(str(tmp_path)))
    files.add(record_rows(page([b"1", b"2", b"3"], [midnight - 1000, midnight, midnight + 2 * DAY_US]), 0, 1))
    added = files.close()
    assert [file.date for file in added] == ["2023-11-13", "2023-11-14", "2023-11-16"]
    assert [file.path.split("/")[:2] for file in added] == [
        ["topic=app%3Aevents", f"date={each.date}"] for each in added
    ]
    assert [pq.read_table(tmp_path / file.path).column("data").to_pylist() for file in added] == [["1"], ["2"], ["3"]]
    assert [(file.bytes, file.rows) for file in added] == [(os.path.getsize(tmp_path / each.path), 1) for each in added]


def test_row_groups_are_large_if_there_are_enough_rows(tmp_path: Path) -> None:
    files = writer(Place(str(tmp_path)))
    rows = record_rows(page([b"{}"] * 30_000), 0, 1)
    for _ in range(10):
        files.add(rows)
    (added,) = files.close()
    metadata = pq.read_metadata(tmp_path / added.path)
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(groups) == 300_000
    assert min(groups[:-1]) >= ROW_GROUP_ROWS >= 100_000


def test_statistics_are_in_the_file_and_in_the_log_entry(tmp_path: Path) -> None:
    files = writer(Place(str(tmp_path)))
    files.add(record_rows(page([b"1", b"2"], [NOW_MS * 1000, NOW_MS * 1000 + 1500]), 4, 2))
    files.add(tombstone_row(4, 2, 3, 9, "cap", NOW_MS))
    (added,) = files.close()
    stats = json.loads(added.stats)
    assert stats["numRecords"] == added.rows == 3
    numbers = {"partition": 4, "epoch": 2, "gap_from": 3}
    texts = {"kind": "record", "data": "1", "reason": "cap"}
    assert stats["minValues"] == {**numbers, **texts, "seq": 1, "ts": "2023-11-14T22:13:20.000Z"}
    # The log knows milliseconds only: rounded up, or a reader would skip the file for the last record's own time.
    texts = {"kind": "tombstone", "data": "2", "reason": "cap"}
    assert stats["maxValues"] == {**numbers, **texts, "seq": 9, "ts": "2023-11-14T22:13:20.002Z"}
    assert (stats["nullCount"]["gap_from"], stats["nullCount"]["data"], stats["nullCount"]["seq"]) == (2, 1, 0)
    group = pq.read_metadata(tmp_path / added.path).row_group(0)
    seq = group.column(FILE_SCHEMA.get_field_index("seq")).statistics
    assert (seq.min, seq.max) == (1, 9)


@pytest.mark.parametrize("last", ["z", "\u00e9", "\U0010ffff", "\U0010ffffz"])
def test_long_texts_are_cut_in_the_log_so_that_the_bounds_still_hold(tmp_path: Path, last: str) -> None:
    texts = ["a" * 40 + last, "a" * 32 + last, "a" * 31 + last + "b", "\U0010ffff" * 40]
    for text in texts:
        files = writer(Place(str(tmp_path)))
        files.add(record_rows(page([text.encode()]), 0, 1))
        stats = json.loads(files.close()[0].stats)
        least, most = stats["minValues"]["data"], stats["maxValues"]["data"]
        assert least.encode() <= text.encode() <= most.encode()
        assert len(least) <= 32


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    files = writer(Place(str(tmp_path)))
    files.add(record_rows(page([]), 0, 1))
    assert files.close() == []
    assert list(tmp_path.iterdir()) == []


class FullDisk(Place):
    """A file that accepts a limited number of bytes."""

    def __init__(self, uri: str, free_bytes: int) -> None:
        super().__init__(uri)
        self._free_bytes = free_bytes

    def create(self, path: str) -> Any:
        import pyarrow as pa

        return pa.PythonFile(_FullFile(super().create(path), self._free_bytes), "w")


class _FullFile:
    def __init__(self, file: Any, free_bytes: int) -> None:
        self._file = file
        self._free_bytes = free_bytes
        self.closed = False

    def write(self, data: Any) -> int:
        self._free_bytes -= len(data)
        if self._free_bytes < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(data) or len(data))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        self._file.close()


@pytest.mark.parametrize("free_bytes", [0, 100, 20_000])
def test_a_full_disk_raises_and_leaves_no_file(tmp_path: Path, free_bytes: int) -> None:
    files = writer(FullDisk(str(tmp_path), free_bytes))

    def write() -> None:
        files.add(record_rows(page([os.urandom(40).hex().encode() for _ in range(2000)]), 0, 1))
        files.close()

    with pytest.raises(OSError, match="No space left"):
        write()
    files.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_only_directories_are_local() -> None:
    assert local_path("/data/a") == "/data/a"
    assert local_path("file:///data/a%20b") == "/data/a b"
    assert local_path("data/a") == "data/a"
    assert local_path("s3://bucket/a") is None


class ElsewherePlace(Place):
    """Local files reached as those of a bucket are: through delta-rs."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._local = None


def test_a_place_that_is_no_directory_is_written_and_read_through_delta_rs(tmp_path: Path) -> None:
    place = ElsewherePlace(str(tmp_path))
    files = writer(place)
    files.add(record_rows(page([b"1", b"2"]), 0, 1))
    (added,) = files.close()
    assert added.bytes == os.path.getsize(tmp_path / added.path)
    read = pq.read_table(added.path, filesystem=place.filesystem(), partitioning=None)
    assert read.column("data").to_pylist() == ["1", "2"]
    files = writer(place)
    files.add(record_rows(page([b"3"]), 0, 1))
    files.abort()
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
