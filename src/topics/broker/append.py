"""Appends: one write from decision to acknowledgement.

decide (seqs, caps, dedupe; all or nothing) -> commit -> apply -> answer. Writes to one partition that are decided in the
same turn of the loop are committed as one: one frame, one page, one apply, and an answer for each. Each is still all or
nothing, because the frame is. (Single records, socket left out: 18 us for one in a turn; many go the express way, `express.py`, 2.6 us each for ten.)

Two writes with the same idempotency key in flight become one: the second waits for the first and gets its seqs.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from topics.broker.committer import Commit
from topics.engine.partition import Partition
from topics.engine.segment import PAGE_RECORDS_MOST
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.errors import BatchTooLarge, InvalidRequest, RecordTooLarge, Throttled, TopicFull, TopicsError
from topics.model.facts import Appended, Delayed, Fact, HeadMoved
from topics.model.limits import Limits
from topics.model.page import SEPARATOR, Page, joined_columns
from topics.model.placing import hashed_partition
from topics.storage.frame import encode_append, encode_facts

if TYPE_CHECKING:
    from topics.broker.broker import Broker

Reply = Callable[["Append | TopicsError"], None]
# Whole microseconds as milliseconds; most writes take less than these. (Formatting a number takes 0.2 us, and more when it is
# done once in a while.)
MILLISECONDS = [b"%d.%03d" % divmod(us, 1000) for us in range(5000)]
MILLISECONDS_MOST = len(MILLISECONDS)
# Runs of those who wrote one record each, each with the seq of its first.
Runs = Sequence[tuple[int, Sequence[Any]]]
# Answers all of them, with their seqs or with the error. They share the topic's name, its head and a part of `performance`.
AnswerJoined = Callable[[bytes, int, bytes, Runs, TopicsError | None], None]


class Append(Struct, gc=False):
    """One write of one request: what it was given, and its outcome once it is answered."""

    topic: Topic
    partition: Partition
    first_seq: int
    count: int
    key: str | None
    reply: Reply
    created: bool = False
    deduped: bool = False
    group: "AppendGroup | None" = None
    followers: list[Reply] | None = None

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1


class AppendGroup(Commit):
    """Writes of one turn to one partition, with neighbouring seqs. A write with a key or with delays stands alone."""

    __slots__ = (
        "answer",
        "batches",
        "broker",
        "dues",
        "first_seq",
        "joined",
        "members",
        "page",
        "rich",
        "size",
        "timing",
        "topic",
        "ts",
        "unseen_most",
    )

    partition: Partition

    def __init__(self, broker: "Broker", topic: Topic, partition: Partition, unseen_most: int) -> None:
        super().__init__(None, partition)
        self.broker = broker
        self.topic = topic
        self.ts = 0
        self.first_seq = partition.next_seq
        self.size = 0
        self.waiters = 0
        # Up to so many records, plain writes join without a decision: nothing limits how much the topic holds.
        self.unseen_most = unseen_most
        self.members: list[Append] = []
        # Plain writes of one record: runs of those who asked, each with the seq of its first, and who answers all of them.
        self.joined: list[tuple[int, Sequence[Any]]] = []
        self.answer: AnswerJoined = nobody_waits
        # In the order of their seqs.
        self.batches: list[Batch] = []
        # Some record may have more than a payload.
        self.rich = False
        self.page: Page | None = None
        # When each job becomes claimable, for a write with delays into a queue.
        self.dues: list[int] | None = None
        # The part of each answer's `performance` that all members share.
        self.timing = b""
        # The very first write is synced whatever the class: so a log that is found empty has never handed out a seq.
        self.sync = topic.config.durability == "fsync" or not partition.head_seq

    def add(self, batch: Batch, member: Append) -> None:
        """The batch gets the next seqs of the partition."""
        self.take(batch)
        self.members.append(member)
        self.waiters += 1
        member.group = self

    def take(self, batch: Batch) -> None:
        partition = self.partition
        # A group may be open for long, while a sync is stuck: its records are as old as the one that came last.
        now_ms = self.broker.runtime.now_ms()
        if now_ms > partition.last_ts:
            partition.last_ts = now_ms
        self.ts = partition.last_ts
        count, size = batch.count, batch.size
        partition.next_seq += count
        partition.pending_records += count
        partition.pending_bytes += size
        self.records += count
        self.size += size
        self.batches.append(batch)
        if not batch.plain:
            self.rich = True

    @property
    def key(self) -> str | None:
        return self.members[0].key if self.members else None

    def close(self) -> Page:
        """Nothing is added any more; the records as one page."""
        page = self.page
        if page is None:
            batches = self.batches
            data = batches[0].data if len(batches) == 1 else SEPARATOR.join([each.data for each in batches])
            metas = nodes = tags = None
            if self.rich:
                metas = joined_columns([(each.metas, each.count) for each in batches])
                nodes = joined_columns([(each.nodes, each.count) for each in batches])
                tags = joined_columns([(each.tags, each.count) for each in batches])
            page = Page(self.first_seq, self.records, self.ts, data, metas, nodes, tags, self.size)
            self.page = page
            if self.partition.gathering is self:
                self.partition.gathering = None
        return page

    def encode(self, synced_lsn: int) -> bytes:
        if self.topic.config.durability == "ephemeral" or self.dues is not None:
            self.close()
            return encode_facts(self.lsn, synced_lsn, self.all_facts())
        key = self.key
        encoded_key = None if key is None else key.encode()
        return encode_append(self.lsn, synced_lsn, self.topic.id, self.partition.number, self.close(), encoded_key)

    def fact(self) -> Fact:
        if self.topic.config.durability == "ephemeral":
            return HeadMoved(self.topic.id, self.partition.number, self.first_seq + self.records - 1)
        return Appended(self.topic.id, self.partition.number, self.close(), self.key)

    def written(self) -> None:
        self.partition.unsynced.append(self.close())
        if self.broker.watchers:
            self.broker.wake(self.topic)

    def all_facts(self) -> list[Fact]:
        """All that is true when this write is, for a frame that holds more than records."""
        if self.dues is None or self.topic.config.durability == "ephemeral":
            return [self.fact()]
        return [self.fact(), Delayed(self.topic.id, self.partition.number, self.first_seq, self.dues)]

    def apply(self) -> None:
        page = self.page or self.close()
        partition = self.partition
        partition.pending_records -= page.count
        partition.pending_bytes -= page.size
        if partition.unsynced:
            partition.settled(page)
        topic = self.topic
        if self.sync_ms and topic.config.durability != "fsync":
            # It waited for somebody else's sync, to keep the order or the margin; its own class promises none.
            self.sync_ms = 0.0
        assert page.first_seq > partition.head_seq, "applied out of order"
        broker = self.broker
        members, joined = self.members, self.joined
        key = self.key
        broker.state.append(topic, partition, page, key)
        if self.dues is not None and partition.leases is not None:
            partition.leases.delay(page.first_seq, self.dues)
        config = topic.config
        if config.cap_records or config.cap_bytes or config.ttl_ms:
            broker.evict(topic, partition)
        broker.appended(topic, partition, page.size)
        self.timing = timing(self.wal_ms, self.sync_ms)
        broker.counts.appends += self.waiters
        for member in members:
            member.reply(member)
        if joined:
            self.answer(topic.name_bytes, partition.head_seq, self.timing, joined, None)
        if key is not None:
            self._finish_key(key, lambda reply: deduped(topic, partition, self.first_seq, page.count, reply))
        # Members and group point at each other; let go, or every turn leaves work for the garbage collector (9 % of it).
        self.members = []
        self.joined = []

    def take_back(self) -> None:
        page = self.close()
        partition = self.partition
        partition.pending_records -= page.count
        partition.pending_bytes -= page.size
        if partition.unsynced:
            partition.settled(page)
        partition.next_seq = min(partition.next_seq, page.first_seq)

    def fail(self, error: TopicsError) -> None:
        for member in self.members:
            member.reply(error)
        if self.joined:
            self.answer(self.topic.name_bytes, self.partition.head_seq, b"", self.joined, error)
        key = self.key
        if key is not None:
            self._finish_key(key, lambda _: error)
        self.members = []
        self.joined = []

    def _finish_key(self, key: str, outcome: Callable[[Reply], "Append | TopicsError"]) -> None:
        self.broker.keys_in_flight.pop((self.topic.id, key), None)
        for reply in self.members[0].followers or ():
            reply(outcome(reply))


def timing(wal_ms: float, sync_ms: float) -> bytes:
    """The part of an answer's `performance` that all writes of a frame share."""
    us = int(wal_ms * 1000)
    wal = MILLISECONDS[us] if us < MILLISECONDS_MOST else b"%d.%03d" % divmod(us, 1000)
    if not sync_ms:
        return b'"wal_append_ms":%b,"fsync_ms":0.000' % wal
    return b'"wal_append_ms":%b,"fsync_ms":%.3f' % (wal, sync_ms)


def nobody_waits(_name: bytes, _head_seq: int, _timing: bytes, _runs: Runs, _error: TopicsError | None) -> None:
    pass


def deduped(topic: Topic, partition: Partition, first_seq: int, count: int, reply: Reply) -> Append:
    """The outcome of a write that was already done."""
    outcome = Append(topic, partition, first_seq, count, None, reply)
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


def decide_append(broker: "Broker", topic: Topic, batch: Batch, reply: Reply) -> AppendGroup | None:
    """Give the batch its seqs, in the group of its partition or in a new one.

    Answers a new group, which the caller must submit; None when the write joined a group that is submitted already,
    follows another write with the same key, or was answered. Raises a TopicsError when the write is refused; then
    nothing has changed.
    """
    partition = topic.partitions[0]
    if batch.partition or batch.partition_key is not None:
        partition = choose_partition(topic, batch)
    config = topic.config
    key = batch.key
    if key is not None:
        now_ms = broker.runtime.now_ms()
        kept = topic.dedupe.find(key, now_ms, config.idempotency_window_ms)
        if kept is not None:
            reply(deduped(topic, topic.partitions[kept.partition], kept.first_seq, kept.count, reply))
            return None
        first = broker.keys_in_flight.get((topic.id, key))
        if first is not None:
            if first.followers is None:
                first.followers = []
            first.followers.append(reply)
            return None
        _check_keys(broker, topic, now_ms)
    count = batch.count
    delays = batch.delays
    if delays is not None and config.type != "queue":
        raise InvalidRequest(
            f'topic "{topic.name}" is a log; only jobs of a queue can have delay_ms', detail={"topic": topic.name}
        )
    if config.cap_records or config.cap_bytes:
        check_room(broker, topic, partition, count, batch.size)
    if broker.limits.max_total_bytes:
        broker.check_total_bytes((topic, partition, count, batch.size))
    member = Append(topic, partition, partition.next_seq, count, key, reply)
    group = partition.gathering
    if group is not None and key is None and delays is None and group.records + count <= PAGE_RECORDS_MOST:
        group.add(batch, member)
        return None
    group = open_group(broker, topic, partition, takes_unseen(topic, broker.limits))
    group.add(batch, member)
    if delays is not None:
        now_ms = broker.runtime.now_ms()
        group.dues = [now_ms + delay if delay else 0 for delay in delays]
    partition.gathering = group if key is None and delays is None else None
    if key is not None:
        broker.keys_in_flight[topic.id, key] = member
    return group


def open_group(broker: "Broker", topic: Topic, partition: Partition, unseen: bool) -> AppendGroup:
    """A group without writes, for now. `unseen`: plain writes may join it without a decision."""
    return AppendGroup(broker, topic, partition, PAGE_RECORDS_MOST if unseen else 0)


def takes_unseen(topic: Topic, limits: Limits) -> bool:
    """Nothing limits how much the topic holds, so plain writes need no decision."""
    config = topic.config
    return not config.cap_records and not config.cap_bytes and not limits.max_total_bytes


def check_room(broker: "Broker", topic: Topic, partition: Partition, count: int, size: int) -> None:
    """A write larger than the whole cap can never succeed; one that does not fit now can, later, on a `reject` topic."""
    config = topic.config
    if 0 < config.cap_records < count:
        raise BatchTooLarge(
            f"{count} records in one write, but the topic holds at most {config.cap_records}",
            detail={"topic": topic.name, "cap_records": config.cap_records, "count": count},
        )
    if 0 < config.cap_bytes < size:
        error = RecordTooLarge if count == 1 else BatchTooLarge
        raise error(
            f"the write takes {size} bytes, but the topic holds at most {config.cap_bytes}",
            detail={"topic": topic.name, "cap_bytes": config.cap_bytes, "bytes": size},
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
