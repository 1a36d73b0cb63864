"""Queues: claim, ack, nack, extend and push jobs, over the leases of the engine.

The claims of one turn are served together when it ends, in the order they arrived. A lease is in effect in memory at once. With
`leases_durable` it is also a fact, and its claim is answered when the log has it; otherwise nothing is written, and after a
restart every job is claimable as if it had never been delivered. An ack is the delete of the job and as durable as the topic's
class; the acks of one turn to a partition are one frame.

    claims.py          what a claim is, and how jobs are divided among several
    claim_waiters.py   claims and connections that wait for jobs
    pending_claims.py  claims whose replies wait for the log
    lease_commits.py   what is written to the log
    dead_letters.py    jobs that were delivered too often

A lease expires in `Leases.expire` (engine/leases/lease.py), which `refresh` calls before each decision about a queue.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from secrets import token_hex
from typing import Any

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.log.apply import apply
from topics.broker.log.commit import Commit, Note
from topics.broker.long_poll import LongPoll
from topics.broker.queues import dead_letters
from topics.broker.queues.claim_waiters import ClaimWaiters
from topics.broker.queues.claims import ENDED, Claim, Claimer, ClaimResult, ReplyClaims
from topics.broker.queues.lease_commits import AckCommit, AckReply, ReplyAcks, extend_commit, nack_commit
from topics.broker.queues.pending_claims import PendingClaims
from topics.engine.leases.delivery import Delivery
from topics.engine.leases.lease import Leases, as_range, seqs_bytes
from topics.engine.partitions.partition import Partition
from topics.engine.queues.jobs import JobTexts
from topics.engine.queues.lease_facts import ack_result, leased_fact, leases_are_logged, returned_fact, seqs_of_parts
from topics.engine.queues.shares import deal
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig
from topics.model.errors import CorruptStorage, TopicsError, not_a_queue, topic_not_found
from topics.model.facts import Deleted, Fact, Leased
from topics.runtime.replies import call, internal_error, send

log = logging.getLogger("topics.broker")


class QueueStats(Struct):
    """The jobs of a queue, counted over its partitions."""

    ready: int
    in_flight: int
    dead_lettered: int


def draw_tokens() -> Iterator[bytes]:
    """Random tokens of sixteen hexadecimal digits, drawn 512 at a time because each draw is a system call."""
    while True:
        digits = token_hex(8 * 512).encode()
        yield from [digits[start : start + 16] for start in range(0, len(digits), 16)]


def call_each(replies: list[tuple[Any, Any]]) -> None:
    """Answer requests whose context is a reply callback."""
    for reply, outcome in replies:
        send(reply, outcome)


class Queues:
    """Operations on all topics that are queues."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._texts = JobTexts()
        self._tokens = draw_tokens()
        self._waiters: dict[Partition, ClaimWaiters] = {}
        # The claims of this turn, and the acks that are not written yet.
        self._turn_claims: dict[Partition, list[Claim]] = {}
        self._turn_acks: dict[Partition, AckCommit] = {}

    # Looking up and counting

    def find(self, name: str, number: int) -> tuple[Topic, Partition, Leases]:
        """Raises NotFound, and Conflict when the topic is not a queue."""
        core = self._core
        topic = core.state.topics.get(name) or core.topic(name)
        partition = core.partition(topic, number) if number else topic.partitions[0]
        if partition.leases is None:
            raise not_a_queue(name)
        return topic, partition, partition.leases

    def exists(self, topic: Topic) -> bool:
        return self._core.exists(topic)

    def stats(self, topic: Topic) -> QueueStats:
        """As of now: jobs whose lease has expired count as ready."""
        result = QueueStats(0, 0, 0)
        for partition in topic.partitions:
            leases = partition.leases
            if leases is not None:
                self.refresh(topic, partition, leases)
                result.ready += leases.ready(partition.count)
                result.in_flight += leases.in_flight
                result.dead_lettered += leases.dead_lettered
        return result

    def topics(self) -> list[Topic]:
        return [topic for topic in self._core.state.topics.values() if topic.config.type == "queue"]

    def refresh(self, topic: Topic, partition: Partition, leases: Leases) -> int:
        """Evict expired records and end expired leases. Return the current time."""
        core = self._core
        if topic.config.ttl_ms:
            core.evict(topic, partition)
        now_ms = core.runtime.now_ms()
        expired = leases.expire(now_ms)
        if expired and leases_are_logged(topic):
            self._note([returned_fact(topic, partition, expired, leases.past_delivery_counts(expired), None)])
        return now_ms

    # Claiming

    def claim(
        self,
        name: str,
        number: int,
        node: str,
        max_jobs: int,
        lease_ms: int | None,
        wait_ms: int,
        context: Any,
        reply: ReplyClaims = call_each,
    ) -> Claim | None:
        """Lease jobs to the node at the end of the turn, of the claim window or of the wait; then call `reply`.

        Return the claim if that may take longer than the turn, so that it can be cancelled.
        """
        core = self._core
        claim = Claim(node, max_jobs, lease_ms, wait_ms, context, reply)
        if core.is_busy(name):

            def again() -> None:
                self._claim(name, number, claim)

            core.parked(name, again, claim.fail)
            return claim
        config = self._claim(name, number, claim)
        return claim if wait_ms or config.claim_jitter_ms or config.leases_durable else None

    def _claim(self, name: str, number: int, claim: Claim) -> TopicConfig:
        topic, partition, leases = self.find(name, number)
        config = topic.config
        if config.claim_jitter_ms and claim.max_jobs:
            waiters = self.waiters(topic, partition)
            waiters.wait(claim)
            waiters.open_window()
            return config
        claims = self._turn_claims.get(partition)
        if claims is None:
            claims = self._turn_claims[partition] = []
            self._core.runtime.call_soon(partial(self._end_turn, topic, partition, leases, claims))
        claims.append(claim)
        return config

    def _end_turn(self, topic: Topic, partition: Partition, leases: Leases, claims: list[Claim]) -> None:
        """Serve the claims of one turn in the order they arrived.

        Serving them together takes 6 us per claim instead of 9 between other requests, and durable leases are one frame.
        """
        del self._turn_claims[partition]
        try:
            self._serve_turn(topic, partition, leases, claims)
        except Exception:
            log.exception("exception while serving claims; those that are not served get an internal error")
            for claim in claims:
                claim.fail(internal_error())

    def _serve_turn(self, topic: Topic, partition: Partition, leases: Leases, claims: list[Claim]) -> None:
        if not self.exists(topic):
            for claim in claims:
                claim.fail(topic_not_found(topic.name))
            return
        config = topic.config
        max_deliveries = config.max_deliveries if config.dead_letter is not None else 0
        now_ms = self.refresh(topic, partition, leases)
        tokens, fresh = self._tokens, self._texts.fresh
        max_bytes = self._core.limits.max_claim_bytes
        # Jobs before this one, from the first job of a claim of this turn on, fit into one response together.
        fits_to = 0
        served: list[tuple[Claimer, ClaimResult]] = []
        # Claims that met jobs which were delivered too often: answered when those are moved.
        delayed: list[tuple[Claimer, ClaimResult]] = []
        unserved: list[Claimer] = []
        dead: list[int] = []
        for claim in claims:
            if claim.state is ENDED:
                # Its client has disconnected.
                continue
            run = leases.take_run(partition, claim.max_jobs)
            if run:
                if run.stop > fits_to and partition.bytes > max_bytes:
                    fits_to = partition.segment_at(run.start).whole_pages(run.start, run.stop, max_bytes)
                    if not fits_to:
                        run = leases.shorten_run(self._fitting(partition, run))
                # The same as `_lease`, for the usual case.
                lease_ms = config.lease_ms if claim.lease_ms is None else claim.lease_ms
                delivery = leases.lease(run, claim.node, next(tokens), now_ms + lease_ms)
                try:
                    text = fresh(partition, delivery)
                except CorruptStorage as error:
                    _undo_readable(leases, delivery, error)
                    claim.fail(error)
                else:
                    served.append((claim, ClaimResult(topic, delivery, [text], 0)))
                continue
            taken = leases.take(partition, claim.max_jobs, max_deliveries)
            dead += taken.dead
            if taken.seqs:
                seqs = as_range(sorted(taken.seqs))
                self._lease(topic, partition, leases, claim, seqs, now_ms, delayed if taken.dead else served)
            else:
                unserved.append(claim)
        if served:
            self._deliver_when_logged(topic, partition, served, [], [])
        if delayed or unserved or dead:
            self._deliver_when_logged(topic, partition, delayed, unserved, dead)

    def waiters(self, topic: Topic, partition: Partition) -> ClaimWaiters:
        """The waiters of this partition; made when there are none."""
        waiters = self._waiters.get(partition)
        if waiters is None:
            waiters = self._waiters[partition] = ClaimWaiters(self, self._core.runtime, topic, partition)
        return waiters

    def waiting_began(self, waiters: ClaimWaiters) -> None:
        self._core.watch(waiters.topic, waiters.topic_changed)

    def waiting_ended(self, waiters: ClaimWaiters) -> None:
        self._core.unwatch(waiters.topic, waiters.topic_changed)
        self._waiters.pop(waiters.partition, None)

    def long_poll(self, answer: Callable[[], None], refuse: Callable[[TopicsError], None]) -> LongPoll:
        return LongPoll(self._core, answer, refuse)

    def serve(self, topic: Topic, partition: Partition, claimers: list[Claimer]) -> None:
        """Divide the ready jobs among these claimers. All leases are in effect when this returns."""
        leases = partition.leases
        assert leases is not None
        now_ms = self.refresh(topic, partition, leases)
        config = topic.config
        capacities = [claimer.capacity() for claimer in claimers]
        max_deliveries = config.max_deliveries if config.dead_letter is not None else 0
        taken = leases.take(partition, sum(capacities), max_deliveries)
        dealt = [taken.seqs] if len(claimers) == 1 else deal(taken.seqs, capacities)
        served: list[tuple[Claimer, ClaimResult]] = []
        for claimer, seqs in zip(claimers, dealt, strict=True):
            if seqs:
                self._lease(topic, partition, leases, claimer, as_range(sorted(seqs)), now_ms, served)
                if isinstance(claimer, Claim):
                    claimer.leased()
        unserved = [claimer for claimer, seqs in zip(claimers, dealt, strict=True) if not seqs]
        self._deliver_when_logged(topic, partition, served, unserved, taken.dead)

    def _fitting(self, partition: Partition, seqs: Sequence[int]) -> int:
        """How many of these live jobs, in ascending order, fit into one response: at least one."""
        left = self._core.limits.max_claim_bytes
        index, count = 0, len(seqs)
        while index < count:
            seq = seqs[index]
            segment = partition.segment_at(seq)
            # Consecutive jobs of one page are measured together.
            some = min(segment.page_end(seq) - seq, count - index) if isinstance(seqs, range) else 1
            size = segment.size_between(seq, seq + some)
            while size > left and some > 1:
                some //= 2
                size = segment.size_between(seq, seq + some)
            if size > left:
                return max(1, index)
            left -= size
            index += some
        return count

    def _lease(
        self,
        topic: Topic,
        partition: Partition,
        leases: Leases,
        claimer: Claimer,
        seqs: Sequence[int],
        now_ms: int,
        served: list[tuple[Claimer, ClaimResult]],
    ) -> None:
        """Lease jobs that were taken to the claimer, as many as fit into one response; put the others back.

        If one of them is damaged on disk the claimer gets the error; see `_undo_readable`.
        """
        if partition.bytes > self._core.limits.max_claim_bytes:
            fitting = self._fitting(partition, seqs)
            if fitting < len(seqs):
                leases.put_back(seqs[fitting:])
                seqs = seqs[:fitting]
        lease_ms = claimer.lease_ms
        deadline = now_ms + (topic.config.lease_ms if lease_ms is None else lease_ms)
        delivery = leases.lease(seqs, claimer.node, next(self._tokens), deadline, claimer.connection_jobs)
        try:
            jobs = self._texts.of(partition, delivery, leases.delivery_counts(seqs))
        except CorruptStorage as error:
            _undo_readable(leases, delivery, error)
            call(claimer.fail, error)
            return
        served.append((claimer, ClaimResult(topic, delivery, jobs, 0)))

    def _deliver_when_logged(
        self,
        topic: Topic,
        partition: Partition,
        served: list[tuple[Claimer, ClaimResult]],
        unserved: list[Claimer],
        dead: list[int],
    ) -> None:
        """Deliver at once, or after the log has the leases and the dead letters were moved."""
        if dead or (served and leases_are_logged(topic)):
            PendingClaims(self, topic, partition, served, unserved).start(dead)
        else:
            self.deliver(topic, partition, served, unserved)

    def submit(self, commit: Commit) -> None:
        self._core.committer.submit(commit)

    def move_dead_letters(
        self, topic: Topic, partition: Partition, seqs: list[int], done: Callable[[int], None]
    ) -> None:
        dead_letters.move(self._core, topic, partition, seqs, done)

    def deliver(
        self,
        topic: Topic,
        partition: Partition,
        served: list[tuple[Claimer, ClaimResult]],
        unserved: list[Claimer],
    ) -> None:
        """Answer claims: with their jobs, or without jobs, or not yet when they wait."""
        leases = partition.leases
        assert leases is not None
        ready = leases.ready(partition.count)
        counts = self._core.counts
        replies: dict[ReplyClaims, list[tuple[Any, ClaimResult | TopicsError]]] = {}
        for claimer, result in served:
            result.ready = ready
            if not isinstance(claimer, Claim):
                counts.count_read(result.count, False)
                call(claimer.deliver, result)
            elif claimer.state is not ENDED:
                counts.count_read(result.count, False)
                replies.setdefault(claimer.reply, []).append((claimer.end(), result))
            elif result.delivery is not None:
                # Its client disconnected while the log was written.
                self._give_back(topic, partition, leases, leases.still_leased(result.delivery), None)
        for reply, outcomes in replies.items():
            call(reply, outcomes)
        for claimer in unserved:
            if isinstance(claimer, Claim) and claimer.state is not ENDED:
                if claimer.wait_ms:
                    self.waiters(topic, partition).wait(claimer, claimer.wait_ms)
                else:
                    counts.count_read(0, False)
                    claimer.deliver(ClaimResult(topic, None, [], ready))
        self._reset_timer(partition)

    def _reset_timer(self, partition: Partition) -> None:
        """A deadline has changed: waiting claims may have to be served earlier."""
        waiters = self._waiters.get(partition)
        if waiters is not None:
            waiters.set_timer()

    # Ack, nack, extend, release

    def ack(
        self,
        name: str,
        number: int,
        node: str,
        seqs: list[int],
        lease_ids: list[str] | None,
        context: Any,
        reply: ReplyAcks = call_each,
    ) -> None:
        """Delete jobs that the node holds. `reply` is called when the delete is as durable as the topic's class demands."""
        core = self._core
        if core.is_busy(name):
            again = partial(self.ack, name, number, node, seqs, lease_ids, context, reply)
            core.parked(name, again, lambda error: reply([(context, error)]))
            return
        topic, partition, leases = self.find(name, number)
        self.refresh(topic, partition, leases)
        parts, skipped = leases.held_by(node, seqs, lease_ids)
        if topic.config.durability == "ephemeral" or not parts:
            acked = sorted(seqs_of_parts(parts))
            if acked:
                # Not logged: the jobs of an ephemeral topic are not in the log either.
                apply(core.state, Deleted(topic.id, number, seqs_bytes(acked)))
            reply([(context, ack_result(topic, partition, len(acked), skipped))])
            return
        for _, done in parts:
            # Deleted records are counted, so they must be readable. Checked here, damage fails this ack and no other.
            first, last = (done[0], done[-1]) if isinstance(done, range) else (min(done), max(done))
            partition.check(first, last)
        acks = self._turn_acks.get(partition)
        if acks is None:
            core.committer.check_writable()
            acks = self._turn_acks[partition] = AckCommit(
                topic, partition, self._close_acks, core.removal.collect_dropped
            )
            core.committer.submit(acks)
        leases.begin_commit(parts)
        acks.add(parts, skipped, context, reply)

    def _close_acks(self, partition: Partition) -> None:
        self._turn_acks.pop(partition, None)

    def nack(
        self,
        name: str,
        number: int,
        node: str,
        seqs: list[int],
        lease_ids: list[str] | None,
        delay_ms: int,
        reply: AckReply,
        reason: str | None = None,
    ) -> None:
        """Give back jobs that the node holds; they can be claimed again now or after the delay.

        `reason` is kept in memory for the dead letter that a job may become.
        """
        core = self._core
        if core.parked(name, lambda: self.nack(name, number, node, seqs, lease_ids, delay_ms, reply, reason), reply):
            return
        topic, partition, leases = self.find(name, number)
        now_ms = self.refresh(topic, partition, leases)
        parts, skipped = leases.held_by(node, seqs, lease_ids)
        due = now_ms + delay_ms if delay_ms else None
        if reason:
            leases.set_reason(seqs_of_parts(parts), reason)
        if not leases_are_logged(topic) or not parts:
            nacked = seqs_of_parts(parts)
            leases.give_back(nacked, due)
            reply(ack_result(topic, partition, len(nacked), skipped))
            return
        core.committer.check_writable()
        leases.begin_commit(parts)
        core.committer.submit(nack_commit(topic, partition, parts, skipped, due, reply))

    def extend(
        self,
        name: str,
        number: int,
        node: str,
        seqs: list[int],
        lease_ids: list[str] | None,
        lease_ms: int,
        reply: AckReply,
    ) -> None:
        """Lease jobs that the node holds until `lease_ms` from now."""
        core = self._core
        if core.parked(name, lambda: self.extend(name, number, node, seqs, lease_ids, lease_ms, reply), reply):
            return
        topic, partition, leases = self.find(name, number)
        now_ms = self.refresh(topic, partition, leases)
        parts, skipped = leases.held_by(node, seqs, lease_ids)
        logged = leases_are_logged(topic) and bool(parts)
        if logged:
            core.committer.check_writable()
        # In effect at once: a longer lease is harmless if the log refuses it.
        deliveries = leases.extend(parts, now_ms + lease_ms)
        extended = seqs_of_parts(parts)
        self._reset_timer(partition)
        result = ack_result(topic, partition, len(extended), skipped)
        result.seqs = extended
        result.deadline = now_ms + lease_ms
        if logged:
            facts: list[Fact] = [leased_fact(topic, partition, leases, delivery) for delivery in deliveries]
            core.committer.submit(extend_commit(topic, partition, facts, result, reply))
        else:
            reply(result)

    def release(self, topic: Topic, partition: Partition, connection_jobs: set[int]) -> None:
        """A connection has closed: give back the jobs that were pushed to it and are still leased to it."""
        leases = partition.leases
        if leases is not None:
            self._give_back(topic, partition, leases, leases.held_by_connection(connection_jobs), None)

    def configured(self, topic: Topic, before: TopicConfig) -> None:
        """The configuration has changed. When leases become durable, write the current ones to the log."""
        if not leases_are_logged(topic) or before.leases_durable:
            return
        for partition in topic.partitions:
            leases = partition.leases
            if leases is None:
                continue
            image = leases.image(durable=True)
            facts: list[Fact] = [
                Leased(
                    topic.id,
                    partition.number,
                    each.node,
                    each.token,
                    each.deadline,
                    seqs_bytes(each.seqs),
                    each.deliveries,
                )
                for each in image.deliveries
            ]
            facts += [returned_fact(topic, partition, [seq], [count], None) for seq, count in image.returned if count]
            facts += [
                returned_fact(topic, partition, [seq], [count], due) for seq, due, count in image.delayed if count
            ]
            if facts:
                self._note(facts)

    def _give_back(self, topic: Topic, partition: Partition, leases: Leases, seqs: list[int], due: int | None) -> None:
        if seqs:
            fact = returned_fact(topic, partition, seqs, leases.delivery_counts(seqs), due)
            leases.give_back(seqs, due)
            if leases_are_logged(topic):
                self._note([fact])

    def _note(self, facts: list[Fact]) -> None:
        self._core.committer.submit(Note(facts))


def _undo_readable(leases: Leases, delivery: Delivery, error: CorruptStorage) -> None:
    """Return the jobs of a failed claim that are not damaged, so that they can be claimed at once.

    The damaged ones stay leased until the deadline; meanwhile other claims get the jobs after them.
    """
    first, last = error.records or (delivery.seqs[0], delivery.seqs[-1])
    leases.undo_part(delivery, [seq for seq in delivery.seqs if not first <= seq <= last])
