"""A delete by tag, prepared in steps and applied at once.

To find and to measure a million records takes seconds, but readers must see all of a delete or nothing of it. So the work
is divided:

    select   in steps: find the records by the tag index and measure them, page by page
    settle   in steps: measure again the pages whose records have changed since
    group    in steps: put the flags of each segment together
    apply    one step: set the flags of each segment, subtract what was measured (a million records: 1 ms)

A share is what the delete takes of one page. It remembers the flags that the page had when it was measured. If others
have taken records since, `apply` goes page by page and measures those that have changed, so each record is counted
once. A share names records by
seq, so it stays valid when its hot segment is sealed in between.
"""

import re
from array import array
from itertools import compress

from msgspec import Struct

from topics.model.facts import Deleted, DeletedRuns
from topics.model.steps import Steps

_RUN = re.compile(b"\1+")
# Runs that are turned into seqs in one step. Runs are short here: long ones stay runs.
STEP_RUNS = 1000


class Share(Struct):
    """What a delete takes of the records from `first` on."""

    first: int
    # 1 for each record that was gone when this was measured.
    before: bytes
    # 1 for each record that the delete takes; all of them were live.
    chosen: bytes
    count: int
    size: int


class SegmentShares(Struct):
    """Shares of one segment together: the flags of all seqs from `first` on, as they are and as they will be."""

    first: int
    before: bytes
    after: bytes
    count: int
    size: int
    shares: list[Share]


class Selection(Struct):
    """The records that a delete takes, in ascending order."""

    topic_id: int
    partition: int
    shares: list[Share]
    groups: list[SegmentShares] = []
    fact: Deleted | DeletedRuns | None = None

    @property
    def count(self) -> int:
        return sum([share.count for share in self.shares])

    def seqs(self) -> list[int]:
        return [
            seq
            for share in self.shares
            for seq in compress(range(share.first, share.first + len(share.chosen)), share.chosen)
        ]


def without(chosen: bytes, gone: bytes) -> bytes:
    """`chosen` without what is gone: one byte, 0 or 1, for each record of both."""
    if 1 not in gone:
        return chosen
    kept = int.from_bytes(chosen, "little") & ~int.from_bytes(gone, "little")
    return kept.to_bytes(len(chosen), "little")


def both(one: bytes, other: bytes) -> bytes:
    """What one of the two names, or both."""
    either = int.from_bytes(one, "little") | int.from_bytes(other, "little")
    return either.to_bytes(len(one), "little")


def fact_of(selection: Selection) -> Steps[Deleted | DeletedRuns]:
    """The fact that says which records are gone: as runs where that is shorter, else seq by seq."""
    bounds: array[int] = array("Q")
    count = 0
    for index, share in enumerate(selection.shares):
        for run in _RUN.finditer(share.chosen):
            first, stop = share.first + run.start(), share.first + run.end()
            if bounds and bounds[-1] == first:
                bounds[-1] = stop
            else:
                bounds.extend((first, stop))
        count += share.count
        if not index % 8:
            yield
    if len(bounds) <= count:
        return DeletedRuns(selection.topic_id, selection.partition, bounds.tobytes())
    seqs: array[int] = array("Q")
    for start in range(0, len(bounds), 2 * STEP_RUNS):
        for index in range(start, min(start + 2 * STEP_RUNS, len(bounds)), 2):
            seqs.extend(range(bounds[index], bounds[index + 1]))
        yield
    return Deleted(selection.topic_id, selection.partition, seqs.tobytes())
