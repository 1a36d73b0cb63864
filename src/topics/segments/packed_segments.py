"""Packed segments: small segments whose records are an entry of a pack (`storage/segments/pack.py`).

Their delete flags have no file: the snapshot contains them, and the log contains the deletes since the snapshot.
"""

from bisect import bisect_right
from itertools import compress

import msgspec

from topics.engine.partitions.segment import MergedSegment, Segment
from topics.model.errors import CorruptStorage
from topics.model.facts import PackedInfo
from topics.model.records.match import TagMatch
from topics.model.records.page import SEPARATOR, Page, page_weight, record_sizes
from topics.model.steps import Steps
from topics.segments.sealed_segments import StoredSegment
from topics.segments.segment_cache import Damage, SegmentCache
from topics.storage.segments.pack import pack_base


class PackedSegment(StoredSegment, MergedSegment):
    """A segment whose records are in a pack. A damaged entry makes all of them unreadable, and no others."""

    __slots__ = ("cache", "info", "partition", "topic_id")

    def __init__(self, cache: SegmentCache, topic_id: int, partition: int, info: PackedInfo) -> None:
        super().__init__(info.first_seq, info.last_seq, info.size)
        self.info = info
        self.cache = cache
        self.topic_id = topic_id
        self.partition = partition

    @property
    def base(self) -> str:
        """The base path of the pack."""
        return pack_base(self.info.pack)

    @property
    def first_ts(self) -> int:  # type: ignore[override]
        return self.info.first_ts

    @property
    def last_ts(self) -> int:  # type: ignore[override]
        return self.info.last_ts

    @property
    def damage_key(self) -> str:
        """The key of the segment in `SegmentCache.damage`. The key of a pack that cannot be opened is its base."""
        return f"{self.base} at {self.info.offset}"

    @property
    def is_damaged(self) -> bool:
        damage = self.cache.damage
        return bool(damage) and (self.damage_key in damage or self.base in damage)

    def damaged(self, error: CorruptStorage) -> CorruptStorage:
        info = self.info
        damage = Damage(
            error.path, error.offset, error.what, self.topic_id, self.partition, info.first_seq, info.last_seq
        )
        if error.records is None:
            self.cache.pack_damaged(info.pack, error)
        else:
            self.cache.add_damage(self.damage_key, damage)
        return self._error(damage)

    def files_exist(self) -> bool:
        return self.cache.has_pack(self.info.pack)

    def pages(self) -> list[Page]:
        """Return all pages of the segment, read and verified unless they are cached. Raises CorruptStorage."""
        cache, info = self.cache, self.info
        last = cache.last_entry
        if last is not None and last[0] is self:
            return last[1]
        key = (info.pack, info.offset)
        pages: list[Page] | None = cache.pages.get(key)
        if pages is None:
            try:
                pages = cache.pack(info.pack).pages(self.topic_id, self.partition, info)
            except CorruptStorage as error:
                raise self.damaged(error) from error
            cache.pages.put(key, pages, sum([page_weight(page) + 200 for page in pages]))
        cache.last_entry = (self, pages)
        return pages

    def pages_between(self, first: int, last: int) -> list[Page]:
        """Return the pages that contain the records first..last."""
        return [page for page in self.pages() if page.first_seq <= last and page.last_seq >= first]

    def page_at(self, seq: int) -> Page:
        pages = self.pages()
        return pages[bisect_right(pages, seq, key=_first_seq) - 1]

    def pages_from(self, seq: int, most: int) -> list[Page]:
        return self.pages_between(seq, min(seq + most - 1, self.last_seq))

    def check(self, first: int, last: int) -> None:
        self.pages()

    def replaces(self, other: Segment) -> bool:
        if not isinstance(other, PackedSegment):
            return not other.sealed
        within = self.first_seq <= other.first_seq and other.last_seq <= self.last_seq
        return within and other.info.pack < self.info.pack

    def size_of(self, positions: list[int]) -> int:
        if not self.is_damaged:
            try:
                return super().size_of(positions)
            except CorruptStorage as error:
                self.damaged(error)
        return self._estimate(len(positions))

    def size_between(self, first: int, stop: int) -> int:
        if not self.is_damaged:
            try:
                return super().size_between(first, stop)
            except CorruptStorage as error:
                self.damaged(error)
        return self._estimate(stop - first)

    def sizes(self, page: Page) -> list[int]:
        # In the shared cache: the number of packed segments is unlimited.
        key = (self.info.pack, self.info.offset, page.first_seq)
        sizes: list[int] | None = self.cache.pages.get(key)
        if sizes is None:
            sizes = record_sizes(page)
            self.cache.pages.put(key, sizes, 40 * page.count + 200)
        return sizes

    def tagged(self, match: TagMatch, bound: int) -> Steps[bytearray]:
        """Search the tags of the pages: a packed segment is too small for an index."""
        found = bytearray(self.last_seq - self.first_seq + 1)
        if not self.info.tagged:
            return found
        text = msgspec.json.encode(match.text)
        wanted = text[:-1] if match.prefix else text
        for page in self.pages():
            if page.first_seq >= bound:
                break
            yield
            if page.tags is None or wanted not in page.tags:
                continue
            start = page.first_seq - self.first_seq
            for position, tag in enumerate(page.tags.split(SEPARATOR), start):
                if tag.startswith(wanted) if match.prefix else tag == wanted:
                    found[position] = 1
        behind = max(bound - self.first_seq, 0)
        found[behind:] = bytes(len(found[behind:]))
        return found

    def spans(self) -> list[tuple[int, int]]:
        return [(page.first_seq, page.last_seq + 1) for page in self.pages()]

    def page_end(self, seq: int) -> int:
        return self.last_seq + 1 if self.is_damaged else self.page_at(seq).last_seq + 1

    def chosen_size(self, first: int, chosen: bytes) -> int:
        position = first - self.first_seq
        return self.size_of([*compress(range(position, position + len(chosen)), chosen)])


def _first_seq(page: Page) -> int:
    return page.first_seq
