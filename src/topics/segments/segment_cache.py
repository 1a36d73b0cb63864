"""The cache of sealed segments: open files, recently read pages, and the damage that was found.

A damaged file makes records unreadable, never the server:

    a batch of rows        its records raise CorruptStorage, the other batches are read
    the rest of the file   the same for all records of the segment
    the delete flags       the same: without them it is unknown which records were deleted
    the tag index          nothing: tags are searched in the rows instead

Damage is found when recovery examines the files or when a batch is read for the first time. `SegmentCache.damage` keeps it
until the segment is dropped or the server restarts, and `on_damage` reports it.
"""

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from topics.engine.cache import Cache
from topics.model.errors import CorruptStorage
from topics.model.facts import SegmentInfo
from topics.model.records.page import Page
from topics.storage.fs import FileSystem
from topics.storage.segments.pack import PackFile, pack_base, pack_exists
from topics.storage.segments.segment_reader import SegmentFile

MAX_OPEN_FILES = 32
# Reads that are remembered in order to recognise a repeated one.
MAX_REMEMBERED_READS = 512


class FlaggedSegment(Protocol):
    """A segment whose delete flags are in a file of its own."""

    base: str

    def copy_flags(self) -> bytes: ...

    def save_flags(self, flags: bytes) -> None: ...


class Damage(Struct, frozen=True):
    """A damaged file of a sealed segment, and the records that cannot be read because of it.

    `readable` is set for a tag index: the records first_seq..last_seq are served all the same.
    """

    path: str
    offset: int
    what: str
    topic_id: int
    partition: int
    first_seq: int
    last_seq: int
    readable: bool = False
    # For a pack that cannot be opened: how many segments of different partitions are in it; their seqs are not listed.
    packed_segments: int = 0

    @property
    def subject(self) -> str:
        """The file and the records: one file can be damaged in several places."""
        return self.path if self.packed_segments else f"{self.path} records {self.first_seq} to {self.last_seq}"

    @property
    def outcome(self) -> str:
        if self.packed_segments:
            return f"the records of {self.packed_segments} packed segments cannot be read"
        records = f"records {self.first_seq} to {self.last_seq}"
        return f"tags of {records} are searched in the rows" if self.readable else f"{records} cannot be read"

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.what}; {self.outcome}"


def damage_of(topic_id: int, partition: int, info: SegmentInfo, error: CorruptStorage) -> Damage:
    """Return the damage that an error about a file of this segment means: all records, unless the error names a range."""
    first_seq, last_seq = error.records or (info.first_seq, info.last_seq)
    readable = error.path.endswith(".tags")
    return Damage(error.path, error.offset, error.what, topic_id, partition, first_seq, last_seq, readable)


class SegmentCache:
    """Open segment files and recently read pages, both limited: memory does not grow with the retained data."""

    def __init__(self, fs: FileSystem, cache_bytes: int) -> None:
        self.fs = fs
        self.pages = Cache(cache_bytes)
        self._recent_reads: set[tuple[str, int, int]] = set()
        self._older_reads: set[tuple[str, int, int]] = set()
        # Segments with deletes that are only in the log. A checkpoint writes them to the flag files before it trims the log.
        self.dirty: set[FlaggedSegment] = set()
        # The page that was read last, and its segment.
        self.last_page: tuple[FlaggedSegment, Page] | None = None
        # Known damage by segment. An entry is removed when the segment is dropped.
        self.damage: dict[str, list[Damage]] = {}
        # Damaged files that recovery did not need because the log or the snapshot holds their records.
        self.replaced: list[CorruptStorage] = []
        self.on_damage: Callable[[Damage], None] = _ignore
        self.on_damage_gone: Callable[[Damage], None] = _ignore
        # Returns the name of a topic by its id, for error messages.
        self.topic_name: Callable[[int], str | None] = _unnamed
        # The packed segment that was read last, and its pages.
        self.last_entry: tuple[object, list[Page]] | None = None
        self._files: dict[str, SegmentFile] = {}
        self._packs: dict[str, PackFile] = {}
        # Packs that were found on disk and not removed since.
        self._present: set[str] = set()

    def add_damage(self, base: str, damage: Damage) -> None:
        known = self.damage.setdefault(base, [])
        if damage not in known:
            known.append(damage)
            self.on_damage(damage)

    def forget_damage(self, base: str) -> None:
        """Remove the damage of a segment that was dropped."""
        for damage in self.damage.pop(base, []):
            self.on_damage_gone(damage)

    def pack_damaged(self, number: int, error: CorruptStorage, segments: int = 1) -> None:
        """Record that a pack cannot be opened: none of its segments can be read."""
        if pack_base(number) not in self.damage:
            damage = Damage(error.path, error.offset, error.what, 0, 0, 0, 0, packed_segments=segments)
            self.add_damage(pack_base(number), damage)

    def file(self, base: str, info: SegmentInfo) -> SegmentFile:
        file = self._files.get(base)
        if file is None:
            file = self._files[base] = SegmentFile(self.fs, base, info)
            if len(self._files) > MAX_OPEN_FILES:
                del self._files[next(iter(self._files))]
        return file

    def pack(self, number: int) -> PackFile:
        base = pack_base(number)
        pack = self._packs.get(base)
        if pack is None:
            pack = self._packs[base] = PackFile(self.fs, number)
            if len(self._packs) > MAX_OPEN_FILES:
                del self._packs[next(iter(self._packs))]
        return pack

    def has_pack(self, number: int) -> bool:
        base = pack_base(number)
        if base not in self._present and pack_exists(self.fs, number):
            self._present.add(base)
        return base in self._present

    def is_repeated_read(self, base: str, seq: int, most: int) -> bool:
        """Return whether the same read was made recently.

        Only repeated reads are cached. A reader that walks through a log once would evict what others read again, and
        caching its texts touches new memory: 40 of 160 us for 256 records.
        """
        key = (base, seq, most)
        if key in self._recent_reads or key in self._older_reads:
            return True
        self._recent_reads.add(key)
        if len(self._recent_reads) > MAX_REMEMBERED_READS:
            self._older_reads, self._recent_reads = self._recent_reads, set()
        return False

    def forget(self, base: str) -> None:
        """Close the files of a segment that is about to be removed."""
        self._files.pop(base, None)
        self._packs.pop(base, None)
        self._present.discard(base)
        if self.last_page is not None and self.last_page[0].base == base:
            self.last_page = None

    def take_dirty(self) -> list[FlaggedSegment]:
        dirty = list(self.dirty)
        self.dirty.clear()
        return dirty

    def close(self) -> None:
        self._files.clear()
        self._packs.clear()


def _ignore(_: Damage) -> None:
    pass


def _unnamed(_: int) -> None:
    return None
