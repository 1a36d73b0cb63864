"""Appends: one write from decision to reply.

    decide (reserve seqs, caps, dedupe; all or nothing) -> commit -> apply -> reply

Writes to one partition that are decided in the same turn of the loop share one commit, the `AppendGroup`: one frame, one page,
one apply, and a reply for each. Each is still all or nothing, because the frame is. (One write in a turn takes 18 us without
the socket; see `fast_append.py` for many single records.)

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
from topics.engine.partition import Partition
from topics.engine.segment import MAX_PAGE_RECORDS
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.errors import InvalidRequest, Throttled, TopicsError
from topics.model.facts import Appended, Delayed, Fact, HeadMoved
from topics.model.page import SEPARATOR, Page, fold, joined_columns
from topics.model.partitioning import hashed_partition
from topics.runtime.replies import call, send
from topics.storage.frame import encode_append, encode_append_pages, frame_of
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
    """Writes of one turn to one partition, with consecutive seqs. A write with a key or with delays has a group of its own."""

    __slots__ = (
        "batches",
        "core",
        "dues",
        "has_columns",
        "joined",
        "max_unchecked_records",
        "members",
        "page",
        "reply_joined",
        "reservation",
        "timing",
        "topic",
    )

    partition: Partition

    def __init__(self, core: Core, topic: Topic, partition: Partition, max_unchecked_records: int) -> None:
        super().__init__(None, partition, sync=must_sync(topic.config, partition))
        self.core = core
        self.topic = topic
        self.reservation = partition.reserve(0, 0, 0)
        self.waiters = 0
        # Plain writes join up to this number of records without a decision: the topic has no quota.
        self.max_unchecked_records = max_unchecked_records
        self.members: list[Append] = []
        # Plain writes of one record, and the function that answers all of them.
        self.joined: list[tuple[int, Sequence[Any]]] = []
        self.reply_joined: ReplyAppends = no_reply
        # In the order of their seqs.
        self.batches: list[Batch] = []
        # Some record may have a tag, a node or meta.
        self.has_columns = False
        self.page: Page | None = None
        # When each job becomes claimable, for a write with delays to a queue.
        self.dues: list[int] | None = None
        # The part of `performance` that all replies share.
        self.timing = b""

    def add(self, batch: Batch, member: Append) -> None:
        """Give the batch the next seqs of the partition."""
        self.reserve(batch)
        self.members.append(member)
        self.waiters += 1
        member.group = self

    def join(self, batch: Batch, requests: Sequence[Any]) -> None:
        """Add plain writes of one record each."""
        self.joined.append((self.partition.next_seq, requests))
        self.waiters += len(requests)
        self.reserve(batch)

    def reserve(self, batch: Batch) -> None:
        count = batch.count
        # A group may stay open for long, while a sync runs: its records have the time of the last one.
        self.reservation.extend(count, batch.size, self.core.runtime.now_ms())
        self.records += count
        self.batches.append(batch)
        if not batch.plain:
            self.has_columns = True

    @property
    def first_seq(self) -> int:
        return self.reservation.first_seq

    @property
    def key(self) -> str | None:
        return self.members[0].key if self.members else None

    def close(self) -> Page:
        """Return the records as one page. No record is added after the first call."""
        page = self.page
        if page is None:
            batches = self.batches
            data = batches[0].data if len(batches) == 1 else SEPARATOR.join([each.data for each in batches])
            metas = nodes = tags = None
            if self.has_columns:
                metas = joined_columns([(each.metas, each.count) for each in batches])
                nodes = joined_columns([(each.nodes, each.count) for each in batches])
                tags = joined_columns([(each.tags, each.count) for each in batches])
            reserved = self.reservation
            page = Page(reserved.first_seq, reserved.count, reserved.ts, data, metas, nodes, tags, reserved.size)
            self.page = page
            self._close()
        return page

    def _close(self) -> None:
        if self.core.open_groups.get(self.partition) is self:
            self.core.close_group(self.partition)

    def all_pages(self) -> list[Page]:
        """The records as pages. No record is added after the first call."""
        return [self.page or self.close()]

    def encode(self, synced_lsn: int) -> bytes | list[bytes]:
        if self.topic.config.durability == "ephemeral" or self.dues is not None:
            self.close()
            return frame_of(self.lsn, synced_lsn, self.all_facts())
        key = self.key
        encoded_key = None if key is None else key.encode()
        return encode_append(self.lsn, synced_lsn, self.topic.id, self.partition.number, self.close(), encoded_key)

    def record_facts(self) -> list[Fact]:
        """The facts about the records alone."""
        if self.topic.config.durability == "ephemeral":
            return [HeadMoved(self.topic.id, self.partition.number, self.reservation.last_seq)]
        return [Appended(self.topic.id, self.partition.number, self.close(), self.key)]

    def written(self) -> None:
        self.reservation.show_unsynced(self.all_pages())
        if self.core.watchers:
            self.core.wake(self.topic)

    def all_facts(self) -> list[Fact]:
        """All facts of the write, for a frame that holds more than records."""
        if self.dues is None or self.topic.config.durability == "ephemeral":
            return self.record_facts()
        return [*self.record_facts(), self._delayed(self.dues)]

    def _delayed(self, dues: list[int]) -> Delayed:
        return Delayed(self.topic.id, self.partition.number, self.first_seq, dues)

    def apply(self, state: State) -> None:
        partition = self.partition
        self.reservation.settle()
        topic = self.topic
        if self.sync_ms and topic.config.durability != "fsync":
            # It waited for the sync of another commit, to keep the order or the margin; its own class promises none.
            self.sync_ms = 0.0
        assert self.first_seq > partition.head_seq, "applied out of order"
        # What applying an Appended does, without creating the fact.
        state.append(topic, partition, self.all_pages(), self.key)
        if self.dues is not None:
            apply(state, self._delayed(self.dues))

    def after_apply(self) -> None:
        config = self.topic.config
        if config.cap_records or config.cap_bytes or config.ttl_ms:
            self.core.evict(self.topic, self.partition)
        self.core.appended(self.topic, self.partition, self.reservation.size)

    def rollback(self) -> None:
        self._close()
        self.reservation.release()

    def reply(self, error: TopicsError | None) -> None:
        topic, partition, core = self.topic, self.partition, self.core
        members, joined = self.members, self.joined
        key = self.key
        if key is not None:
            # First: a reply may repeat the write, which must not wait for this one.
            core.keys_in_flight.pop((topic.id, key), None)
        if error is None:
            self.timing = commit_timing(self.wal_ms, self.sync_ms)
            core.counts.appends += self.waiters
        for member in members:
            send(member.reply, error or member)
        if joined:
            call(self.reply_joined, topic.name_bytes, partition.head_seq, self.timing, joined, error)
        if key is not None:
            for reply in members[0].followers or ():
                send(reply, error or deduped(topic, partition, self.first_seq, self.records, reply))
        # Break the reference cycle of members and group, so that they are freed without the garbage collector (9 % of its work).
        self.members = []
        self.joined = []


class LargeAppendGroup(AppendGroup):
    """One large write. Its records stay in pages, because joining them would stall the loop; no other write joins it."""

    __slots__ = ("pages",)

    def __init__(self, core: Core, topic: Topic, partition: Partition) -> None:
        super().__init__(core, topic, partition, 0)
        self.pages: list[Page] = []

    def all_pages(self) -> list[Page]:
        if not self.pages:
            seq, ts = self.reservation.first_seq, self.reservation.ts
            for part in self.batches[0].parts():
                self.pages.append(Page(seq, part.count, ts, part.data, part.metas, part.nodes, part.tags, part.size))
                seq += part.count
        return self.pages

    def encode(self, synced_lsn: int) -> bytes | list[bytes]:
        if self.topic.config.durability == "ephemeral" or self.dues is not None:
            return frame_of(self.lsn, synced_lsn, self.all_facts())
        key = None if self.key is None else self.key.encode()
        return encode_append_pages(self.lsn, synced_lsn, self.topic.id, self.partition.number, self.all_pages(), key)

    def record_facts(self) -> list[Fact]:
        if self.topic.config.durability == "ephemeral":
            return super().record_facts()
        topic_id, number = self.topic.id, self.partition.number
        if self.key is not None:
            # The write is remembered under its key by one fact, so that one has all records.
            return [Appended(topic_id, number, fold(self.all_pages()), self.key)]
        return [Appended(topic_id, number, page, None) for page in self.all_pages()]


def no_reply(_name: bytes, _head_seq: int, _timing: bytes, _runs: Runs, _error: TopicsError | None) -> None:
    pass


def deduped(topic: Topic, partition: Partition, first_seq: int, count: int, reply: Reply) -> Append:
    """The outcome of a write that repeats an earlier one."""
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
            if first.followers is None:
                first.followers = []
            first.followers.append(reply)
            return None
        _check_keys(core, topic, now_ms)
    count = batch.count
    delays = batch.delays
    if delays is not None and config.type != "queue":
        raise InvalidRequest(
            f'topic "{topic.name}" is a log; only jobs of a queue can have delay_ms', detail={"topic": topic.name}
        )
    has_no_quota = core.quotas.has_none(config)
    if not has_no_quota:
        core.quotas.check(Growth(topic, partition, count, batch.size, batch.parts()))
    member = Append(topic, partition, partition.next_seq, count, key, reply)
    group: AppendGroup | None = core.open_groups.get(partition)
    if batch.pages is not None:
        group = LargeAppendGroup(core, topic, partition)
    elif group is not None and key is None and delays is None and group.records + count <= MAX_PAGE_RECORDS:
        group.add(batch, member)
        return None
    else:
        group = AppendGroup(core, topic, partition, MAX_PAGE_RECORDS if has_no_quota else 0)
    group.add(batch, member)
    if delays is not None:
        now_ms = core.runtime.now_ms()
        group.dues = [now_ms + delay if delay else 0 for delay in delays]
    if key is None and delays is None and batch.pages is None:
        core.open_groups[partition] = group
    else:
        core.close_group(partition)
    if key is not None:
        core.keys_in_flight[topic.id, key] = member
    return group


def join_group(core: Core, topic: Topic, batch: Batch, requests: Sequence[Any], reply: ReplyAppends) -> bool:
    """Add plain writes of one record each to the open group of partition 0, or to a new one: see `Broker.join`."""
    partition = topic.partitions[0]
    group: AppendGroup | None = core.open_groups.get(partition)
    if group is None or group.records + batch.count > MAX_PAGE_RECORDS:
        if not core.quotas.has_none(topic.config):
            return False
        group = core.open_groups[partition] = AppendGroup(core, topic, partition, MAX_PAGE_RECORDS)
        group.reply_joined = reply
        core.committer.submit(group)
    elif not group.max_unchecked_records:
        return False
    elif group.reply_joined is not reply:
        if group.joined:
            return False
        group.reply_joined = reply
    group.join(batch, requests)
    return True


def _check_keys(core: Core, topic: Topic, now_ms: int) -> None:
    limit = core.limits.max_idempotency_keys
    if limit and len(topic.dedupe) >= limit:
        topic.dedupe.expire(now_ms, topic.config.idempotency_window_ms)
        if len(topic.dedupe) >= limit:
            raise Throttled(
                "too many idempotency keys within the window",
                detail={"limit": "max_idempotency_keys", "max": limit},
            )
