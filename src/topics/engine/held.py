"""Held jobs: which one is under which grant.

Most deliveries are runs of neighbouring jobs that come back together. As long as none of its jobs goes another way such
a delivery is one entry, found by its first seq; the moment one does, it is taken apart into an entry for each job:

    runs    first seq -> grant, all of whose jobs are held
    jobs    seq -> grant

Runs begin in ascending order, so the one around a seq is found by halving; a delivery that begins further in front is
kept job by job from the start. (To grant 16 jobs and to take them back: 3 us as a run, 6 as jobs.)
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from msgspec import Struct

# Starts of runs that are gone are swept out when they outnumber the others by this.
SWEEP_LEAST = 1024


class Grant(Struct, eq=False):
    """One delivery: some jobs leased to one node until one deadline."""

    node: str
    # Differs for every delivery; together with the seq it makes the lease id.
    token: bytes
    deadline: int
    # A range, or a list when they are no neighbours.
    seqs: Sequence[int]
    # The jobs of one connection that are still with it, when they were pushed to a connection.
    basket: set[int] | None
    # How many of `seqs` are still held or leaving under this grant.
    open: int
    # All of it is leaving together; its jobs then stay where they are among the held ones.
    leaving: bool = False

    def lease_id(self, seq: int) -> str:
        # Decimal digits are hexadecimal ones too. The seq comes first, so that what follows it is the same for all jobs.
        return f"lease_{seq}{self.token.decode()}"


class Held:
    """The held jobs of one partition; `count` says how many."""

    __slots__ = ("_jobs", "_runs", "_starts", "count")

    def __init__(self) -> None:
        self.count = 0
        self._jobs: dict[int, Grant] = {}
        self._runs: dict[int, Grant] = {}
        self._starts: list[int] = []

    def __iter__(self) -> Iterator[int]:
        yield from self._jobs
        for grant in self._runs.values():
            yield from grant.seqs

    def items(self) -> Iterator[tuple[int, Grant]]:
        yield from self._jobs.items()
        for grant in self._runs.values():
            for seq in grant.seqs:
                yield seq, grant

    def add(self, grant: Grant) -> None:
        """All jobs of the grant, none of which is held, are held under it."""
        seqs = grant.seqs
        self.count += grant.open
        if isinstance(seqs, range) and grant.open > 1:
            first = seqs.start
            starts = self._starts
            if not starts or first > starts[-1]:
                if len(starts) > 2 * len(self._runs) + SWEEP_LEAST:
                    starts[:] = [start for start in starts if start in self._runs]
                starts.append(first)
                self._runs[first] = grant
                return
        self._jobs.update(dict.fromkeys(seqs, grant))

    def put(self, seqs: Sequence[int], grant: Grant) -> None:
        """These jobs, some of those of the grant, are held under it again."""
        self.count += len(seqs)
        self._jobs.update(dict.fromkeys(seqs, grant))

    def get(self, seq: int) -> Grant | None:
        """The grant the job is held under."""
        grant = self._jobs.get(seq)
        return grant if grant is not None or not self._runs else self._around(seq)

    def run(self, first: int) -> Grant | None:
        """The delivery that begins with this job, while it is whole."""
        return self._runs.get(first)

    def pop(self, seq: int) -> Grant | None:
        """The job is not held any more; answers the grant it was held under, if it was."""
        grant = self._jobs.pop(seq, None)
        if grant is None and self._runs:
            grant = self._around(seq)
            if grant is not None:
                del self._runs[grant.seqs[0]]
                self._jobs.update(dict.fromkeys(grant.seqs, grant))
                del self._jobs[seq]
        if grant is not None:
            self.count -= 1
        return grant

    def remove(self, grant: Grant) -> Sequence[int]:
        """All jobs held under this grant are not held any more. Answers which."""
        seqs = grant.seqs
        if self._runs.get(seqs[0]) is grant:
            del self._runs[seqs[0]]
        else:
            jobs = self._jobs
            seqs = [seq for seq in seqs if jobs.get(seq) is grant]
            for seq in seqs:
                del jobs[seq]
        self.count -= len(seqs)
        return seqs

    def _around(self, seq: int) -> Grant | None:
        starts = self._starts
        index = bisect_right(starts, seq) - 1
        # Between a start and a job of its run no other run ever began while that one was whole.
        grant = self._runs.get(starts[index]) if index >= 0 else None
        return grant if grant is not None and seq <= grant.seqs[-1] else None
