"""Reading a partition: what a reader at a cursor gets, and the tombstone for what it can no longer get.

    read_records    records as JSON, up to a limit and a budget, as far as one step goes
    plan_read       the runs of records that a bulk reader gets
    read_unsynced   records that are written and not synced, for readers that accept them
    list_ranges     which seqs are live, evicted, lost or deleted

Nothing here changes the partition.
"""

from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from topics.engine.partitions.partition import Partition
from topics.engine.partitions.render import Rendering, View, is_usual, render_records, wanted
from topics.engine.partitions.segment import Segment
from topics.model.errors import CorruptStorage
from topics.model.facts import CAP, DAMAGE, RESTART, SOURCE_TRIM, TTL
from topics.model.records.page import Page, page_weight, record_sizes
from topics.model.steps import Steps

# A read that leaves out records (of nodes, or deleted ones) examines about this many bytes of records in one step, a record
# counting at least as the second says: 10,000 small records, which takes 1 to 2 ms.
MAX_SCAN_BYTES = 8 << 20
MIN_SCAN_COST = 800
# Runs of live records that `list_ranges` looks at in one step.
RANGES_PER_STEP = 200


class Tombstone(Struct, frozen=True, omit_defaults=True):
    """Records gap_from..gap_to are lost and this reader has not seen them; the JSON form is part of every answer.

    `gap_from` is never greater than `gap_to`. A topic that was created again and has lost nothing answers 0..0, a range
    without a record, and `missed_estimate` 0.
    """

    gap_from: int
    gap_to: int
    reason: str
    missed_estimate: int
    earliest_seq: int
    head_seq: int
    cause: str | None = None


class Read(Struct):
    """One answer to a reader: rendered records (comma between them) and where to continue.

    `unfinished`: the work of one step was done before a record was found and before the end; read on from `next_from_seq`.
    """

    records: bytes
    count: int
    next_from_seq: int
    scanned: int
    tombstone: Tombstone | None
    unfinished: bool = False


class SeqRange(Struct):
    """A range of seqs that are all live, evicted, lost or deleted."""

    kind: str
    first_seq: int
    last_seq: int
    reason: str | None = None


class Run(Struct):
    """Records first..last of one segment; `flags` says which of them are gone, None when all are there."""

    segment: Segment
    first: int
    last: int
    flags: bytes | None


class Plan(Struct):
    """What a bulk reader gets, and where it continues."""

    runs: list[Run]
    next_from_seq: int
    scanned: int
    tombstone: Tombstone | None


def read_records(
    partition: Partition,
    from_seq: int,
    limit: int,
    budget: int,
    view: View,
    *,
    to_seq: int | None = None,
    recreated: bool = False,
) -> Read:
    """Up to `limit` records and about `budget` bytes (at least one record) after `from_seq`, as far as one step goes.

    `recreated`: the cursor is known to come from an earlier instance of the topic. Raises CorruptStorage when the
    next record is damaged on disk; records before it are answered first.
    """
    seq, last, tombstone = _enter(partition, from_seq, to_seq, recreated)
    if seq > last:
        return Read(b"", 0, max(last, seq - 1) if tombstone else max(from_seq, last), 0, tombstone)
    try:
        read = _collect(partition, seq, last, limit, budget, view)
    except CorruptStorage as error:
        damaged = seq if error.records is None else max(seq, error.records[0])
        if damaged == seq and tombstone is None:
            raise
        # What comes before the damaged records is answered; the next read meets them.
        if damaged == seq:
            return Read(b"", 0, seq - 1, 0, tombstone)
        read = _collect(partition, seq, damaged - 1, limit, budget, view)
    read.tombstone = tombstone
    return read


def plan_read(
    partition: Partition, from_seq: int, limit: int, budget: int, *, to_seq: int | None = None, recreated: bool = False
) -> Plan:
    """The runs of records that a bulk reader gets: at most `limit` seqs and about `budget` bytes, at least one record.

    `next_from_seq` is the last seq that was examined: no live record up to it is missing from the runs.
    """
    seq, last, tombstone = _enter(partition, from_seq, to_seq, recreated)
    if seq > last:
        return Plan([], max(last, seq - 1) if tombstone else max(from_seq, last), 0, tombstone)
    last = min(last, seq + limit - 1)
    runs: list[Run] = []
    bytes_left = budget
    examined = last
    for segment, first, stop in _live_parts(partition, seq, last):
        # The sizes of a segment's records are taken to be equal: a page that is a little larger or smaller does no harm.
        record_bytes = max(1, segment.live_bytes // max(1, segment.live))
        fitting = bytes_left // record_bytes
        if runs and not fitting:
            examined = runs[-1].last
            break
        run_last = min(stop, first + max(1, fitting) - 1)
        runs.append(Run(segment, first, run_last, segment.flags_between(first, run_last)))
        bytes_left -= (run_last - first + 1) * record_bytes
        if run_last < stop:
            examined = run_last
            break
    return Plan(runs, examined, examined - seq + 1, tombstone)


def read_unsynced(partition: Partition, from_seq: int, limit: int, budget: int, view: View) -> Read:
    """The same as `read` over what is written but not synced; `from_seq` must not lie before the head."""
    texts: list[bytes] = []
    examined = from_seq
    bytes_left = budget
    written_seq = partition.written_seq
    for page in partition.unsynced:
        if page.last_seq <= from_seq:
            continue
        if page.first_seq > written_seq:
            break
        sizes = record_sizes(page)
        chosen = wanted(page, range(max(0, from_seq + 1 - page.first_seq), page.count), view)
        for taken, position in enumerate(chosen):
            count = len(texts) + taken
            if count == limit or (count and sizes[position] > bytes_left):
                texts += render_records(page, chosen[:taken], view)
                examined = page.first_seq + position - 1
                return Read(b",".join(texts), count, examined, examined - from_seq, None)
            bytes_left -= sizes[position]
        texts += render_records(page, chosen, view)
        examined = page.last_seq
    return Read(b",".join(texts), len(texts), examined, examined - from_seq, None)


def list_ranges(partition: Partition, max_ranges: int) -> Steps[list[SeqRange]]:
    """All assigned seqs as ranges that are live, evicted, lost or deleted, in order: the last `max_ranges` of them."""
    found: deque[SeqRange] = deque(maxlen=max_ranges)
    floor = max(partition.evict_floor, partition.delete_below)
    if partition.evict_floor > 1:
        found.append(SeqRange("evicted", 1, partition.evict_floor - 1, _reason(partition.evict_reasons)))
    if floor > partition.evict_floor:
        found.append(SeqRange("deleted", partition.evict_floor, floor - 1))
    seq = floor
    steps = 0
    while seq <= partition.head_seq:
        steps += 1
        if not steps % RANGES_PER_STEP:
            yield
        run = partition.live_run(seq, partition.head_seq)
        first, stop = run if run is not None else (partition.head_seq + 1, partition.head_seq + 1)
        _add_gone(partition, found, seq, first - 1)
        if first < stop:
            last = found[-1] if found else None
            if last is not None and last.kind == "live" and last.last_seq == first - 1:
                last.last_seq = stop - 1
            else:
                found.append(SeqRange("live", first, stop - 1))
        seq = max(stop, seq + 1)
    return list(found)


def _enter(
    partition: Partition, from_seq: int, to_seq: int | None, recreated: bool
) -> tuple[int, int, Tombstone | None]:
    """Return where a reader at this cursor begins, where it must stop, and the tombstone it gets first."""
    head = partition.head_seq
    seq = from_seq + 1
    tombstone = None
    # A live reader may have got unsynced records and come back with their cursor before they are synced.
    if from_seq > partition.written_seq or recreated:
        # The reader has seen nothing of this instance: its own cursor says nothing about what it missed here.
        seq = partition.earliest_seq
        tombstone = _tombstone(partition, 1, seq - 1, "recreated")
    elif seq < partition.evict_floor:
        tombstone = _tombstone(
            partition, seq, partition.earliest_seq - 1, _reason(partition.evict_reasons), partition.evict_reasons
        )
        seq = partition.earliest_seq
    last = head if to_seq is None else min(head, to_seq)
    if partition.holes:
        for hole in partition.holes:
            if hole.last < seq:
                continue
            if hole.first > last:
                break
            if tombstone is not None or _any_live(partition, seq, hole.first - 1):
                last = hole.first - 1
                break
            # Records deleted right before the hole are skipped, and are not part of the tombstone.
            gap_from = max(from_seq + 1, hole.first)
            tombstone = _tombstone(partition, gap_from, hole.last, _reason(hole.reasons), hole.reasons)
            seq = hole.last + 1
    return seq, last, tombstone


def _any_live(partition: Partition, first: int, last: int) -> bool:
    if first > last:
        return False
    live = partition.next_live(first)
    return live is not None and live <= last


def _live_parts(partition: Partition, seq: int, last: int) -> Iterator[tuple[Segment, int, int]]:
    """Yield each segment with live records in seq..last, the first live seq there, and the last seq to examine.

    Every read goes through here. A reader that takes all of them has examined everything up to `last`; one that stops
    earlier has examined only what it took.
    """
    for segment in partition.segments_from(seq):
        if segment.first_seq > last:
            return
        first = segment.next_live(seq)
        if first is not None and first <= last:
            yield segment, first, min(segment.last_seq, last)


def _tombstone(partition: Partition, gap_from: int, gap_to: int, reason: str, reasons: int = 0) -> Tombstone:
    return Tombstone(
        min(gap_from, gap_to),
        gap_to,
        reason,
        max(0, gap_to - gap_from + 1),
        partition.earliest_seq,
        partition.head_seq,
        "restart" if reasons & RESTART else "damage" if reasons & DAMAGE else None,
    )


def _collect(partition: Partition, start: int, last: int, limit: int, budget: int, view: View) -> Read:
    """Records from `start` to `last`, page by page, until the limit, the budget or the work of one step is reached."""
    texts: list[bytes] = []
    left = limit
    bytes_left = budget
    scan_bytes_left = MAX_SCAN_BYTES
    unwanted = view.without_nodes
    for segment, seq, stop in _live_parts(partition, start, last):
        while seq <= stop:
            if unwanted:
                if scan_bytes_left <= 0:
                    return Read(b",".join(texts), limit - left, seq - 1, seq - start, None, unfinished=not texts)
                scan_cost = max(MIN_SCAN_COST, segment.live_bytes // segment.live)
                next_seq, found = segment.next_without(seq, min(stop, seq + scan_bytes_left // scan_cost), unwanted)
                scan_bytes_left -= (next_seq - seq) * scan_cost
                seq = next_seq
                if not found:
                    continue
            rendered = segment.text_at(seq, min(left, stop - seq + 1), bytes_left, view) if segment.sealed else None
            if rendered is not None:
                texts.append(rendered.text)
                bytes_left -= rendered.size
                left -= rendered.count
                seq += rendered.count
                if not left or bytes_left <= 0:
                    return Read(b",".join(texts), limit - left, seq - 1, seq - start, None)
                continue
            page = segment.run_at(seq, left, bytes_left)
            first_seq, count, size = page.first_seq, page.count, page.size
            page_last = min(first_seq + count - 1, stop)
            flags = segment.flags_between(seq, page_last)
            if flags is None and size <= bytes_left and is_usual(view, page):
                # The common case: all records of the page from here on, as many as are still wanted.
                taken = min(page_last - seq + 1, left)
                texts.append(_usual_text(partition, page, seq - first_seq, taken))
                bytes_left -= size if taken == count else size * taken // count + 1
                left -= taken
                seq += taken
                if not left or bytes_left <= 0:
                    return Read(b",".join(texts), limit - left, seq - 1, seq - start, None)
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
                if sizes[position] > bytes_left and (fitting or texts):
                    break
                bytes_left -= sizes[position]
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
            scan_bytes_left -= (examined + 1 - seq) * max(MIN_SCAN_COST, size // count)
            seq = examined + 1
            if fitting < len(chosen) or enough or bytes_left <= 0 or (texts and scan_bytes_left <= 0):
                return Read(b",".join(texts), limit - left, examined, seq - start, None)
            if flags is not None and seq <= stop:
                # Deleted records are passed by their flags alone, without a look at their pages.
                seq = segment.next_live(seq) or stop + 1
    return Read(b",".join(texts), limit - left, last, last - start + 1, None)


def _usual_text(partition: Partition, page: Page, start: int, count: int) -> bytes:
    # Keyed by the run of seqs, not by the object: folding makes new pages, a sealed page is read again each time.
    key = (partition.topic_id, partition.number, page.first_seq, page.count)
    rendering: Rendering | None = partition.texts.get(key)
    if rendering is None:
        rendering = Rendering(page)
        partition.texts.put(key, rendering, len(rendering.text) + page_weight(page) + 300)
    return rendering.text if count == page.count else rendering.cut(start, start + count)


def _add_gone(partition: Partition, found: deque[SeqRange], first: int, last: int) -> None:
    """Add what became of first..last, none of which is live: lost where there is a hole, deleted elsewhere."""
    for hole in partition.holes:
        if hole.last < first or hole.first > last:
            continue
        if hole.first > first:
            found.append(SeqRange("deleted", first, hole.first - 1))
        found.append(SeqRange("lost", max(first, hole.first), min(last, hole.last), _reason(hole.reasons)))
        first = hole.last + 1
    if first <= last:
        found.append(SeqRange("deleted", first, last))


def _reason(reasons: int) -> str:
    if reasons == CAP:
        return "cap"
    if reasons == TTL:
        return "ttl"
    if reasons == SOURCE_TRIM:
        return "source_trim"
    return "mixed"
