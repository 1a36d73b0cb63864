"""Leases: which job of a queue is with whom, until when, and which one is next.

A queue is a log whose live records are jobs. A job is in exactly one of these places:

    fresh     never handed out: at or behind the cursor, and nothing here knows it
    returned  handed out before and given back (nack, release, expiry), or delayed at first and due now; these go first
    delayed   not to be handed out before a moment
    held      leased to a node until a deadline
    leaving   held, and an ack or nack of it is on its way to the log
    moving    on its way to the dead-letter topic

    fresh, returned --take, grant--> held --leave--> leaving --forget--> gone (acked)
                                      |                 '--give_back--> returned, delayed (nacked)
                                      '--expire, give_back--> returned

What `take` hands out is granted, moved or put back before anybody else is served. Ready jobs are those live in the log
and in none of the other places, so both counters are differences of sizes: no job is ever walked over to count it.

One `Grant` stands for all jobs of one delivery, so expiry keeps one heap entry per delivery, not a timer per job;
entries of finished grants are swept out when they are the majority. Whoever looks first moves expired jobs over, and
nothing moves them back: a clock that jumps backwards does not revive a lease that was seen to be over.

No clock, no ids and no log in here: time and tokens are arguments, the broker writes the facts. What comes next has its
place: backoff and reject decide `due_ms` in `give_back`, priority and per-key order decide what `take` chooses from
`returned` and the cursor (and when `take_run` may go the short way), redrive is an append, pause is a `take` that answers
nothing.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from topics.engine.held import Grant, Held

if TYPE_CHECKING:
    from topics.engine.partition import Partition

# A pass that meets jobs which were delivered too often sets aside at most this many.
DEAD_MOST = 1000
# Finished grants wait in the heap for their deadline; it is swept when they outnumber the others by this.
SWEEP_LEAST = 1024
# So far ahead of the cursor fresh jobs are looked up at once.
AHEAD_MOST = 1024
_NONE = range(0)


# Some of the jobs of one delivery.
Part = tuple[Grant, Sequence[int]]


class Taken(Struct):
    """What a pass found: jobs to hand out, and jobs that were handed out too often already."""

    seqs: list[int]
    dead: list[int]


class GrantImage(Struct, array_like=True):
    """A grant as a snapshot or the log keeps it: `deliveries` counts this one, job by job."""

    node: str
    token: bytes
    deadline: int
    seqs: list[int]
    deliveries: list[int]


class LeaseImage(Struct):
    """The leases of a partition as a snapshot keeps them. `delayed` are (seq, due_ms, deliveries so far)."""

    dead_lettered: int = 0
    grants: list[GrantImage] = []
    returned: list[tuple[int, int]] = []
    delayed: list[tuple[int, int, int]] = []


class Leases:
    """The jobs of one partition of a queue that are anything but fresh."""

    def __init__(self) -> None:
        self.dead_lettered = 0
        # With those whose move is on its way to the log.
        self.dead_letters_decided = 0
        # The claims and the acks of this turn that are still being gathered, if any.
        self.claims: Any = None
        self.acks: Any = None
        # Called when jobs became free or a node has fewer of them; set while somebody waits for that.
        self.wake: Callable[[], None] | None = None
        self._floor = 1
        self._empty()

    def _empty(self) -> None:
        self._held = Held()
        self._leaving: dict[int, Grant] = {}
        self._moving: set[int] = set()
        self._returned: OrderedDict[int, None] = OrderedDict()
        self._delayed: dict[int, int] = {}
        # How often a job was delivered before; the delivery it is held under is not counted, and none is not kept.
        self._delivered: dict[int, int] = {}
        self._deadlines: list[tuple[int, int, Grant]] = []
        self._dues: list[tuple[int, int]] = []
        # Grants with a job still under them, and a number that makes heap entries differ.
        self._grants = 0
        self._order = 0
        self._cursor = 1
        # From the cursor up to here all jobs are known to be live and fresh.
        self._ahead = 1
        # Runs (first, last) of jobs behind the cursor that are not fresh, in order.
        self._skips: deque[tuple[int, int]] = deque()

    # Counting. Call `expire` first.

    def ready(self, count: int) -> int:
        """How many of the log's `count` live jobs can be claimed now."""
        return count - self._held.count - len(self._leaving) - len(self._delayed) - len(self._moving)

    @property
    def in_flight(self) -> int:
        return self._held.count + len(self._leaving)

    def deliveries(self, seq: int) -> int:
        """How often a held job was delivered, this time included."""
        return self._delivered.get(seq, 0) + 1

    def all_deliveries(self, seqs: Sequence[int]) -> list[int]:
        delivered = self._delivered
        if not delivered:
            return [1] * len(seqs)
        return [delivered.get(seq, 0) + 1 for seq in seqs]

    def finished(self, seqs: list[int]) -> list[int]:
        """How often jobs that nobody holds were delivered."""
        return [self._delivered.get(seq, 0) for seq in seqs]

    def next_due(self) -> int | None:
        """The first moment at which a job may become ready by itself; None when none will."""
        while self._deadlines and not self._deadlines[0][2].open:
            heappop(self._deadlines)
        expiry = self._deadlines[0][0] + 1 if self._deadlines else None
        due = self._dues[0][0] if self._dues else None
        if expiry is None or due is None:
            return due if expiry is None else expiry
        return min(expiry, due)

    # Handing out

    def expire(self, now_ms: int) -> list[int]:
        """Leases whose deadline has passed are over and delays that are due have ended. Answers the expired seqs."""
        dues = self._dues
        deadlines = self._deadlines
        if not (deadlines and deadlines[0][0] < now_ms) and not (dues and dues[0][0] <= now_ms):
            return []
        while dues and dues[0][0] <= now_ms:
            due, seq = heappop(dues)
            if self._delayed.get(seq) == due:
                del self._delayed[seq]
                self._returned[seq] = None
        expired: list[int] = []
        held = self._held
        while deadlines and deadlines[0][0] < now_ms:
            grant = heappop(deadlines)[2]
            if grant.open and not grant.leaving:
                # Those still leaving bring an entry of their own if they come back.
                over = held.remove(grant)
                for seq in over:
                    self._close(grant, seq)
                    self._return(seq)
                expired += over
        if self.wake is not None:
            self.wake()
        return expired

    def take_run(self, partition: "Partition", most: int) -> range:
        """Up to `most` fresh neighbours, for the caller to grant or put back, if those are what `take` would answer.

        Otherwise none: `take` knows. This is the way of nearly every claim (16 jobs: 0.5 us instead of 1.4), since
        what stands ahead is looked up once for many.
        """
        if self._returned:
            return _NONE
        first = self._cursor
        stop = first + most
        if stop > self._ahead:
            self._look_ahead(partition)
            first = self._cursor
            stop = first + most
            if stop > self._ahead:
                if self._ahead <= partition.head_seq:
                    return _NONE
                stop = self._ahead
        self._cursor = stop
        return range(first, stop)

    def _look_ahead(self, partition: "Partition") -> None:
        run = partition.live_run(self._cursor, AHEAD_MOST)
        skips = self._skips
        if run is None:
            return
        first, stop = run
        while skips and skips[0][1] < first:
            skips.popleft()
        if skips:
            stop = min(stop, skips[0][0])
        if first < stop:
            self._cursor, self._ahead = first, stop

    def take(self, partition: "Partition", most: int, max_deliveries: int) -> Taken:
        """Up to `most` jobs, returned ones first, then fresh ones, for the caller to grant or put back.

        Returned jobs that were delivered `max_deliveries` times (0: no bound) are set aside as dead and count as moving.
        """
        seqs: list[int] = []
        dead: list[int] = []
        returned = self._returned
        delivered = self._delivered
        while returned and len(seqs) < most and len(dead) < DEAD_MOST:
            seq, _ = returned.popitem(last=False)
            if max_deliveries and delivered.get(seq, 0) >= max_deliveries:
                dead.append(seq)
                self._moving.add(seq)
            else:
                seqs.append(seq)
        if len(seqs) < most and len(dead) < DEAD_MOST:
            self._take_fresh(partition, most - len(seqs), seqs)
        return Taken(seqs, dead)

    def _take_fresh(self, partition: "Partition", most: int, seqs: list[int]) -> None:
        skips = self._skips
        while most:
            run = partition.live_run(self._cursor, most)
            if run is None:
                # Whatever is appended later is the next candidate.
                self._cursor = max(self._cursor, partition.head_seq + 1)
                return
            first, stop = run
            while skips and skips[0][1] < first:
                skips.popleft()
            if skips:
                skip_first, skip_last = skips[0]
                if skip_first <= first:
                    self._cursor = skip_last + 1
                    continue
                stop = min(stop, skip_first)
            seqs.extend(range(first, stop))
            self._cursor = stop
            most -= stop - first

    def not_moved(self, seqs: Iterable[int]) -> None:
        """Dead jobs that could not be moved are still here; they go behind the other returned ones."""
        for seq in seqs:
            if seq in self._moving:
                self._moving.discard(seq)
                self._returned[seq] = None

    def grant(
        self, seqs: Sequence[int], node: str, token: bytes, deadline: int, basket: set[int] | None = None
    ) -> Grant:
        """The jobs, all taken, are leased to the node."""
        grant = Grant(node, token, deadline, seqs, basket, len(seqs))
        self._held.add(grant)
        self._grants += 1
        self._order += 1
        heappush(self._deadlines, (deadline, self._order, grant))
        if basket is not None:
            basket.update(seqs)
        return grant

    def undo(self, grant: Grant) -> None:
        """The delivery did not happen: its jobs are returned and it is not counted."""
        for seq in reversed(self._held.remove(grant)):
            self._close(grant, seq)
            self._returned[seq] = None
            self._returned.move_to_end(seq, last=False)
        if self.wake is not None:
            self.wake()

    # What holders do

    def held_by(self, node: str, seqs: list[int], lease_ids: list[str] | None) -> tuple[list[Part], list[int]]:
        """Those of `seqs` that the node holds, under these lease ids if given, by their grant; and those it does not."""
        held = self._held
        if lease_ids is None:
            # Usually the jobs of one delivery come back together (16 of them: 1 us so, 6 us one by one).
            one = len(seqs) == 1
            grant = held.get(seqs[0]) if one else held.run(seqs[0])
            if grant is not None and grant.node == node and not grant.leaving:
                if one:
                    return [(grant, seqs)], []
                if len(seqs) == grant.open and seqs == list(grant.seqs):
                    return [(grant, grant.seqs)], []
        parts: dict[int, tuple[Grant, list[int]]] = {}
        chosen: set[int] = set()
        skipped: list[int] = []
        for index, seq in enumerate(seqs):
            grant = held.get(seq)
            if (
                grant is None
                or grant.leaving
                or grant.node != node
                or seq in chosen
                or (lease_ids is not None and lease_ids[index] != grant.lease_id(seq))
            ):
                skipped.append(seq)
            else:
                chosen.add(seq)
                parts.setdefault(id(grant), (grant, []))[1].append(seq)
        return [*parts.values()], skipped

    def leave(self, parts: list[Part]) -> None:
        """An ack or nack of these held jobs is on its way to the log: nobody else gets them meanwhile."""
        held = self._held
        for grant, seqs in parts:
            if len(seqs) == grant.open == len(grant.seqs):
                # Nothing of it ever went another way, so nothing else of it can be leaving.
                grant.leaving = True
            else:
                for seq in seqs:
                    held.pop(seq)
                self._leaving.update(dict.fromkeys(seqs, grant))

    def acked(self, parts: list[Part]) -> None:
        """The log has it: these jobs, which were leaving, are gone. `forget` can do this too, but does it one by one."""
        for grant, seqs in parts:
            if grant.leaving:
                gone = len(self._held.remove(grant))
            else:
                gone = len([seq for seq in seqs if self._leaving.pop(seq, None) is not None])
            self._close_all(grant, gone)
            if grant.basket is not None:
                grant.basket.difference_update(seqs)
        if self._delivered:
            for _, seqs in parts:
                for seq in seqs:
                    self._delivered.pop(seq, None)
        if self.wake is not None:
            self.wake()

    def stay(self, parts: list[Part]) -> None:
        """That did not reach the log: they are held as before, if they still exist."""
        for grant, seqs in parts:
            if grant.leaving:
                grant.leaving = False
            else:
                seqs = [seq for seq in seqs if self._leaving.pop(seq, None) is not None]
                self._held.put(seqs, grant)
            self._order += 1
            heappush(self._deadlines, (grant.deadline, self._order, grant))
        if self.wake is not None:
            # A deadline that has passed meanwhile was passed over.
            self.wake()

    def extend(self, parts: list[Part], deadline: int) -> list[Grant]:
        """The jobs, all held, are leased until `deadline`, under the lease ids they have. Answers the grants that say so."""
        extended = []
        for grant, seqs in parts:
            for seq in seqs:
                self._held.pop(seq)
                self._close(grant, seq)
            extended.append(self.grant(seqs, grant.node, grant.token, deadline, grant.basket))
        return extended

    def give_back(self, seqs: Iterable[int], due_ms: int | None) -> None:
        """Held or leaving jobs are returned, now or at `due_ms`; their delivery counts."""
        for seq in seqs:
            grant = self._held.pop(seq) or self._leaving.pop(seq, None)
            if grant is not None:
                self._close(grant, seq)
                self._return(seq, due_ms)
        if self.wake is not None:
            self.wake()

    def of_basket(self, basket: set[int]) -> list[int]:
        """The jobs still held under deliveries into this basket."""
        held = [(seq, self._held.get(seq)) for seq in sorted(basket)]
        return [seq for seq, grant in held if grant is not None and grant.basket is basket and not grant.leaving]

    def of_grant(self, grant: Grant) -> list[int]:
        """The jobs still held under this delivery."""
        return [seq for seq in grant.seqs if self._held.get(seq) is grant]

    # What happens to the log

    def delay(self, first_seq: int, dues: Sequence[int]) -> None:
        """Jobs appended from `first_seq` on are not handed out before their moment (0: at once)."""
        start: int | None = None
        for seq, due in enumerate(dues, first_seq):
            if due:
                self._delay(seq, due)
                if start is None:
                    start = seq
            elif start is not None:
                self._skips.append((start, seq - 1))
                start = None
        if start is not None:
            self._skips.append((start, first_seq + len(dues) - 1))

    def forget(self, seqs: Iterable[int]) -> None:
        """These jobs are gone from the log, whatever they were here."""
        self._ahead = self._cursor
        if not (self._held.count or self._leaving or self._returned or self._delayed or self._moving):
            return
        for seq in seqs:
            self._forget(seq)
        if self.wake is not None:
            self.wake()

    def forget_below(self, bound: int) -> None:
        """All jobs below `bound` are gone. Costs no more than there are such jobs, or than are known here."""
        floor, self._floor = self._floor, max(self._floor, bound)
        known = (self._leaving, self._returned, self._delayed, self._moving, self._delivered)
        if bound - floor <= self._held.count + sum([len(each) for each in known]):
            self.forget(range(floor, bound))
        else:
            self.forget([seq for each in (self._held, *known) for seq in each if seq < bound])

    def clear(self, *, keep_delays: bool = False) -> None:
        """Nothing is leased and nothing was ever delivered. Jobs delayed when they were appended may stay so."""
        delayed = {seq: due for seq, due in self._delayed.items() if seq not in self._delivered} if keep_delays else {}
        held = [grant for _, grant in self._held.items()]
        for grant in {id(grant): grant for grant in (*held, *self._leaving.values())}.values():
            if grant.basket is not None:
                grant.basket.clear()
        self._empty()
        for seq, due in sorted(delayed.items()):
            self._delay(seq, due)

    # Replay and snapshots

    def restore_grant(self, image: GrantImage) -> None:
        """The jobs are leased as the log says, whatever they were before."""
        for seq, deliveries in zip(image.seqs, image.deliveries, strict=True):
            self._forget(seq)
            if deliveries > 1:
                self._delivered[seq] = deliveries - 1
        self.grant(image.seqs, image.node, image.token, image.deadline)

    def restore_returned(self, seq: int, deliveries: int, due_ms: int | None) -> None:
        self._forget(seq)
        if deliveries:
            self._delivered[seq] = deliveries
        if due_ms is None:
            self._returned[seq] = None
        else:
            self._delay(seq, due_ms)

    def settle(self, is_live: Callable[[int], bool]) -> None:
        """Replay is done: what the log no longer holds is forgotten, and the cursor knows what to pass over."""
        known = [*self._held, *self._returned, *self._delayed]
        self.forget([seq for seq in known if not is_live(seq)])
        self._cursor = self._ahead = 1
        self._skips.clear()
        for seq in sorted([*self._held, *self._returned, *self._delayed]):
            if self._skips and self._skips[-1][1] == seq - 1:
                self._skips[-1] = (self._skips[-1][0], seq)
            else:
                self._skips.append((seq, seq))

    def image(self, *, durable: bool) -> LeaseImage:
        """What a snapshot keeps: with `durable` everything, otherwise what is no lease."""
        delivered = self._delivered
        delayed = [
            (seq, due, delivered.get(seq, 0)) for seq, due in self._delayed.items() if durable or seq not in delivered
        ]
        if not durable:
            return LeaseImage(self.dead_lettered, delayed=delayed)
        return LeaseImage(
            self.dead_lettered,
            self.grant_images(),
            [(seq, delivered.get(seq, 0)) for seq in [*self._returned, *self._moving]],
            delayed,
        )

    def grant_images(self) -> list[GrantImage]:
        """Every lease there is now, a job that is leaving included: until the log has it, it is held."""
        grants: dict[int, tuple[Grant, list[int]]] = {}
        for seq, grant in (*self._held.items(), *self._leaving.items()):
            grants.setdefault(id(grant), (grant, []))[1].append(seq)
        return [
            GrantImage(grant.node, grant.token, grant.deadline, seqs, self.all_deliveries(seqs))
            for grant, seqs in grants.values()
        ]

    def restore(self, image: LeaseImage) -> None:
        self.dead_lettered = image.dead_lettered
        for each in image.grants:
            self.restore_grant(each)
        for seq, deliveries in image.returned:
            self.restore_returned(seq, deliveries, None)
        for seq, due, deliveries in image.delayed:
            self.restore_returned(seq, deliveries, due)

    # Inner moves

    def _return(self, seq: int, due_ms: int | None = None) -> None:
        self._delivered[seq] = self._delivered.get(seq, 0) + 1
        if due_ms is None:
            self._returned[seq] = None
        else:
            self._delay(seq, due_ms)

    def _delay(self, seq: int, due_ms: int) -> None:
        self._delayed[seq] = due_ms
        heappush(self._dues, (due_ms, seq))

    def _forget(self, seq: int) -> None:
        grant = self._held.pop(seq)
        if grant is None and self._leaving:
            grant = self._leaving.pop(seq, None)
        if grant is not None:
            self._close(grant, seq)
        else:
            self._returned.pop(seq, None)
            self._delayed.pop(seq, None)
            self._moving.discard(seq)
        if self._delivered:
            self._delivered.pop(seq, None)

    def _close(self, grant: Grant, seq: int) -> None:
        """The job is no longer under this grant."""
        if grant.basket is not None:
            grant.basket.discard(seq)
        self._close_all(grant, 1)

    def _close_all(self, grant: Grant, count: int) -> None:
        grant.open -= count
        if count and not grant.open:
            self._grants -= 1
            deadlines = self._deadlines
            if len(deadlines) > 2 * self._grants + SWEEP_LEAST:
                deadlines[:] = [entry for entry in deadlines if entry[2].open]
                heapify(deadlines)


def neighbours(seqs: list[int]) -> Sequence[int]:
    """The same seqs, which ascend, as a range if they are one."""
    first, last = seqs[0], seqs[-1]
    return range(first, last + 1) if last - first + 1 == len(seqs) else seqs


def seqs_bytes(seqs: Iterable[int]) -> bytes:
    """Seqs as facts carry them: little-endian u64 each."""
    return array("Q", seqs).tobytes()


def seqs_of(text: bytes) -> list[int]:
    seqs: array[int] = array("Q")
    seqs.frombytes(text)
    return seqs.tolist()
