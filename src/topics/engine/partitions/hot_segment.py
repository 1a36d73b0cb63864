"""Hot segments: the newest records of a partition, in memory, in pages. `segment.py` has what all segments can do."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import compress

from topics.engine.partitions.segment import MAX_PAGE_RECORDS, PAGE_RECORDS, STEP_PAGES, Segment
from topics.engine.partitions.tags import TagIndex
from topics.model.records.match import TagMatch
from topics.model.records.page import Page, fold, part, record_sizes, split
from topics.model.steps import Steps

# Pages are folded up to this size.
PAGE_BYTES = 128 << 10
MAX_PAGE_BYTES = 2 << 20
# A page of this many records is not merged with others: copying it would add a quarter to a write of 100 records.
LARGE_RECORDS = 64
# Pages of a segment whose record sizes are remembered.
SIZES_KEPT = 8
# A segment whose dead front has grown this long takes no more records, so that its flags do not grow for ever.
MAX_FRONT_RECORDS = 1 << 20


class HotSegment(Segment):
    """Records in memory. Takes appends until it is closed; then it waits to be sealed."""

    sealed = False

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.first_ts = 0
        self.last_ts = 0
        self.low = first_seq
        self.live = 0
        self.live_bytes = 0
        # What the pages weigh in memory, gone records included: decides when the segment is sealed.
        self.held_bytes = 0
        self.open = True
        self.pages: list[Page] = []
        self._starts: list[int] = []
        self._flags: bytearray | None = None
        self._sizes: dict[int, tuple[Page, list[int]]] | None = None
        self.tags = TagIndex()
        # Last seq of the segment when the last snapshot took its image; 0 before the first.
        self.snapshot_seq = 0
        # The first seq that is not folded yet, and what the pages before it weigh.
        self._loose_seq = first_seq
        self._folded_bytes = 0

    @property
    def page_count(self) -> int:
        return len(self.pages)

    def append(self, page: Page, *, index_later: bool = False) -> None:
        """The page's records are the newest of this segment. `index_later`: their tags are indexed by `tidy_tags`."""
        if not self.last_ts:
            self.first_ts = page.first_ts
        first_seq, count, times, size = page.first_seq, page.count, page.times, page.size
        next_seq = first_seq + count
        held_bytes = self.held_bytes + size
        if self._flags is not None:
            self._flags.extend(bytes(count))
        if page.tags is not None:
            self.tags.add(page, later=index_later)
        if count >= LARGE_RECORDS:
            self._put_large(page)
            self._loose_seq = next_seq
            self._folded_bytes = held_bytes
        else:
            self.pages.append(page)
            self._starts.append(first_seq)
            if next_seq - self._loose_seq >= PAGE_RECORDS or held_bytes - self._folded_bytes >= PAGE_BYTES:
                self._fold()
                self._loose_seq = next_seq
                self._folded_bytes = held_bytes
        self.last_seq = next_seq - 1
        self.last_ts = times if isinstance(times, int) else page.last_ts
        self.live += count
        self.live_bytes += size
        self.held_bytes = held_bytes

    def page_at(self, seq: int) -> Page:
        return self.pages[bisect_right(self._starts, seq) - 1]

    def pages_from(self, seq: int, max_records: int) -> list[Page]:
        return self.pages_between(seq, min(seq + max_records - 1, self.last_seq))

    def pages_between(self, first: int, last: int) -> list[Page]:
        """The pages that hold records first..last."""
        start = max(bisect_right(self._starts, first) - 1, 0)
        return self.pages[start : bisect_right(self._starts, last)]

    def sizes(self, page: Page) -> list[int]:
        """The size of each record of a page; the last answers are kept.

        Workers finish jobs of a few neighbouring pages in turn; measuring a page costs 15 us, an ack should not.
        """
        kept = self._sizes
        if kept is None:
            kept = self._sizes = {}
        found = kept.get(page.first_seq)
        if found is not None and found[0] is page:
            return found[1]
        if len(kept) >= SIZES_KEPT:
            del kept[next(iter(kept))]
        sizes = record_sizes(page)
        kept[page.first_seq] = (page, sizes)
        return sizes

    def flags(self) -> bytearray | None:
        return self._flags

    def flag(self, positions: list[int]) -> None:
        flags = self._flags
        if flags is None:
            flags = self._flags = bytearray(self.last_seq - self.first_seq + 1)
        for position in positions:
            flags[position] = 1

    def flag_run(self, start: int, stop: int) -> None:
        flags = self._flags
        if flags is None:
            flags = self._flags = bytearray(self.last_seq - self.first_seq + 1)
        flags[start:stop] = b"\1" * (stop - start)

    def kill(self, seqs: Sequence[int]) -> tuple[int, int]:
        taken = super().kill(seqs)
        self._pass_front()
        return taken

    def kill_runs(self, runs: list[tuple[int, int]]) -> tuple[int, int]:
        taken = super().kill_runs(runs)
        self._pass_front()
        return taken

    def _pass_front(self) -> None:
        flags = self._flags
        # A dead front is let go, so that a queue whose jobs are done from the front holds no memory for them.
        if flags is not None and self.low <= self.last_seq and flags[self.low - self.first_seq]:
            # Nothing live is passed on the way, so nothing is to be measured.
            alive = self.next_live(self.low)
            self.low = self.last_seq + 1 if alive is None else alive
            self._let_go_below()

    def kill_below(self, bound: int) -> tuple[int, int]:
        taken = super().kill_below(bound)
        self._let_go_below()
        return taken

    def _let_go_below(self) -> None:
        # Pages wholly below are let go, a few at a time: taking them off the front one by one would move the list each time.
        gone = bisect_right(self._starts, self.low) - 1
        if gone >= 32 or (gone > 0 and self.low > self.last_seq):
            self._let_go(gone)
            if self.open and self.low - self.first_seq > MAX_FRONT_RECORDS:
                self.close()

    def tagged(self, match: TagMatch, bound: int) -> Steps[bytearray]:
        found = bytearray(self.last_seq - self.first_seq + 1)
        yield from self.tags.find(match, self.first_seq, min(bound, self.last_seq + 1), found)
        return found

    def whole_pages(self, first: int, stop: int, max_bytes: int) -> int:
        start, behind = bisect_right(self._starts, first) - 1, bisect_left(self._starts, stop)
        if behind - start == 1:
            page = self.pages[start]
            return page.first_seq + page.count if page.size <= max_bytes else 0
        pages = self.pages[start:behind]
        return pages[-1].last_seq + 1 if sum([page.size for page in pages]) <= max_bytes else 0

    def page_end(self, seq: int) -> int:
        page = self.page_at(seq)
        return page.first_seq + page.count

    def spans(self) -> list[tuple[int, int]]:
        return [(page.first_seq, page.last_seq + 1) for page in self.pages]

    def chosen_size(self, first: int, chosen: bytes) -> int:
        size = 0
        # Pages below `low` may have been let go; pages may have been folded since they were asked for.
        seq, stop = max(first, self.low), first + len(chosen)
        while seq < stop:
            page = self.page_at(seq)
            start = seq - page.first_seq
            some = chosen[seq - first : seq - first + page.count - start]
            if not start and some.count(1) == page.count:
                size += page.size
            elif 1 in some:
                size += sum(compress(record_sizes(page)[start : start + len(some)], some))
            seq += len(some)
        return size

    def mark(self, first: int, gone: bytes) -> None:
        flags = self._flags
        if flags is None:
            flags = self._flags = bytearray(self.last_seq - self.first_seq + 1)
        flags[first - self.first_seq : first - self.first_seq + len(gone)] = gone

    def marked(self, first: int, stop: int, count: int, size: int) -> None:
        super().marked(first, stop, count, size)
        self._pass_front()

    def forget(self, match: TagMatch) -> Steps[None]:
        yield from self.tags.forget(match, self.is_live)

    def tidy_tags(self) -> Steps[None]:
        yield from self.tags.tidy()

    @property
    def has_stale_tags(self) -> bool:
        return self.tags.is_stale

    def close(self) -> None:
        """No more appends; small pages are folded one last time."""
        self._fold()
        self._loose_seq = self.last_seq + 1
        self._folded_bytes = self.held_bytes
        self.open = False

    def between(self, first: int, last: int) -> "HotSegment":
        """The records first..last as a hot segment of their own, gone ones still gone. Open if it holds our newest."""
        if first <= self.first_seq and self.last_seq <= last:
            return self
        if self.pages:
            # Pages below `low` may have been let go.
            first = max(first, self.pages[0].first_seq)
        rest = HotSegment(first)
        for page in self.pages:
            if page.last_seq >= first and page.first_seq <= last:
                start, stop = max(first - page.first_seq, 0), min(last - page.first_seq + 1, page.count)
                rest.append(page if stop - start == page.count else part(page, start, stop))
        # Flags first: a record below `low` whose flag is lost would come back when the segment is sealed.
        if self._flags is not None:
            rest.kill([each for each in range(first, rest.last_seq + 1) if self._flags[each - self.first_seq]])
        rest.kill_below(min(self.low, last + 1))
        if not self.open or last < self.last_seq:
            rest.close()
        return rest

    def image(self) -> tuple[list[Page], bytes | None]:
        """Its pages and flags as they are now, for a snapshot; flags count from the first page."""
        first = self.pages[0].first_seq - self.first_seq if self.pages else 0
        return list(self.pages), None if self._flags is None else bytes(self._flags[first:])

    def _put_large(self, page: Page) -> None:
        """Fold the earlier pages, then append a large page unfolded, split at MAX_PAGE_RECORDS and MAX_PAGE_BYTES."""
        self._fold()
        parts = [page]
        if page.count > MAX_PAGE_RECORDS or page.size > MAX_PAGE_BYTES:
            parts = split(page, min(PAGE_RECORDS, max(1, page.count * MAX_PAGE_BYTES // page.size)))
        for each in parts:
            self.pages.append(each)
            self._starts.append(each.first_seq)

    def _fold(self) -> None:
        """Fold the loose pages into one."""
        start = bisect_left(self._starts, self._loose_seq)
        if len(self.pages) - start > 1:
            self.pages[start:] = [fold(self.pages[start:])]
            del self._starts[start + 1 :]

    def _let_go(self, pages: int) -> None:
        if pages > bisect_left(self._starts, self._loose_seq):
            self._fold()
            self._loose_seq = self.last_seq + 1
            self._folded_bytes = self.held_bytes
            pages = min(pages, len(self.pages) - 1)
        gone = self.pages[:pages]
        gone_bytes = sum([page.size for page in gone])
        self.held_bytes -= gone_bytes
        self._folded_bytes -= gone_bytes
        del self.pages[:pages]
        del self._starts[:pages]
        if not self.tags:
            return
        if self.low > self.last_seq:
            self.tags.gone_all()
            return
        for page in gone:
            self.tags.gone(page)
        # Usually that is all there is to do. The rest of many pages is left for later: see `has_stale_tags`.
        for _ in zip(range(STEP_PAGES), self.tags.tidy(), strict=False):
            pass
