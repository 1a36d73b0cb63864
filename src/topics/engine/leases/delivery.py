"""Deliveries, and an index that finds the delivery under which a job is leased.

Most deliveries are runs of consecutive jobs that are acked together. The index holds such a delivery as one entry under its
first seq until one of its jobs leaves separately; then it is split into one entry per job:

    runs    first seq -> delivery, all of whose jobs are leased
    jobs    seq -> delivery

Runs start in ascending order, so the run that contains a seq is found by bisection. A delivery that starts before the last run
is indexed job by job from the beginning. (Leasing and acking 16 jobs: 3 us as a run, 6 us as jobs.)
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct

# Starts of removed runs are dropped from the list when they exceed twice the existing ones by this number.
MIN_SWEEP = 1024


class Delivery(Struct, eq=False):
    """Jobs leased together to one node until one deadline."""

    node: str
    # Different for every delivery; together with the seq it makes the lease id.
    token: bytes
    deadline: int
    # A range when the jobs are consecutive, else a list.
    seqs: Sequence[int]
    # The leased jobs of the connection they were pushed to; None for a delivery to a single request.
    connection_jobs: set[int] | None
    # How many of `seqs` are LEASED or COMMITTING under this delivery.
    open: int
    # All of `seqs` are COMMITTING together. They stay in the index of leased jobs meanwhile.
    committing: bool = False

    def lease_id(self, seq: int) -> str:
        # Decimal digits are hexadecimal digits too. The seq comes first, so the rest is the same for all jobs.
        return f"lease_{seq}{self.token.decode()}"


class LeasedJobs:
    """The leased jobs of one partition, each with its delivery. `count` is their number."""

    __slots__ = ("_jobs", "_runs", "_starts", "count")

    def __init__(self) -> None:
        self.count = 0
        self._jobs: dict[int, Delivery] = {}
        self._runs: dict[int, Delivery] = {}
        self._starts: list[int] = []

    def __iter__(self) -> Iterator[int]:
        yield from self._jobs
        for delivery in self._runs.values():
            yield from delivery.seqs

    def items(self) -> Iterator[tuple[int, Delivery]]:
        yield from self._jobs.items()
        for delivery in self._runs.values():
            for seq in delivery.seqs:
                yield seq, delivery

    @property
    def index_entries(self) -> int:
        """The memory the index uses, in entries: finished deliveries must not add to it without bound."""
        return len(self._jobs) + len(self._starts)

    def add(self, delivery: Delivery) -> None:
        """Add all jobs of the delivery, none of which is leased."""
        seqs = delivery.seqs
        self.count += delivery.open
        if isinstance(seqs, range) and delivery.open > 1:
            first = seqs.start
            starts = self._starts
            if not starts or first > starts[-1]:
                if len(starts) > 2 * len(self._runs) + MIN_SWEEP:
                    starts[:] = [start for start in starts if start in self._runs]
                starts.append(first)
                self._runs[first] = delivery
                return
        self._jobs.update(dict.fromkeys(seqs, delivery))

    def put(self, seqs: Sequence[int], delivery: Delivery) -> None:
        """Add some jobs of the delivery again."""
        self.count += len(seqs)
        self._jobs.update(dict.fromkeys(seqs, delivery))

    def get(self, seq: int) -> Delivery | None:
        """The delivery under which the job is leased; None when it is not leased."""
        delivery = self._jobs.get(seq)
        return delivery if delivery is not None or not self._runs else self._run_around(seq)

    def run(self, first: int) -> Delivery | None:
        """The delivery that starts with this job, if all its jobs are still leased."""
        return self._runs.get(first)

    def pop(self, seq: int) -> Delivery | None:
        """Remove the job; return the delivery under which it was leased, or None."""
        delivery = self._jobs.pop(seq, None)
        if delivery is None and self._runs:
            delivery = self._run_around(seq)
            if delivery is not None:
                del self._runs[delivery.seqs[0]]
                self._jobs.update(dict.fromkeys(delivery.seqs, delivery))
                del self._jobs[seq]
        if delivery is not None:
            self.count -= 1
        return delivery

    def remove(self, delivery: Delivery) -> Sequence[int]:
        """Remove all jobs leased under this delivery; return their seqs."""
        seqs = delivery.seqs
        if self._runs.get(seqs[0]) is delivery:
            del self._runs[seqs[0]]
        else:
            jobs = self._jobs
            seqs = [seq for seq in seqs if jobs.get(seq) is delivery]
            for seq in seqs:
                del jobs[seq]
        self.count -= len(seqs)
        return seqs

    def _run_around(self, seq: int) -> Delivery | None:
        starts = self._starts
        index = bisect_right(starts, seq) - 1
        # While a run is whole, no other run starts between its first and last job.
        delivery = self._runs.get(starts[index]) if index >= 0 else None
        return delivery if delivery is not None and seq <= delivery.seqs[-1] else None
