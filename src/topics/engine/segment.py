"""Segments: runs of records with neighbouring seqs, hot in memory or sealed on disk.

A partition is a list of segments; only the last one takes new records. What a partition needs of a segment is here,
written once over two things a segment gives: the page around a seq, and one flag byte per record (1 = deleted).

    low   records below are gone (evicted, expired or deleted by `before_seq`); it only rises
    live  records at or above `low` whose flag is 0; `live_bytes` is their size

Invariant: flags and `low` only ever take records away, so a record that is gone never comes back.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from topics.engine.render import Rendered, View
from topics.engine.tags import TagIndex
from topics.model.match import TagMatch
from topics.model.page import Page, fold, page_times, part, record_sizes, split

# Small neighbours are folded into pages of about this many records: large enough that a page's own cost vanishes,
# small enough that taking one record out of a page stays cheap.
PAGE_RECORDS = 256
PAGE_BYTES = 128 << 10
# Nothing larger is kept in one page, whoever has made it.
PAGE_RECORDS_MOST = 512
# A page of so many records stands for itself: to copy them once more would cost a write of 100 a quarter of its time.
LARGE_RECORDS = 64

# Pages of a segment whose record sizes are remembered.
SIZES_KEPT = 8
# A hot segment whose dead front has grown this long takes no more records, so that its flags do not grow for ever.
FRONT_MOST = 1 << 20

_LIVE = b"\0"


class Segment(ABC):
    """Records first_seq .. last_seq of one partition."""

    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    low: int
    live: int
    live_bytes: int
    sealed: bool

    @abstractmethod
    def page_at(self, seq: int) -> Page:
        """The page that holds `seq`, which lies within the segment and is not below `low`."""

    def pages_from(self, seq: int, most: int) -> list[Page]:
        """Neighbouring pages from the one that holds `seq` on, not many more than hold `most` records, perhaps fewer."""
        return [self.page_at(seq)]

    def run_at(self, seq: int, most: int, room: int) -> Page:
        """A page that holds `seq`, for a reader who goes on from there with about `most` records or `room` bytes."""
        return self.page_at(seq)

    def text_at(self, seq: int, most: int, room: int, view: View) -> Rendered | None:
        """Some records from `seq` on, at most so many, as this view shows them: when they can be had without a page.

        None when they cannot, because some are gone, the view is not the usual one or they do not fit `room`.
        """
        return None

    @abstractmethod
    def flags(self) -> bytearray | None:
        """One byte per record from first_seq on, or None while no record is flagged. Not to be changed by the caller."""

    @abstractmethod
    def flag(self, positions: list[int]) -> None:
        """Set the flag of these records (ascending positions within the segment)."""

    @abstractmethod
    def tagged(self, match: TagMatch, bound: int) -> list[int]:
        """The seqs below `bound` of records, gone ones perhaps among them, whose tag matches; by index, in order."""

    def forget(self, match: TagMatch) -> None:  # noqa: B027 - a hint that a sealed segment need not take
        """After a delete by tag: gone records need no longer be listed under the tags that match. A hint only."""

    def check(self, first: int, last: int) -> None:  # noqa: B027 - records in memory can always be read
        """Raises CorruptStorage when one of the records first..last cannot be read. Asked before they are taken away."""

    # What follows is the same for hot and sealed.

    def is_live(self, seq: int) -> bool:
        if seq < self.low or seq > self.last_seq:
            return False
        flags = self.flags()
        return flags is None or not flags[seq - self.first_seq]

    def next_live(self, seq: int) -> int | None:
        """The first live seq at or after `seq`."""
        seq = max(seq, self.low, self.first_seq)
        if seq > self.last_seq:
            return None
        flags = self.flags()
        if flags is None:
            return seq
        found = flags.find(_LIVE, seq - self.first_seq)
        return None if found < 0 else self.first_seq + found

    def live_run(self, seq: int, most: int) -> tuple[int, int] | None:
        """The first live seq at or after `seq`, and the end of the run of live ones from there, cut after `most`."""
        first_seq, last_seq = self.first_seq, self.last_seq
        if seq < self.low:
            seq = self.low
        if seq < first_seq:
            seq = first_seq
        if seq > last_seq:
            return None
        flags = self.flags()
        if flags is None:
            return seq, min(last_seq + 1, seq + most)
        position = flags.find(_LIVE, seq - first_seq)
        if position < 0:
            return None
        end = flags.find(1, position, position + most)
        if end < 0:
            end = min(len(flags), position + most)
        return first_seq + position, first_seq + end

    def last_live_below(self, bound: int) -> int | None:
        """The last live seq before `bound`."""
        seq = min(bound - 1, self.last_seq)
        low = max(self.low, self.first_seq)
        if seq < low:
            return None
        flags = self.flags()
        if flags is None:
            return seq
        found = flags.rfind(_LIVE, low - self.first_seq, seq - self.first_seq + 1)
        return None if found < 0 else self.first_seq + found

    def flags_between(self, first: int, last: int) -> bytes | None:
        """The flags of seqs first..last, or None when all are live."""
        flags = self.flags()
        if flags is None:
            return None
        found = flags.find(1, first - self.first_seq, last - self.first_seq + 1)
        return None if found < 0 else bytes(flags[first - self.first_seq : last - self.first_seq + 1])

    def measure(self, bound: int) -> tuple[int, int]:
        """How many live records stand below `bound`, and their bytes."""
        count = size = 0
        seq = max(self.low, self.first_seq)
        stop = min(bound, self.last_seq + 1)
        while seq < stop:
            page = self.page_at(seq)
            last = min(page.last_seq, stop - 1)
            flags = self.flags_between(seq, last)
            if flags is None and seq == page.first_seq and last == page.last_seq:
                count += page.count
                size += page.size
            else:
                sizes = self.sizes(page)[seq - page.first_seq : last - page.first_seq + 1]
                if flags is not None:
                    sizes = [each for each, gone in zip(sizes, flags, strict=True) if not gone]
                count += len(sizes)
                size += sum(sizes)
            seq = page.last_seq + 1
        return count, size

    def kill_below(self, bound: int) -> tuple[int, int]:
        """Everything below `bound` is gone. Answers how many records and bytes that took away."""
        if bound <= self.low:
            return 0, 0
        if bound > self.last_seq:
            count, size = self.live, self.live_bytes
        else:
            count, size = self.measure(bound)
        self.low = bound
        self.live -= count
        self.live_bytes -= size
        return count, size

    def kill(self, seqs: Sequence[int]) -> tuple[int, int]:
        """Those of `seqs` (ascending) that are live here are gone. Answers how many that took away, and their bytes."""
        count = len(seqs)
        if count > 1 and seqs[-1] - seqs[0] + 1 == count and self._all_live(seqs[0], seqs[-1] + 1):
            return self._kill_run(seqs[0], seqs[-1] + 1)
        low, last_seq, base = max(self.low, self.first_seq), self.last_seq, self.first_seq
        flags = self.flags()
        positions = [seq - base for seq in seqs if low <= seq <= last_seq]
        if flags is not None:
            positions = [position for position in positions if not flags[position]]
        size = 0
        if positions:
            size = self.size_of(positions)
            self.flag(positions)
            self.live -= len(positions)
            self.live_bytes -= size
        return len(positions), size

    def kill_runs(self, runs: list[tuple[int, int]]) -> tuple[int, int]:
        """The same as `kill` for runs (first seq and first behind) that lie within: what is finished together stands together."""
        # What stands alone is killed in one go (7 jobs: 3 us instead of 14).
        alone = [first for first, stop in runs if stop - first == 1]
        count, size = self.kill(alone) if alone else (0, 0)
        if len(alone) < len(runs):
            for first, stop in runs:
                if stop - first > 1:
                    all_live = self._all_live(first, stop)
                    taken = self._kill_run(first, stop) if all_live else self.kill(range(first, stop))
                    count += taken[0]
                    size += taken[1]
        return count, size

    def _all_live(self, first: int, stop: int) -> bool:
        if first < self.low or stop > self.last_seq + 1:
            return False
        flags = self.flags()
        return flags is None or flags.find(1, first - self.first_seq, stop - self.first_seq) < 0

    def _kill_run(self, first: int, stop: int) -> tuple[int, int]:
        size = self.size_between(first, stop)
        count = stop - first
        self.flag_run(first - self.first_seq, stop - self.first_seq)
        self.live -= count
        self.live_bytes -= size
        return count, size

    def size_of(self, positions: list[int]) -> int:
        """The bytes of the records at these positions (ascending), gone or not."""
        size = start = behind = 0
        sizes: list[int] = []
        for position in positions:
            if position >= behind:
                page = self.page_at(self.first_seq + position)
                sizes = [page.size] if page.count == 1 else self.sizes(page)
                start = page.first_seq - self.first_seq
                behind = start + page.count
            size += sizes[position - start]
        return size

    def size_between(self, first: int, stop: int) -> int:
        """The bytes of the records first .. stop - 1, gone or not."""
        size = 0
        seq = first
        while seq < stop:
            page = self.page_at(seq)
            page_first, count = page.first_seq, page.count
            next_seq = min(page_first + count, stop)
            size += (
                page.size
                if next_seq - seq == count
                else sum(self.sizes(page)[seq - page_first : next_seq - page_first])
            )
            seq = next_seq
        return size

    def flag_run(self, start: int, stop: int) -> None:
        """Set the flags of the records from position `start` to before `stop`."""
        self.flag(list(range(start, stop)))

    def first_at_or_after(self, ts: int) -> int | None:
        """The first seq, live or not, whose `$ts` is at least `ts`; None when all are earlier."""
        if self.last_ts < ts:
            return None
        low, high = max(self.first_seq, self.low), self.last_seq
        # Times never fall with the seq, so halving works; the page around the middle shortens the search.
        while low <= high:
            page = self.page_at((low + high) // 2)
            if page.last_ts < ts:
                low = page.last_seq + 1
            elif page.first_ts >= ts and page.first_seq > low:
                high = page.first_seq - 1
            else:
                return max(low, page.first_seq + bisect_left(page_times(page), ts))
        return low

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

    _sizes: dict[int, tuple[Page, list[int]]] | None = None


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
        self.tags = TagIndex()
        # The first seq that is not folded yet, and what the pages before it weigh.
        self._loose_seq = first_seq
        self._folded_bytes = 0

    @property
    def page_count(self) -> int:
        return len(self.pages)

    def append(self, page: Page) -> None:
        """The page's records are the newest of this segment."""
        if not self.last_ts:
            self.first_ts = page.first_ts
        first_seq, count, times, size = page.first_seq, page.count, page.times, page.size
        next_seq = first_seq + count
        held_bytes = self.held_bytes + size
        if self._flags is not None:
            self._flags.extend(bytes(count))
        if page.tags is not None:
            self.tags.add(page)
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

    def pages_from(self, seq: int, most: int) -> list[Page]:
        return self.pages_between(seq, min(seq + most - 1, self.last_seq))

    def pages_between(self, first: int, last: int) -> list[Page]:
        """The pages that hold records first..last."""
        start = max(bisect_right(self._starts, first) - 1, 0)
        return self.pages[start : bisect_right(self._starts, last)]

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
            if self.open and self.low - self.first_seq > FRONT_MOST:
                self.close()

    def tagged(self, match: TagMatch, bound: int) -> list[int]:
        return self.tags.find(match, bound)

    def forget(self, match: TagMatch) -> None:
        self.tags.forget(match, self.is_live)

    def close(self) -> None:
        """No more appends; small pages are folded one last time."""
        self._fold()
        self._loose_seq = self.last_seq + 1
        self._folded_bytes = self.held_bytes
        self.open = False

    def between(self, first: int, last: int) -> "HotSegment":
        """The records first..last as a hot segment of their own, gone ones still gone. Open if it holds our newest."""
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
        """It stays as it is, or in parts, and what came before it is folded without it."""
        self._fold()
        for each in split(page, PAGE_RECORDS) if page.count > PAGE_RECORDS_MOST else (page,):
            self.pages.append(each)
            self._starts.append(each.first_seq)

    def _fold(self) -> None:
        """The loose pages become one."""
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
        gone_bytes = sum([page.size for page in self.pages[:pages]])
        self.held_bytes -= gone_bytes
        self._folded_bytes -= gone_bytes
        del self.pages[:pages]
        del self._starts[:pages]
        if self.tags:
            self.tags.prune(self.low)
