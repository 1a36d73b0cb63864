"""Commits about leases: leased, acked, nacked and extended jobs.

An ack is the delete of the job. The others are logged only where leases are durable; then the reply waits for the log. While an
ack or nack waits for the log the job is COMMITTING: it is not delivered and does not expire, and if the log refuses the commit it is
leased as before.
"""

from collections.abc import Callable
from typing import Any

from topics.broker.log.commit import Commit, FactCommit
from topics.engine.leases.lease import DeliveryPart, Leases, seqs_bytes
from topics.engine.partitions.partition import Partition
from topics.engine.queues.lease_facts import (
    AckResult,
    QueueCounts,
    ack_result,
    merge_runs,
    returned_fact,
    seqs_of_parts,
)
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError
from topics.model.facts import DeletedRuns, Fact
from topics.runtime.replies import call

AckReply = Callable[[AckResult | TopicsError], None]
# Answers all acks of one turn: pairs of an ack's context and its outcome.
ReplyAcks = Callable[[list[tuple[Any, AckResult | TopicsError]]], None]


class AckCommit(Commit):
    """The acks of one turn to one partition: one frame, one delete, and a reply for each.

    `closed` is called once, when no more acks can be added. `collect_dropped` is called with the partition and the lsn when the
    delete has emptied segments.
    """

    __slots__ = ("_closed", "_collect_dropped", "_counts", "_parts", "_replies", "_runs", "_topic")

    partition: Partition

    def __init__(
        self,
        topic: Topic,
        partition: Partition,
        closed: Callable[[Partition], None],
        collect_dropped: Callable[[Partition, int], None],
    ) -> None:
        super().__init__(None, partition, sync=topic.config.durability == "fsync")
        self._topic = topic
        self._closed: Callable[[Partition], None] | None = closed
        self._collect_dropped = collect_dropped
        # By reply function: the context of each request, how many jobs it acked, and the seqs it does not hold.
        self._replies: dict[ReplyAcks, list[tuple[Any, int, list[int]]]] = {}
        # The acked jobs by delivery, and as runs of seqs (first, first behind).
        self._parts: list[DeliveryPart] = []
        self._runs: list[tuple[int, int]] = []
        self._counts: QueueCounts | None = None
        # How many acks: with many of them the next write waits for one more turn, see `SyncPolicy.delays_write`.
        self.waiters = 0

    def add(self, parts: list[DeliveryPart], skipped: list[int], context: Any, reply: ReplyAcks) -> None:
        """Add the ack of one request; its jobs are committing."""
        count = 0
        for _, seqs in parts:
            count += len(seqs)
            if isinstance(seqs, range):
                self._runs.append((seqs.start, seqs.stop))
            else:
                self._runs += [(seq, seq + 1) for seq in seqs]
        self.waiters += 1
        self._parts += parts
        self._replies.setdefault(reply, []).append((context, count, skipped))

    def encode(self, synced_lsn: int) -> bytes | list[bytes]:
        self._close()
        self._runs = merge_runs(self._runs)
        bounds = [bound for run in self._runs for bound in run]
        self.facts = [DeletedRuns(self._topic.id, self.partition.number, seqs_bytes(bounds))]
        return super().encode(synced_lsn)

    def after_apply(self) -> None:
        partition = self.partition
        leases = _leases(partition)
        if partition.dropped:
            self._collect_dropped(partition, self.lsn)
        sync_ms = self.sync_ms if self._topic.config.durability == "fsync" else 0.0
        self._counts = QueueCounts(self._topic, leases.ready(partition.count), leases.in_flight, sync_ms)

    def rollback(self) -> None:
        self._close()
        _leases(self.partition).cancel_commit(self._parts)

    def reply(self, error: TopicsError | None) -> None:
        counts = self._counts
        for reply, acks in self._replies.items():
            outcomes: list[tuple[Any, AckResult | TopicsError]]
            if counts is not None and error is None:
                outcomes = [(context, AckResult(counts, count, skipped)) for context, count, skipped in acks]
            else:
                assert error is not None
                outcomes = [(context, error) for context, _, _ in acks]
            call(reply, outcomes)

    def _close(self) -> None:
        closed, self._closed = self._closed, None
        if closed is not None:
            closed(self.partition)


def lease_commit(
    topic: Topic, partition: Partition, facts: list[Fact], decided: Callable[[TopicsError | None], None]
) -> FactCommit:
    """New leases, which are already in effect. `decided` is called with None, or with the error of the log."""
    return FactCommit(facts, decided, partition=partition, sync=topic.config.durability == "fsync")


def nack_commit(
    topic: Topic,
    partition: Partition,
    parts: list[DeliveryPart],
    skipped: list[int],
    due: int | None,
    reply: AckReply,
) -> FactCommit:
    """Jobs that are returned when the log has it; they are committing."""
    seqs = seqs_of_parts(parts)
    leases = _leases(partition)
    fact = returned_fact(topic, partition, seqs, leases.delivery_counts(seqs), due)
    result: AckResult | None = None

    def applied(commit: Commit) -> None:
        nonlocal result
        result = ack_result(topic, partition, len(seqs), skipped)
        result.counts.sync_ms = commit.sync_ms if commit.sync else 0.0

    return FactCommit(
        [fact],
        lambda error: reply(error or result),  # type: ignore[arg-type]
        partition=partition,
        sync=topic.config.durability == "fsync",
        after_apply=applied,
        rollback=lambda: leases.cancel_commit(parts),
    )


def extend_commit(
    topic: Topic, partition: Partition, facts: list[Fact], result: AckResult, reply: AckReply
) -> FactCommit:
    """Leases with a new deadline, which is already in effect; the reply waits for the log."""

    def applied(commit: Commit) -> None:
        result.counts.sync_ms = commit.sync_ms if commit.sync else 0.0

    sync = topic.config.durability == "fsync"
    return FactCommit(facts, lambda error: reply(error or result), partition=partition, sync=sync, after_apply=applied)


def _leases(partition: Partition) -> Leases:
    assert partition.leases is not None
    return partition.leases
