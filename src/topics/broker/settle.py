"""What becomes of a job, on its way to the log: leased, acked, nacked, extended.

An ack is the delete of the job. The others are facts only where leases are durable; then nobody is told before the log
has them. While an ack or nack is on its way the job is leaving: nobody else gets it, and if the log refuses it the
lease stands as before.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from topics.broker.committer import Commit
from topics.engine.lease import Grant, Leases, seqs_bytes
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.errors import TopicsError
from topics.model.facts import Deleted, Fact, Leased, Returned

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class Settled(Struct):
    """The outcome of an ack, nack or extend."""

    topic: Topic
    seqs: list[int]
    skipped: list[int]
    ready: int
    in_flight: int
    sync_ms: float = 0.0
    deadline: int = 0


SettledReply = Callable[[Settled | TopicsError], None]


def settled(topic: Topic, partition: Partition, seqs: list[int], skipped: list[int]) -> Settled:
    leases = partition.leases
    assert leases is not None
    return Settled(topic, seqs, skipped, leases.ready(partition.count), leases.in_flight)


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


class Ack(Commit):
    """Jobs that are done, on their way out."""

    __slots__ = ("_broker", "_chosen", "_reply", "_seqs", "_skipped", "_topic")

    partition: Partition

    def __init__(
        self,
        broker: "Broker",
        topic: Topic,
        partition: Partition,
        seqs: list[int],
        chosen: dict[int, Grant],
        skipped: list[int],
        reply: SettledReply,
    ) -> None:
        super().__init__([Deleted(topic.id, partition.number, seqs_bytes(seqs))], partition)
        self.sync = topic.config.durability == "fsync"
        self._broker = broker
        self._topic = topic
        self._seqs = seqs
        self._chosen = chosen
        self._skipped = skipped
        self._reply = reply

    def apply(self) -> None:
        # What `State.apply` does for a Deleted, without taking its seqs apart again.
        partition = self.partition
        partition.kill(self._seqs)
        if partition.dropped:
            self._broker.keeper.collect_dropped(self._topic.id, partition, self.lsn)
        outcome = settled(self._topic, partition, self._seqs, self._skipped)
        if self._topic.config.durability == "fsync":
            outcome.sync_ms = self.sync_ms
        self._reply(outcome)

    def fail(self, error: TopicsError) -> None:
        leases = self.partition.leases
        assert leases is not None
        leases.stay(self._chosen)
        self._reply(error)


class Nack(Commit):
    """Jobs that are given back, on their way to the log."""

    __slots__ = ("_chosen", "_due", "_reply", "_skipped", "_topic")

    partition: Partition

    def __init__(
        self,
        topic: Topic,
        partition: Partition,
        chosen: dict[int, Grant],
        skipped: list[int],
        due: int | None,
        reply: SettledReply,
    ) -> None:
        leases = partition.leases
        assert leases is not None
        seqs = list(chosen)
        super().__init__([returned_fact(topic, partition, seqs, leases.all_deliveries(seqs), due)], partition)
        self.sync = topic.config.durability == "fsync"
        self._topic = topic
        self._chosen = chosen
        self._skipped = skipped
        self._due = due
        self._reply = reply

    def apply(self) -> None:
        leases = self.partition.leases
        assert leases is not None
        seqs = list(self._chosen)
        leases.give_back(seqs, self._due)
        outcome = settled(self._topic, self.partition, seqs, self._skipped)
        outcome.sync_ms = self.sync_ms if self.sync else 0.0
        self._reply(outcome)

    def fail(self, error: TopicsError) -> None:
        leases = self.partition.leases
        assert leases is not None
        leases.stay(self._chosen)
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
        self._settled.sync_ms = self.sync_ms if self.sync else 0.0
        self._reply(self._settled)

    def fail(self, error: TopicsError) -> None:
        self._reply(error)


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
