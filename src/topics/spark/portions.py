"""Portions: a batch that is more than the server keeps in stages is routed a part at a time.

A batch is one portion. When there is no room for its messages, its seqs are taken some thousand at a time, and where that is
still too much, some hundred. Each portion is committed under a number of its own. Numbers rise in the order in which portions
are routed, and where a portion begins and ends depends on the batch alone: so the fence of the producer, one number, tells
whoever runs the batch again which portions are done.

    batch << 24 | chunk << 8 | piece        a whole chunk is piece 255, a whole batch chunk 65,535
"""

from msgspec import Struct

from topics.spark.ranges import SeqRange

# Seqs in a chunk and in a piece. Not to be changed: a batch that was begun before would be divided elsewhere.
CHUNK_SEQS = 2500
PIECE_SEQS = 100
_WHOLE_CHUNK = (1 << 8) - 1
_WHOLE_BATCH = (1 << 24) - 1


class Portion(Struct, frozen=True):
    """Ranges that are committed together. `begins` is the lowest number that a part of it can have."""

    begins: int
    number: int
    ranges: list[SeqRange]

    @property
    def depth(self) -> int:
        """0 for a batch, 1 for a chunk, 2 for a piece."""
        if self.number & _WHOLE_BATCH == _WHOLE_BATCH:
            return 0
        return 1 if self.number & _WHOLE_CHUNK == _WHOLE_CHUNK else 2

    def parts(self) -> list["Portion"]:
        """The same seqs in smaller portions, in order; none when there are no smaller ones."""
        if self.depth == 0:
            return [
                Portion(self.begins | index << 8, self.begins | index << 8 | _WHOLE_CHUNK, ranges)
                for index, ranges in enumerate(_chunks(self.ranges, CHUNK_SEQS))
            ]
        if self.depth == 1:
            return [
                Portion(self.begins | index, self.begins | index, ranges)
                for index, ranges in enumerate(_chunks(self.ranges, PIECE_SEQS))
            ]
        return []


def whole_batch(batch: int, ranges: list[SeqRange]) -> Portion:
    ranges = sorted(ranges, key=lambda each: (each.topic, each.partition, each.first))
    return Portion(batch << 24, batch << 24 | _WHOLE_BATCH, ranges)


def _chunks(ranges: list[SeqRange], most: int) -> list[list[SeqRange]]:
    """The seqs in order, so many together."""
    result: list[list[SeqRange]] = [[]]
    room = most
    for each in ranges:
        first = each.first
        while first <= each.last:
            if not room:
                result.append([])
                room = most
            last = min(each.last, first + room - 1)
            result[-1].append(SeqRange(each.topic, each.partition, each.epoch, first, last))
            room -= last - first + 1
            first = last + 1
    return [chunk for chunk in result if chunk]
