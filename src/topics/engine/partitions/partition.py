"""A partition: one log with its own seqs, floors and segments.

Three positions determine what a reader may still see:

    evict_floor   records below were evicted by a cap or by their age. A cursor below it gets a tombstone.
    delete_below  records below were deleted on purpose. Readers get no tombstone.
    earliest_seq  the first live record; head_seq + 1 when none is. Never below either of the two.

Holes are ranges of seqs inside the log whose records were lost; readers get a tombstone for them too. (A power cut lost them,
or the source of a router evicted them before they were forwarded.) All other missing records were deleted on purpose.

Seqs are assigned by `reserve` and become readable by `apply_*`; in between they count as pending. No method here waits or
writes: the broker commits facts and calls `apply_*` when the log has them, live and in recovery alike.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from topics.engine.cache import Cache
from topics.engine.leases.lease import Leases
from topics.engine.partitions.hot_segment import HotSegment
from topics.engine.partitions.reservation import Reservation
from topics.engine.partitions.segment import STEP_PAGES, MergedSegment, Segment
from topics.engine.partitions.selection import SegmentShares, Selection, Share, both, fact_of
from topics.engine.partitions.tags import TagIndex
from topics.model.config import TopicConfig
from topics.model.errors import CorruptStorage
from topics.model.facts import CAP, DAMAGE, RESTART, TTL, Deleted, DeletedBelow, DeletedRuns, Evicted, Lost
from topics.model.records.match import TagMatch
from topics.model.records.page import Page, RecordTexts, page_times, record_sizes
from topics.model.steps import Steps

# A selection is measured again until at most this many of its pages have changed in one round, and that often at most.
MAX_UNSETTLED_PAGES = 64
MAX_SETTLE_ROUNDS = 8


class Totals:
    """Live records and bytes over all partitions, and how many came and went."""

    __slots__ = ("appended", "bytes", "deleted", "evicted", "pending_bytes", "records")

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        # Of records that are reserved and not applied yet.
        self.pending_bytes = 0
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
        # Reserved and not applied yet: see `reserve`. Nothing outside this class changes these.
        self.next_seq = 1
        self.pending_records = 0
        self.pending_bytes = 0
        # Commits about this partition that wait for a sync; a later one must not overtake them.
        self.waiting_sync = 0
        # Written to the log but not synced: visible only to readers with consistency eventual.
        self.unsynced: list[Page] = []
        # Records below never reached the log: the topic was ephemeral when they came.
        self.unlogged_below = 0
        # Segments without live records, for the broker to remove.
        self.dropped: list[Segment] = []
        # Tag indexes of segments that were dropped, to be freed in steps.
        self._unused_tags: list[TagIndex] = []
        # The leases of the jobs, when this is a queue.
        self.leases: Leases | None = None
        self._totals = totals
        # Rendered pages; `reading.py` fills it.
        self.texts = texts
        self._starts: list[int] = []
        # The first live seq and its `$ts`, until something changes them.
        self._earliest: int | None = None
        self._oldest_ts: int | None = None

    # Reserving

    def reserve(self, count: int, size: int, now_ms: int) -> Reservation:
        """Assign the next `count` seqs to records of `size` bytes. They are pending until settled or released."""
        reservation = Reservation(self, self.next_seq, 0, 0, 0)
        self.extend_reservation(reservation, count, size, now_ms)
        return reservation

    def reserve_gap(self, count: int) -> Reservation:
        """Assign seqs to records that are lost: they count for no quota."""
        gap = Reservation(self, self.next_seq, count, 0, self.last_ts)
        gap.records = 0
        self.next_seq += count
        return gap

    def extend_reservation(self, reservation: Reservation, count: int, size: int, now_ms: int) -> None:
        """Add records behind the last one. REQUIRES: no other reservation of the partition came later."""
        # Times never decrease in a partition. A reservation that stays open takes the time of its last record.
        if now_ms > self.last_ts:
            self.last_ts = now_ms
        reservation.ts = self.last_ts
        reservation.count += count
        reservation.records += count
        reservation.size += size
        self.next_seq += count
        self.pending_records += count
        self.pending_bytes += size
        self._totals.pending_bytes += size

    def settle_reservation(self, reservation: Reservation) -> None:
        self.pending_records -= reservation.records
        self.pending_bytes -= reservation.size
        self._totals.pending_bytes -= reservation.size
        if reservation.unsynced:
            shown = {id(page) for page in reservation.unsynced}
            reservation.unsynced = []
            self.unsynced = [page for page in self.unsynced if id(page) not in shown]

    def release_reservation(self, reservation: Reservation) -> None:
        self.settle_reservation(reservation)
        self.next_seq = min(self.next_seq, reservation.first_seq)

    def restore_position(self, head_seq: int, last_ts: int) -> None:
        """Recovery: a partition without records that has assigned seqs up to `head_seq`."""
        self.head_seq = head_seq
        self.next_seq = head_seq + 1
        self.last_ts = last_ts

    # Writing

    def apply_append(self, page: Page, *, index_later: bool = False) -> None:
        """The page's records are readable. Seqs skipped since the last record stay empty; a repeat does nothing.

        `index_later`: their tags are indexed by `tidy_tags`, or by the first search.
        """
        first_seq = page.first_seq
        if first_seq <= self.head_seq:
            return
        segments = self.segments
        hot = segments[-1] if segments else None
        if not isinstance(hot, HotSegment) or not hot.open or hot.last_seq + 1 != first_seq:
            hot = self._new_hot(first_seq)
        hot.append(page, index_later=index_later)
        count, size = page.count, page.size
        next_seq = first_seq + count
        self.head_seq = next_seq - 1
        if next_seq > self.next_seq:
            self.next_seq = next_seq
        # A later reservation that is still pending may have a later time.
        if hot.last_ts > self.last_ts:
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

    def bytes_evicted_by(self, config: TopicConfig, count: int, size: int, texts: Sequence[RecordTexts]) -> int:
        """The bytes that the caps evict once these records are appended behind the pending ones.

        Counts live records and records of `texts`; pending ones that are evicted as well are left out.
        """
        if config.discard == "reject":
            return 0
        cap_records, cap_bytes = config.cap_records, config.cap_bytes
        if 0 < cap_records < count or 0 < cap_bytes < size:
            evicted = self.bytes
            for record_size in [each for some in texts for each in record_sizes(some)]:
                if (not cap_records or count <= cap_records) and (not cap_bytes or size <= cap_bytes):
                    break
                evicted += record_size
                size -= record_size
                count -= 1
            return evicted
        records = self.count + self.pending_records + count
        size += self.bytes + self.pending_bytes
        if not (0 < cap_records < records or 0 < cap_bytes < size):
            return 0
        floor = self._capped_floor(config, records, size)
        evicted = 0
        for segment in self.segments:
            if segment.last_seq < floor:
                evicted += segment.live_bytes
            elif segment.first_seq < floor:
                evicted += segment.measure(floor)[1]
        return evicted

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

    def evicted_by(self, config: TopicConfig, now_ms: int) -> tuple[int, int]:
        """Records and bytes that this configuration would evict now. Nothing changes."""
        fact = self.decide_eviction(config, now_ms)
        return (0, 0) if fact is None else self.measure_below(fact.floor)

    def measure_below(self, bound: int) -> tuple[int, int]:
        """Live records below `bound`, and their bytes."""
        records = size = 0
        for segment in self.segments:
            if segment.first_seq >= bound:
                break
            if segment.last_seq < bound:
                records += segment.live
                size += segment.live_bytes
            else:
                some, their_bytes = segment.measure(bound)
                records += some
                size += their_bytes
        return records, size

    def apply_evicted(self, fact: Evicted) -> None:
        if fact.floor > self.evict_floor:
            self.evict_floor = fact.floor
            self.evict_reasons |= fact.reasons
            before = self.count
            self._drop_below(fact.floor)
            self._totals.evicted += before - self.count

    def apply_lost(self, fact: Lost) -> None:
        """Assign seqs first..last without records: readers get a tombstone."""
        if fact.last <= self.head_seq:
            return
        first = max(fact.first, self.head_seq + 1)
        last_hole = self.holes[-1] if self.holes else None
        if last_hole is not None and last_hole.last + 1 == first and last_hole.reasons == fact.reasons:
            first = self.holes.pop().first
        self.holes.append(Lost(fact.topic_id, fact.partition, first, fact.last, fact.reasons))
        self._skip_to(fact.last)

    def refill(self, page: Page) -> None:
        """Recovery: fill part of a hole with records found in a segment. The page lies within the hole."""
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
        """Replace the hot records by their sealed segment; keep their deletes.

        Live, those records make up one closed hot segment. In replay they may be the middle of a larger one, because
        the sealed segments around them are gone from the disk; the records before and after them stay hot. And the sealed
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

    def apply_packed(self, packed: MergedSegment) -> None:
        """Replace the segments that the packed segment was made of. Counts, floors and what is gone do not change.

        Live, those are whole segments. In replay they may be part of a larger hot segment; the rest of it stays hot.
        A packed segment that a newer one has replaced already, or whose records are all gone, is dropped.
        """
        replaced = [segment for segment in self.segments if _overlap(segment, packed)]
        if not replaced or not all([packed.replaces(segment) for segment in replaced]):
            self.dropped.append(packed)
            return
        first, last = packed.first_seq, packed.last_seq
        kept = [segment for segment in self.segments if not _overlap(segment, packed)]
        parts: list[Segment] = []
        for segment in replaced:
            if not isinstance(segment, HotSegment):
                self.dropped.append(segment)
                parts.append(segment)
                continue
            parts.append(segment.between(first, last))
            if segment.first_seq < first:
                kept.append(segment.between(segment.first_seq, first - 1))
            if segment.last_seq > last:
                kept.append(segment.between(last + 1, segment.last_seq))
        packed.take_over(parts)
        self.segments = sorted([*kept, packed], key=lambda segment: segment.first_seq)
        self._drop_empty()
        self._starts = [segment.first_seq for segment in self.segments]

    def replace_range(
        self, first: int, last: int, segments: Sequence[Segment], lost: Sequence[tuple[int, int]]
    ) -> list[Segment]:
        """Replace records first..last by those of `segments`. `lost` holds ranges within, which are reported to readers.

        Answers the sealed segments that were replaced. Seqs are kept: records never move.
        """
        kept: list[Segment] = []
        replaced: list[Segment] = []
        count, size = self.count, self.bytes
        for segment in self.segments:
            if segment.last_seq < first or segment.first_seq > last:
                kept.append(segment)
            elif isinstance(segment, HotSegment):
                if segment.first_seq < first:
                    kept.append(segment.between(segment.first_seq, first - 1))
                if segment.last_seq > last:
                    kept.append(segment.between(last + 1, segment.last_seq))
            else:
                replaced.append(segment)
        for segment in segments:
            segment.kill_below(max(self.evict_floor, self.delete_below))
        self.segments = sorted([*kept, *segments], key=lambda segment: segment.first_seq)
        self._starts = [segment.first_seq for segment in self.segments]
        self._earliest = self._oldest_ts = None
        left = sum([segment.live for segment in self.segments]), sum([segment.live_bytes for segment in self.segments])
        self._take_away(count - left[0], size - left[1])
        holes = [Lost(self.topic_id, self.number, *each, DAMAGE) for each in lost if each[1] >= self.evict_floor]
        self.holes = sorted([*self.holes, *holes], key=lambda hole: hole.first)
        if self.leases is not None:
            for each in lost:
                self.leases.forget(range(each[0], each[1] + 1))
        self._drop_empty()
        return replaced

    # Deleting

    def decide_delete_below(self, before_seq: int) -> DeletedBelow:
        """Only records that exist now: later ones are never touched, however large `before_seq` is."""
        bound = min(before_seq, self.head_seq + 1)
        self._check_below(bound)
        return DeletedBelow(self.topic_id, self.number, bound)

    def select(self, match: TagMatch, bound: int) -> Steps[Selection]:
        """Choose the live records below `bound` whose tag matches, and measure them. `apply_selection` deletes them.

        Records that others delete, evict or expire between two steps are left to them: each is counted once.
        """
        selection = Selection(self.topic_id, self.number, [])
        for segment in list(self.segments):
            if segment.first_seq >= bound:
                break
            if segment.live:
                found = yield from segment.tagged(match, bound)
                if 1 in found:
                    selection.shares += yield from segment.shares(found)
        yield from self._settle(selection)
        selection.groups = yield from self._group(selection)
        selection.fact = yield from fact_of(selection)
        return selection

    def _settle(self, selection: Selection) -> Steps[None]:
        """Measure again the pages whose records have changed since, until few of them are left for `apply_selection`."""
        for _ in range(MAX_SETTLE_ROUNDS):
            changed = 0
            for index, share in enumerate(selection.shares):
                if not index % STEP_PAGES:
                    yield
                segment = self._holding(share)
                gone = _gone(segment, share)
                if gone != share.before:
                    _measure(segment, share, gone)
                    changed += 1
                    yield
            if changed <= MAX_UNSETTLED_PAGES:
                return

    def _group(self, selection: Selection) -> Steps[list[SegmentShares]]:
        """The shares of each segment together, so that `apply_selection` need not look at them one by one."""
        groups: list[SegmentShares] = []
        by_segment: dict[int, list[Share]] = {}
        for share in selection.shares:
            segment = self._holding(share)
            if segment is not None and share.count:
                by_segment.setdefault(segment.first_seq, []).append(share)
        for shares in by_segment.values():
            yield
            first, last = shares[0].first, shares[-1]
            segment = self._holding(last)
            if segment is None:
                continue
            before = segment.gone_between(first, last.first + len(last.chosen))
            after = bytearray(before)
            group = SegmentShares(first, before, b"", 0, 0, shares)
            for index, share in enumerate(shares):
                if not index % STEP_PAGES:
                    yield
                start = share.first - first
                gone = before[start : start + len(share.chosen)]
                if gone != share.before:
                    _measure(self._holding(share), share, gone)
                after[start : start + len(share.chosen)] = both(gone, share.chosen)
                group.count += share.count
                group.size += share.size
            group.after = bytes(after)
            groups.append(group)
        return groups

    def apply_selection(self, selection: Selection) -> int:
        """Delete the chosen records that are still live, all at once. Answers how many that took away."""
        taken = 0
        emptied = False
        for group in selection.groups:
            segment = self._holding(group.shares[-1])
            if segment is None:
                continue
            count, size = self._mark(segment, group)
            taken += count
            self._take_away(count, size)
            emptied = emptied or not segment.live
        if taken:
            self._totals.deleted += taken
            self._earliest = self._oldest_ts = None
            if emptied:
                self._drop_empty()
            if self.leases is not None:
                self.leases.forget_gone(taken, selection.seqs, self.is_live)
        return taken

    def _mark(self, segment: Segment, group: SegmentShares) -> tuple[int, int]:
        """Set the flags of the group's records. Answers how many were live, and their bytes."""
        stop = group.first + len(group.before)
        gone = segment.gone_between(group.first, stop)
        count, size, after = group.count, group.size, group.after
        if gone != group.before:
            # Others have taken records since the group was made.
            flags = bytearray(gone)
            count = size = 0
            for share in group.shares:
                start = share.first - group.first
                now = gone[start : start + len(share.chosen)]
                if now != share.before:
                    _measure(segment, share, now)
                flags[start : start + len(share.chosen)] = both(now, share.chosen)
                count += share.count
                size += share.size
            after = bytes(flags)
        # The front of a hot segment may have been left out when it was sealed: nothing there was live.
        cut = max(segment.first_seq - group.first, 0)
        segment.mark(group.first + cut, after[cut:])
        segment.marked(group.first + cut, stop, count, size)
        return count, size

    def _holding(self, share: Share) -> Segment | None:
        """The segment that holds the share's last record; None when all of its records are gone."""
        last = share.first + len(share.chosen) - 1
        index = bisect_right(self._starts, last) - 1
        if index < 0 or last > self.segments[index].last_seq:
            return None
        return self.segments[index]

    def forget_tags(self, match: TagMatch) -> Steps[None]:
        """After a delete by tag: drop gone records from the index. A hint, for memory's sake."""
        for segment in list(self.segments):
            yield from segment.forget(match)

    @property
    def has_stale_tags(self) -> bool:
        """Whether `tidy_tags` has something to do."""
        return bool(self._unused_tags) or any([segment.has_stale_tags for segment in self.segments])

    def tidy_tags(self) -> Steps[None]:
        """Do with the tag indexes what was left for later."""
        while self._unused_tags:
            yield from self._unused_tags.pop().tidy()
        for segment in list(self.segments):
            yield from segment.tidy_tags()

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
        return self.kill_runs(list(zip(bounds[::2], bounds[1::2], strict=True)))

    def kill_runs(self, runs: list[tuple[int, int]]) -> int:
        """Delete these runs of records (first seq, first seq behind), in ascending order. Return how many were live."""
        if self.leases is not None:
            self.leases.forget_runs(runs)
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
        for segment in self.segments_from(first):
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

    # Looking up records

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
            oldest = self._oldest_ts = self.ts_at(self.earliest_seq)
        return oldest

    def ts_at(self, seq: int) -> int:
        """The `$ts` of a live record; of one that cannot be read, the earliest it can have."""
        segment = self.segment_at(seq)
        if seq == segment.first_seq:
            # The segment knows it: most logs need no page to be read for their oldest time.
            return segment.first_ts
        try:
            page = segment.page_at(seq)
        except CorruptStorage:
            return segment.first_ts
        return page_times(page)[seq - page.first_seq]

    @property
    def written_seq(self) -> int:
        """The last seq that a reader of unsynced records may get: all up to it are synced or in `unsynced`.

        `unsynced` lacks some records that wait for a sync (those of a commit over several topics, a gap). Readers get nothing
        after those until they are synced.
        """
        seq = self.head_seq
        for page in self.unsynced:
            if page.first_seq != seq + 1:
                break
            seq = page.last_seq
        return seq

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
        """The page that holds this record; None when it is not live."""
        return self.segments[bisect_right(self._starts, seq) - 1].page_at(seq) if self.is_live(seq) else None

    def is_live(self, seq: int) -> bool:
        index = bisect_right(self._starts, seq) - 1
        return index >= 0 and self.segments[index].is_live(seq)

    def segment_at(self, seq: int) -> Segment:
        """The segment of a live record."""
        return self.segments[bisect_right(self._starts, seq) - 1]

    def segments_from(self, seq: int) -> Iterator[Segment]:
        """The segment that holds `seq`, or the one before, and all after it."""
        segments = self.segments
        for index in range(max(bisect_right(self._starts, seq) - 1, 0), len(segments)):
            yield segments[index]

    def live_between(self, first: int, last: int) -> int:
        """How many of the records first..last are live. Readers compare it with what a page holds."""
        start = max(bisect_right(self._starts, first) - 1, 0)
        return sum(
            [segment.live_between(first, last) for segment in self.segments[start : bisect_right(self._starts, last)]]
        )

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

    def live_run(self, seq: int, max_records: int) -> tuple[int, int] | None:
        """The first live seq at or after `seq`, and the end of the run of live seqs from there, cut after `max_records`.

        The run may end early where a segment does.
        """
        if seq < self.evict_floor or seq < self.delete_below:
            seq = max(self.evict_floor, self.delete_below)
        segments = self.segments
        index = max(bisect_right(self._starts, seq) - 1, 0)
        while index < len(segments):
            run = segments[index].live_run(seq, max_records)
            if run is not None:
                return run
            index += 1
        return None

    def pages_from(self, seq: int, max_records: int) -> list[Page]:
        """Pages for about `max_records` records, starting with the page that holds a live record; at least that one."""
        return self.segments[bisect_right(self._starts, seq) - 1].pages_from(seq, max_records)

    def page_at(self, seq: int) -> Page:
        """The page around a record that is known to be live."""
        return self.segments[bisect_right(self._starts, seq) - 1].page_at(seq)

    # Segments

    def close_hot(self) -> HotSegment | None:
        """No more records go into the open hot segment; it may be sealed. None when there is nothing to seal."""
        hot = self.segments[-1] if self.segments else None
        if not isinstance(hot, HotSegment) or not hot.open or not hot.live:
            return None
        hot.close()
        return hot

    @property
    def hot_bytes(self) -> int:
        """What the hot segments hold in memory, gone records included."""
        return sum([segment.held_bytes for segment in self.segments if isinstance(segment, HotSegment)])

    def drop_dead_hot(self) -> None:
        """Drop the open hot segment when all its records are gone: it holds memory and can never be sealed."""
        hot = self.segments[-1] if self.segments else None
        if isinstance(hot, HotSegment) and not hot.live:
            self.segments.pop()
            self._starts.pop()

    def drop_all(self) -> None:
        """Drop all records; the topic was deleted."""
        self._take_away(self.count, self.bytes)
        if self.leases is not None:
            self.leases.clear()
        self.dropped += [segment for segment in self.segments if segment.sealed]
        for segment in self.segments:
            if isinstance(segment, HotSegment):
                self._drop_index(segment)
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
            if segment.is_damaged and segment.last_ts > cutoff:
                # Which of its records have expired cannot be read: they go together with the last of them.
                break
            alive_from = segment.first_at_or_after(cutoff + 1)
            last = segment.last_live_below(segment.last_seq + 1 if alive_from is None else alive_from)
            if last is not None:
                floor = last + 1
            if alive_from is not None:
                break
        return floor

    def _capped_floor(self, config: TopicConfig, records: int, size: int) -> int:
        """Where the floor must be for the caps to hold if there were `records` records of `size` bytes in all."""
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
            if segment.is_damaged:
                # Its records have no known sizes: they go together.
                return floor
            return max(floor, segment.floor_without(records - cap_records, size - cap_bytes))
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
        # A reader below the eviction floor gets one tombstone for everything below it. A delete does not remove holes.
        if self.holes and self.holes[0].last < self.evict_floor:
            self.holes = [hole for hole in self.holes if hole.last >= self.evict_floor]

    def end_replay(self) -> None:
        """Recovery has applied all facts. A segment whose saved flags have every delete had nothing left for the log to delete."""
        self._drop_empty()

    def _drop_empty(self) -> None:
        """Segments without a live record leave; the open one stays for the next append."""
        kept = []
        for segment in self.segments:
            if segment.live or (isinstance(segment, HotSegment) and segment.open and segment.last_seq == self.head_seq):
                kept.append(segment)
            elif isinstance(segment, HotSegment):
                self._drop_index(segment)
            else:
                self.dropped.append(segment)
        if len(kept) != len(self.segments):
            self.segments = kept
            self._starts = [segment.first_seq for segment in kept]

    def _drop_index(self, segment: HotSegment) -> None:
        """All records of the segment are gone; a large tag index is freed in steps, by `tidy_tags`."""
        segment.tags.gone_all()
        if segment.tags.is_stale:
            self._unused_tags.append(segment.tags)

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


def _gone(segment: Segment | None, share: Share) -> bytes:
    """Which records of the share are gone now."""
    stop = share.first + len(share.chosen)
    return b"\1" * len(share.chosen) if segment is None else segment.gone_between(share.first, stop)


def _measure(segment: Segment | None, share: Share, gone: bytes) -> None:
    if segment is None:
        share.before, share.chosen, share.count, share.size = gone, bytes(len(gone)), 0, 0
    else:
        segment.measure_share(share, gone)


def _overlap(one: Segment, other: Segment) -> bool:
    return one.first_seq <= other.last_seq and other.first_seq <= one.last_seq
