"""What becomes of a job, on its way to the log: leased, acked, nacked, extended.

An ack is the delete of the job. The others are facts only where leases are durable; then nobody is told before the log
has them. While an ack or nack is on its way the job is leaving: nobody else gets it, and if the log refuses it the
lease stands as before.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from topics.broker.committer import Commit
from topics.engine.held import Grant
from topics.engine.lease import Leases, Part, seqs_bytes
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.errors import TopicsError
from topics.model.facts import DeletedRuns, Fact, Leased, Returned

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class Standing(Struct):
    """How the queue stands when something is settled; the same for all that is settled together."""

    topic: Topic
    ready: int
    in_flight: int
    sync_ms: float = 0.0
    # Whoever renders it may keep what does not differ.
    text: bytes = b""


class Settled(Struct):
    """The outcome of an ack, nack or extend."""

    after: Standing
    count: int
    skipped: list[int]
    # Of an extend: the jobs, and the deadline they have now.
    seqs: list[int] = []
    deadline: int = 0


SettledReply = Callable[[Settled | TopicsError], None]
# Tells everybody who asked in one turn what came of it.
AnswerAcks = Callable[[list[tuple[Any, Settled | TopicsError]]], None]


def settled(topic: Topic, partition: Partition, count: int, skipped: list[int]) -> Settled:
    leases = partition.leases
    assert leases is not None
    return Settled(Standing(topic, leases.ready(partition.count), leases.in_flight), count, skipped)


class Passing(Protocol):
    """A pass that waits for its leases to be in the log."""

    def step(self) -> None: ...

    def failed(self, error: TopicsError) -> None: ...


class Lease(Commit):
    """Leases on their way to the log."""

    __slots__ = ("_passing",)

    def __init__(self, passing: Passing, topic: Topic, partition: Partition, facts: list[Fact]) -> None:
        super().__init__(facts, partition)
        self.sync = topic.config.durability == "fsync"
        self._passing = passing

    def apply(self) -> None:
        self._passing.step()

    def fail(self, error: TopicsError) -> None:
        self._passing.failed(error)


class AckGroup(Commit):
    """The acks of one turn to one partition: one frame, one delete, and an answer for each."""

    __slots__ = ("_answers", "_broker", "_parts", "_runs", "_topic")

    partition: Partition

    def __init__(self, broker: "Broker", topic: Topic, partition: Partition) -> None:
        super().__init__(None, partition)
        self.sync = topic.config.durability == "fsync"
        self._broker = broker
        self._topic = topic
        # Who is told how many jobs he has acked, and which not; by who tells it.
        self._answers: dict[AnswerAcks, list[tuple[Any, int, list[int]]]] = {}
        # What is leaving, by its deliveries and as runs of seqs (first and first behind).
        self._parts: list[Part] = []
        self._runs: list[tuple[int, int]] = []

    def add(self, parts: list[Part], skipped: list[int], asker: Any, answer: AnswerAcks) -> None:
        """These jobs, which are leaving, are done."""
        count = 0
        for _, seqs in parts:
            count += len(seqs)
            if isinstance(seqs, range):
                self._runs.append((seqs.start, seqs.stop))
            else:
                self._runs += [(seq, seq + 1) for seq in seqs]
        self._parts += parts
        self._answers.setdefault(answer, []).append((asker, count, skipped))

    def encode(self, synced_lsn: int) -> bytes:
        self._close()
        self._runs = merged(self._runs)
        bounds = [bound for run in self._runs for bound in run]
        self.facts = [DeletedRuns(self._topic.id, self.partition.number, seqs_bytes(bounds))]
        return super().encode(synced_lsn)

    def apply(self) -> None:
        # What `State.apply` does for a DeletedRuns, without taking it apart again.
        partition = self.partition
        leases = partition.leases
        assert leases is not None
        leases.acked(self._parts)
        partition.kill_runs(self._runs)
        if partition.dropped:
            self._broker.keeper.collect_dropped(self._topic.id, partition, self.lsn)
        sync_ms = self.sync_ms if self._topic.config.durability == "fsync" else 0.0
        standing = Standing(self._topic, leases.ready(partition.count), leases.in_flight, sync_ms)
        for answer, acks in self._answers.items():
            answer([(asker, Settled(standing, count, skipped)) for asker, count, skipped in acks])

    def fail(self, error: TopicsError) -> None:
        self._close()
        leases = self.partition.leases
        assert leases is not None
        leases.stay(self._parts)
        for answer, acks in self._answers.items():
            answer([(asker, error) for asker, _, _ in acks])

    def _close(self) -> None:
        """Nothing is added any more."""
        leases = self.partition.leases
        if leases is not None and leases.acks is self:
            leases.acks = None


class Nack(Commit):
    """Jobs that are given back, on their way to the log."""

    __slots__ = ("_due", "_parts", "_reply", "_skipped", "_topic")

    partition: Partition

    def __init__(
        self,
        topic: Topic,
        partition: Partition,
        parts: list[Part],
        skipped: list[int],
        due: int | None,
        reply: SettledReply,
    ) -> None:
        leases = partition.leases
        assert leases is not None
        seqs = seqs_of_parts(parts)
        super().__init__([returned_fact(topic, partition, seqs, leases.all_deliveries(seqs), due)], partition)
        self.sync = topic.config.durability == "fsync"
        self._topic = topic
        self._parts = parts
        self._skipped = skipped
        self._due = due
        self._reply = reply

    def apply(self) -> None:
        leases = self.partition.leases
        assert leases is not None
        seqs = seqs_of_parts(self._parts)
        leases.give_back(seqs, self._due)
        outcome = settled(self._topic, self.partition, len(seqs), self._skipped)
        outcome.after.sync_ms = self.sync_ms if self.sync else 0.0
        self._reply(outcome)

    def fail(self, error: TopicsError) -> None:
        leases = self.partition.leases
        assert leases is not None
        leases.stay(self._parts)
        self._reply(error)


class Told(Commit):
    """Something that is true already and whose answer waits for the log."""

    __slots__ = ("_reply", "_settled")

    def __init__(
        self, topic: Topic, partition: Partition, facts: list[Fact], settled: Settled, reply: SettledReply
    ) -> None:
        super().__init__(facts, partition)
        self.sync = topic.config.durability == "fsync"
        self._settled = settled
        self._reply = reply

    def apply(self) -> None:
        self._settled.after.sync_ms = self.sync_ms if self.sync else 0.0
        self._reply(self._settled)

    def fail(self, error: TopicsError) -> None:
        self._reply(error)


def seqs_of_parts(parts: list[Part]) -> list[int]:
    return [seq for _, seqs in parts for seq in seqs]


def merged(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same runs (first and first behind) in order, neighbours made one."""
    runs.sort()
    result: list[tuple[int, int]] = []
    first, stop = runs[0]
    for next_first, next_stop in runs:
        if next_first > stop:
            result.append((first, stop))
            first = next_first
        stop = next_stop
    result.append((first, stop))
    return result


def is_logged(topic: Topic) -> bool:
    return topic.config.leases_durable and topic.config.durability != "ephemeral"


def leased_fact(topic: Topic, partition: Partition, leases: Leases, grant: Grant) -> Leased:
    return Leased(
        topic.id,
        partition.number,
        grant.node,
        grant.token,
        grant.deadline,
        seqs_bytes(grant.seqs),
        leases.all_deliveries(grant.seqs),
    )


def returned_fact(
    topic: Topic, partition: Partition, seqs: list[int], deliveries: list[int], due: int | None
) -> Returned:
    return Returned(topic.id, partition.number, seqs_bytes(seqs), deliveries, due)
