"""Snapshots: the whole state at a point of the log, so that recovery need not read the log from its beginning.

    snapshots/<number>.snap := "TOPICSNP" | version u32 | 0 u32 | section ... | end
    section := length u32 (above 0) | checksum u64 | bytes
    end := 0 u32 | checksum u64 over the checksums of all sections, in order

A snapshot is written aside, synced, renamed, and its directory synced: it is there whole or not at all. The two
newest are kept, so that one bad file does not cost the data. What the sections say is the broker's business.
"""

from collections.abc import Iterable
from struct import Struct as Layout

from xxhash import xxh3_64_intdigest

from topics.model.errors import CorruptStorage
from topics.storage.fs import File, FileSystem

ROOT = "snapshots"
VERSION = 1
KEPT = 2
_MAGIC = b"TOPICSNP"
_HEAD = Layout("<8sII")
_SECTION = Layout("<IQ")


def write_snapshot(fs: FileSystem, number: int, sections: Iterable[bytes]) -> int:
    """The snapshot survives a power cut. Answers its size. On OSError nothing of it remains under its name."""
    fs.make_directory(ROOT)
    aside = f"{ROOT}/{number:012d}.tmp"
    if fs.exists(aside):
        fs.remove(aside)
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
    file = fs.open(path)
    try:
        view = file.map()
    finally:
        file.close()
    if len(view) < _HEAD.size or _HEAD.unpack_from(view)[:2] != (_MAGIC, VERSION):
        raise CorruptStorage(path, 0, "not a snapshot of this version")
    offset = _HEAD.size
    sections: list[memoryview] = []
    checksums: list[bytes] = []
    while True:
        if offset + _SECTION.size > len(view):
            raise CorruptStorage(path, offset, "snapshot ends too early")
        length, checksum = _SECTION.unpack_from(view, offset)
        start = offset + _SECTION.size
        if not length:
            if checksum != xxh3_64_intdigest(b"".join(checksums)):
                raise CorruptStorage(path, offset, "snapshot is missing sections")
            if start != len(view):
                raise CorruptStorage(path, start, "something stands behind the end of the snapshot")
            return sections
        section = view[start : start + length]
        if len(section) != length or xxh3_64_intdigest(section) != checksum:
            raise CorruptStorage(path, offset, "snapshot section is damaged")
        checksums.append(bytes(view[offset + 4 : start]))
        sections.append(section)
        offset = start + length


def snapshot_numbers(fs: FileSystem) -> list[int]:
    """Newest first."""
    return sorted(
        (int(name[:-5]) for name in fs.list(ROOT) if name.endswith(".snap") and name[:-5].isdigit()), reverse=True
    )


def remove_snapshots_but(fs: FileSystem, *numbers: int) -> None:
    """Only these are left."""
    old = [each for each in snapshot_numbers(fs) if each not in numbers]
    for each in old:
        fs.remove(snapshot_path(each))
    if old:
        fs.sync_directory(ROOT)


def remove_unfinished(fs: FileSystem) -> None:
    for name in fs.list(ROOT):
        if name.endswith(".tmp"):
            fs.remove(f"{ROOT}/{name}")


def snapshot_path(number: int) -> str:
    return f"{ROOT}/{number:012d}.snap"


def _flush(file: File, offset: int, parts: list[bytes]) -> int:
    file.write_at(offset, parts)
    written = sum(map(len, parts))
    parts.clear()
    return written
