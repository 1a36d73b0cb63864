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
from itertools import compress

from topics.engine.partitions.render import Rendered, View
from topics.engine.partitions.selection import Share, without
from topics.engine.partitions.tags import TagIndex
from topics.model.records.match import TagMatch
from topics.model.records.page import SEPARATOR, Page, fold, page_times, part, record_sizes, split
from topics.model.steps import Steps

# Small neighbours are folded into pages of about this many records: large enough that a page's own cost vanishes,
# small enough that taking one record out of a page stays cheap.
PAGE_RECORDS = 256
PAGE_BYTES = 128 << 10
# No page is larger than this: to take one record out of a page, the whole page is decoded.
MAX_PAGE_RECORDS = 512
MAX_PAGE_BYTES = 2 << 20
# A page of this many records is not merged with others: copying it would add a quarter to a write of 100 records.
LARGE_RECORDS = 64

# Pages that are looked at in one step of long work.
STEP_PAGES = 32
# Pages of a segment whose record sizes are remembered.
SIZES_KEPT = 8
# A hot segment whose dead front has grown this long takes no more records, so that its flags do not grow for ever.
MAX_FRONT_RECORDS = 1 << 20

_LIVE = b"\0"


class Segment(ABC):
    """Records first_seq .. last_seq of one partition."""

    # So that a kind of which there can be very many may do without a dictionary for each.
    __slots__ = ("first_seq", "last_seq", "live", "live_bytes", "low")

    first_seq: int
    last_seq: int
    first_ts: int
    last_ts: int
    low: int
    live: int
    live_bytes: int
    sealed: bool

    @property
    def is_damaged(self) -> bool:
        """Whether some of the records are known to be unreadable. Sizes are estimates then."""
        return False

    @abstractmethod
    def page_at(self, seq: int) -> Page:
        """The page that holds `seq`, which lies within the segment and is not below `low`."""

    def pages_from(self, seq: int, max_records: int) -> list[Page]:
        """Neighbouring pages from the one that holds `seq` on, not many more than hold `max_records` records, perhaps fewer."""
        return [self.page_at(seq)]

    def run_at(self, seq: int, max_records: int, max_bytes: int) -> Page:
        """A page that holds `seq`, for a reader that continues from there with about `max_records` records or `max_bytes` bytes."""
        return self.page_at(seq)

    def text_at(self, seq: int, max_records: int, max_bytes: int, view: View) -> Rendered | None:
        """Render up to `max_records` records from `seq` on in this view, if that is possible without making a page.

        None when they cannot, because some are gone, the view is not the usual one or they do not fit `max_bytes`.
        """
        return None

    def next_without(self, seq: int, last: int, nodes: frozenset[bytes]) -> tuple[int, bool]:
        """The first seq from `seq` to `last` whose record, live or not, is of none of these nodes, and True.

        Examines one page or more. The first seq that it has not examined, and False, when it found none.
        """
        page = self.page_at(seq)
        behind = min(page.first_seq + page.count, last + 1)
        if page.nodes is None:
            return seq, True
        first = page.nodes.partition(SEPARATOR)[0]
        if first in nodes and page.nodes == SEPARATOR.join([first] * page.count):
            # A page of one node, which is the usual case, is compared as a whole.
            return behind, False
        of_records = page.nodes.split(SEPARATOR)
        for position in range(seq - page.first_seq, behind - page.first_seq):
            if of_records[position] not in nodes:
                return page.first_seq + position, True
        return behind, False

    @abstractmethod
    def flags(self) -> bytearray | None:
        """One byte per record from first_seq on, or None while no record is flagged. Not to be changed by the caller."""

    @abstractmethod
    def flag(self, positions: list[int]) -> None:
        """Set the flag of these records (ascending positions within the segment)."""

    @abstractmethod
    def sizes(self, page: Page) -> list[int]:
        """The size of each record of a page. Not to be changed by the caller."""

    @abstractmethod
    def tagged(self, match: TagMatch, bound: int) -> Steps[bytearray]:
        """A byte for each record from first_seq on: 1 when its seq is below `bound` and its tag matches, by the index.

        Records that are gone may be among them. The result covers the records that were there at the first step.
        """

    @abstractmethod
    def spans(self) -> list[tuple[int, int]]:
        """Runs of seqs, first and first behind, that cover all live records; each is measured with one look at a page."""

    @abstractmethod
    def page_end(self, seq: int) -> int:
        """The first seq behind the page that holds `seq`, which is live."""

    def whole_pages(self, first: int, stop: int, max_bytes: int) -> int:
        """The first seq behind the pages that hold the live records first .. stop - 1, if all of those pages together have at
        most `max_bytes`; else 0. Cheaper than to measure the records."""
        size = 0
        while first < stop:
            end = self.page_end(first)
            size += self.size_between(first, end)
            if size > max_bytes:
                return 0
            first = end
        return first

    @abstractmethod
    def chosen_size(self, first: int, chosen: bytes) -> int:
        """The bytes of the records from `first` on for which `chosen` has a 1. They are live."""

    @abstractmethod
    def mark(self, first: int, gone: bytes) -> None:
        """Set the flags of the records from `first` on. To be followed by `marked` when the last one is set."""

    def marked(self, first: int, stop: int, count: int, size: int) -> None:
        """Count live records whose delete flags were set: they lie within first .. stop - 1 and have `size` bytes."""
        self.live -= count
        self.live_bytes -= size

    def replaces(self, other: "Segment") -> bool:
        """Whether this segment, which holds records of `other`, was made of it and takes its place."""
        return not other.sealed

    def forget(self, match: TagMatch) -> Steps[None]:
        """After a delete by tag: gone records need no longer be listed under the tags that match. A hint only."""
        yield from ()

    def tidy_tags(self) -> Steps[None]:
        """Do with the tag index what was left for later: index records, and drop those that are gone."""
        yield from ()

    @property
    def has_stale_tags(self) -> bool:
        """Whether `tidy_tags` has something to do."""
        return False

    def check(self, first: int, last: int) -> None:  # noqa: B027 - records in memory can always be read
        """Raises CorruptStorage when one of the records first..last cannot be read. Asked before they are taken away."""

    # What follows is the same for hot and sealed.

    def gone_between(self, first: int, stop: int) -> bytes:
        """A byte for each of the seqs first .. stop - 1: 0 for a live record, 1 for everything else."""
        low = min(max(first, self.low, self.first_seq), stop)
        high = max(min(stop, self.last_seq + 1), low)
        flags = self.flags()
        between = bytes(high - low) if flags is None else bytes(flags[low - self.first_seq : high - self.first_seq])
        if low == first and high == stop:
            return between
        return b"\1" * (low - first) + between + b"\1" * (stop - high)

    def shares(self, found: bytearray) -> Steps[list[Share]]:
        """What a delete of the live records for which `found` has a 1 takes of each page."""
        base = self.first_seq
        shares: list[Share] = []
        for index, (first, stop) in enumerate(self.spans()):
            if not index % STEP_PAGES:
                yield
            wanted = bytes(found[first - base : stop - base])
            if 1 in wanted:
                gone = self.gone_between(first, stop)
                chosen = without(wanted.ljust(stop - first, b"\0"), gone)
                if 1 in chosen:
                    # What is deleted is counted, so it must be readable.
                    self.check(first + chosen.find(1), first + chosen.rfind(1))
                    shares.append(Share(first, gone, chosen, chosen.count(1), self.chosen_size(first, chosen)))
        return shares

    def measure_share(self, share: Share, gone: bytes) -> None:
        """Measure what is left of the share when these records are gone."""
        chosen = without(share.chosen, gone)
        count = chosen.count(1)
        share.size = self.chosen_size(share.first, chosen) if count else 0
        share.before, share.chosen, share.count = gone, chosen, count

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

    def live_run(self, seq: int, max_records: int) -> tuple[int, int] | None:
        """The first live seq at or after `seq`, and the end of the run of live ones from there, cut after `max_records`."""
        first_seq, last_seq = self.first_seq, self.last_seq
        if seq < self.low:
            seq = self.low
        if seq < first_seq:
            seq = first_seq
        if seq > last_seq:
            return None
        flags = self.flags()
        if flags is None:
            return seq, min(last_seq + 1, seq + max_records)
        position = flags.find(_LIVE, seq - first_seq)
        if position < 0:
            return None
        end = flags.find(1, position, position + max_records)
        if end < 0:
            end = min(len(flags), position + max_records)
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

    def live_between(self, first: int, last: int) -> int:
        """How many of the records first..last are live."""
        first = max(first, self.low, self.first_seq)
        last = min(last, self.last_seq)
        if first > last:
            return 0
        flags = self.flags()
        return last - first + 1 if flags is None else flags.count(0, first - self.first_seq, last - self.first_seq + 1)

    def measure(self, bound: int) -> tuple[int, int]:
        """The number of live records below `bound`, and their bytes."""
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

    def floor_without(self, records: int, size: int) -> int:
        """The seq right behind the oldest live records, when at least `records` of them and `size` bytes must go.

        0 when nothing must go. Takes runs of records as long as all of a run must go, not record by record.
        """
        floor = 0
        while records > 0 or size > 0:
            expected = max(records, size * self.live // max(1, self.live_bytes), 1)
            run = self.live_run(floor, min(MAX_PAGE_RECORDS, expected))
            if run is None:
                break
            first, stop = run
            # A whole page is measured without looking at its records.
            stop = min(stop, self.page_end(first))
            total = self.size_between(first, stop)
            while total > size and stop - first > max(records, 1):
                stop = first + (stop - first) // 2
                total = self.size_between(first, stop)
            records -= stop - first
            size -= total
            floor = stop
        return floor

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
        """Delete whole runs (first seq, exclusive end) of this segment; jobs are usually acked in runs. Return as `kill` does."""
        # Delete runs of one record together: 3 us instead of 14 for 7 jobs.
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


class MergedSegment(Segment):
    """A sealed segment that takes the place of the segments it was made of, and holds its delete flags in memory."""

    __slots__ = ("_flags",)

    sealed = True

    def __init__(self, first_seq: int, last_seq: int, size: int) -> None:
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.low = first_seq
        self.live = last_seq - first_seq + 1
        self.live_bytes = size
        self._flags: bytearray | None = None

    def restore(self, low: int, live: int, live_bytes: int, flags: bytes | None) -> None:
        """Take over what a snapshot says about the segment."""
        self.low = low
        self.live = live
        self.live_bytes = live_bytes
        self._flags = None if flags is None else bytearray(flags)

    def take_over(self, parts: Sequence[Segment]) -> None:
        """Live records of these segments, which lie within this one, are live here; all others are gone."""
        first_seq = self.first_seq
        flags = bytearray(b"\1") * (self.last_seq - first_seq + 1)
        for each in parts:
            low, stop = max(each.low, each.first_seq), each.last_seq + 1
            if low < stop:
                theirs = each.flags()
                copied = bytes(stop - low) if theirs is None else theirs[low - each.first_seq : stop - each.first_seq]
                flags[low - first_seq : stop - first_seq] = copied
        self.live = sum([each.live for each in parts])
        self.live_bytes = sum([each.live_bytes for each in parts])
        self._flags = flags if self.live < len(flags) else None

    def flags(self) -> bytearray | None:
        return self._flags

    def flag(self, positions: list[int]) -> None:
        flags = self._writable_flags()
        for position in positions:
            flags[position] = 1

    def flag_run(self, start: int, stop: int) -> None:
        self._writable_flags()[start:stop] = b"\1" * (stop - start)

    def mark(self, first: int, gone: bytes) -> None:
        self._writable_flags()[first - self.first_seq : first - self.first_seq + len(gone)] = gone

    def _writable_flags(self) -> bytearray:
        if self._flags is None:
            self._flags = bytearray(self.last_seq - self.first_seq + 1)
        return self._flags
