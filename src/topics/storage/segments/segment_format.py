"""The files of a sealed segment: names, layout and checksums.

    segments/<topic>-<partition>-<first seq>.arrow   Arrow IPC file: columns seq, ts, node, tag, data, meta, in batches of some thousand rows
    segments/<topic>-<partition>-<first seq>.tags    tag (as JSON text), seqs; sorted by tag; only if a record has a tag
    segments/<topic>-<partition>-<first seq>.dead    one byte per record, 1 if it is deleted; then their checksum u64

Stock pyarrow, DuckDB and Polars can open the first file. File names contain numbers only: the name of a topic never reaches
the file system. A segment that a repair has written in place of a damaged one has a generation in its name.

The first two files never change. XXH3-64 checksums cover every byte of them: the checksums of the batches are in the footer
metadata under the key `topics` and are verified when a batch is read for the first time; the checksum of the bytes around the
batches, and that of the tag index, are in the log and the snapshot (`SegmentInfo`). A segment is synced completely before the
log refers to it; the server removes files that the log does not refer to.

Each checkpoint replaces the delete flags: it writes a new file, syncs it and renames it. Deletes since then are in the log.
The checksum of the flags is seeded with the first seq, so the flags of another segment do not match.
"""

import contextlib
from typing import Any

import msgspec
from msgspec import Struct
from xxhash import xxh3_64, xxh3_64_intdigest

from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.storage.damaged_files import move_to_damaged, remove_file
from topics.storage.fs import FileSystem
from topics.storage.reading import reading

ROOT = "segments"
METADATA_KEY = b"topics"
# Every suffix that a file of a segment or a pack may have.
_SUFFIXES = (".new", ".dead", ".tags", ".arrow", ".pack")
BAD_FRAME = "schema or footer of the segment file is damaged, or the file belongs to another segment"


class BatchEntry(Struct, array_like=True):
    """Footer entry of one batch of rows: its records, the position of its bytes, and their checksum."""

    first_seq: int
    rows: int
    start: int
    length: int
    checksum: int


class Footer(Struct):
    format: int
    batches: list[BatchEntry]


def encode_footer(entries: list[BatchEntry]) -> bytes:
    return msgspec.json.encode(Footer(1, entries))


def segment_base(topic_id: int, partition: int, first_seq: int, generation: int = 0) -> str:
    """Return the path of a segment without the suffix."""
    base = f"{ROOT}/{topic_id:016x}-{partition:04x}-{first_seq:020d}"
    return f"{base}-{generation}" if generation else base


def remove_segment(fs: FileSystem, base: str) -> None:
    """Remove all files of the segment or the pack."""
    for suffix in _SUFFIXES:
        remove_file(fs, base + suffix)


def move_segment_to_damaged(fs: FileSystem, base: str) -> list[str]:
    """Move the files of the segment or the pack to `damaged/`. Return their new paths."""
    suffixes = (".arrow", ".dead", ".tags", ".pack")
    return [move_to_damaged(fs, base + suffix) for suffix in suffixes if fs.exists(base + suffix)]


def segment_exists(fs: FileSystem, base: str, info: SegmentInfo) -> bool:
    """Return whether all files of the segment exist. A removal may have stopped half-way."""
    return all([fs.exists(base + suffix) for suffix in (".arrow", ".dead", ".tags")[: 3 if info.tagged else 2]])


def segment_bases(fs: FileSystem) -> set[str]:
    """Return the base path of every segment and pack of which a file exists."""
    return {f"{ROOT}/{name.rsplit('.', 1)[0]}" for name in fs.list(ROOT)}


def read_flags(fs: FileSystem, base: str, info: SegmentInfo) -> bytearray:
    """Return one byte per record, 1 if it is deleted. Raises CorruptStorage: then it is unknown which records are live."""
    path = base + ".dead"
    records = info.last_seq - info.first_seq + 1
    with reading(path):
        file = fs.open(path)
        try:
            content = file.read_at(0, records + 9)
        finally:
            file.close()
    if content != encode_flags(info.first_seq, content[:records]) or content[:records].strip(b"\0\1"):
        raise CorruptStorage(path, 0, "delete flags are damaged")
    return bytearray(content[:records])


def write_flags(fs: FileSystem, base: str, first_seq: int, flags: bytes) -> None:
    """Replace the delete flags. Durable after `sync_directory(ROOT)`; a power cut before that leaves the old or the new flags."""
    aside = base + ".new"
    remove_file(fs, aside)
    write_file(fs, aside, encode_flags(first_seq, flags))
    fs.rename(aside, base + ".dead")


def encode_flags(first_seq: int, flags: bytes) -> bytes:
    return flags + xxh3_64_intdigest(flags, first_seq).to_bytes(8, "little")


def check_frame(fs: FileSystem, base: str, info: SegmentInfo) -> None:
    """Verify the schema and the footer of the file of records without reading the batches. Raises CorruptStorage.

    Detects a missing file, a truncated file and a file of another segment with two small reads.
    """
    path = base + ".arrow"
    with reading(path):
        file = fs.open(path)
        try:
            digest = xxh3_64(file.read_at(0, info.body_start))
            digest.update(file.read_at(info.body_end, max(0, file.size() - info.body_end)))
        finally:
            file.close()
    if digest.intdigest() != info.checksum:
        raise CorruptStorage(path, 0, BAD_FRAME)


def frame_checksum(content: Any, body_start: int, body_end: int) -> int:
    """Return the checksum of everything but the batches: schema and footer."""
    view = memoryview(content)
    digest = xxh3_64(view[:body_start])
    digest.update(view[body_end:])
    return int(digest.intdigest())


def is_another_segment(fs: FileSystem, base: str, info: SegmentInfo) -> bool:
    """Return whether the files of this name are valid but belong to a segment with the same first and another last seq.

    This happens if a segment was dropped, the server stopped, and the next process sealed the records it had replayed.
    Raises CorruptStorage when the flags cannot be read.
    """
    with reading(base + ".dead"):
        file = fs.open(base + ".dead")
        try:
            content = file.read_at(0, file.size())
        finally:
            file.close()
    flags = content[:-8]
    return len(flags) != info.last_seq - info.first_seq + 1 and content == encode_flags(info.first_seq, flags)


def write_file(fs: FileSystem, path: str, content: Any) -> None:
    file = fs.open(path, create=True)
    try:
        file.write_at(0, [memoryview(content)])
        file.sync_data()
    except OSError:
        file.close()
        with contextlib.suppress(OSError):
            fs.remove(path)
        raise
    finally:
        file.close()
