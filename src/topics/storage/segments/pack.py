"""Packs: the records of many small segments in one file, synced once.

    segments/pack-<number>.pack := header | entry ...
    header := "TOPICPCK" | version u32 | 0 u32 | number u64 | checksum u64 over all before it
    entry  := topic u64 | partition u32 | length u32 | first seq u64 | last seq u64 | checksum u64 | body
    body   := MessagePack array of pages, `length` bytes

The checksum of an entry covers its head and its body and is seeded with the number of the pack, so an entry of another
pack is not taken for this one. An entry says which records it holds: damage can be attributed to a topic, a partition
and a range of seqs without the log or the snapshot.

A pack never changes. It is synced before the log or a snapshot refers to it; a pack that neither refers to is left over
from a server that ended while it wrote it. Numbers are not used twice, except for the number of a left-over pack.
"""

from collections.abc import Iterator, Sequence
from struct import Struct as Layout

import msgspec
from msgspec import Struct
from xxhash import xxh3_64, xxh3_64_intdigest

from topics.model.errors import CorruptStorage
from topics.model.facts import PackedInfo
from topics.model.records.page import Page
from topics.storage.fs import Bytes, File, FileSystem
from topics.storage.reading import load, map_file
from topics.storage.segments.segment_format import ROOT

VERSION = 1
SUFFIX = ".pack"
_MAGIC = b"TOPICPCK"
_HEADER = Layout("<8sIIQQ")
_HEAD = Layout("<QIIQQQ")
# Entries are handed to the file system in parts of about this many bytes.
_WRITE_BYTES = 1 << 20

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Page]).decode


class Entry(Struct, frozen=True):
    """The records first_seq..last_seq of one partition: `body` is what `encode_pages` returns for them."""

    topic_id: int
    partition: int
    first_seq: int
    last_seq: int
    body: Bytes


class Place(Struct, frozen=True):
    """Where an entry is in its pack: the offset of its head, the length of its body, and its checksum."""

    offset: int
    length: int
    checksum: int


def pack_base(number: int) -> str:
    """The path of a pack without its suffix."""
    return f"{ROOT}/pack-{number:012d}"


def pack_path(number: int) -> str:
    return pack_base(number) + SUFFIX


def encode_pages(pages: Sequence[Page]) -> bytes:
    """The body of an entry."""
    return _encode(pages)


def entry_bytes(length: int) -> int:
    """Return the bytes that an entry with a body of this length takes in the file."""
    return _HEAD.size + length


def write_pack(fs: FileSystem, number: int, entries: Sequence[Entry]) -> list[Place]:
    """Write and sync a pack; returns the place of each entry. On OSError nothing of the pack remains."""
    fs.make_directory(ROOT)
    path = pack_path(number)
    if fs.exists(path):
        # Left over from a stopped server: the log and the snapshots do not refer to this number.
        fs.remove(path)
    file = fs.open(path, create=True)
    try:
        places = _write(file, number, entries)
        file.sync_data()
    except OSError:
        # The disk may be full: a partial pack must not make that worse.
        file.close()
        fs.remove(path)
        raise
    finally:
        file.close()
    fs.sync_directory(ROOT)
    return places


def _write(file: File, number: int, entries: Sequence[Entry]) -> list[Place]:
    header = _HEADER.pack(_MAGIC, VERSION, 0, number, 0)[:-8]
    parts: list[Bytes] = [header + xxh3_64_intdigest(header).to_bytes(8, "little")]
    places: list[Place] = []
    written = 0
    offset = _HEADER.size
    for each in entries:
        length = len(each.body)
        head = _HEAD.pack(each.topic_id, each.partition, length, each.first_seq, each.last_seq, 0)[:-8]
        checksum = _checksum(number, head, each.body)
        places.append(Place(offset, length, checksum))
        parts += (head, checksum.to_bytes(8, "little"), each.body)
        offset += entry_bytes(length)
        if offset - written > _WRITE_BYTES:
            file.write_at(written, parts)
            written = offset
            parts = []
    if parts:
        file.write_at(written, parts)
    return places


class PackFile:
    """An open pack, mapped into memory. An entry is verified whenever it is read."""

    def __init__(self, fs: FileSystem, number: int) -> None:
        self.number = number
        self.path = pack_path(number)
        self._view = map_file(fs, self.path)
        load(self._view, 0, min(_HEADER.size, len(self._view)), self.path)
        if len(self._view) < _HEADER.size:
            raise CorruptStorage(self.path, 0, "pack ends within its header")
        magic, version, _, stored, checksum = _HEADER.unpack_from(self._view)
        if checksum != xxh3_64_intdigest(self._view[: _HEADER.size - 8]) or (magic, stored) != (_MAGIC, number):
            raise CorruptStorage(self.path, 0, "header of the pack is damaged")
        if version != VERSION:
            raise CorruptStorage(self.path, 0, f"pack has version {version}; this server reads version {VERSION}")

    @property
    def size(self) -> int:
        return len(self._view)

    def body(self, topic_id: int, partition: int, info: PackedInfo) -> memoryview:
        """The body of an entry, verified. Raises CorruptStorage with the records of the entry."""
        records = (info.first_seq, info.last_seq)
        start = info.offset + _HEAD.size
        try:
            load(self._view, info.offset, min(start + info.length, len(self._view)), self.path)
        except CorruptStorage as error:
            raise CorruptStorage(self.path, error.offset, error.what, records=records) from error
        head = self._view[info.offset : start]
        body = self._view[start : start + info.length]
        expected = _HEAD.pack(topic_id, partition, info.length, info.first_seq, info.last_seq, info.checksum)
        if head != expected or _checksum(self.number, head[:-8], body) != info.checksum:
            what = f"the entry of topic {topic_id}, partition {partition} is damaged"
            raise CorruptStorage(self.path, info.offset, what, records=records)
        return body

    def pages(self, topic_id: int, partition: int, info: PackedInfo) -> list[Page]:
        """The pages of an entry. Raises CorruptStorage."""
        body = self.body(topic_id, partition, info)
        try:
            return _decode(body)
        except msgspec.MsgspecError as error:
            what = f"the entry of topic {topic_id}, partition {partition} is whole but cannot be decoded: {error}"
            raise CorruptStorage(self.path, info.offset, what, records=(info.first_seq, info.last_seq)) from error

    def entries(self) -> Iterator[tuple[int, Entry]]:
        """The offset and the content of each entry, in order, as the file has them and not verified.

        Ends at the first entry that does not fit into the file: what follows a damaged length cannot be found.
        """
        offset = _HEADER.size
        while offset + _HEAD.size <= len(self._view):
            topic_id, partition, length, first_seq, last_seq, _ = _HEAD.unpack_from(self._view, offset)
            start = offset + _HEAD.size
            if start + length > len(self._view):
                return
            yield offset, Entry(topic_id, partition, first_seq, last_seq, self._view[start : start + length])
            offset = start + length


def pack_exists(fs: FileSystem, number: int) -> bool:
    return fs.exists(pack_path(number))


def pack_size(fs: FileSystem, number: int) -> int:
    """The length of a pack's file; 0 when it cannot be opened."""
    try:
        file = fs.open(pack_path(number))
        try:
            return file.size()
        finally:
            file.close()
    except OSError:
        return 0


def _checksum(number: int, head: Bytes, body: Bytes) -> int:
    digest = xxh3_64(head, seed=number)
    digest.update(body)
    return int(digest.intdigest())
