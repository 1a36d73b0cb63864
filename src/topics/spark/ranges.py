"""Ranges: which seqs of which partition a task reads. Plain values, made by the driver, sent to executors."""

from msgspec import Struct


class SeqRange(Struct, frozen=True):
    """Seqs first..last of one partition, of one instance of the topic."""

    topic: str
    partition: int
    epoch: int
    first: int
    last: int

    @property
    def seqs(self) -> int:
        return self.last - self.first + 1


def cut(ranges: list[SeqRange], least: int) -> list[SeqRange]:
    """The same seqs in at least `least` ranges where there are as many seqs, longer ranges cut more often. In order."""
    ranges = [each for each in ranges if each.seqs > 0]
    total = sum([each.seqs for each in ranges])
    if not ranges or len(ranges) >= least:
        return ranges
    result = []
    for each in ranges:
        # Rounded up: rounded to the nearest, many short ranges could together fall below what was asked for.
        pieces = min(each.seqs, -(-least * each.seqs // total))
        size, rest = divmod(each.seqs, pieces)
        first = each.first
        for index in range(pieces):
            last = first + size - 1 + (index < rest)
            result.append(SeqRange(each.topic, each.partition, each.epoch, first, last))
            first = last + 1
    return result


def share(available: dict[tuple[str, int], int], most: int) -> dict[tuple[str, int], int]:
    """At most `most` seqs in all, but one at least of every partition that has some, so that none waits forever.

    What lies beyond that one is shared in proportion to what each partition has.
    """
    if sum(available.values()) <= most:
        return dict(available)
    result = {key: min(1, seqs) for key, seqs in available.items()}
    left = most - sum(result.values())
    total = sum(available.values()) - sum(result.values())
    if left <= 0 or total <= 0:
        return result
    room = left
    for key in available:
        extra = (available[key] - result[key]) * room // total
        result[key] += extra
        left -= extra
    # What rounding left over is less than one seq for each partition.
    for key in available:
        if left > 0 and result[key] < available[key]:
            result[key] += 1
            left -= 1
    return result
