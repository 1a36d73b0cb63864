"""Dead letters: jobs that were delivered too often leave their queue for another topic.

The copy and the delete stand in one frame, with the new count and, when it did not exist, the topic that takes them: a
crash leaves all of it or nothing, so no job is lost and none is there twice. The copy keeps `data`, tag, node and `meta`
byte for byte; three keys are added to `meta`. The topic that takes the copy is written as its own class says.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topics.broker.append import Append, AppendGroup, decide_append
from topics.broker.barrier import other_lanes, when_safe
from topics.broker.committer import Commit, Lane
from topics.broker.control import new_topic_id
from topics.engine.lease import Leases, seqs_bytes
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.config import DEFAULT_CONFIG
from topics.model.errors import Throttled, TopicsError
from topics.model.facts import DeadLettered, Deleted, Fact, TopicCreated
from topics.model.page import SEPARATOR, page_size

if TYPE_CHECKING:
    from topics.broker.broker import Broker

_KEYS = (b"$dead_letter_from", b"$dead_letter_deliveries", b"$dead_letter_src_seq")
_decode_meta = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def move(broker: "Broker", topic: Topic, partition: Partition, seqs: list[int], done: Callable[[int], None]) -> None:
    """Move these jobs, which count as moving, to the topic's dead-letter topic; then call `done`, once, with how many went.

    Jobs that cannot be moved now (the other topic is full, or missing while `auto_create` is off or its name is somebody's alias,
    or the disk failed) stay in the queue, to be tried again.
    """
    name = topic.config.dead_letter
    leases = _leases(partition)
    if name is None:
        # It was taken away while they waited.
        leases.not_moved(seqs)
        done(0)
        return
    target_name = name

    def act(lane: Lane, release: Callable[[], None]) -> None:
        def write(unsafe: TopicsError | None) -> None:
            # They were set aside in the order in which they came back; deletes take seqs in ascending order.
            alive = sorted([seq for seq in seqs if partition.is_live(seq)])
            if broker.state.by_id.get(topic.id) is not topic or not alive:
                release()
                done(0)
                return
            missing = target_name not in broker.state.topics and not topic.config.auto_create
            if unsafe is not None or missing or topic.config.dead_letter != target_name:
                release()
                leases.not_moved(alive)
                done(0)
                return
            try:
                commit = _decide(broker, lane, topic, partition, target_name, alive)
            except TopicsError:
                release()
                if len(alive) > 1:
                    # What is too much at once may fit in parts.
                    half = len(alive) // 2

                    def rest(moved: int) -> None:
                        move(broker, topic, partition, alive[half:], lambda more: done(moved + more))

                    move(broker, topic, partition, alive[:half], rest)
                else:
                    leases.not_moved(alive)
                    done(0)
                return
            commit.over = (release, done)
            broker.committer.submit(lane, commit)

        target = broker.state.topics.get(target_name)
        others = other_lanes(broker.committer, lane, [] if target is None else [target.id])
        when_safe(broker.committer, others, write)

    broker.together([topic.name, target_name], act)


def _decide(broker: "Broker", lane: Lane, topic: Topic, partition: Partition, name: str, seqs: list[int]) -> "Move":
    broker.committer.check_writable(lane)
    target = broker.state.topics.get(name)
    created = None
    if target is None:
        created = _new_topic(broker, name)
        target = broker.state.new_topic(created.topic_id, name, created.config, 1, created.ts)
    log = target.partitions[0]
    # The copies stand in a frame of their own, behind the writes of this turn and before later ones.
    log.gathering = None
    group = decide_append(broker, target, _copies(topic, partition, seqs), _ignore)
    log.gathering = None
    assert group is not None
    if created is not None:
        broker.state.next_topic_id = created.topic_id + 1
        broker.creating += 1
        broker.keep_busy(name)
    return Move(broker, lane, topic, partition, seqs, target, group, created)


class Move(Commit):
    """Jobs on their way from a queue to another topic."""

    __slots__ = ("_broker", "_created", "_group", "_lane", "_leases", "_seqs", "_target", "_topic", "over")

    partition: Partition

    def __init__(
        self,
        broker: "Broker",
        lane: Lane,
        topic: Topic,
        partition: Partition,
        seqs: list[int],
        target: Topic,
        group: AppendGroup,
        created: TopicCreated | None,
    ) -> None:
        self._leases = leases = _leases(partition)
        facts: list[Fact] = [] if created is None else [created]
        facts += group.all_facts()
        if topic.config.durability != "ephemeral":
            facts.append(Deleted(topic.id, partition.number, seqs_bytes(seqs)))
        leases.dead_letters_decided = max(leases.dead_letters_decided, leases.dead_lettered) + len(seqs)
        facts.append(DeadLettered(topic.id, partition.number, leases.dead_letters_decided))
        super().__init__(facts, partition, group.records)
        # Rare enough to be made safe at once, whatever the classes are; and it keeps its place in both logs.
        self.sync = True
        group.partition.waiting_sync += 1
        self._broker = broker
        self._lane = lane
        self._topic = topic
        self._seqs = seqs
        self._target = target
        self._group = group
        self._created = created
        self.over: tuple[Callable[[], None], Callable[[int], None]] = (_nothing, _forget)

    def written(self) -> None:
        if self._created is None:
            self._group.written()

    def apply(self) -> None:
        broker, leases = self._broker, self._leases
        self._group.partition.waiting_sync -= 1
        if self._created is not None:
            broker.state.add(self._target)
        self._group.apply()
        self.partition.kill(self._seqs)
        broker.keeper.collect_dropped(self._topic.id, self.partition, self.lsn)
        leases.dead_lettered += len(self._seqs)
        self._end(len(self._seqs))

    def take_back(self) -> None:
        self._group.partition.waiting_sync -= 1
        self._leases.dead_letters_decided -= len(self._seqs)
        log = self._group.partition
        next_seq = log.next_seq
        self._group.take_back()
        if self._lane.shard.failed:
            # The frame may stand there all the same, and the next start find it: in a topic of another shard, which goes
            # on, nobody else may get these seqs.
            log.next_seq = next_seq

    def fail(self, error: TopicsError) -> None:
        self._group.fail(error)
        self._leases.not_moved(self._seqs)
        self._end(0)

    def _end(self, moved: int) -> None:
        release, done = self.over
        release()
        if self._created is not None:
            self._broker.creating -= 1
            self._broker.release(self._created.name)
        done(moved)


def with_origin(meta: bytes, topic: str, deliveries: int, seq: int) -> bytes:
    """The job's `meta` with where it came from; its own keys stay as they were written."""
    origin = b'"%b":%b,"%b":%d,"%b":%d' % (
        _KEYS[0],
        msgspec.json.encode(topic),
        _KEYS[1],
        deliveries,
        _KEYS[2],
        seq,
    )
    if not meta:
        return b"{" + origin + b"}"
    if b'"$dead_letter_' in meta:
        # It has been here before: the last journey counts, and a key stands only once.
        names = {key.decode() for key in _KEYS}
        try:
            kept = {key: value for key, value in _decode_meta(meta).items() if key not in names}
            meta = msgspec.json.encode(kept)
        except msgspec.DecodeError:
            # Half a surrogate pair is more than the decoder takes. Then the keys stand twice; the last ones count.
            pass
    body = meta.rstrip()[:-1].rstrip()
    return body + (b"" if body == b"{" else b",") + origin + b"}"


def _copies(topic: Topic, partition: Partition, seqs: list[int]) -> Batch:
    leases = _leases(partition)
    data: list[bytes] = []
    metas: list[bytes] = []
    nodes: list[bytes] = []
    tags: list[bytes] = []
    for seq in seqs:
        page = partition.find(seq)
        assert page is not None
        position = seq - page.first_seq
        data.append(page.data.split(SEPARATOR)[position])
        meta = b"" if page.metas is None else page.metas.split(SEPARATOR)[position]
        metas.append(with_origin(meta, topic.name, leases.deliveries(seq) - 1, seq))
        nodes.append(b"" if page.nodes is None else page.nodes.split(SEPARATOR)[position])
        tags.append(b"" if page.tags is None else page.tags.split(SEPARATOR)[position])
    texts = SEPARATOR.join(data)
    all_metas = SEPARATOR.join(metas)
    all_nodes = SEPARATOR.join(nodes) if any(nodes) else None
    all_tags = SEPARATOR.join(tags) if any(tags) else None
    return Batch(
        len(seqs),
        texts,
        all_metas,
        all_nodes,
        all_tags,
        page_size(len(seqs), texts, all_metas, all_nodes, all_tags),
    )


def _new_topic(broker: "Broker", name: str) -> TopicCreated:
    broker.check_no_alias(name)
    most = broker.limits.max_topics
    if most and len(broker.state.topics) + broker.creating >= most:
        raise Throttled(f"the server holds {most} topics already", detail={"limit": "max_topics", "max": most})
    return TopicCreated(new_topic_id(broker), name, DEFAULT_CONFIG, 1, broker.runtime.now_ms())


def _leases(partition: Partition) -> Leases:
    assert partition.leases is not None
    return partition.leases


def _ignore(_outcome: Append | TopicsError) -> None:
    pass


def _nothing() -> None:
    pass


def _forget(_moved: int) -> None:
    pass
