"""Ranges: which seqs of which partition a task reads. Plain values that the driver makes and executors receive."""

from typing import Any

from msgspec import Struct

# Ranges share a task up to this many seqs. More when there is much to read, so that the number of tasks stays near
# MAX_SHARED_TASKS, but no more than MAX_SHARED_SEQS, which is one page of the server.
MIN_SHARED_SEQS = 5_000
MAX_SHARED_SEQS = 50_000
MAX_SHARED_TASKS = 64


class SeqRange(Struct, frozen=True):
    """Seqs first..last of one partition, of one instance of the topic."""

    topic: str
    partition: int
    epoch: int
    first: int
    last: int
    # Index of the server in the option `url`.
    server: int = 0

    def between(self, first: int, last: int) -> "SeqRange":
        """Seqs first..last of the same partition."""
        return SeqRange(self.topic, self.partition, self.epoch, first, last, self.server)

    @property
    def seqs(self) -> int:
        return self.last - self.first + 1


class Part(Struct, frozen=True):
    """A range, and the files to read it from if it lies in an archive."""

    wanted: SeqRange
    uri: str | None = None
    files: tuple[Any, ...] = ()


def cut(ranges: list[SeqRange], min_ranges: int) -> list[SeqRange]:
    """The same seqs in at least `min_ranges` ranges where there are as many seqs, longer ranges cut more often. In order."""
    ranges = [each for each in ranges if each.seqs > 0]
    total = sum([each.seqs for each in ranges])
    if not ranges or len(ranges) >= min_ranges:
        return ranges
    result = []
    for each in ranges:
        # Rounded up: rounded to the nearest, many short ranges could together fall below what was asked for.
        pieces = min(each.seqs, -(-min_ranges * each.seqs // total))
        size, rest = divmod(each.seqs, pieces)
        first = each.first
        for index in range(pieces):
            last = first + size - 1 + (index < rest)
            result.append(each.between(first, last))
            first = last + 1
    return result


def cut_to(ranges: list[SeqRange], max_seqs: int | None) -> list[SeqRange]:
    """The same seqs in ranges of at most `max_seqs`, in order."""
    if max_seqs is None:
        return ranges
    return [
        each.between(first, min(each.last, first + max_seqs - 1))
        for each in ranges
        for first in range(each.first, each.last + 1, max_seqs)
    ]


def pack(parts: list[Part], min_tasks: int, max_seqs: int | None = None) -> list[list[Part]]:
    """The parts for each task, in order: short parts share a task, and there are at least `min_tasks` tasks if possible.

    `max_seqs` is the largest number of seqs in a task of several parts. A task has a fixed cost of some tens of
    milliseconds, as much as reading some thousand records.
    """
    total = sum([each.wanted.seqs for each in parts])
    shared = min(MAX_SHARED_SEQS, max(MIN_SHARED_SEQS, total // MAX_SHARED_TASKS))
    if max_seqs is not None:
        shared = min(shared, max_seqs)
    tasks: list[list[Part]] = []
    seqs = 0
    for each in parts:
        if tasks and seqs + each.wanted.seqs <= shared:
            tasks[-1].append(each)
            seqs += each.wanted.seqs
        else:
            tasks.append([each])
            seqs = each.wanted.seqs
    while len(tasks) < min(min_tasks, len(parts)):
        index = max(range(len(tasks)), key=lambda number: len(tasks[number]))
        divided = tasks[index]
        tasks[index : index + 1] = [divided[: len(divided) // 2], divided[len(divided) // 2 :]]
    return tasks


def share(available: dict[tuple[str, int], int], max_seqs: int) -> dict[tuple[str, int], int]:
    """At most `max_seqs` seqs in all, but one at least of every partition that has some, so that none waits forever.

    What lies beyond that one is shared in proportion to what each partition has.
    """
    if sum(available.values()) <= max_seqs:
        return dict(available)
    result = {key: min(1, seqs) for key, seqs in available.items()}
    left = max_seqs - sum(result.values())
    total = sum(available.values()) - sum(result.values())
    if left <= 0 or total <= 0:
        return result
    remaining = left
    for key in available:
        extra = (available[key] - result[key]) * remaining // total
        result[key] += extra
        left -= extra
    # What rounding left over is less than one seq for each partition.
    for key in available:
        if left > 0 and result[key] < available[key]:
            result[key] += 1
            left -= 1
    return result
