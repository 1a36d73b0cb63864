"""Sealed segments as a partition sees them, and the shelf that keeps some of their files open."""

from topics.engine.cache import Cache
from topics.engine.render import Rendered, View, is_usual, record_heads
from topics.engine.segment import PAGE_RECORDS, Segment
from topics.model.facts import SegmentInfo
from topics.model.match import TagMatch
from topics.model.page import Page, page_weight, record_sizes
from topics.storage.fs import FileSystem
from topics.storage.segment import (
    SegmentFile,
    Stretch,
    is_another_segment,
    read_flags,
    segment_base,
    segment_exists,
    write_flags,
)

OPEN_MOST = 32
# Reads that are remembered for being asked again.
ASKED_MOST = 512
# Records a reader gets as one page from a sealed segment.
RUN_MOST = 1000
# Bytes that are taken as one page however little room there is: most of the records may be left out.
RUN_BYTES = 256 << 10

# What stands around parts of a record in the usual form.
_AROUND_NODE = (b',"$node":"', b'"')
_AROUND_DATA = (b',"data":', b"")
_AROUND_META = (b',"meta":', b"")
_NOTHING = (b"", b"")
_LIVE = b"\0"


class Shelf:
    """Open segment files and recently read pages, both with an edge: memory does not grow with what is retained."""

    def __init__(self, fs: FileSystem, cache_bytes: int) -> None:
        self.fs = fs
        self.pages = Cache(cache_bytes)
        self._asked: set[tuple[str, int, int]] = set()
        self._asked_before: set[tuple[str, int, int]] = set()
        # Segments with deletes that only the log knows: written to their files before the log behind them is trimmed.
        self.dirty: set[SealedSegment] = set()
        # The page that was looked at last, and whose it is.
        self.last_page: tuple[SealedSegment, Page] | None = None
        self._files: dict[str, SegmentFile] = {}

    def file(self, base: str, info: SegmentInfo) -> SegmentFile:
        file = self._files.get(base)
        if file is None:
            file = self._files[base] = SegmentFile(self.fs, base, info)
            if len(self._files) > OPEN_MOST:
                del self._files[next(iter(self._files))]
        return file

    def asked_again(self, base: str, seq: int, most: int) -> bool:
        """Whether the same was asked for lately.

        Only then a text is worth keeping. A reader who goes through a log once would only push out what others come
        back for, and each text would be written to cold memory: 40 of 160 us for 256 records.
        """
        key = (base, seq, most)
        if key in self._asked or key in self._asked_before:
            return True
        self._asked.add(key)
        if len(self._asked) > ASKED_MOST:
            self._asked_before, self._asked = self._asked, set()
        return False

    def forget(self, base: str) -> None:
        """The segment's files are about to go."""
        self._files.pop(base, None)
        if self.last_page is not None and self.last_page[0].base == base:
            self.last_page = None

    def take_dirty(self) -> list["SealedSegment"]:
        dirty = list(self.dirty)
        self.dirty.clear()
        return dirty

    def close(self) -> None:
        self._files.clear()


class SealedSegment(Segment):
    """A segment whose records stand in a file."""

    sealed = True

    def __init__(self, shelf: Shelf, topic_id: int, partition: int, info: SegmentInfo) -> None:
        self.info = info
        self.base = segment_base(topic_id, partition, info.first_seq)
        self.first_seq = info.first_seq
        self.last_seq = info.last_seq
        self.first_ts = info.first_ts
        self.last_ts = info.last_ts
        self.low = info.first_seq
        self.records = info.last_seq - info.first_seq + 1
        self.live = self.records
        self.live_bytes = info.size
        self.shelf = shelf
        self._flags: bytearray | None = None

    def files_exist(self) -> bool:
        return segment_exists(self.shelf.fs, self.base, self.info)

    def was_replaced(self) -> bool:
        """Whether its files, which exist, are those of a later segment of the same name."""
        return is_another_segment(self.shelf.fs, self.base, self.info)

    def restore_flags(self) -> None:
        """Take over what the flags on disk say: records deleted there are gone, whatever the log still remembers."""
        on_disk = read_flags(self.shelf.fs, self.base, self.info)
        if 1 in on_disk:
            gone = [position for position, flag in enumerate(on_disk) if flag]
            self.live -= len(gone)
            self.live_bytes -= self.size_of(gone)
            self._flags = on_disk

    def page_at(self, seq: int) -> Page:
        shelf = self.shelf
        last = shelf.last_page
        # Whoever takes single records takes their neighbours next: without this a claim spends 1 us more.
        if last is not None and last[0] is self and 0 <= seq - last[1].first_seq < last[1].count:
            return last[1]
        file = shelf.file(self.base, self.info)
        key = (self.base, file.page_bounds(seq, PAGE_RECORDS)[0])
        page: Page | None = shelf.pages.get(key)
        if page is None:
            page = file.page(seq, PAGE_RECORDS)
            shelf.pages.put(key, page, page_weight(page) + 200)
        shelf.last_page = (self, page)
        return page

    def open_file(self) -> SegmentFile:
        return self.shelf.file(self.base, self.info)

    def run_at(self, seq: int, most: int, room: int) -> Page:
        # From exactly there: a reader who goes through a segment then takes every page whole, and once. Not much more
        # than there is room for, or one who reads large records copies all that follow them each time.
        most = min(most, RUN_MOST)
        room = max(room, RUN_BYTES)
        key = (self.base, seq, most, room)
        page: Page | None = self.shelf.pages.get(key)
        if page is None:
            page = self.shelf.file(self.base, self.info).run(seq, most, room)
            self.shelf.pages.put(key, page, page_weight(page) + 200)
        return page

    def text_at(self, seq: int, most: int, room: int, view: View) -> Rendered | None:
        most = min(most, RUN_MOST)
        start = seq - self.first_seq
        if self._flags is not None and self._flags.find(1, start, start + most) >= 0:
            return None
        key = (self.base, seq, most, "text")
        found: Rendered | None = self.shelf.pages.get(key)
        if found is None:
            stretch = self.shelf.file(self.base, self.info).stretch(seq, most)
            if not stretch.plain or not is_usual(view, stretch) or stretch.size > room:
                return None
            found = _render(stretch)
            if found is not None and self.shelf.asked_again(self.base, seq, most):
                self.shelf.pages.put(key, found, len(found.text) + 200)
        elif not is_usual(view, found) or found.size > room:
            return None
        return found

    def check(self, first: int, last: int) -> None:
        self.shelf.file(self.base, self.info).check(first, last)

    def flags(self) -> bytearray | None:
        return self._flags

    def flag(self, positions: list[int]) -> None:
        flags = self._flags
        if flags is None:
            flags = self._flags = bytearray(self.records)
        for position in positions:
            flags[position] = 1
        self._flagged(positions[0], positions[-1] + 1)

    def flag_run(self, start: int, stop: int) -> None:
        if self._flags is None:
            self._flags = bytearray(self.records)
        self._flags[start:stop] = b"\1" * (stop - start)
        self._flagged(start, stop)

    def _flagged(self, start: int, stop: int) -> None:
        self.shelf.dirty.add(self)
        flags = self._flags
        assert flags is not None
        # Pages of which nothing is left are not kept: a queue that is drained goes on in the same, warm memory.
        file = self.open_file()
        seq, behind = self.first_seq + start, self.first_seq + stop
        while seq < behind:
            first, seq = file.page_bounds(seq, PAGE_RECORDS)
            if flags.find(_LIVE, first - self.first_seq, seq - self.first_seq) < 0:
                self.shelf.pages.discard((self.base, first))

    def sizes(self, page: Page) -> list[int]:
        # Kept without the page, and among all that is kept of sealed segments: there may be any number of these.
        key = (self.base, page.first_seq, page.count, "sizes")
        sizes: list[int] | None = self.shelf.pages.get(key)
        if sizes is None:
            sizes = record_sizes(page)
            self.shelf.pages.put(key, sizes, 40 * page.count + 200)
        return sizes

    def size_of(self, positions: list[int]) -> int:
        return self.open_file().size_of([self.first_seq + position for position in positions])

    def size_between(self, first: int, stop: int) -> int:
        return self.open_file().size_between(first, stop)

    def tagged(self, match: TagMatch, bound: int) -> list[int]:
        return self.shelf.file(self.base, self.info).find(match, bound)

    def save_flags(self) -> None:
        """The deletes so far stand in the segment's flag file. Any thread; not while its files are being removed."""
        if self._flags is not None and self.files_exist():
            write_flags(self.shelf.fs, self.base, self.first_seq, bytes(self._flags))


def _render(stretch: Stretch) -> Rendered | None:
    """The records, which are plain, in the usual form; None when that must be done one by one."""
    # What is the same for all of them goes into the heads.
    time = stretch.one_time
    in_heads = b',"$ts":' if time is None else b',"$ts":%d' % time
    data_in_heads = time is not None and not stretch.nodes
    made = record_heads(stretch.first_seq, stretch.count, in_heads + b',"data":' if data_in_heads else in_heads)
    if made is None:
        return None
    heads, width = made
    joined = stretch.joined(heads, width, _AROUND_NODE, _NOTHING if data_in_heads else _AROUND_DATA, _AROUND_META)
    # Each head closes the record before it; the first has none before it, and the last is closed here.
    text = b"".join((joined[2:], b"}"))
    return Rendered(text, stretch.count, stretch.size, stretch.tags, stretch.metas, stretch.nodes)
