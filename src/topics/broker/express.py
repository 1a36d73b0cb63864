"""The express way: single records that have gathered for one topic go to the log and to their readers in one go.

What `Broker.join` makes of them (a group, submitted, encoded, written, applied, answered) is the same, and takes sixty steps
through objects that could hold much more. When nothing is to be decided about them and nothing else is on its way to
the same log, those steps have no other outcome than this. (Behind sockets, between two system calls, Python runs at half its
speed: what is done once a turn cost a third of a write of 16 writers.)

Whatever is out of the ordinary is left to the usual way, before anything was done: see `_is_easy` and the conditions of `write`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from topics.broker.append import AnswerJoined, timing
from topics.broker.committer import Lane
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.config import TopicConfig
from topics.model.page import Page
from topics.storage.frame import encode_append

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class Express:
    """The short way to the topic of one name."""

    __slots__ = ("_broker", "_config", "_lane", "_name", "_now_ms", "_perf", "_topic_id")

    def __init__(self, broker: "Broker", name: str) -> None:
        self._broker = broker
        self._name = name
        self._perf = broker.runtime.perf
        self._now_ms = broker.runtime.now_ms
        # The topic and the configuration that were found easy, and where its writes go. Not the topic itself: it may be deleted
        # while connections that have written to it stay open.
        self._topic_id = -1
        self._config: TopicConfig | None = None
        self._lane: Lane = broker.committer.lanes[0]

    def write(self, batch: Batch, asked: Sequence[Any], answer: AnswerJoined) -> bool:
        """As `Broker.join`, and done when this returns. False, and nothing has happened, when it must go the usual way."""
        broker = self._broker
        topic = broker.state.topics.get(self._name)
        if topic is None or broker.keeper.full or (broker.busy and self._name in broker.busy):
            return False
        if (topic.id != self._topic_id or topic.config is not self._config) and not self._is_easy(topic):
            return False
        lane = self._lane
        shard = lane.shard
        partition = topic.partitions[0]
        committer = broker.committer
        count = batch.count
        first_seq = partition.next_seq
        records = lane.unsynced_records + count
        if (
            lane.commits
            or lane.owed
            or shard.failed
            # Nothing overtakes what waits on the same log, and the very first record is synced.
            or partition.waiting_sync
            or first_seq != partition.head_seq + 1
            or first_seq == 1
            or records > committer.margin
            or committer.telling
        ):
            return False
        started = self._perf()
        ts = self._now_ms()
        if ts < partition.last_ts:
            ts = partition.last_ts
        page = Page(first_seq, count, ts, batch.data, None, None, None, batch.size)
        lsn = committer.next_lsn
        try:
            grown = shard.write([encode_append(lsn, shard.synced_lsn, topic.id, 0, page, None)], lsn)
        except OSError:
            # Nothing of it remains. The usual way tries again, and tells why if that fails too.
            return False
        committer.next_lsn = lsn + 1
        lane.unsynced_records = records
        wal_ms = (self._perf() - started) * 1000
        committer.telling = True
        try:
            # `State.append`, for what has no key.
            partition.apply_append(page)
            topic.last_write_ts = partition.last_ts
            try:
                answer(topic.name_bytes, first_seq + count - 1, timing(wal_ms, 0.0), ((first_seq, asked),), None)
            finally:
                # `Broker.appended`, for what is in the log. Behind the answers: their clients are at work meanwhile.
                broker.counts.appends += count
                broker.keeper.appended(topic, partition, page.size)
                if broker.watchers:
                    broker.wake(topic)
        except Exception:  # noqa: BLE001 - told there
            committer.not_true()
        finally:
            committer.telling = False
        committer.wrote(lane, grown, 1, count)
        return True

    def _is_easy(self, topic: Topic) -> bool:
        """Nothing limits what the topic holds, nothing expires, and its records are in the log but need not be synced."""
        config = topic.config
        if (
            config.cap_records
            or config.cap_bytes
            or config.ttl_ms
            or config.durability not in ("disk", "memory")
            or self._broker.limits.max_total_bytes
        ):
            return False
        self._topic_id = topic.id
        self._config = config
        self._lane = self._broker.committer.lane_of(topic.id)
        return True
