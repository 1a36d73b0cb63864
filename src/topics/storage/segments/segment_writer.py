"""Write sealed segments. `segment_format.py` describes the files."""

import contextlib
from collections.abc import Sequence
from typing import Any

from xxhash import xxh3_64, xxh3_64_intdigest

from topics.model.config import U64_MAX
from topics.model.facts import SegmentInfo
from topics.model.records.page import Page
from topics.storage.fs import File, FileSystem
from topics.storage.segments.columns import record_batch, record_schema, tag_batch
from topics.storage.segments.segment_format import (
    METADATA_KEY,
    ROOT,
    BatchEntry,
    encode_footer,
    remove_segment,
    write_file,
    write_flags,
)

BATCH_RECORDS = 4096
BATCH_BYTES = 8 << 20
# Batches are converted to columns in groups of about this size. Larger groups touch more new memory; with smaller ones the
# sealing thread takes the interpreter lock more often and delays the event loop.
CONVERSION_BYTES = 4 << 20
# Smaller parts of a batch are joined before they are written.
SMALL_BYTES = 64 << 10


def write_segment(
    fs: FileSystem, base: str, pages: Sequence[Page], tags: Sequence[tuple[bytes, int | Sequence[int]]]
) -> SegmentInfo:
    """Write and sync the three files of a segment. Tags may be in any order.

    On an exception all its files are removed, as far as possible: a full disk needs that space.
    """
    remove_segment(fs, base)
    fs.make_directory(ROOT)
    try:
        return _write_files(fs, base, pages, tags)
    except Exception:
        with contextlib.suppress(OSError):
            remove_segment(fs, base)
        raise


def _write_files(
    fs: FileSystem, base: str, pages: Sequence[Page], tags: Sequence[tuple[bytes, int | Sequence[int]]]
) -> SegmentInfo:
    import pyarrow as pa

    body_start, body_end, frame_checksum = _write_rows(pa, fs, base + ".arrow", pages)
    tags_checksum = 0
    if tags:
        batch = tag_batch(pa, tags)
        index = pa.BufferOutputStream()
        with pa.ipc.new_file(index, batch.schema) as writer:
            writer.write_batch(batch)
        content = memoryview(index.getvalue())
        write_file(fs, base + ".tags", content)
        tags_checksum = xxh3_64_intdigest(content)
    first, last = pages[0], pages[-1]
    # Written to another name and renamed: the log may still refer to an earlier segment with this name, and its reader must
    # not find half of these flags.
    write_flags(fs, base, first.first_seq, bytes(last.last_seq - first.first_seq + 1))
    fs.sync_directory(ROOT)
    # Arrow keeps freed buffers; without this line they are most of the memory of a server between two seals.
    pa.default_memory_pool().release_unused()
    return SegmentInfo(
        first.first_seq,
        last.last_seq,
        first.first_ts,
        last.last_ts,
        sum([page.size for page in pages]),
        bool(tags),
        body_start,
        body_end,
        frame_checksum,
        tags_checksum,
    )


def _batches(pages: Sequence[Page]) -> list[list[Page]]:
    """Group the pages into batches, small enough that verifying one and caching its offsets is cheap."""
    groups: list[list[Page]] = []
    records = size = 0
    for page in pages:
        if not groups or records + page.count > BATCH_RECORDS or size + page.size > BATCH_BYTES:
            groups.append([])
            records = size = 0
        groups[-1].append(page)
        records += page.count
        size += page.size
    return groups


def _conversion_groups(groups: list[list[Page]]) -> list[list[list[Page]]]:
    """Group adjacent batches that are converted to columns together."""
    conversions: list[list[list[Page]]] = []
    size = 0
    for group in groups:
        more = sum([page.size for page in group])
        if not conversions or size + more > CONVERSION_BYTES:
            conversions.append([])
            size = 0
        conversions[-1].append(group)
        size += more
    return conversions


def _write_rows(pa: Any, fs: FileSystem, path: str, pages: Sequence[Page]) -> tuple[int, int, int]:
    """Write and sync the file of the records. Return start and end of its batches and the checksum of the bytes around them.

    A few batches are converted, written and freed before the next ones: touching new memory was a third of the cost of
    sealing when the whole file was built first. (0.17 us per record; 0.29 with one conversion and write per batch:
    docs/decisions/0014-sealing-holds-the-gil-briefly.md.)

    Arrow requires the footer metadata before the first batch. It gets a placeholder of the right length, which is replaced by
    the checksums before the footer is written.
    """
    groups = _batches(pages)
    longest_entry = BatchEntry(U64_MAX, U64_MAX, U64_MAX, U64_MAX, U64_MAX)
    placeholder = b"?" * len(encode_footer([longest_entry] * len(groups)))
    file = fs.open(path, create=True)
    try:
        sink = _Sink(file)
        stream = pa.BufferedOutputStream(pa.PythonFile(sink, mode="w"), SMALL_BYTES)
        with pa.ipc.new_file(stream, record_schema(pa), metadata={METADATA_KEY: placeholder}) as writer:
            stream.flush()
            frame = xxh3_64(b"".join(sink.parts))
            sink.write_out()
            entries = []
            for conversion in _conversion_groups(groups):
                rows = record_batch(pa, [page for group in conversion for page in group])
                first_seq = conversion[0][0].first_seq
                for group in conversion:
                    start, seq = sink.position, group[0].first_seq
                    count = group[-1].last_seq - seq + 1
                    writer.write_batch(rows.slice(seq - first_seq, count))
                    stream.flush()
                    checksum = sink.write_out()
                    entries.append(BatchEntry(seq, count, start, sink.position - start, checksum))
        stream.flush()
        footer = b"".join(sink.parts)
        assert footer.count(placeholder) == 1
        sink.parts = [memoryview(footer.replace(placeholder, encode_footer(entries).ljust(len(placeholder))))]
        frame.update(sink.parts[0])
        sink.write_out()
        file.sync_data()
    finally:
        file.close()
    return entries[0].start, entries[-1].start + entries[-1].length, int(frame.intdigest())


class _Sink:
    """Output file for Arrow: collects parts and writes them on `write_out`."""

    def __init__(self, file: File) -> None:
        self.parts: list[memoryview] = []
        self.position = 0
        # Arrow reads this before each write.
        self.closed = False
        self._file = file

    def write(self, part: Any) -> int:
        view = memoryview(part)
        self.parts.append(view)
        return view.nbytes

    def flush(self) -> None:
        """Do nothing: parts are kept until `write_out`."""

    def close(self) -> None:
        self.closed = True

    def write_out(self) -> int:
        """Write the collected parts to the file and return their checksum."""
        digest = xxh3_64()
        for part in self.parts:
            digest.update(part)
        self._file.write_at(self.position, self.parts)
        self.position += sum(map(len, self.parts))
        self.parts = []
        return int(digest.intdigest())
