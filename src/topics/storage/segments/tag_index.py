"""The tag index of a sealed segment: which records have a tag, or a tag with a prefix.

The index repeats what the rows contain: if it is damaged, `TagScan` searches the rows instead.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from xxhash import xxh3_64_intdigest

from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.records.match import TagMatch
from topics.storage.fs import FileSystem
from topics.storage.reading import load, map_file
from topics.storage.segments.segment_format import BatchEntry
from topics.storage.segments.text_column import TextColumn

# Entries of the index examined per step of a search.
STEP_SEQS = 4096


def find_tagged(
    fs: FileSystem, base: str, info: SegmentInfo, match: TagMatch, bound: int, found: bytearray
) -> Iterator[None]:
    """Do what `SegmentFile.find` does without opening the file of records. Raises CorruptStorage."""
    if info.tagged:
        yield from open_tag_index(fs, base, info).find(match, info.first_seq, min(bound, info.last_seq + 1), found)


def open_tag_index(fs: FileSystem, base: str, info: SegmentInfo) -> "TagIndex":
    import pyarrow as pa

    path = base + ".tags"
    view = map_file(fs, path)
    load(view, 0, len(view), path)
    if xxh3_64_intdigest(view) != info.tags_checksum:
        raise CorruptStorage(path, 0, "tag index is damaged, or belongs to another segment")
    return TagIndex(pa, view, path)


class TagIndex:
    """The sorted tag index of a segment."""

    def __init__(self, pa: Any, view: memoryview, path: str) -> None:
        try:
            batch = pa.ipc.open_file(pa.py_buffer(view)).get_batch(0)
        except (pa.ArrowException, OSError) as error:
            raise CorruptStorage(path, 0, str(error)) from error
        self._rows = int(batch.num_rows)
        self._names = TextColumn(batch.column(0))
        lists = batch.column(1)
        self._ends = memoryview(lists.buffers()[1]).cast("b").cast("i")
        self._seqs = memoryview(lists.values.buffers()[1]).cast("b").cast("q")

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> bytes:
        return self._names.slice(row, row + 1)[0]

    def all(self) -> list[tuple[bytes, list[int]]]:
        return [(self[row], list(self._seqs[self._ends[row] : self._ends[row + 1]])) for row in range(self._rows)]

    def find(self, match: TagMatch, first_seq: int, bound: int, found: bytearray) -> Iterator[None]:
        text = msgspec.json.encode(match.text)
        start = text[:-1] if match.prefix else text
        # Tags are sorted: matching tags are adjacent, and so are their seqs. UTF-8 contains no byte 0xff.
        low = bisect_left(self, start)
        high = (
            bisect_left(self, start + b"\xff", low) if match.prefix else low + (low < self._rows and self[low] == text)
        )
        for at in range(self._ends[low], self._ends[high], STEP_SEQS):
            for seq in self._seqs[at : min(at + STEP_SEQS, self._ends[high])]:
                if first_seq <= seq < bound:
                    found[seq - first_seq] = 1
            yield


class Rows(Protocol):
    """The batches of a segment."""

    batches: list[BatchEntry]

    def record_batch(self, number: int) -> Any: ...


class TagScan:
    """Search for tags in the rows. Used if the tag index is damaged."""

    def __init__(self, file: Rows) -> None:
        self._file = file

    def find(self, match: TagMatch, first_seq: int, bound: int, found: bytearray) -> Iterator[None]:
        import pyarrow.compute as pc

        for number, batch in enumerate(self._file.batches):
            if batch.first_seq >= bound:
                break
            tags = self._file.record_batch(number).column(3)
            matching = pc.starts_with(tags, match.text) if match.prefix else pc.equal(tags, match.text)
            for row in pc.indices_nonzero(pc.fill_null(matching, False)).to_pylist():
                if batch.first_seq + row < bound:
                    found[batch.first_seq + row - first_seq] = 1
            yield
