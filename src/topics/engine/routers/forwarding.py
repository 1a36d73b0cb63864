"""Pure decisions of forwarding: which records a run holds, what was lost before them, and which copies exist already."""

from collections.abc import Sequence

from topics.engine.partitions.partition import Partition
from topics.engine.routers.copying import (
    CLEAR_NODE,
    CLEAR_TAG,
    STAMP,
    Columns,
    Selection,
    gather,
    matching,
    picked,
    shaped,
    stamped,
    stamped_seqs,
)
from topics.engine.routers.router import Router
from topics.engine.topics.topic import Topic
from topics.model.records.match import TagMatch

# Pages of a dest that are searched for earlier copies in one turn.
MAX_SEARCH_PAGES = 32


class RunTexts:
    """A selection of records with their texts, gathered and shaped once for all routers with the same options."""

    def __init__(self, partition: Partition, selection: Selection) -> None:
        self.selection = selection
        self._partition = partition
        self._columns: list[Columns] | None = None
        self._shaped: dict[int, list[Columns]] = {}

    def matching(self, match: TagMatch) -> list[int]:
        positions: list[int] = []
        start = 0
        for columns in self._gathered():
            positions += [start + position for position in matching(columns, match)]
            start += columns.count
        return positions

    def shaped(self, positions: list[int] | None, copy_flags: int) -> tuple[Sequence[int], list[Columns]]:
        """The chosen records' seqs and texts."""
        seqs = self.selection.seqs
        if positions is None or len(positions) == len(seqs):
            kept = self._shaped.get(copy_flags)
            if kept is None:
                kept = self._shaped[copy_flags] = [shaped(columns, copy_flags) for columns in self._gathered()]
            return seqs, kept
        result: list[Columns] = []
        start = 0
        at = 0
        for columns in self._gathered():
            stop = at
            while stop < len(positions) and positions[stop] < start + columns.count:
                stop += 1
            if stop > at:
                result.append(shaped(picked(columns, [each - start for each in positions[at:stop]]), copy_flags))
            at = stop
            start += columns.count
        return [seqs[position] for position in positions], result

    def _gathered(self) -> list[Columns]:
        if self._columns is None:
            # The records were found live just now, so none is missing.
            self._columns = [
                each for each in gather(self._partition.find, self.selection.seqs) if not isinstance(each, int)
            ]
        return self._columns


def copy_options(router: Router) -> int:
    """The bits that a `Copy` stores: what a copy leaves out, and whether it is stamped."""
    options = router.options
    copy_flags = 0 if options.preserve_node else CLEAR_NODE
    if not options.preserve_tag:
        copy_flags |= CLEAR_TAG
    return copy_flags | STAMP if options.exactly_once else copy_flags


def stamp_all(columns: list[Columns], seqs: Sequence[int], router: Router, source: Topic, number: int) -> list[Columns]:
    """Add the stamp of each record: where it comes from."""
    result = []
    at = 0
    for each in columns:
        result.append(stamped(each, seqs[at : at + each.count], router.name, source.name, source.epoch, number))
        at += each.count
    return result


def run_bound(partition: Partition, cursor: int) -> int:
    """The last seq of a run from the cursor: a run ends before the next hole."""
    bound = partition.head_seq
    for hole in partition.holes:
        if hole.first > cursor:
            return min(bound, hole.first - 1)
    return bound


def lost_after(partition: Partition, cursor: int) -> tuple[int, int] | None:
    """The range right after the cursor that the source lost before the router forwarded it; None if there is none.

    Records that were deleted on purpose are not reported.
    """
    if partition.evict_floor > cursor + 1:
        return cursor + 1, partition.evict_floor - 1
    for hole in partition.holes:
        if hole.last > cursor:
            live = partition.next_live(cursor + 1)
            return (max(cursor + 1, hole.first), hole.last) if live is None or live > hole.last else None
    return None


class EarlierCopies:
    """Copies that the dest holds from an earlier router of the same name, searched page by page. `seqs`: source seq -> dest seq."""

    def __init__(self) -> None:
        self.seqs: dict[int, int] = {}
        self.next_seq = 1
        self.complete = False

    def search(self, partition: Partition, prefix: bytes) -> None:
        """Search some more pages of the dest."""
        seq: int | None = self.next_seq
        for _ in range(MAX_SEARCH_PAGES):
            seq = partition.next_live(self.next_seq)
            if seq is None:
                self.complete = True
                return
            page = partition.segment_at(seq).page_at(seq)
            self.seqs.update(stamped_seqs(page, prefix))
            self.next_seq = page.last_seq + 1

    def has_copy(self, partition: Partition, seq: int) -> bool:
        """Whether the dest holds a live copy of this record of the source."""
        copy_seq = self.seqs.get(seq)
        return copy_seq is not None and partition.is_live(copy_seq)
