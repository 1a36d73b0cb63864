"""Appends: one write from decision to reply.

    decide (reserve seqs, caps, dedupe; all or nothing) -> commit -> apply -> reply

Writes to one partition that are decided in the same turn of the loop share one commit, the `AppendGroup`: one frame, one page,
one apply, and a reply for each. Each is still all or nothing, because the frame is. Two ways lead into a group:

    append    one request: `decide_append`
    join      requests with one record each that arrived together and are answered together: `join_group`

Two writes with the same idempotency key in flight become one: the second waits for the first and gets its seqs.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.log.apply import apply
from topics.broker.log.commit import Commit
from topics.broker.log.sync_policy import must_sync
from topics.broker.state import State
from topics.broker.topics.quota import Growth
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.segment import MAX_PAGE_RECORDS
from topics.engine.topics.topic import Topic
from topics.model.errors import InvalidRequest, Throttled, TopicsError
from topics.model.facts import Appended, Delayed, Fact, HeadMoved, KeysKept
from topics.model.partitioning import hashed_partition
from topics.model.records.batch import Batch
from topics.model.records.page import SEPARATOR, Page, joined_columns
from topics.runtime.replies import call, ignore, send
from topics.storage.log.frame import encode_append, encode_append_pages, frame_of
from topics.wire.timing import commit_timing

Reply = Callable[["Append | TopicsError"], None]
# Requests that append one record each, in runs of consecutive seqs: the first seq of the run, and its requests.
Runs = Sequence[tuple[int, Sequence[Any]]]
# Answers all requests of the runs, with their seqs or with the error. Arguments: the topic's name, its head, the common part of
# `performance`, the runs, the error.
ReplyAppends = Callable[[bytes, int, bytes, Runs, TopicsError | None], None]


class Append(Struct, gc=False):
    """One write of one request: what it was given, and its outcome once it is answered."""

    topic: Topic
    partition: Partition
    first_seq: int
    count: int
    reply: Reply
    created: bool = False
    deduped: bool = False
    group: "AppendGroup | None" = None

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1


class KeyedWrite(Struct, gc=False):
    """A write with an idempotency key that is not applied yet, and the replies to writes that repeat it meanwhile."""

    key: str
    first_seq: int
    count: int
    followers: list[Reply]


class AppendGroup(Commit):
    """Writes of one turn to one partition, with consecutive seqs. A large write and one with delays have a group of their own."""

    __slots__ = (
        "batches",
        "core",
        "dues",
        "has_columns",
        "joined",
        "keyed",
        "members",
        "pages",
        "reply_joined",
        "reservation",
        "timing",
        "topic",
    )

    partition: Partition

    def __init__(self, core: Core, topic: Topic, partition: Partition) -> None:
        super().__init__(None, partition, sync=must_sync(topic.config, partition))
        self.core = core
        self.topic = topic
        self.reservation = partition.reserve(0, 0, 0)
        self.reservations = (self.reservation,)
        self.waiters = 0
        self.members: list[Append] = []
        # Writes of one record that are answered together, and the function that answers all of them.
        self.joined: list[tuple[int, Sequence[Any]]] = []
        self.reply_joined: ReplyAppends = ignore
        # Writes with an idempotency key.
        self.keyed: list[KeyedWrite] = []
        # In the order of their seqs.
        self.batches: list[Batch] = []
        # Some record may have a tag, a node or meta.
        self.has_columns = False
        # The records, once no more can be added.
        self.pages: list[Page] = []
        # When each job becomes claimable, for a write with delays to a queue.
        self.dues: list[int] | None = None
        # The part of `performance` that all replies share.
        self.timing = b""

    def add(self, batch: Batch, reply: Reply) -> None:
        """Give the batch the next seqs of the partition."""
        first_seq = self.partition.next_seq
        self.members.append(Append(self.topic, self.partition, first_seq, batch.count, reply, group=self))
        self.waiters += 1
        if batch.key is not None:
            self._keep_key(batch.key, first_seq, batch.count)
        self.reserve(batch)

    def join(self, batch: Batch, requests: Sequence[Any]) -> None:
        """Add writes of one record each."""
        first_seq = self.partition.next_seq
        self.joined.append((first_seq, requests))
        self.waiters += len(requests)
        if batch.keys is not None:
            for seq, key in enumerate(batch.keys, first_seq):
                if key is not None:
                    self._keep_key(key, seq, 1)
        self.reserve(batch)

    def _keep_key(self, key: str, first_seq: int, count: int) -> None:
        write = KeyedWrite(key, first_seq, count, [])
        self.keyed.append(write)
        self.core.keys_in_flight[self.topic.id, key] = write

    def reserve(self, batch: Batch) -> None:
        count = batch.count
        # A group may stay open for long, while a sync runs: its records have the time of the last one.
        self.partition.extend_reservation(self.reservation, count, batch.size, self.core.runtime.now_ms())
        self.records += count
        self.batches.append(batch)
        if batch.tags is not None or batch.nodes is not None or batch.metas is not None:
            self.has_columns = True

    @property
    def first_seq(self) -> int:
        return self.reservation.first_seq

    def close(self) -> list[Page]:
        """Return the records as pages. No record is added after the first call."""
        if not self.pages:
            if self.core.open_groups.get(self.partition) is self:
                self.core.close_group(self.partition)
            self.pages = self._large_pages() if self.batches[0].pages is not None else [self._joined_page()]
        return self.pages

    def _joined_page(self) -> Page:
        batches = self.batches
        data = batches[0].data if len(batches) == 1 else SEPARATOR.join([each.data for each in batches])
        metas = nodes = tags = None
        if self.has_columns:
            metas = joined_columns([(each.metas, each.count) for each in batches])
            nodes = joined_columns([(each.nodes, each.count) for each in batches])
            tags = joined_columns([(each.tags, each.count) for each in batches])
        reserved = self.reservation
        return Page(reserved.first_seq, reserved.count, reserved.ts, data, metas, nodes, tags, reserved.size)

    def _large_pages(self) -> list[Page]:
        """The pages of a large write, with their seqs. They are not joined, because that would stall the loop."""
        pages = []
        seq, ts = self.reservation.first_seq, self.reservation.ts
        for part in self.batches[0].parts():
            pages.append(Page(seq, part.count, ts, part.data, part.metas, part.nodes, part.tags, part.size))
            seq += part.count
        return pages

    def encode(self, synced_lsn: int) -> bytes | list[bytes]:
        pages = self.close()
        if self.keyed or self.dues is not None or self.topic.config.durability == "ephemeral":
            return frame_of(self.lsn, synced_lsn, self.all_facts())
        topic_id, number = self.topic.id, self.partition.number
        if len(pages) == 1:
            return encode_append(self.lsn, synced_lsn, topic_id, number, pages[0])
        return encode_append_pages(self.lsn, synced_lsn, topic_id, number, pages)

    def all_facts(self) -> list[Fact]:
        """All facts of the group, for a frame that holds more than records."""
        topic_id, number = self.topic.id, self.partition.number
        if self.topic.config.durability == "ephemeral":
            return [HeadMoved(topic_id, number, self.reservation.last_seq)]
        return [*[Appended(topic_id, number, page) for page in self.close()], *self._facts_about_records()]

    def _facts_about_records(self) -> list[Fact]:
        topic_id, number = self.topic.id, self.partition.number
        facts: list[Fact] = []
        if self.keyed:
            writes = [(write.first_seq, write.count, write.key) for write in self.keyed]
            facts.append(KeysKept(topic_id, number, self.reservation.ts, writes))
        if self.dues is not None:
            facts.append(Delayed(topic_id, number, self.first_seq, self.dues))
        return facts

    def written(self) -> None:
        self.reservation.show_unsynced(self.close())
        if self.core.watchers:
            self.core.wake(self.topic)

    def apply(self, state: State) -> None:
        partition = self.partition
        self.settle_reservations()
        topic = self.topic
        if self.sync_ms and topic.config.durability != "fsync":
            # It waited for the sync of another commit, to keep the order or the margin; its own class promises none.
            self.sync_ms = 0.0
        assert self.first_seq > partition.head_seq, "applied out of order"
        # What applying an Appended does, without creating the fact.
        state.append(topic, partition, self.close())
        if self.keyed or self.dues is not None:
            for fact in self._facts_about_records():
                apply(state, fact)

    def after_apply(self) -> None:
        config = self.topic.config
        if config.cap_records or config.cap_bytes or config.ttl_ms:
            self.core.evict(self.topic, self.partition)
        self.core.appended(self.topic, self.partition, self.reservation.size)

    def rollback(self) -> None:
        if self.core.open_groups.get(self.partition) is self:
            self.core.close_group(self.partition)
        super().rollback()

    def reply(self, error: TopicsError | None) -> None:
        topic, partition, core = self.topic, self.partition, self.core
        for write in self.keyed:
            # First: a reply may repeat the write, which must not wait for this one.
            core.keys_in_flight.pop((topic.id, write.key), None)
        if error is None:
            self.timing = commit_timing(self.wal_ms, self.sync_ms)
            core.counts.appends += self.waiters
        for member in self.members:
            send(member.reply, error or member)
        if self.joined:
            call(self.reply_joined, topic.name_bytes, partition.head_seq, self.timing, self.joined, error)
        for write in self.keyed:
            for reply in write.followers:
                send(reply, error or deduped(topic, partition, write.first_seq, write.count, reply))
        # Break the reference cycle of members and group, so that they are freed without the garbage collector (9 % of its work).
        self.members = []
        self.joined = []


def deduped(topic: Topic, partition: Partition, first_seq: int, count: int, reply: Reply) -> Append:
    """The outcome of a write that repeats an earlier one."""
    return Append(topic, partition, first_seq, count, reply, deduped=True)


def choose_partition(topic: Topic, batch: Batch) -> Partition:
    partitions = topic.partitions
    if batch.partition_key is not None:
        return partitions[hashed_partition(batch.partition_key, len(partitions))]
    if batch.partition >= len(partitions):
        raise InvalidRequest(
            f'topic "{topic.name}" has {len(partitions)} partitions', detail={"partitions": len(partitions)}
        )
    return partitions[batch.partition]


def decide_append(core: Core, topic: Topic, batch: Batch, reply: Reply) -> AppendGroup | None:
    """Reserve the seqs of the batch, in the open group of its partition or in a new one.

    Returns a new group, which the caller must submit; None when the write joined a group that is submitted already, waits for
    another write with the same key, or was answered. Raises a TopicsError when the write is refused; then nothing has changed.
    """
    partition = topic.partitions[0]
    if batch.partition or batch.partition_key is not None:
        partition = choose_partition(topic, batch)
    config = topic.config
    key = batch.key
    if key is not None:
        now_ms = core.runtime.now_ms()
        kept = topic.dedupe.find(key, now_ms, config.idempotency_window_ms)
        if kept is not None:
            reply(deduped(topic, topic.partitions[kept.partition], kept.first_seq, kept.count, reply))
            return None
        first = core.keys_in_flight.get((topic.id, key))
        if first is not None:
            first.followers.append(reply)
            return None
        check_keys(core, topic, 1, now_ms)
    count = batch.count
    delays = batch.delays
    if delays is not None and config.type != "queue":
        raise InvalidRequest(
            f'topic "{topic.name}" is a log; only jobs of a queue can have delay_ms', detail={"topic": topic.name}
        )
    if not core.quotas.takes_all(config):
        core.quotas.check(Growth(topic, partition, count, batch.size, batch.parts()))
    alone = delays is not None or batch.pages is not None
    group: AppendGroup | None = core.open_groups.get(partition)
    if group is not None and not alone and group.records + count <= MAX_PAGE_RECORDS:
        group.add(batch, reply)
        return None
    group = AppendGroup(core, topic, partition)
    group.add(batch, reply)
    if delays is not None:
        now_ms = core.runtime.now_ms()
        group.dues = [now_ms + delay if delay else 0 for delay in delays]
    if alone:
        core.close_group(partition)
    else:
        core.open_groups[partition] = group
    return group


def join_group(core: Core, topic: Topic, batch: Batch, requests: Sequence[Any], reply: ReplyAppends) -> bool:
    """Add writes of one record each to the open group of partition 0, or to a new one: see `Broker.join`."""
    if not core.quotas.takes_all(topic.config) or (batch.keys is not None and not are_new(core, topic, batch.keys)):
        return False
    partition = topic.partitions[0]
    group: AppendGroup | None = core.open_groups.get(partition)
    if group is None or group.records + batch.count > MAX_PAGE_RECORDS:
        group = core.open_groups[partition] = AppendGroup(core, topic, partition)
        core.committer.submit(group)
    elif group.joined and group.reply_joined is not reply:
        return False
    group.reply_joined = reply
    group.join(batch, requests)
    return True


def are_new(core: Core, topic: Topic, keys: list[str | None]) -> bool:
    """Whether no write with one of these keys is kept or in flight, no key is there twice, and all can be kept."""
    named = [key for key in keys if key is not None]
    if len(set(named)) < len(named):
        return False
    now_ms = core.runtime.now_ms()
    window_ms = topic.config.idempotency_window_ms
    find, in_flight, topic_id = topic.dedupe.find, core.keys_in_flight, topic.id
    for key in named:
        if find(key, now_ms, window_ms) is not None or (topic_id, key) in in_flight:
            return False
    try:
        check_keys(core, topic, len(named), now_ms)
    except Throttled:
        return False
    return True


def check_keys(core: Core, topic: Topic, count: int, now_ms: int) -> None:
    """Raise Throttled unless the topic can keep `count` more idempotency keys."""
    limit = core.limits.max_idempotency_keys
    if limit and len(topic.dedupe) + count > limit:
        topic.dedupe.expire(now_ms, topic.config.idempotency_window_ms)
        if len(topic.dedupe) + count > limit:
            raise Throttled(
                "too many idempotency keys within the window",
                detail={"limit": "max_idempotency_keys", "max": limit},
            )
