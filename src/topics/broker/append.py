"""Appends: one write from decision to acknowledgement.

decide (seqs, caps, dedupe; all or nothing) -> commit -> apply -> answer. Two writes with the same idempotency key in
flight become one: the second waits for the first and gets its seqs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from topics.broker.committer import Commit
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge, Throttled, TopicFull, TopicsError
from topics.model.facts import Appended, Fact, HeadMoved
from topics.model.page import Page

if TYPE_CHECKING:
    from topics.broker.broker import Broker

Outcome = "Append | TopicsError"
Reply = Callable[["Append | TopicsError"], None]


class Append(Commit):
    """A write under way, and its outcome once it is answered."""

    __slots__ = (
        "broker",
        "count",
        "created",
        "deduped",
        "first_seq",
        "followers",
        "key",
        "page",
        "partition",
        "reply",
        "topic",
    )

    page: Page | None

    def __init__(
        self,
        broker: "Broker",
        topic: Topic,
        partition: Partition,
        page: Page | None,
        first_seq: int,
        count: int,
        key: str | None,
        reply: Reply,
    ) -> None:
        # Commit.__init__ is spelled out here: this object is made for every write.
        self.lsn = 0
        self.sync = False
        self.wal_ms = 0.0
        self.sync_ms = 0.0
        self.broker = broker
        self.topic = topic
        self.partition = partition
        self.page = page
        self.first_seq = first_seq
        self.count = count
        self.key = key
        self.reply = reply
        self.created = False
        self.deduped = False
        self.followers: list[Reply] | None = None

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1

    def apply(self) -> None:
        page = self.page
        assert page is not None
        partition = self.partition
        partition.pending_records -= page.count
        partition.pending_bytes -= page.size
        if self.sync:
            partition.waiting_sync -= 1
        topic = self.topic
        broker = self.broker
        broker.state.append(topic, partition, page, self.key)
        config = topic.config
        if config.cap_records or config.cap_bytes or config.ttl_ms:
            broker.evict(topic, partition)
        broker.appended(topic, partition, page.size)
        if self.key is not None:
            self._finish_key()
        self.reply(self)
        if self.followers is not None:
            for reply in self.followers:
                reply(deduped(broker, topic, partition, self.first_seq, self.count, reply))

    def fail(self, error: TopicsError) -> None:
        page = self.page
        assert page is not None
        partition = self.partition
        partition.pending_records -= page.count
        partition.pending_bytes -= page.size
        if self.sync:
            partition.waiting_sync -= 1
        # Nothing of it stands in the log, so its seqs are free again; later ones have failed before.
        partition.next_seq = min(partition.next_seq, page.first_seq)
        if self.key is not None:
            self._finish_key()
        self.reply(error)
        for reply in self.followers or ():
            reply(error)

    def fact(self) -> Fact:
        assert self.page is not None
        if self.topic.config.durability == "ephemeral":
            return HeadMoved(self.topic.id, self.partition.number, self.last_seq)
        return Appended(self.topic.id, self.partition.number, self.page, self.key)

    def _finish_key(self) -> None:
        assert self.key is not None
        self.broker.keys_in_flight.pop((self.topic.id, self.key), None)


def deduped(broker: "Broker", topic: Topic, partition: Partition, first_seq: int, count: int, reply: Reply) -> Append:
    """The outcome of a write that was already done."""
    outcome = Append(broker, topic, partition, None, first_seq, count, None, reply)
    outcome.deduped = True
    return outcome


def choose_partition(topic: Topic, batch: Batch) -> Partition:
    partitions = topic.partitions
    if batch.partition_key is not None:
        return partitions[hashed_partition(batch.partition_key, len(partitions))]
    if batch.partition >= len(partitions):
        raise InvalidRequest(
            f'topic "{topic.name}" has {len(partitions)} partitions', detail={"partitions": len(partitions)}
        )
    return partitions[batch.partition]


def hashed_partition(key: str, partitions: int) -> int:
    """Spark computes the same as `pmod(xxhash64(key), partitions)`."""
    from xxhash import xxh64_intdigest

    value = xxh64_intdigest(key.encode(), 42)
    return (value - (1 << 64) if value >> 63 else value) % partitions


def decide_append(broker: "Broker", topic: Topic, batch: Batch, reply: Reply) -> Append | None:
    """A write with its seqs, ready to be submitted; None when it was answered or follows another in flight.

    Raises a TopicsError when the write is refused; then nothing has changed.
    """
    now_ms = broker.runtime.now_ms()
    partition = topic.partitions[0]
    if batch.partition or batch.partition_key is not None:
        partition = choose_partition(topic, batch)
    config = topic.config
    key = batch.key
    if key is not None:
        kept = topic.dedupe.find(key, now_ms, config.idempotency_window_ms)
        if kept is not None:
            reply(deduped(broker, topic, topic.partitions[kept.partition], kept.first_seq, kept.count, reply))
            return None
        first = broker.keys_in_flight.get((topic.id, key))
        if first is not None:
            if first.followers is None:
                first.followers = []
            first.followers.append(reply)
            return None
        _check_keys(broker, topic, now_ms)
    count, size = batch.count, batch.size
    if config.cap_records or config.cap_bytes:
        check_room(broker, topic, partition, count, size)
    most_bytes = broker.limits.max_total_bytes
    if most_bytes:
        broker.check_total_bytes(size)
    ts = partition.last_ts
    if now_ms > ts:
        partition.last_ts = ts = now_ms
    first_seq = partition.next_seq
    page = Page(first_seq, count, ts, batch.data, batch.metas, batch.nodes, batch.tags, size)
    partition.next_seq = first_seq + count
    partition.pending_records += count
    partition.pending_bytes += size
    append = Append(broker, topic, partition, page, first_seq, count, key, reply)
    if key is not None:
        broker.keys_in_flight[topic.id, key] = append
    return append


def check_room(broker: "Broker", topic: Topic, partition: Partition, count: int, size: int) -> None:
    """A write larger than the whole cap can never succeed; one that does not fit now can, later, on a `reject` topic."""
    config = topic.config
    if 0 < config.cap_records < count:
        raise BatchTooLarge(
            f"{count} records in one write, but the topic holds at most {config.cap_records}",
            detail={"cap_records": config.cap_records, "count": count},
        )
    if 0 < config.cap_bytes < size:
        error = RecordTooLarge if count == 1 else BatchTooLarge
        raise error(
            f"the write takes {size} bytes, but the topic holds at most {config.cap_bytes}",
            detail={"cap_bytes": config.cap_bytes, "bytes": size},
        )
    if config.discard == "old":
        return
    if config.ttl_ms:
        broker.evict(topic, partition)
    records = partition.count + partition.pending_records + count
    total = partition.bytes + partition.pending_bytes + size
    if (config.cap_records and records > config.cap_records) or (config.cap_bytes and total > config.cap_bytes):
        raise TopicFull(
            f'topic "{topic.name}" is full',
            detail={"topic": topic.name, "cap_records": config.cap_records, "cap_bytes": config.cap_bytes},
        )


def _check_keys(broker: "Broker", topic: Topic, now_ms: int) -> None:
    most = broker.limits.max_idempotency_keys
    if most and len(topic.dedupe) >= most:
        topic.dedupe.expire(now_ms, topic.config.idempotency_window_ms)
        if len(topic.dedupe) >= most:
            raise Throttled(
                "too many idempotency keys within the window",
                detail={"limit": "max_idempotency_keys", "max": most},
            )
