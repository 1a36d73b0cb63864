"""Snapshots: the whole state at a point of the log, so that recovery need not read the log from its beginning.

    snapshots/<number>.snap := "TOPICSNP" | version u32 | 0 u32 | section ... | end
    section := length u32 (above 0) | checksum u64 | bytes
    end := 0 u32 | checksum u64 over the checksums of all sections, in order

A snapshot is written aside, synced, renamed, and its directory synced: it is there whole or not at all. The two
newest are kept, so that one bad file does not cost the data. Sections are opaque here.
"""

from collections.abc import Iterable
from struct import Struct as Layout

from xxhash import xxh3_64_intdigest

from topics.model.errors import CorruptStorage
from topics.storage.damaged_files import remove_file
from topics.storage.fs import File, FileSystem
from topics.storage.reading import load, map_file

ROOT = "snapshots"
# Version 2 may refer to packs. A server that knows only version 1 must not read it: it would take packed records for gone.
VERSION = 2
_READABLE = (1, 2)
KEPT = 2
_MAGIC = b"TOPICSNP"
_HEAD = Layout("<8sII")
_SECTION = Layout("<IQ")


def write_snapshot(fs: FileSystem, number: int, sections: Iterable[bytes]) -> int:
    """The snapshot survives a power cut. Answers its size. On OSError nothing of it remains under its name."""
    fs.make_directory(ROOT)
    aside = f"{ROOT}/{number:012d}.tmp"
    remove_file(fs, aside)
    file = fs.open(aside, create=True)
    try:
        parts = [_HEAD.pack(_MAGIC, VERSION, 0)]
        checksums: list[bytes] = []
        offset = waiting = 0
        for section in sections:
            head = _SECTION.pack(len(section), xxh3_64_intdigest(section))
            checksums.append(head[4:])
            parts += (head, section)
            waiting += len(section)
            if waiting > 1 << 20:
                offset += _flush(file, offset, parts)
                waiting = 0
        parts.append(_SECTION.pack(0, xxh3_64_intdigest(b"".join(checksums))))
        offset += _flush(file, offset, parts)
        file.sync_data()
    except OSError:
        # Perhaps the disk is full: half a snapshot must not make that worse.
        file.close()
        fs.remove(aside)
        raise
    finally:
        file.close()
    fs.rename(aside, snapshot_path(number))
    # Without this a power cut can take the new name away although older snapshots are already removed.
    fs.sync_directory(ROOT)
    return offset


def read_snapshot(fs: FileSystem, number: int) -> list[memoryview]:
    """All sections. Raises CorruptStorage when a single byte is not as it was written."""
    path = snapshot_path(number)
    view = map_file(fs, path)
    load(view, 0, len(view), path)
    _check_head(view, path)
    offset = _HEAD.size
    sections: list[memoryview] = []
    checksums: list[bytes] = []
    while True:
        length, checksum = _section_head(view, offset, path)
        start = offset + _SECTION.size
        if not length:
            if checksum != xxh3_64_intdigest(b"".join(checksums)):
                raise CorruptStorage(path, offset, "snapshot is missing sections")
            if start != len(view):
                raise CorruptStorage(path, start, "bytes follow the end of the snapshot")
            return sections
        section = view[start : start + length]
        if len(section) != length or xxh3_64_intdigest(section) != checksum:
            raise CorruptStorage(path, offset, "snapshot section is damaged")
        checksums.append(bytes(view[offset + 4 : start]))
        sections.append(section)
        offset = start + length


def read_first_section(fs: FileSystem, number: int) -> memoryview:
    """Only the first section. Raises CorruptStorage when it is not as it was written; the others are not looked at."""
    path = snapshot_path(number)
    view = map_file(fs, path)
    start = _HEAD.size + _SECTION.size
    load(view, 0, min(start, len(view)), path)
    _check_head(view, path)
    length, checksum = _section_head(view, _HEAD.size, path)
    load(view, start, min(start + length, len(view)), path)
    section = view[start : start + length]
    if len(section) != length or xxh3_64_intdigest(section) != checksum:
        raise CorruptStorage(path, _HEAD.size, "snapshot section is damaged")
    return section


def _check_head(view: memoryview, path: str) -> None:
    if len(view) < _HEAD.size or _HEAD.unpack_from(view)[0] != _MAGIC:
        raise CorruptStorage(path, 0, "not a snapshot")
    version = _HEAD.unpack_from(view)[1]
    if version not in _READABLE:
        raise CorruptStorage(path, 0, f"snapshot has version {version}; this server reads 1 to {VERSION}")


def _section_head(view: memoryview, offset: int, path: str) -> tuple[int, int]:
    if offset + _SECTION.size > len(view):
        raise CorruptStorage(path, offset, "snapshot ends too early")
    length, checksum = _SECTION.unpack_from(view, offset)
    return length, checksum


def snapshot_numbers(fs: FileSystem) -> list[int]:
    """Newest first."""
    return sorted(
        (int(name[:-5]) for name in fs.list(ROOT) if name.endswith(".snap") and name[:-5].isdigit()), reverse=True
    )


def remove_snapshots_but(fs: FileSystem, *numbers: int) -> None:
    """Only these are left."""
    old = [each for each in snapshot_numbers(fs) if each not in numbers]
    for each in old:
        remove_file(fs, snapshot_path(each))
    if old:
        fs.sync_directory(ROOT)


def remove_unfinished(fs: FileSystem) -> None:
    for name in fs.list(ROOT):
        if name.endswith(".tmp"):
            remove_file(fs, f"{ROOT}/{name}")


def snapshot_size(fs: FileSystem, number: int) -> int:
    """Bytes of the file; 0 if there is none."""
    if not fs.exists(snapshot_path(number)):
        return 0
    file = fs.open(snapshot_path(number))
    try:
        return file.size()
    finally:
        file.close()


def snapshot_path(number: int) -> str:
    return f"{ROOT}/{number:012d}.snap"


def _flush(file: File, offset: int, parts: list[bytes]) -> int:
    file.write_at(offset, parts)
    written = sum(map(len, parts))
    parts.clear()
    return written
