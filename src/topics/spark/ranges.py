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
        pieces = max(1, min(each.seqs, round(least * each.seqs / total)))
        size, rest = divmod(each.seqs, pieces)
        first = each.first
        for index in range(pieces):
            last = first + size - 1 + (index < rest)
            result.append(SeqRange(each.topic, each.partition, each.epoch, first, last))
            first = last + 1
    return result


def share(available: dict[tuple[str, int], int], most: int) -> dict[tuple[str, int], int]:
    """At most `most` seqs in all, each partition in proportion to what it has, none with something left out forever."""
    total = sum(available.values())
    if total <= most:
        return dict(available)
    result = {key: seqs * most // total for key, seqs in available.items()}
    left = most - sum(result.values())
    # What rounding left over goes to those that got least of what they have.
    for key in sorted(available, key=lambda key: (result[key] - available[key] * most / total, key)):
        if left <= 0:
            break
        if result[key] < available[key]:
            result[key] += 1
            left -= 1
    return result
