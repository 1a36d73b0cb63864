"""Queues: jobs are claimed, finished, given back and pushed, over the leases of the engine.

The claims of one turn are served when it ends, in the order they came, and what is granted is true in memory at once.
With `leases_durable` it is also a fact, and nobody is told of a lease before the log has it; without, nothing is written
and a restart makes every job claimable again, as if it had never been delivered. An ack is the delete of the job and is
as durable as the topic's class; the acks of one turn are one frame.

Who waits for jobs sits at the `desk` of the partition; what is on its way to the log is in `settle`; jobs that were
delivered too often leave through `dead_letter`.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from topics.broker import dead_letter
from topics.broker.committer import Note
from topics.broker.desk import AnswerClaims, Claim, Claimed, Claimer, Desk, deal
from topics.broker.settle import (
    AckGroup,
    AnswerAcks,
    Lease,
    Nack,
    SettledReply,
    Told,
    is_logged,
    leased_fact,
    returned_fact,
    seqs_of_parts,
    settled,
)
from topics.engine.jobs import JobTexts
from topics.engine.lease import Leases, neighbours, seqs_bytes
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.config import TopicConfig
from topics.model.errors import TopicsError, not_a_queue, topic_not_found
from topics.model.facts import Fact, Leased

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class QueueCounters(Struct):
    """A queue at a glance."""

    ready: int
    in_flight: int
    dead_lettered: int


def draw_tokens() -> Iterator[bytes]:
    """Sixteen hexadecimal digits that nobody can guess, new every time; drawn in bulk, since each draw is a system call."""
    while True:
        digits = token_hex(8 * 512).encode()
        yield from [digits[start : start + 16] for start in range(0, len(digits), 16)]


def call_each(answers: list[tuple[Any, Any]]) -> None:
    """The answer for those who asked with a function that wants to know."""
    for asker, outcome in answers:
        asker(outcome)


class Queues:
    """The queues among a broker's topics."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._texts = JobTexts()
        self._tokens = draw_tokens()
        self._desks: dict[tuple[int, int], Desk] = {}

    # Looking

    def find(self, name: str, number: int) -> tuple[Topic, Partition, Leases]:
        """Raises NotFound, and Conflict when the topic is a log."""
        broker = self._broker
        topic = broker.state.topics.get(name) or broker.topic(name)
        partition = broker.partition(topic, number) if number else topic.partitions[0]
        if partition.leases is None:
            raise not_a_queue(name)
        return topic, partition, partition.leases

    def counters(self, topic: Topic) -> QueueCounters:
        """As of now: leases that have run out count as ready."""
        result = QueueCounters(0, 0, 0)
        for partition in topic.partitions:
            leases = partition.leases
            if leases is not None:
                self.refresh(topic, partition, leases)
                result.ready += leases.ready(partition.count)
                result.in_flight += leases.in_flight
                result.dead_lettered += leases.dead_lettered
        return result

    def topics(self) -> list[Topic]:
        return [topic for topic in self._broker.state.topics.values() if topic.config.type == "queue"]

    def leases_in_flight(self) -> int:
        return sum([self.counters(topic).in_flight for topic in self.topics()])

    def refresh(self, topic: Topic, partition: Partition, leases: Leases) -> int:
        """What time has changed is changed: expired records are gone, expired leases over. Answers the time."""
        broker = self._broker
        if topic.config.ttl_ms:
            broker.evict(topic, partition)
        now_ms = broker.runtime.now_ms()
        expired = leases.expire(now_ms)
        if expired and is_logged(topic):
            self._note(topic, [returned_fact(topic, partition, expired, leases.finished(expired), None)])
        return now_ms

    # Claiming

    def claim(
        self,
        name: str,
        number: int,
        node: str,
        most: int,
        lease_ms: int | None,
        wait_ms: int,
        asker: Any,
        answer: AnswerClaims = call_each,
    ) -> Claim | None:
        """Lease jobs to the node: when the turn ends, or the window, or the wait. Then `answer` tells the asker.

        Answers the claim when that may take longer than the turn, so that it can be cancelled.
        """
        broker = self._broker
        claim = Claim(node, most, lease_ms, wait_ms, asker, answer)
        if broker.is_busy(name):

            def again() -> None:
                self._claim(name, number, claim)

            broker.parked(name, again, claim.fail)
            return claim
        config = self._claim(name, number, claim)
        return claim if wait_ms or config.claim_jitter_ms or config.leases_durable else None

    def _claim(self, name: str, number: int, claim: Claim) -> TopicConfig:
        topic, partition, leases = self.find(name, number)
        config = topic.config
        if config.claim_jitter_ms and claim.most:
            desk = self.desk(topic, partition)
            claim.wait(desk)
            desk.open_window()
            return config
        if claim.wait_ms:
            self._broker.polls.add(claim)
        turn: list[Claim] | None = leases.claims
        if turn is None:
            turn = leases.claims = []
            self._broker.runtime.call_soon(partial(self._end_turn, topic, partition, leases, turn))
        turn.append(claim)
        return config

    def _end_turn(self, topic: Topic, partition: Partition, leases: Leases, turn: list[Claim]) -> None:
        """The claims of one turn are served one after the other, as they came.

        Together, because the same few steps in a row take 6 us a claim and between the reads of other requests 9, and
        because durable leases then are one frame.
        """
        leases.claims = None
        if self._broker.polls:
            self._broker.polls.difference_update(turn)
        if self._broker.state.by_id.get(topic.id) is not topic:
            for claim in turn:
                claim.fail(topic_not_found(topic.name))
            return
        config = topic.config
        bound = config.max_deliveries if config.dead_letter is not None else 0
        now_ms = self.refresh(topic, partition, leases)
        tokens, fresh = self._tokens, self._texts.fresh
        served: list[tuple[Claimer, Claimed]] = []
        # Those who have met jobs that were delivered too often, or no jobs at all.
        late: list[tuple[Claimer, Claimed]] = []
        unserved: list[Claimer] = []
        dead: list[int] = []
        for claim in turn:
            if claim.over:
                # Its client has gone already.
                continue
            run = leases.take_run(partition, claim.most)
            if run:
                # What `_lease` does, where nothing is unusual.
                lease_ms = config.lease_ms if claim.lease_ms is None else claim.lease_ms
                grant = leases.grant(run, claim.node, next(tokens), now_ms + lease_ms)
                try:
                    text = fresh(partition, grant)
                except TopicsError as error:
                    claim.fail(error)
                else:
                    served.append((claim, Claimed(topic, grant, [text], 0)))
                continue
            taken = leases.take(partition, claim.most, bound)
            dead += taken.dead
            if taken.seqs:
                seqs = neighbours(sorted(taken.seqs))
                self._lease(topic, partition, leases, claim, seqs, now_ms, late if taken.dead else served)
            else:
                unserved.append(claim)
        if served:
            self._tell(topic, partition, served, [], [])
        if late or unserved or dead:
            self._tell(topic, partition, late, unserved, dead)

    def desk(self, topic: Topic, partition: Partition) -> "Desk":
        key = (topic.id, partition.number)
        desk = self._desks.get(key)
        if desk is None:
            desk = self._desks[key] = Desk(self._broker, self, topic, partition)
        return desk

    def close_desk(self, topic: Topic, partition: Partition) -> None:
        self._desks.pop((topic.id, partition.number), None)

    def serve(self, topic: Topic, partition: Partition, claimers: list[Claimer]) -> None:
        """One pass: what is there is shared among these claimers, and all of it is theirs when this returns."""
        leases = partition.leases
        assert leases is not None
        now_ms = self.refresh(topic, partition, leases)
        config = topic.config
        rooms = [claimer.room() for claimer in claimers]
        bound = config.max_deliveries if config.dead_letter is not None else 0
        taken = leases.take(partition, sum(rooms), bound)
        hands = [taken.seqs] if len(claimers) == 1 else deal(taken.seqs, rooms)
        served: list[tuple[Claimer, Claimed]] = []
        for claimer, hand in zip(claimers, hands, strict=True):
            if hand:
                self._lease(topic, partition, leases, claimer, neighbours(sorted(hand)), now_ms, served)
                if isinstance(claimer, Claim):
                    claimer.granted = True
                    claimer.leave()
        unserved = [claimer for claimer, seqs in zip(claimers, hands, strict=True) if not seqs]
        self._tell(topic, partition, served, unserved, taken.dead)

    def _lease(
        self,
        topic: Topic,
        partition: Partition,
        leases: Leases,
        claimer: Claimer,
        seqs: Sequence[int],
        now_ms: int,
        served: list[tuple[Claimer, Claimed]],
    ) -> None:
        """The jobs, which are taken, are the claimer's. If they cannot be read it is told so, and nobody else has them."""
        lease_ms = claimer.lease_ms
        deadline = now_ms + (topic.config.lease_ms if lease_ms is None else lease_ms)
        grant = leases.grant(seqs, claimer.node, next(self._tokens), deadline, claimer.basket)
        try:
            jobs = self._texts.of(partition, grant, leases.all_deliveries(seqs))
        except TopicsError as error:
            claimer.fail(error)
            return
        served.append((claimer, Claimed(topic, grant, jobs, 0)))

    def _tell(
        self,
        topic: Topic,
        partition: Partition,
        served: list[tuple[Claimer, Claimed]],
        unserved: list[Claimer],
        dead: list[int],
    ) -> None:
        """Hand over, when the log has what it must have first."""
        if dead or (served and is_logged(topic)):
            Passing(self, topic, partition, served, unserved).start(dead)
        else:
            self.hand_over(topic, partition, served, unserved)

    def hand_over(
        self,
        topic: Topic,
        partition: Partition,
        served: list[tuple[Claimer, Claimed]],
        unserved: list[Claimer],
    ) -> None:
        """The last step of a pass: everybody is told."""
        leases = partition.leases
        assert leases is not None
        ready = leases.ready(partition.count)
        told: dict[AnswerClaims, list[tuple[Any, Claimed | TopicsError]]] = {}
        for claimer, claimed in served:
            claimed.ready = ready
            if not isinstance(claimer, Claim):
                claimer.deliver(claimed)
            elif not claimer.over:
                told.setdefault(claimer.answer, []).append((claimer.end(), claimed))
            elif claimed.grant is not None:
                # Its client went while the log was written: somebody else can have them at once.
                self._give_back(topic, partition, leases, leases.of_grant(claimed.grant), None)
        for answer, answers in told.items():
            answer(answers)
        for claimer in unserved:
            if isinstance(claimer, Claim) and not claimer.over:
                if claimer.wait_ms:
                    claimer.wait(self.desk(topic, partition))
                    claimer.start_waiting()
                else:
                    claimer.deliver(Claimed(topic, None, [], ready))
        self._reset_timer(topic, partition)

    def _reset_timer(self, topic: Topic, partition: Partition) -> None:
        """A deadline has changed: those who wait for it may have to look sooner."""
        desk = self._desks.get((topic.id, partition.number))
        if desk is not None:
            desk.set_timer()

    # Finishing and giving back

    def ack(
        self,
        name: str,
        number: int,
        node: str,
        seqs: list[int],
        lease_ids: list[str] | None,
        asker: Any,
        answer: AnswerAcks = call_each,
    ) -> None:
        """Jobs the node holds are done: deleted for good. `answer` tells the asker when the topic's class says it may."""
        broker = self._broker
        if broker.is_busy(name):
            again = partial(self.ack, name, number, node, seqs, lease_ids, asker, answer)
            broker.parked(name, again, lambda error: answer([(asker, error)]))
            return
        topic, partition, leases = self.find(name, number)
        self.refresh(topic, partition, leases)
        parts, skipped = leases.held_by(node, seqs, lease_ids)
        if topic.config.durability == "ephemeral" or not parts:
            acked = sorted(seqs_of_parts(parts))
            if acked:
                partition.kill(acked)
            answer([(asker, settled(topic, partition, len(acked), skipped))])
            return
        for _, done in parts:
            # What is deleted is counted, so it must be readable; found out later it would be everybody's trouble.
            first, last = (done[0], done[-1]) if isinstance(done, range) else (min(done), max(done))
            partition.check(first, last)
        group: AckGroup | None = leases.acks
        if group is None:
            lane = broker.committer.lane_of(topic.id)
            broker.committer.check_writable(lane)
            group = leases.acks = AckGroup(broker, topic, partition)
            broker.committer.submit(lane, group)
        leases.leave(parts)
        group.add(parts, skipped, asker, answer)

    def nack(
        self,
        name: str,
        number: int,
        node: str,
        seqs: list[int],
        lease_ids: list[str] | None,
        delay_ms: int,
        reply: SettledReply,
    ) -> None:
        """Jobs the node holds are given back, to be claimed by anybody now or after the delay."""
        broker = self._broker
        if broker.parked(name, lambda: self.nack(name, number, node, seqs, lease_ids, delay_ms, reply), reply):
            return
        topic, partition, leases = self.find(name, number)
        now_ms = self.refresh(topic, partition, leases)
        parts, skipped = leases.held_by(node, seqs, lease_ids)
        due = now_ms + delay_ms if delay_ms else None
        if not is_logged(topic) or not parts:
            nacked = seqs_of_parts(parts)
            leases.give_back(nacked, due)
            reply(settled(topic, partition, len(nacked), skipped))
            return
        lane = broker.committer.lane_of(topic.id)
        broker.committer.check_writable(lane)
        leases.leave(parts)
        broker.committer.submit(lane, Nack(topic, partition, parts, skipped, due, reply))

    def extend(
        self,
        name: str,
        number: int,
        node: str,
        seqs: list[int],
        lease_ids: list[str] | None,
        lease_ms: int,
        reply: SettledReply,
    ) -> None:
        """Jobs the node holds are its own until `lease_ms` from now."""
        broker = self._broker
        if broker.parked(name, lambda: self.extend(name, number, node, seqs, lease_ids, lease_ms, reply), reply):
            return
        topic, partition, leases = self.find(name, number)
        now_ms = self.refresh(topic, partition, leases)
        parts, skipped = leases.held_by(node, seqs, lease_ids)
        lane = broker.committer.lane_of(topic.id)
        logged = is_logged(topic) and bool(parts)
        if logged:
            broker.committer.check_writable(lane)
        # True at once: a longer lease that the log then refuses harms nobody.
        grants = leases.extend(parts, now_ms + lease_ms)
        extended = seqs_of_parts(parts)
        self._reset_timer(topic, partition)
        outcome = settled(topic, partition, len(extended), skipped)
        outcome.seqs = extended
        outcome.deadline = now_ms + lease_ms
        if logged:
            facts: list[Fact] = [leased_fact(topic, partition, leases, grant) for grant in grants]
            broker.committer.submit(lane, Told(topic, partition, facts, outcome, reply))
        else:
            reply(outcome)

    def release(self, topic: Topic, partition: Partition, basket: set[int]) -> None:
        """A connection is gone: what was pushed to it and is still held is anybody's again, at once."""
        leases = partition.leases
        if leases is not None:
            self._give_back(topic, partition, leases, leases.of_basket(basket), None)

    def configured(self, topic: Topic, before: TopicConfig) -> None:
        """The configuration has changed. When leases become durable, those there are now are written down."""
        if not is_logged(topic) or before.leases_durable:
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
                for each in image.grants
            ]
            facts += [returned_fact(topic, partition, [seq], [count], None) for seq, count in image.returned if count]
            facts += [
                returned_fact(topic, partition, [seq], [count], due) for seq, due, count in image.delayed if count
            ]
            if facts:
                self._note(topic, facts)

    def _give_back(self, topic: Topic, partition: Partition, leases: Leases, seqs: list[int], due: int | None) -> None:
        if seqs:
            fact = returned_fact(topic, partition, seqs, leases.all_deliveries(seqs), due)
            leases.give_back(seqs, due)
            if is_logged(topic):
                self._note(topic, [fact])

    def _note(self, topic: Topic, facts: list[Fact]) -> None:
        committer = self._broker.committer
        committer.submit(committer.lane_of(topic.id), Note(facts))


class Passing:
    """A pass that waits for the log: for its leases to be written, for dead jobs to be moved."""

    def __init__(
        self,
        queues: Queues,
        topic: Topic,
        partition: Partition,
        served: list[tuple[Claimer, Claimed]],
        unserved: list[Claimer],
    ) -> None:
        self._queues = queues
        self._topic = topic
        self._partition = partition
        self._served = served
        self._unserved = unserved
        self._outstanding = 1
        self._again = False

    def start(self, dead: list[int]) -> None:
        queues, topic, partition = self._queues, self._topic, self._partition
        broker = queues._broker
        leases = partition.leases
        assert leases is not None
        if self._served and is_logged(topic):
            facts: list[Fact] = [
                leased_fact(topic, partition, leases, claimed.grant) for _, claimed in self._served if claimed.grant
            ]
            self._outstanding += 1
            broker.committer.submit(broker.committer.lane_of(topic.id), Lease(self, topic, partition, facts))
        if dead:
            self._outstanding += 1
            dead_letter.move(broker, topic, partition, dead, self._moved)
        self.step()

    def _moved(self, moved: int) -> None:
        # Dead jobs may have hidden others; who got nothing looks again when some are out of the way.
        self._again = moved > 0
        self.step()

    def step(self) -> None:
        self._outstanding -= 1
        if self._outstanding:
            return
        queues, topic, partition = self._queues, self._topic, self._partition
        unserved = self._unserved
        if queues._broker.state.by_id.get(topic.id) is not topic:
            for claimer in [*[claimer for claimer, _ in self._served], *unserved]:
                claimer.fail(topic_not_found(topic.name))
            return
        again = [claimer for claimer in unserved if claimer.room()] if self._again else []
        queues.hand_over(topic, partition, self._served, [] if self._again else unserved)
        if again:
            queues.serve(topic, partition, again)

    def failed(self, error: TopicsError) -> None:
        """The leases are not in the log: they never were."""
        leases = self._partition.leases
        assert leases is not None
        served, self._served = self._served, []
        # The last one first, so that the jobs stand in the order in which they were taken.
        for claimer, claimed in reversed(served):
            if claimed.grant is not None:
                leases.undo(claimed.grant)
            claimer.fail(error)
        self.step()
