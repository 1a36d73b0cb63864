"""Facts and results of leases: what is logged about them, and the outcome of an ack, nack or extend."""

from msgspec import Struct

from topics.engine.leases.delivery import Delivery
from topics.engine.leases.lease import DeliveryPart, Leases, seqs_bytes
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.facts import Leased, Returned


class QueueCounts(Struct):
    """The counts of a queue after an ack, nack or extend; shared by all results of one commit."""

    topic: Topic
    ready: int
    in_flight: int
    sync_ms: float = 0.0
    # The part of a rendered response that all results share; filled by the server.
    text: bytes = b""


class AckResult(Struct):
    """The outcome of an ack, nack or extend."""

    counts: QueueCounts
    count: int
    skipped: list[int]
    # Of an extend: the jobs and their new deadline.
    seqs: list[int] = []
    deadline: int = 0


def ack_result(topic: Topic, partition: Partition, count: int, skipped: list[int]) -> AckResult:
    leases = partition.leases
    assert leases is not None
    return AckResult(QueueCounts(topic, leases.ready(partition.count), leases.in_flight), count, skipped)


def seqs_of_parts(parts: list[DeliveryPart]) -> list[int]:
    return [seq for _, seqs in parts for seq in seqs]


def merge_runs(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same runs (first, first behind) in order, with adjacent ones merged."""
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


def leases_are_logged(topic: Topic) -> bool:
    return topic.config.leases_durable and topic.config.durability != "ephemeral"


def leased_fact(topic: Topic, partition: Partition, leases: Leases, delivery: Delivery) -> Leased:
    return Leased(
        topic.id,
        partition.number,
        delivery.node,
        delivery.token,
        delivery.deadline,
        seqs_bytes(delivery.seqs),
        leases.delivery_counts(delivery.seqs),
    )


def returned_fact(
    topic: Topic, partition: Partition, seqs: list[int], deliveries: list[int], due: int | None
) -> Returned:
    return Returned(topic.id, partition.number, seqs_bytes(seqs), deliveries, due)
