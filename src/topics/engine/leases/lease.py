"""Leases: which job of a queue is leased to which node, until when, and which job is delivered next.

A queue is a log whose live records are jobs. Each job is in one of the states of `job_state.py`, which has the table of all
transitions. Where a state is kept:

    FRESH            nowhere: live, at or after `_cursor`, not in `_skips`
    DELAYED          `_delayed`, with a heap of due times
    RETURNED         `_returned`, in the order in which they are delivered
    TAKEN            `_taken_run` or `_taken`
    LEASED           `_leased`, with a heap of deadlines
    COMMITTING       `_committing`, or `_leased` with the whole delivery marked as committing
    DEAD_LETTERING   `_dead_lettering`

The number of ready jobs is a difference of sizes, so counting never iterates over jobs.

A lease expires in `expire`, which the broker calls with the current time before each decision about the queue. The heap has one
entry per delivery, not one per job; entries of finished deliveries are removed when they are the majority. Expired jobs move to
RETURNED and never back: a clock that jumps backwards does not restore a lease.

There is no clock, no random number and no log in here: times and tokens are arguments, and the broker writes the facts.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Protocol

from msgspec import Struct

from topics.engine.leases.delivery import Delivery, LeasedJobs
from topics.engine.leases.job_state import JobEvent, JobState, check_transition
from topics.model.images import DeliveryImage, LeaseImage

# The largest number of jobs that one claim sets aside because they were delivered too often.
MAX_DEAD_PER_PASS = 1000
# Reasons of returned jobs that a partition remembers; each has at most 1000 characters.
MAX_REASONS = 10_000
# Heap entries of finished deliveries are removed when they exceed twice the unfinished ones by this number.
MIN_SWEEP = 1024
# How many fresh jobs after the cursor are looked up at once.
MAX_LOOK_AHEAD = 1024
_NONE = range(0)


# Some of the jobs of one delivery.
DeliveryPart = tuple[Delivery, Sequence[int]]


class JobLog(Protocol):
    """What `Leases` asks of the partition whose live records are the jobs."""

    @property
    def head_seq(self) -> int: ...

    def live_run(self, seq: int, max_records: int, /) -> tuple[int, int] | None:
        """The first run of live records at or after `seq`: its first seq, and the first seq behind it."""


class Taken(Struct):
    """What `take` found: jobs to deliver, and jobs that were delivered too often already."""

    seqs: list[int]
    dead: list[int]


class Leases:
    """The jobs of one partition of a queue, by state."""

    def __init__(self) -> None:
        self.dead_lettered = 0
        # The same with the jobs whose move waits for the log.
        self.dead_letters_decided = 0
        # Called when jobs may have become ready, or a connection may take more jobs. Set while claims wait.
        self.on_jobs_freed: Callable[[], None] | None = None
        self._floor = 1
        self._cursor = 1
        self._reset()

    def _reset(self) -> None:
        self._leased = LeasedJobs()
        self._committing: dict[int, Delivery] = {}
        self._dead_lettering: set[int] = set()
        self._returned: OrderedDict[int, None] = OrderedDict()
        self._delayed: dict[int, int] = {}
        self._taken: set[int] = set()
        self._taken_run = _NONE
        # How often a job was delivered before the delivery it is leased under. Zero is not stored.
        self._delivered: dict[int, int] = {}
        # Why a job was returned last, for its dead letter. Only jobs in `_delivered` have one.
        self._reasons: dict[int, str] = {}
        self._deadlines: list[tuple[int, int, Delivery]] = []
        self._dues: list[tuple[int, int]] = []
        # Deliveries with open jobs, and a number that makes heap entries differ.
        self.open_deliveries = 0
        self._order = 0
        # From the cursor up to here all jobs are known to be live and fresh.
        self._ahead = self._cursor
        # Runs (first, last) of jobs after the cursor that are not fresh, in order.
        self._skips: deque[tuple[int, int]] = deque()

    # Counts. Call `expire` first.

    def ready(self, count: int) -> int:
        """How many of the log's `count` live jobs can be claimed now."""
        return count - self._leased.count - len(self._committing) - len(self._delayed) - len(self._dead_lettering)

    @property
    def in_flight(self) -> int:
        return self._leased.count + len(self._committing)

    @property
    def dead_lettering(self) -> int:
        """How many jobs wait to be moved to the dead-letter topic."""
        return len(self._dead_lettering)

    @property
    def delayed(self) -> int:
        """How many jobs can be claimed later only."""
        return len(self._delayed)

    # Looking at jobs without changing their state. Call `expire` first.

    def leased_jobs(self, max_jobs: int) -> list[tuple[int, Delivery]]:
        """Leased jobs with their deliveries: up to `max_jobs`, in no particular order."""
        return list(islice(self._leased.items(), max_jobs))

    def delayed_jobs(self, max_jobs: int) -> list[tuple[int, int]]:
        """Delayed jobs with their due times: up to `max_jobs`, in no particular order."""
        return list(islice(self._delayed.items(), max_jobs))

    def next_jobs(self, partition: JobLog, max_jobs: int) -> list[int]:
        """The jobs that claims get next: returned ones, then fresh ones."""
        seqs = list(islice(self._returned, max_jobs))
        cursor = self._cursor
        skips = list(islice(self._skips, max_jobs))
        while len(seqs) < max_jobs:
            run = partition.live_run(cursor, max_jobs - len(seqs))
            if run is None:
                break
            first, stop = run
            skip = next(((low, high) for low, high in skips if high >= first), None)
            if skip is not None and skip[0] <= first:
                cursor = skip[1] + 1
                continue
            if skip is not None:
                stop = min(stop, skip[0])
            seqs.extend(range(first, stop))
            cursor = stop
        return seqs

    def delivery_count(self, seq: int) -> int:
        """How often a leased job was delivered, with the current delivery."""
        return self._delivered.get(seq, 0) + 1

    def set_reason(self, seqs: Iterable[int], reason: str) -> None:
        """Remember why these jobs are being returned. Forgets the oldest reasons beyond MAX_REASONS."""
        for seq in seqs:
            self._reasons.pop(seq, None)
            if len(self._reasons) >= MAX_REASONS:
                del self._reasons[next(iter(self._reasons))]
            self._reasons[seq] = reason

    def reason(self, seq: int) -> str | None:
        """Why the job was returned last, if its worker said so."""
        return self._reasons.get(seq)

    def delivery_counts(self, seqs: Sequence[int]) -> list[int]:
        delivered = self._delivered
        if not delivered:
            return [1] * len(seqs)
        return [delivered.get(seq, 0) + 1 for seq in seqs]

    def past_delivery_counts(self, seqs: list[int]) -> list[int]:
        """How often jobs that are not leased were delivered."""
        return [self._delivered.get(seq, 0) for seq in seqs]

    def next_due(self) -> int | None:
        """The earliest time at which a job may become ready by itself; None when there is none."""
        while self._deadlines and not self._deadlines[0][2].open:
            heappop(self._deadlines)
        expiry = self._deadlines[0][0] + 1 if self._deadlines else None
        due = self._dues[0][0] if self._dues else None
        if expiry is None or due is None:
            return due if expiry is None else expiry
        return min(expiry, due)

    def state_of(self, seq: int, is_live: Callable[[int], bool]) -> JobState:
        """The state of a job. Not used on hot paths."""
        known = self._known_state(seq)
        if known is not None:
            return known
        return JobState.FRESH if is_live(seq) else JobState.GONE

    # Delivering

    def expire(self, now_ms: int) -> list[int]:
        """End leases whose deadline has passed and delays that are due. Return the seqs of the expired leases."""
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
        leased = self._leased
        while deadlines and deadlines[0][0] < now_ms:
            delivery = heappop(deadlines)[2]
            if delivery.open and not delivery.committing:
                # `cancel_commit` adds a heap entry again for the jobs that are committing.
                seqs = leased.remove(delivery)
                for seq in seqs:
                    self._close(delivery, seq)
                    self._return(seq, self.delivery_count(seq), None)
                expired += seqs
        if self.on_jobs_freed is not None:
            self.on_jobs_freed()
        return expired

    def take_run(self, partition: JobLog, max_jobs: int) -> range:
        """Take up to `max_jobs` consecutive fresh jobs, if `take` would choose the same; otherwise none.

        The caller leases them, or first shortens the run with `shorten_run`. Nearly every claim is served this way (16 jobs:
        0.5 us instead of 1.4), because fresh jobs are looked up for many claims at once.
        """
        if self._returned:
            return _NONE
        first = self._cursor
        stop = first + max_jobs
        if stop > self._ahead:
            self._look_ahead(partition)
            first = self._cursor
            stop = first + max_jobs
            if stop > self._ahead:
                if self._ahead <= partition.head_seq:
                    return _NONE
                stop = self._ahead
        self._cursor = stop
        if self._taken_run:
            self._merge_taken()
        self._taken_run = run = range(first, stop)
        return run

    def shorten_run(self, count: int) -> range:
        """Keep the first `count` jobs of the run that `take_run` returned last; the others are fresh again."""
        self._taken_run = run = self._taken_run[:count]
        self._cursor = run.stop
        return run

    def _look_ahead(self, partition: JobLog) -> None:
        run = partition.live_run(self._cursor, MAX_LOOK_AHEAD)
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

    def take(self, partition: JobLog, max_jobs: int, max_deliveries: int) -> Taken:
        """Take up to `max_jobs` jobs, returned ones first, then fresh ones. The caller leases them or puts them back.

        Returned jobs that were delivered `max_deliveries` times (0: no limit) are set aside as dead letters.
        """
        seqs: list[int] = []
        dead: list[int] = []
        returned = self._returned
        delivered = self._delivered
        while returned and len(seqs) < max_jobs and len(dead) < MAX_DEAD_PER_PASS:
            seq, _ = returned.popitem(last=False)
            if max_deliveries and delivered.get(seq, 0) >= max_deliveries:
                dead.append(seq)
                self._dead_lettering.add(seq)
            else:
                seqs.append(seq)
        if len(seqs) < max_jobs and len(dead) < MAX_DEAD_PER_PASS:
            self._take_fresh(partition, max_jobs - len(seqs), seqs)
        self._taken.update(seqs)
        return Taken(seqs, dead)

    def _take_fresh(self, partition: JobLog, max_jobs: int, seqs: list[int]) -> None:
        skips = self._skips
        while max_jobs:
            run = partition.live_run(self._cursor, max_jobs)
            if run is None:
                # The next job that is appended is the next candidate.
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
            max_jobs -= stop - first

    def put_back(self, seqs: Sequence[int]) -> None:
        """Return jobs that were taken and are not delivered: they are the next ones, in this order."""
        self._end_taken(seqs, JobEvent.PUT_BACK)
        for seq in reversed(seqs):
            self._return_first(seq)
        if self.on_jobs_freed is not None:
            self.on_jobs_freed()

    def put_back_dead(self, seqs: Iterable[int]) -> None:
        """Return dead letters that could not be moved, behind the other returned jobs."""
        for seq in seqs:
            if seq in self._dead_lettering:
                self._dead_lettering.discard(seq)
                self._returned[seq] = None
            else:
                self._check(seq, JobEvent.PUT_BACK_DEAD)

    def lease(
        self, seqs: Sequence[int], node: str, token: bytes, deadline: int, connection_jobs: set[int] | None = None
    ) -> Delivery:
        """Lease jobs that were taken to the node."""
        if seqs is self._taken_run:
            self._taken_run = _NONE
        else:
            self._end_taken(seqs, JobEvent.LEASE)
        delivery = Delivery(node, token, deadline, seqs, connection_jobs, len(seqs))
        self._leased.add(delivery)
        self.open_deliveries += 1
        self._order += 1
        heappush(self._deadlines, (deadline, self._order, delivery))
        if connection_jobs is not None:
            connection_jobs.update(seqs)
        return delivery

    def undo(self, delivery: Delivery) -> None:
        """Return the jobs that are still leased under this delivery, as the next ones. The delivery is not counted."""
        self.undo_part(delivery, self.still_leased(delivery))

    def undo_part(self, delivery: Delivery, seqs: Sequence[int]) -> None:
        """Do the same for some of its jobs; the others stay leased."""
        for seq in reversed(seqs):
            if self._leased.get(seq) is delivery:
                self._leased.pop(seq)
                self._close(delivery, seq)
                self._return_first(seq)
        if self.on_jobs_freed is not None:
            self.on_jobs_freed()

    # Operations of the holder

    def held_by(self, node: str, seqs: list[int], lease_ids: list[str] | None) -> tuple[list[DeliveryPart], list[int]]:
        """Split `seqs` into jobs leased to the node, by delivery, and the others. With lease ids these must match too."""
        leased = self._leased
        if lease_ids is None:
            # Usually the jobs of one delivery are acked together (16 of them: 1 us this way, 6 us one by one).
            one = len(seqs) == 1
            delivery = leased.get(seqs[0]) if one else leased.run(seqs[0])
            if delivery is not None and delivery.node == node and not delivery.committing:
                if one:
                    return [(delivery, seqs)], []
                if len(seqs) == delivery.open and seqs == list(delivery.seqs):
                    return [(delivery, delivery.seqs)], []
        parts: dict[int, tuple[Delivery, list[int]]] = {}
        chosen: set[int] = set()
        skipped: list[int] = []
        for index, seq in enumerate(seqs):
            delivery = leased.get(seq)
            if (
                delivery is None
                or delivery.committing
                or delivery.node != node
                or seq in chosen
                or (lease_ids is not None and lease_ids[index] != delivery.lease_id(seq))
            ):
                skipped.append(seq)
            else:
                chosen.add(seq)
                parts.setdefault(id(delivery), (delivery, []))[1].append(seq)
        return [*parts.values()], skipped

    def begin_commit(self, parts: list[DeliveryPart]) -> None:
        """An ack or nack of these leased jobs was submitted: until it is decided they are not delivered and do not expire."""
        leased = self._leased
        for delivery, seqs in parts:
            if len(seqs) == delivery.open == len(delivery.seqs) and not delivery.committing:
                # All its jobs are in the index, so none of them is committing separately.
                delivery.committing = True
            else:
                self._check_leased(delivery, seqs, JobEvent.BEGIN_COMMIT)
                for seq in seqs:
                    leased.pop(seq)
                self._committing.update(dict.fromkeys(seqs, delivery))

    def cancel_commit(self, parts: list[DeliveryPart]) -> None:
        """The log refused the ack or nack: the jobs that still exist are leased as before."""
        for delivery, seqs in parts:
            if delivery.committing:
                delivery.committing = False
            else:
                self._leased.put(self._end_committing(seqs, JobEvent.CANCEL_COMMIT), delivery)
            self._order += 1
            heappush(self._deadlines, (delivery.deadline, self._order, delivery))
        # A deadline that passed meanwhile was ignored by `expire`.
        if self.on_jobs_freed is not None:
            self.on_jobs_freed()

    def extend(self, parts: list[DeliveryPart], deadline: int) -> list[Delivery]:
        """Lease these jobs until `deadline`, with the same lease ids. Return the deliveries that replace the old ones."""
        extended = []
        for delivery, seqs in parts:
            self._check_leased(delivery, seqs, JobEvent.EXTEND)
            for seq in seqs:
                self._leased.pop(seq)
                self._close(delivery, seq)
            self._taken.update(seqs)
            extended.append(self.lease(seqs, delivery.node, delivery.token, deadline, delivery.connection_jobs))
        return extended

    def give_back(self, seqs: Iterable[int], due_ms: int | None) -> None:
        """Return leased or committing jobs, now or at `due_ms`. Their delivery counts."""
        held = []
        for seq in seqs:
            if seq in self._committing or self._leased.get(seq) is not None:
                held.append((seq, self.delivery_count(seq)))
            else:
                self._check(seq, JobEvent.GIVE_BACK if due_ms is None else JobEvent.GIVE_BACK_LATER)
        self.apply_returned(held, due_ms)

    def apply_returned(self, jobs: Iterable[tuple[int, int]], due_ms: int | None) -> None:
        """Return jobs, each with its delivery count, whatever their state was. Live and in recovery."""
        for seq, deliveries in jobs:
            reason = self._reasons.get(seq)
            self._forget(seq)
            self._return(seq, deliveries, due_ms)
            if reason is not None:
                self._reasons[seq] = reason
        if self.on_jobs_freed is not None:
            self.on_jobs_freed()

    def held_by_connection(self, connection_jobs: set[int]) -> list[int]:
        """The jobs that are leased to this connection and not committing."""
        held = [(seq, self._leased.get(seq)) for seq in sorted(connection_jobs)]
        return [
            seq
            for seq, delivery in held
            if delivery is not None and delivery.connection_jobs is connection_jobs and not delivery.committing
        ]

    def still_leased(self, delivery: Delivery) -> list[int]:
        """The jobs that are leased under this delivery."""
        return [seq for seq in delivery.seqs if self._leased.get(seq) is delivery]

    # Changes of the log

    def delay(self, first_seq: int, dues: Sequence[int]) -> None:
        """Jobs appended from `first_seq` on are not delivered before their time (0: at once). Live and in recovery."""
        start: int | None = None
        for seq, due in enumerate(dues, first_seq):
            if due:
                self._forget(seq)
                self._delay(seq, due)
                if start is None:
                    start = seq
            elif start is not None:
                self._skips.append((start, seq - 1))
                start = None
        if start is not None:
            self._skips.append((start, first_seq + len(dues) - 1))

    def forget(self, seqs: Iterable[int]) -> None:
        """Remove jobs that are gone from the log, whatever their state."""
        self._ahead = self._cursor
        if not (
            self._leased.count
            or self._committing
            or self._returned
            or self._delayed
            or self._dead_lettering
            or self._taken
            or self._taken_run
        ):
            return
        if self._taken or self._taken_run:
            seqs = list(seqs)
            self._merge_taken().difference_update(seqs)
        for seq in seqs:
            self._forget(seq)
        if self.on_jobs_freed is not None:
            self.on_jobs_freed()

    def forget_runs(self, runs: Iterable[tuple[int, int]]) -> None:
        """Remove runs of jobs (first, first behind) that are gone from the log, such as acked ones.

        The jobs of a delivery that was not split are removed together (16 jobs: 1 us, 6 us one by one).
        """
        leased = self._leased
        for first, stop in runs:
            if stop > self._cursor:
                self._ahead = self._cursor
            if self._taken or self._taken_run:
                self._merge_taken().difference_update(range(first, stop))
            seq = first
            while seq < stop:
                delivery = leased.run(seq)
                if delivery is None or delivery.seqs[-1] >= stop:
                    self._forget(seq)
                    seq += 1
                    continue
                seqs = leased.remove(delivery)
                self._close_all(delivery, len(seqs))
                delivery.committing = False
                if delivery.connection_jobs is not None:
                    delivery.connection_jobs.difference_update(seqs)
                if self._delivered:
                    for each in seqs:
                        self._delivered.pop(each, None)
                        self._reasons.pop(each, None)
                seq = delivery.seqs[-1] + 1
        if self.on_jobs_freed is not None:
            self.on_jobs_freed()

    def forget_gone(self, count: int, seqs: Callable[[], list[int]], is_live: Callable[[int], bool]) -> None:
        """Remove the `count` jobs that `seqs` names, which are gone from the log.

        The cost is bounded by the smaller of their number and the number of jobs known here.
        """
        if count <= self._known_count():
            self.forget(seqs())
        else:
            self.forget([seq for seq in self._known_seqs() if not is_live(seq)])

    def forget_below(self, bound: int) -> None:
        """Remove all jobs below `bound`. The cost is bounded as in `forget_gone`."""
        floor, self._floor = self._floor, max(self._floor, bound)
        if bound - floor <= self._known_count():
            self.forget(range(floor, bound))
        else:
            self.forget([seq for seq in self._known_seqs() if seq < bound])

    def clear(self, *, keep_delays: bool = False) -> None:
        """End all leases and forget all delivery counts. With `keep_delays`, delays set by an append stay."""
        delayed = {seq: due for seq, due in self._delayed.items() if seq not in self._delivered} if keep_delays else {}
        # All of them were delivered or skipped by the cursor: see `_check`.
        self._cursor = max([self._cursor, *[seq + 1 for seq in self._known_seqs()]])
        leased = [delivery for _, delivery in self._leased.items()]
        for delivery in {id(delivery): delivery for delivery in (*leased, *self._committing.values())}.values():
            delivery.committing = False
            if delivery.connection_jobs is not None:
                delivery.connection_jobs.clear()
        self._reset()
        for seq, due in sorted(delayed.items()):
            self._delay(seq, due)

    # Replay and snapshots

    def restore_delivery(self, image: DeliveryImage) -> None:
        """Lease the jobs as the log says, whatever their state was."""
        for seq, deliveries in zip(image.seqs, image.deliveries, strict=True):
            self._forget(seq)
            if deliveries > 1:
                self._delivered[seq] = deliveries - 1
        self._taken.update(image.seqs)
        self.lease(image.seqs, image.node, image.token, image.deadline)

    def finish_replay(self, is_live: Callable[[int], bool]) -> None:
        """Forget jobs that the log no longer holds, and set the runs that the cursor skips."""
        known = [*self._leased, *self._returned, *self._delayed]
        self.forget([seq for seq in known if not is_live(seq)])
        self._cursor = self._ahead = 1
        self._skips.clear()
        for seq in sorted([*self._leased, *self._returned, *self._delayed]):
            if self._skips and self._skips[-1][1] == seq - 1:
                self._skips[-1] = (self._skips[-1][0], seq)
            else:
                self._skips.append((seq, seq))

    def image(self, *, durable: bool) -> LeaseImage:
        """What a snapshot holds: everything when leases are durable, otherwise only delays set by appends."""
        delivered = self._delivered
        delayed = [
            (seq, due, delivered.get(seq, 0)) for seq, due in self._delayed.items() if durable or seq not in delivered
        ]
        if not durable:
            return LeaseImage(self.dead_lettered, delayed=delayed)
        return LeaseImage(
            self.dead_lettered,
            self.delivery_images(),
            [(seq, delivered.get(seq, 0)) for seq in [*self._returned, *self._dead_lettering]],
            delayed,
        )

    def delivery_images(self) -> list[DeliveryImage]:
        """All current leases. A committing job is included: until the log has its ack or nack it is leased."""
        parts: dict[int, tuple[Delivery, list[int]]] = {}
        for seq, delivery in (*self._leased.items(), *self._committing.items()):
            parts.setdefault(id(delivery), (delivery, []))[1].append(seq)
        return [
            DeliveryImage(delivery.node, delivery.token, delivery.deadline, seqs, self.delivery_counts(seqs))
            for delivery, seqs in parts.values()
        ]

    def restore(self, image: LeaseImage) -> None:
        self.dead_lettered = image.dead_lettered
        for each in image.deliveries:
            self.restore_delivery(each)
        self.apply_returned(image.returned, None)
        for seq, due, deliveries in image.delayed:
            self.apply_returned([(seq, deliveries)], due)

    @property
    def index_entries(self) -> int:
        """The memory used for deliveries, in entries: finished ones must not add to it without bound."""
        return len(self._deadlines) + self._leased.index_entries

    # Transitions of single jobs

    def _known_state(self, seq: int) -> JobState | None:
        """The state of a job that is kept here; None for FRESH and GONE."""
        delivery = self._leased.get(seq)
        if delivery is not None:
            return JobState.COMMITTING if delivery.committing else JobState.LEASED
        if seq in self._committing:
            return JobState.COMMITTING
        if seq in self._returned:
            return JobState.RETURNED
        if seq in self._delayed:
            return JobState.DELAYED
        if seq in self._dead_lettering:
            return JobState.DEAD_LETTERING
        return JobState.TAKEN if seq in self._taken_run or seq in self._taken else None

    def _check(self, seq: int, event: JobEvent) -> None:
        """Raise IllegalTransition when the job is in a state in which the event is not allowed."""
        state = self._known_state(seq)
        if state is None:
            # A job that was taken is before the cursor, or was skipped by it.
            state = JobState.FRESH if seq >= self._cursor and not self._skips else JobState.GONE
        check_transition(seq, state, event)

    def _check_leased(self, delivery: Delivery, seqs: Sequence[int], event: JobEvent) -> None:
        for seq in seqs:
            if delivery.committing or self._leased.get(seq) is not delivery:
                self._check(seq, event)

    def _end_taken(self, seqs: Sequence[int], event: JobEvent) -> None:
        taken = self._merge_taken()
        if not taken.issuperset(seqs):
            for seq in seqs:
                if seq not in taken:
                    self._check(seq, event)
        taken.difference_update(seqs)

    def _merge_taken(self) -> set[int]:
        """All jobs that are taken, as a set."""
        if self._taken_run:
            self._taken.update(self._taken_run)
            self._taken_run = _NONE
        return self._taken

    def _end_committing(self, seqs: Sequence[int], event: JobEvent) -> list[int]:
        """Remove these jobs from the committing ones; return those that still exist."""
        committing = self._committing
        found = [seq for seq in seqs if seq in committing]
        if len(found) < len(seqs):
            for seq in set(seqs).difference(found):
                self._check(seq, event)
        for seq in found:
            del committing[seq]
        return found

    def _return(self, seq: int, deliveries: int, due_ms: int | None) -> None:
        if deliveries:
            self._delivered[seq] = deliveries
        if due_ms is None:
            self._returned[seq] = None
        else:
            self._delay(seq, due_ms)

    def _return_first(self, seq: int) -> None:
        self._returned[seq] = None
        self._returned.move_to_end(seq, last=False)

    def _delay(self, seq: int, due_ms: int) -> None:
        self._delayed[seq] = due_ms
        heappush(self._dues, (due_ms, seq))

    def _forget(self, seq: int) -> None:
        delivery = self._leased.pop(seq)
        if delivery is None and self._committing:
            delivery = self._committing.pop(seq, None)
        if delivery is not None:
            self._close(delivery, seq)
        else:
            self._returned.pop(seq, None)
            self._delayed.pop(seq, None)
            self._dead_lettering.discard(seq)
        if self._delivered:
            self._delivered.pop(seq, None)
            self._reasons.pop(seq, None)

    def _close(self, delivery: Delivery, seq: int) -> None:
        """The job is no longer leased under this delivery."""
        if delivery.connection_jobs is not None:
            delivery.connection_jobs.discard(seq)
        self._close_all(delivery, 1)

    def _close_all(self, delivery: Delivery, count: int) -> None:
        delivery.open -= count
        if count and not delivery.open:
            self.open_deliveries -= 1
            deadlines = self._deadlines
            if len(deadlines) > 2 * self.open_deliveries + MIN_SWEEP:
                deadlines[:] = [entry for entry in deadlines if entry[2].open]
                heapify(deadlines)

    def _known_count(self) -> int:
        known = (self._committing, self._returned, self._delayed, self._dead_lettering, self._delivered, self._taken)
        return self._leased.count + len(self._taken_run) + sum([len(each) for each in known])

    def _known_seqs(self) -> list[int]:
        known = (self._committing, self._returned, self._delayed, self._dead_lettering, self._delivered, self._taken)
        return [seq for each in (self._leased, self._taken_run, *known) for seq in each]


def as_range(seqs: list[int]) -> Sequence[int]:
    """The same ascending seqs, as a range if they are consecutive."""
    first, last = seqs[0], seqs[-1]
    return range(first, last + 1) if last - first + 1 == len(seqs) else seqs


def seqs_bytes(seqs: Iterable[int]) -> bytes:
    """Seqs as facts hold them: little-endian u64 each."""
    return array("Q", seqs).tobytes()


def seqs_of(text: bytes) -> list[int]:
    seqs: array[int] = array("Q")
    seqs.frombytes(text)
    return seqs.tolist()
