"""A partition: one log with its own seqs, floors and segments.

Three positions tell what a reader may still see:

    evict_floor   records below were lost to a cap or to their age. A cursor below it is told, by a tombstone.
    delete_below  records below were deleted on purpose. Nobody is told.
    earliest_seq  the first live record; head_seq + 1 when none is. Never below either of the two.

Holes are ranges of seqs inside the log whose records were lost and must be told as well (a power cut took them, or a
router's source had dropped them first). Everything else that is missing was deleted on purpose.

Seqs are handed out by `decide_*` and become readable by `apply_*`; in between they count as pending. No method here
waits or writes: the broker commits facts and calls `apply_*` when they are true, live and in replay alike.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Any

from msgspec import Struct

from topics.engine.cache import Cache
from topics.engine.lease import Leases
from topics.engine.render import Rendering, View, is_usual, render_records, wanted
from topics.engine.segment import HotSegment, Segment
from topics.model.config import U64_MAX, TopicConfig
from topics.model.facts import CAP, RESTART, SOURCE_TRIM, TTL, Deleted, DeletedBelow, DeletedRuns, Evicted, Lost
from topics.model.match import TagMatch
from topics.model.page import SEPARATOR, Page, page_times, page_weight, record_sizes

# A filtered read that has found something stops after looking at this many records.
SCAN_MOST = 20_000


class Tombstone(Struct, frozen=True, omit_defaults=True):
    """Records gap_from..gap_to are lost and this reader has not seen them. As JSON it is what readers are told."""

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int
    cause: str | None = None


class Read(Struct):
    """One answer to a reader: rendered records (comma between them) and where to go on."""

    records: bytes
    count: int
    next_from_seq: int
    scanned: int
    tombstone: Tombstone | None


class Run(Struct):
    """Records first..last of one segment; `flags` says which of them are gone, None when all are there."""

    segment: Segment
    first: int
    last: int
    flags: bytes | None


class Plan(Struct):
    """What a bulk reader gets, and where it goes on."""

    runs: list[Run]
    next_from_seq: int
    scanned: int
    tombstone: Tombstone | None


class Totals:
    """Live records and bytes over all partitions, and how many came and went."""

    __slots__ = ("appended", "bytes", "deleted", "evicted", "records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.appended = 0
        self.evicted = 0
        self.deleted = 0


class Partition:
    """The log of one partition of a topic."""

    def __init__(self, topic_id: int, number: int, texts: Cache, totals: Totals) -> None:
        self.topic_id = topic_id
        self.number = number
        self.head_seq = 0
        self.last_ts = 0
        self.evict_floor = 1
        self.evict_reasons = 0
        self.delete_below = 1
        self.count = 0
        self.bytes = 0
        self.holes: list[Lost] = []
        self.segments: list[Segment] = []
        # Handed out but not yet readable.
        self.next_seq = 1
        self.pending_records = 0
        self.pending_bytes = 0
        # The writes of this turn that are still being gathered, if any.
        self.gathering: Any = None
        # Commits about this partition that wait for a sync; a later one must not overtake them.
        self.waiting_sync = 0
        # Written to the log but not synced: no read sees these pages, only those who asked for what may yet be lost.
        self.unsynced: list[Page] = []
        # Records below never reached the log: the topic was ephemeral when they came.
        self.unlogged_below = 0
        # Segments nobody can read any more, for the broker to remove.
        self.dropped: list[Segment] = []
        # Who has which job, when this is a queue.
        self.leases: Leases | None = None
        self._totals = totals
        self._texts = texts
        self._starts: list[int] = []
        # The first live seq and its `$ts`, until something changes them.
        self._earliest: int | None = None
        self._oldest_ts: int | None = None

    # Writing

    def apply_append(self, page: Page) -> None:
        """The page's records are readable. Seqs skipped since the last record stay empty; a repeat does nothing."""
        first_seq = page.first_seq
        if first_seq <= self.head_seq:
            return
        segments = self.segments
        hot = segments[-1] if segments else None
        if not isinstance(hot, HotSegment) or not hot.open or hot.last_seq + 1 != first_seq:
            hot = self._new_hot(first_seq)
        hot.append(page)
        count, size = page.count, page.size
        next_seq = first_seq + count
        self.head_seq = next_seq - 1
        if next_seq > self.next_seq:
            self.next_seq = next_seq
        self.last_ts = hot.last_ts
        if not self.count:
            self._earliest = self._oldest_ts = None
        self.count += count
        self.bytes += size
        totals = self._totals
        totals.records += count
        totals.bytes += size
        totals.appended += count

    def over_cap(self, config: TopicConfig) -> bool:
        """Whether records must go. A topic that rejects what does not fit never drops what it holds instead."""
        if config.discard == "reject":
            return False
        return (0 < config.cap_records < self.count) or (0 < config.cap_bytes < self.bytes)

    def making_way(self, config: TopicConfig, count: int, size: int) -> int:
        """The bytes of live records that the caps take when so much is appended behind what is on its way already."""
        records = self.count + self.pending_records + count
        size += self.bytes + self.pending_bytes
        over = 0 < config.cap_records < records or 0 < config.cap_bytes < size
        if not over or config.discard == "reject":
            return 0
        floor = self._capped_floor(config, records, size)
        leaving = 0
        for segment in self.segments:
            if segment.last_seq < floor:
                leaving += segment.live_bytes
            elif segment.first_seq < floor:
                leaving += segment.measure(floor)[1]
        return leaving

    def decide_eviction(self, config: TopicConfig, now_ms: int) -> Evicted | None:
        """How far the floor must rise so that caps hold and nothing expired is left; None when it need not.

        The floor stops right behind the last live record it takes, so that records deleted on purpose just above it
        are not reported as lost.
        """
        floor = 0
        reasons = 0
        ttl_ms = config.ttl_ms
        if ttl_ms and self.count and self.oldest_ts <= now_ms - ttl_ms:
            floor = self._expired_floor(now_ms - ttl_ms)
            if floor:
                reasons = TTL
        if self.over_cap(config):
            capped = self._capped_floor(config, self.count, self.bytes)
            if capped > floor:
                floor = capped
                reasons |= CAP
        if floor <= self.evict_floor:
            return None
        self._check_below(floor)
        return Evicted(self.topic_id, self.number, floor, reasons)

    def apply_evicted(self, fact: Evicted) -> None:
        if fact.floor > self.evict_floor:
            self.evict_floor = fact.floor
            self.evict_reasons |= fact.reasons
            before = self.count
            self._drop_below(fact.floor)
            self._totals.evicted += before - self.count

    def apply_lost(self, fact: Lost) -> None:
        """Seqs first..last are taken and empty, and readers are told."""
        if fact.last <= self.head_seq:
            return
        first = max(fact.first, self.head_seq + 1)
        last_hole = self.holes[-1] if self.holes else None
        if last_hole is not None and last_hole.last + 1 == first and last_hole.reasons == fact.reasons:
            first = self.holes.pop().first
        self.holes.append(Lost(fact.topic_id, fact.partition, first, fact.last, fact.reasons))
        self._skip_to(fact.last)

    def refill(self, page: Page) -> None:
        """Recovery: records that were given up as lost have turned up after all. The page lies within a hole."""
        hot = HotSegment(page.first_seq)
        hot.append(page)
        hot.close()
        index = bisect_right(self._starts, page.first_seq)
        self.segments.insert(index, hot)
        self._starts.insert(index, page.first_seq)
        hot.kill_below(max(self.evict_floor, self.delete_below))
        self._take_away(-hot.live, -hot.live_bytes)
        self._earliest = self._oldest_ts = None
        holes: list[Lost] = []
        for hole in self.holes:
            parts = [(hole.first, min(hole.last, page.first_seq - 1)), (max(hole.first, page.last_seq + 1), hole.last)]
            holes += [Lost(hole.topic_id, hole.partition, *each, hole.reasons) for each in parts if each[0] <= each[1]]
        self.holes = holes

    def apply_head(self, head: int) -> None:
        """An ephemeral log after a restart: seqs up to `head` were handed out and their records are gone.

        Records above `head` stay: they may have been written after the log had become a durable one.
        """
        if head > self.head_seq:
            self._skip_to(head)
        if head + 1 > self.evict_floor:
            self.evict_floor = head + 1
            self.evict_reasons |= RESTART
            self._drop_below(self.evict_floor)

    def apply_sealed(self, sealed: Segment) -> None:
        """A sealed segment stands in for the hot records it was made of. What is gone there is gone here.

        Live, those records make up one closed hot segment. In replay they may be the middle of a larger one, because
        the sealed segments around them are gone from the disk; what stands before and behind stays hot. And the sealed
        one may know of deletes that are replayed only later.
        """
        kept: list[Segment] = []
        placed = False
        count = size = 0
        known_to = sealed.first_seq
        for segment in self.segments:
            if not isinstance(segment, HotSegment) or not _overlap(segment, sealed):
                kept.append(segment)
                continue
            count += segment.live
            size += segment.live_bytes
            flags = segment.flags()
            if flags is not None:
                seqs = range(sealed.first_seq, min(sealed.last_seq, segment.last_seq) + 1)
                sealed.kill([seq for seq in seqs if seq >= segment.first_seq and flags[seq - segment.first_seq]])
            # Flagged too, because only flags reach the disk: what is below `low`, and what a snapshot left out because
            # nothing was alive there any more. The segment on disk holds both, and would give them back.
            sealed.kill(range(known_to, min(segment.low, sealed.last_seq + 1)))
            known_to = segment.last_seq + 1
            around = []
            if segment.first_seq < sealed.first_seq:
                around.append(segment.between(segment.first_seq, sealed.first_seq - 1))
                kept += around
            if not placed:
                kept.append(sealed)
                placed = True
            if segment.last_seq > sealed.last_seq:
                around.append(segment.between(sealed.last_seq + 1, segment.last_seq))
                kept.append(around[-1])
            count -= sum([each.live for each in around])
            size -= sum([each.live_bytes for each in around])
        if not placed:
            # Everything it holds is gone already: nothing reads it, its files can go.
            self.dropped.append(sealed)
            return
        self.segments = kept
        self._starts = [segment.first_seq for segment in kept]
        self._earliest = self._oldest_ts = None
        self._take_away(count - sealed.live, size - sealed.live_bytes)
        self._drop_empty()

    # Deleting

    def decide_delete_below(self, before_seq: int) -> DeletedBelow:
        """Only records that exist now: later ones are never touched, however large `before_seq` is."""
        bound = min(before_seq, self.head_seq + 1)
        self._check_below(bound)
        return DeletedBelow(self.topic_id, self.number, bound)

    def decide_delete_match(self, match: TagMatch, before_seq: int | None) -> Deleted:
        bound = self.head_seq + 1 if before_seq is None else min(before_seq, self.head_seq + 1)
        seqs: array[int] = array("Q")
        for segment in self.segments:
            if segment.first_seq >= bound:
                break
            if segment.live:
                found = [seq for seq in segment.tagged(match, bound) if segment.is_live(seq)]
                if found:
                    segment.check(found[0], found[-1])
                    seqs.extend(found)
        return Deleted(self.topic_id, self.number, seqs.tobytes())

    def apply_deleted(self, fact: Deleted) -> int:
        """Answers how many records this took away; those already gone count nothing."""
        seqs: array[int] = array("Q")
        seqs.frombytes(fact.seqs)
        return self.kill(seqs)

    def kill(self, seqs: "array[int] | list[int]") -> int:
        """These records (ascending seqs) are deleted; answers how many were live."""
        taken = 0
        start = 0
        emptied = False
        while start < len(seqs):
            index = bisect_right(self._starts, seqs[start]) - 1
            following = index + 1
            stop = len(seqs) if following >= len(self._starts) else bisect_left(seqs, self._starts[following], start)
            if index >= 0:
                segment = self.segments[index]
                count, size = segment.kill(seqs[start:stop])
                taken += count
                self._take_away(count, size)
                emptied = emptied or not segment.live
            start = stop
        if taken:
            self._totals.deleted += taken
            self._earliest = self._oldest_ts = None
            if emptied:
                self._drop_empty()
        if self.leases is not None:
            self.leases.forget(seqs)
        return taken

    def apply_deleted_runs(self, fact: DeletedRuns) -> int:
        bounds: array[int] = array("Q")
        bounds.frombytes(fact.runs)
        runs = list(zip(bounds[::2], bounds[1::2], strict=True))
        if self.leases is not None:
            for first, stop in runs:
                self.leases.forget(range(first, stop))
        return self.kill_runs(runs)

    def kill_runs(self, runs: list[tuple[int, int]]) -> int:
        """These runs of records (first seq and first behind, ascending) are deleted; answers how many were live.

        Leases are not told: it is they who say that these jobs are done.
        """
        taken = 0
        emptied = False
        for segment, some in self._by_segment(runs):
            count, size = segment.kill_runs(some)
            taken += count
            self._take_away(count, size)
            emptied = emptied or not segment.live
        if taken:
            self._totals.deleted += taken
            self._earliest = self._oldest_ts = None
            if emptied:
                self._drop_empty()
        return taken

    def _by_segment(self, runs: list[tuple[int, int]]) -> list[tuple[Segment, list[tuple[int, int]]]]:
        """The runs, cut where a segment ends, with the segment each lies in."""
        starts, segments = self._starts, self.segments
        index = bisect_right(starts, runs[0][0]) if runs else 0
        if index and (index == len(starts) or runs[-1][1] <= starts[index]):
            return [(segments[index - 1], runs)]
        found: list[tuple[Segment, list[tuple[int, int]]]] = []
        for first, stop in runs:
            while first < stop:
                index = bisect_right(starts, first)
                end = stop if index == len(starts) else min(stop, starts[index])
                if index:
                    found.append((segments[index - 1], [(first, end)]))
                first = end
        return found

    def check(self, first: int, last: int) -> None:
        """Raises CorruptStorage when a record of first..last cannot be read. Asked before they are taken away."""
        segments = self.segments
        for index in range(max(bisect_right(self._starts, first) - 1, 0), len(segments)):
            segment = segments[index]
            if segment.first_seq > last:
                return
            if segment.sealed and first <= segment.last_seq:
                segment.check(max(first, segment.first_seq), min(last, segment.last_seq))

    def apply_deleted_below(self, fact: DeletedBelow) -> int:
        if fact.bound <= self.delete_below:
            return 0
        before = self.count
        self.delete_below = fact.bound
        self._drop_below(fact.bound)
        taken = before - self.count
        self._totals.deleted += taken
        return taken

    # Reading

    @property
    def earliest_seq(self) -> int:
        earliest = self._earliest
        if earliest is None:
            earliest = self._earliest = self._first_live()
        return earliest

    @property
    def oldest_ts(self) -> int:
        """The `$ts` of the first live record; there must be one."""
        oldest = self._oldest_ts
        if oldest is None:
            page = self.find(self.earliest_seq)
            assert page is not None
            oldest = self._oldest_ts = page_times(page)[self.earliest_seq - page.first_seq]
        return oldest

    def read(
        self,
        from_seq: int,
        limit: int,
        budget: int,
        view: View,
        *,
        to_seq: int | None = None,
        recreated: bool = False,
    ) -> Read:
        """Up to `limit` records and about `budget` bytes (at least one record) after `from_seq`.

        `recreated`: the cursor is known to come from an earlier instance of the topic.
        """
        seq, last, tombstone = self._enter(from_seq, to_seq, recreated)
        if seq > last:
            return Read(b"", 0, max(last, seq - 1) if tombstone else max(from_seq, last), 0, tombstone)
        read = self._collect(seq, last, limit, budget, view)
        read.tombstone = tombstone
        return read

    def plan(
        self, from_seq: int, limit: int, budget: int, *, to_seq: int | None = None, recreated: bool = False
    ) -> "Plan":
        """The runs of records that a bulk reader gets, of `limit` seqs and about `budget` bytes, gone ones flagged."""
        seq, last, tombstone = self._enter(from_seq, to_seq, recreated)
        runs: list[Run] = []
        start = seq
        if seq <= last:
            last = min(last, seq + limit - 1)
            room = budget
            for index in range(max(bisect_right(self._starts, seq) - 1, 0), len(self.segments)):
                segment = self.segments[index]
                live = segment.next_live(seq)
                if segment.first_seq > last or room <= 0:
                    break
                if live is None or live > last:
                    continue
                stop = min(segment.last_seq, last)
                # Sizes within a segment are taken to be even: a little more or less in one answer does no harm.
                each = max(1, segment.live_bytes // max(1, segment.live))
                if (stop - live + 1) * each > room:
                    stop = last = min(stop, live + max(0, room // each - 1))
                room -= (stop - live + 1) * each
                runs.append(Run(segment, live, stop, segment.flags_between(live, stop)))
                seq = stop + 1
            next_from_seq = last
        else:
            next_from_seq = max(last, seq - 1) if tombstone else max(from_seq, last)
        return Plan(runs, next_from_seq, max(0, next_from_seq - start + 1), tombstone)

    def _enter(self, from_seq: int, to_seq: int | None, recreated: bool) -> tuple[int, int, Tombstone | None]:
        """Where a reader at this cursor begins, where it must stop, and what it has to be told first."""
        head = self.head_seq
        seq = from_seq + 1
        tombstone = None
        # A live reader may have been told what is not synced yet, and come back with that before it is.
        if from_seq > self.written_seq or recreated:
            seq = self.earliest_seq
            tombstone = self._tombstone(from_seq, seq - 1, "recreated")
        elif seq < self.evict_floor:
            seq = self.earliest_seq
            tombstone = self._tombstone(from_seq, seq - 1, _reason(self.evict_reasons), self.evict_reasons)
        last = head if to_seq is None else min(head, to_seq)
        if self.holes:
            for hole in self.holes:
                if hole.last < seq:
                    continue
                if hole.first > last:
                    break
                if tombstone is not None or self._any_live(seq, hole.first - 1):
                    last = hole.first - 1
                    break
                # What was deleted right before it is passed in silence, and is no part of what is told.
                passed_seq = max(from_seq, hole.first - 1)
                tombstone = self._tombstone(passed_seq, hole.last, _reason(hole.reasons), hole.reasons)
                seq = hole.last + 1
        return seq, last, tombstone

    def _any_live(self, first: int, last: int) -> bool:
        if first > last:
            return False
        live = self.next_live(first)
        return live is not None and live <= last

    @property
    def written_seq(self) -> int:
        """The last seq that may be told before its sync: all up to it are either synced or in `unsynced`.

        Not all that waits for a sync is in there (records of a commit, a loss). Nobody is told what comes behind that.
        """
        seq = self.head_seq
        for page in self.unsynced:
            if page.first_seq != seq + 1:
                break
            seq = page.last_seq
        return seq

    def read_unsynced(self, from_seq: int, limit: int, budget: int, view: View) -> Read:
        """The same as `read` over what is written but not synced; `from_seq` must not lie before the head."""
        texts: list[bytes] = []
        examined = from_seq
        room = budget
        written_seq = self.written_seq
        for page in self.unsynced:
            if page.last_seq <= from_seq:
                continue
            if page.first_seq > written_seq:
                break
            sizes = record_sizes(page)
            chosen = wanted(page, range(max(0, from_seq + 1 - page.first_seq), page.count), view)
            for taken, position in enumerate(chosen):
                count = len(texts) + taken
                if count == limit or (count and sizes[position] > room):
                    texts += render_records(page, chosen[:taken], view)
                    examined = page.first_seq + position - 1
                    return Read(b",".join(texts), count, examined, examined - from_seq, None)
                room -= sizes[position]
            texts += render_records(page, chosen, view)
            examined = page.last_seq
        return Read(b",".join(texts), len(texts), examined, examined - from_seq, None)

    def settled(self, page: Page) -> None:
        """The page's sync came, or never will."""
        self.unsynced = [each for each in self.unsynced if each is not page]

    def first_at_or_after(self, ts: int) -> int:
        """The first live seq whose `$ts` is at least `ts`; head_seq + 1 when there is none yet."""
        for segment in self.segments:
            found = segment.first_at_or_after(ts)
            if found is not None:
                live = segment.next_live(found)
                if live is not None:
                    return live
        return self.head_seq + 1

    def find(self, seq: int) -> Page | None:
        """The page around a live record, for those who need one record rather than a range."""
        return self.segments[bisect_right(self._starts, seq) - 1].page_at(seq) if self.is_live(seq) else None

    def is_live(self, seq: int) -> bool:
        index = bisect_right(self._starts, seq) - 1
        return index >= 0 and self.segments[index].is_live(seq)

    def segment_at(self, seq: int) -> Segment:
        """The segment of a live record."""
        return self.segments[bisect_right(self._starts, seq) - 1]

    def next_live(self, seq: int) -> int | None:
        """The first live seq at or after `seq`."""
        seq = max(seq, self.evict_floor, self.delete_below)
        index = max(bisect_right(self._starts, seq) - 1, 0)
        while index < len(self.segments):
            found = self.segments[index].next_live(seq)
            if found is not None:
                return found
            index += 1
        return None

    def live_run(self, seq: int, most: int) -> tuple[int, int] | None:
        """The first live seq at or after `seq`, and the end of the run of live seqs from there, cut after `most`.

        The run may end early where a segment does.
        """
        if seq < self.evict_floor or seq < self.delete_below:
            seq = max(self.evict_floor, self.delete_below)
        segments = self.segments
        index = max(bisect_right(self._starts, seq) - 1, 0)
        while index < len(segments):
            run = segments[index].live_run(seq, most)
            if run is not None:
                return run
            index += 1
        return None

    def pages_from(self, seq: int, most: int) -> list[Page]:
        """Pages from the one around a live record on, for whoever wants `most` records; at least that one."""
        return self.segments[bisect_right(self._starts, seq) - 1].pages_from(seq, most)

    def page_at(self, seq: int) -> Page:
        """The page around a record that is known to be live."""
        return self.segments[bisect_right(self._starts, seq) - 1].page_at(seq)

    # Segments

    @property
    def hot_bytes(self) -> int:
        return sum([segment.held_bytes for segment in self.segments if isinstance(segment, HotSegment)])

    def close_hot(self) -> HotSegment | None:
        """No more records go into the open hot segment; it may be sealed. None when there is nothing to seal."""
        hot = self.segments[-1] if self.segments else None
        if not isinstance(hot, HotSegment) or not hot.open or not hot.live:
            return None
        hot.close()
        return hot

    def drop_all(self) -> None:
        """The topic is gone: so is everything here."""
        self._take_away(self.count, self.bytes)
        if self.leases is not None:
            self.leases.clear()
        self.dropped += [segment for segment in self.segments if segment.sealed]
        self.segments = []
        self._starts = []

    def restore_segment(self, segment: Segment) -> None:
        """Recovery: the next segment, in order; floors are already set."""
        self.segments.append(segment)
        self._starts.append(segment.first_seq)
        segment.kill_below(max(self.evict_floor, self.delete_below))
        self._take_away(-segment.live, -segment.live_bytes)
        self._earliest = self._oldest_ts = None

    def _new_hot(self, first_seq: int) -> HotSegment:
        hot = HotSegment(first_seq)
        last = self.segments[-1] if self.segments else None
        if isinstance(last, HotSegment) and last.open:
            if last.live:
                last.close()
            else:
                self.segments.pop()
                self._starts.pop()
        self.segments.append(hot)
        self._starts.append(first_seq)
        return hot

    def _skip_to(self, head: int) -> None:
        self.head_seq = head
        self.next_seq = max(self.next_seq, head + 1)
        self._earliest = self._oldest_ts = None

    def _first_live(self) -> int:
        floor = max(self.evict_floor, self.delete_below)
        for segment in self.segments:
            found = segment.next_live(floor)
            if found is not None:
                return found
        return self.head_seq + 1

    def _expired_floor(self, cutoff: int) -> int:
        """Right behind the last live record whose `$ts` is at most `cutoff`; 0 when none is."""
        floor = 0
        for segment in self.segments:
            if segment.first_ts > cutoff:
                break
            alive_from = segment.first_at_or_after(cutoff + 1)
            last = segment.last_live_below(segment.last_seq + 1 if alive_from is None else alive_from)
            if last is not None:
                floor = last + 1
            if alive_from is not None:
                break
        return floor

    def _capped_floor(self, config: TopicConfig, records: int, size: int) -> int:
        """Where the floor must be for the caps to hold if there were so many records, of this size."""
        cap_records = config.cap_records or records
        cap_bytes = config.cap_bytes or size
        floor = 0
        for segment in self.segments:
            if not segment.live:
                continue
            if records - segment.live >= cap_records or size - segment.live_bytes >= cap_bytes:
                last = segment.last_live_below(segment.last_seq + 1)
                assert last is not None
                floor = last + 1
                records -= segment.live
                size -= segment.live_bytes
                continue
            seq = segment.next_live(segment.low)
            while seq is not None and (records > cap_records or size > cap_bytes):
                size -= segment.size_between(seq, seq + 1)
                records -= 1
                floor = seq + 1
                seq = segment.next_live(floor)
            break
        return floor

    def _drop_below(self, bound: int) -> None:
        self._earliest = self._oldest_ts = None
        segments = self.segments
        gone = 0
        for segment in segments:
            if segment.first_seq >= bound:
                break
            self._take_away(*segment.kill_below(bound))
            if not segment.live:
                gone += 1
        if gone:
            self._drop_empty()
        if self.leases is not None:
            self.leases.forget_below(bound)
        # Readers below the floor of eviction are told by it. A delete silences nothing: what was lost before it stays told.
        if self.holes and self.holes[0].last < self.evict_floor:
            self.holes = [hole for hole in self.holes if hole.last >= self.evict_floor]

    def _drop_empty(self) -> None:
        """Segments without a live record leave; the open one stays for the next append."""
        kept = []
        for segment in self.segments:
            if segment.live or (isinstance(segment, HotSegment) and segment.open and segment.last_seq == self.head_seq):
                kept.append(segment)
            elif segment.sealed:
                self.dropped.append(segment)
        if len(kept) != len(self.segments):
            self.segments = kept
            self._starts = [segment.first_seq for segment in kept]

    def _check_below(self, bound: int) -> None:
        """What a floor at `bound` takes out of the middle of a segment must be readable, because it is counted."""
        for segment in self.segments:
            if segment.first_seq >= bound:
                return
            if segment.low < bound <= segment.last_seq:
                segment.check(segment.low, bound - 1)

    def _take_away(self, count: int, size: int) -> None:
        self.count -= count
        self.bytes -= size
        self._totals.records -= count
        self._totals.bytes -= size

    def _tombstone(self, from_seq: int, gap_to: int, reason: str, reasons: int = 0) -> Tombstone:
        return Tombstone(
            min(from_seq + 1, U64_MAX),  # seqs fit 64 bits wherever they are told; the largest cursor is one itself
            gap_to,
            reason,
            max(0, gap_to - from_seq),
            self.earliest_seq,
            self.head_seq,
            "restart" if reasons & RESTART else None,
        )

    def _collect(self, seq: int, last: int, limit: int, budget: int, view: View) -> Read:
        """Records from `seq` to `last` at most, page by page, until the limit or the budget is reached."""
        texts: list[bytes] = []
        start = seq
        left = limit
        room = budget
        segments = self.segments
        for index in range(max(bisect_right(self._starts, seq) - 1, 0), len(segments)):
            segment = segments[index]
            if segment.first_seq > last:
                break
            live = segment.next_live(seq)
            if live is None:
                continue
            seq = live
            stop = min(segment.last_seq, last)
            while seq <= stop:
                rendered = segment.text_at(seq, min(left, stop - seq + 1), room, view) if segment.sealed else None
                if rendered is not None:
                    texts.append(rendered.text)
                    room -= rendered.size
                    left -= rendered.count
                    seq += rendered.count
                    if not left or room <= 0:
                        return Read(b",".join(texts), limit - left, seq - 1, seq - start, None)
                    continue
                page = segment.run_at(seq, left, room)
                first_seq, count, size = page.first_seq, page.count, page.size
                page_last = min(first_seq + count - 1, stop)
                flags = segment.flags_between(seq, page_last)
                if flags is None and size <= room and is_usual(view, page):
                    # The common case: all records of the page from here on, as many as are still wanted.
                    taken = min(page_last - seq + 1, left)
                    texts.append(self._usual_text(page, seq - first_seq, taken))
                    room -= size if taken == count else size * taken // count + 1
                    left -= taken
                    seq += taken
                    if not left or room <= 0:
                        return Read(b",".join(texts), limit - left, seq - 1, seq - start, None)
                    continue
                if view.without_nodes and flags is None and seq == first_seq and _all_of(page, view.without_nodes):
                    seq = page_last + 1
                    continue
                offset = seq - first_seq
                positions: list[int] | range = range(offset, page_last - first_seq + 1)
                if flags is not None:
                    positions = [position for position, gone in enumerate(flags, offset) if not gone]
                chosen = wanted(page, positions, view)
                enough = len(chosen) >= left
                chosen = chosen[:left]
                sizes = segment.sizes(page)
                fitting = 0
                for position in chosen:
                    if sizes[position] > room and (fitting or texts):
                        break
                    room -= sizes[position]
                    fitting += 1
                texts += render_records(page, chosen[:fitting], view)
                left -= fitting
                if fitting < len(chosen):
                    # The record that did not fit is the next reader's first.
                    examined = first_seq + chosen[fitting] - 1
                elif enough:
                    examined = first_seq + chosen[-1]
                else:
                    examined = page_last
                seq = examined + 1
                if fitting < len(chosen) or enough or room <= 0 or (texts and seq - start > SCAN_MOST):
                    return Read(b",".join(texts), limit - left, examined, seq - start, None)
        return Read(b",".join(texts), limit - left, last, last - start + 1, None)

    def _usual_text(self, page: Page, start: int, count: int) -> bytes:
        # Keyed by the run of seqs, not by the object: folding makes new pages, a sealed page is read anew each time.
        key = (self.topic_id, self.number, page.first_seq, page.count)
        rendering: Rendering | None = self._texts.get(key)
        if rendering is None:
            rendering = Rendering(page)
            self._texts.put(key, rendering, len(rendering.text) + page_weight(page) + 300)
        return rendering.text if count == page.count else rendering.cut(start, start + count)


def _overlap(one: Segment, other: Segment) -> bool:
    return one.first_seq <= other.last_seq and other.first_seq <= one.last_seq


def _all_of(page: Page, nodes: frozenset[bytes]) -> bool:
    """Whether the whole page comes from a single one of these nodes; quick however many there are."""
    if page.nodes is None:
        return False
    first = page.nodes.partition(SEPARATOR)[0]
    return first in nodes and page.nodes == SEPARATOR.join([first] * page.count)


def _reason(reasons: int) -> str:
    if reasons == CAP:
        return "cap"
    if reasons == TTL:
        return "ttl"
    if reasons == SOURCE_TRIM:
        return "source_trim"
    return "mixed"
