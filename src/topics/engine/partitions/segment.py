"""Segments: runs of records with neighbouring seqs, hot in memory or sealed on disk.

A partition is a list of segments; only the last one takes new records. What a partition needs of a segment is here,
written once over two things a segment gives: the page around a seq, and one flag byte per record (1 = deleted).

    low   records below are gone (evicted, expired or deleted by `before_seq`); it only rises
    live  records at or above `low` whose flag is 0; `live_bytes` is their size

Invariant: flags and `low` only ever take records away, so a record that is gone never comes back.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence

from topics.engine.partitions.render import Rendered, View
from topics.engine.partitions.selection import Share, without
from topics.model.records.match import TagMatch
from topics.model.records.page import SEPARATOR, Page, page_times
from topics.model.steps import Steps

# Small neighbours are folded into pages of about this many records: large enough that a page's own cost vanishes,
# small enough that taking one record out of a page stays cheap.
PAGE_RECORDS = 256
# No page has more records: to take one record out of a page, the whole page is decoded.
MAX_PAGE_RECORDS = 512
# Pages that are looked at in one step of long work.
STEP_PAGES = 32

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
