"""Dead letters: jobs that were delivered too often are moved from their queue to another topic.

The copy and the delete are in one frame, with the new count and, if it did not exist, the topic that gets them. A crash leaves all
of it or nothing: no job is lost and none exists twice. The copy has the same `data`, tag, node and `meta`, byte for byte; three
keys are added to `meta`. The copy is as durable as the class of the topic that gets it demands.
"""

from collections.abc import Callable

import msgspec

from topics.broker.core import Core
from topics.broker.log.apply import apply
from topics.broker.log.commit import Commit
from topics.broker.state import State
from topics.broker.topics.append import Append, AppendGroup, decide_append
from topics.engine.lease import Leases, seqs_bytes
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.config import DEFAULT_CONFIG
from topics.model.errors import TopicsError
from topics.model.facts import DeadLettered, Deleted, Fact, TopicCreated
from topics.model.page import SEPARATOR, Page, column, page_datas, page_size
from topics.runtime.replies import call

# The largest commit. More jobs are moved by several commits, one after the other, so that each is applied quickly.
MAX_MOVE_RECORDS = 250
MAX_MOVE_BYTES = 2 << 20

# Keys of `meta` that say where a dead letter came from, and why.
ORIGIN_KEYS = (b"$dead_letter_from", b"$dead_letter_deliveries", b"$dead_letter_src_seq", b"$dead_letter_reason")
_decode_meta = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def move(core: Core, topic: Topic, partition: Partition, seqs: list[int], done: Callable[[int], None]) -> None:
    """Move these jobs, which are DEAD_LETTERING, to the topic's dead-letter topic; then call `done` once with how many were moved.

    Several commits may be needed. Jobs that cannot be moved now are returned to the queue and tried again by a later claim: the
    other topic is full, or does not exist while `auto_create` is off or its name is an alias, or the disk failed.
    """
    name = topic.config.dead_letter
    leases = _leases(partition)
    if name is None:
        # The configuration was changed meanwhile.
        leases.put_back_dead(seqs)
        done(0)
        return
    for each in (topic.name, name):
        # While one of the topics is being created, changed or deleted: run again when that is decided.
        if core.parked(each, lambda: move(core, topic, partition, seqs, done), _ignore):
            return
    # They were set aside in the order in which they were returned; a delete needs ascending seqs.
    alive = sorted([seq for seq in seqs if partition.is_live(seq)])
    if not core.exists(topic) or not alive:
        done(0)
        return
    if name not in core.state.topics and not topic.config.auto_create:
        leases.put_back_dead(alive)
        done(0)
        return
    some = first_commit(partition, alive)
    if len(some) < len(alive):

        def move_others(moved: int) -> None:
            again = lambda: move(core, topic, partition, alive[len(some) :], lambda more: done(moved + more))  # noqa: E731
            # In another turn: the replies of the first commit are sent first, and failures do not nest calls.
            core.runtime.call_soon(again)

        move(core, topic, partition, some, move_others)
        return
    try:
        commit = _decide(core, topic, partition, name, alive, done)
    except TopicsError:
        if len(alive) > 1:
            # Half of them may fit.
            half = len(alive) // 2

            def move_rest(moved: int) -> None:
                move(core, topic, partition, alive[half:], lambda more: done(moved + more))

            move(core, topic, partition, alive[:half], move_rest)
        else:
            leases.put_back_dead(alive)
            done(0)
        return
    core.committer.submit(commit)


def _decide(
    core: Core, topic: Topic, partition: Partition, name: str, seqs: list[int], done: Callable[[int], None]
) -> "DeadLetterCommit":
    core.committer.check_writable()
    target = core.state.topics.get(name)
    created = None
    if target is None:
        core.check_new_topics(name)
        created = TopicCreated(core.state.next_topic_id, name, DEFAULT_CONFIG, 1, core.runtime.now_ms())
        target = core.state.new_topic(created.topic_id, name, created.config, 1, created.ts)
    # The copies have a frame of their own, after the writes of this turn and before later ones.
    core.close_group(target.partitions[0])
    group = decide_append(core, target, _copies(topic, partition, seqs), _ignore)
    core.close_group(target.partitions[0])
    assert group is not None
    if created is not None:
        core.begin_create(target)
    return DeadLetterCommit(core, topic, partition, seqs, target, group, created, done)


class DeadLetterCommit(Commit):
    """Jobs that are moved from a queue to another topic."""

    __slots__ = ("_core", "_created", "_done", "_group", "_leases", "_seqs", "_target", "_topic")

    partition: Partition

    def __init__(
        self,
        core: Core,
        topic: Topic,
        partition: Partition,
        seqs: list[int],
        target: Topic,
        group: AppendGroup,
        created: TopicCreated | None,
        done: Callable[[int], None],
    ) -> None:
        self._leases = leases = _leases(partition)
        facts: list[Fact] = [] if created is None else [created]
        facts += group.all_facts()
        if topic.config.durability != "ephemeral":
            facts.append(Deleted(topic.id, partition.number, seqs_bytes(seqs)))
        leases.dead_letters_decided = max(leases.dead_letters_decided, leases.dead_lettered) + len(seqs)
        facts.append(DeadLettered(topic.id, partition.number, leases.dead_letters_decided))
        # Synced whatever the classes are: dead letters are rare, and the sync keeps the order of the commit in both partitions.
        super().__init__(facts, partition, group.records, sync=True)
        group.partition.waiting_sync += 1
        self._core = core
        self._topic = topic
        self._seqs = seqs
        self._target = target
        self._group = group
        self._created = created
        self._done = done

    def written(self) -> None:
        if self._created is None:
            self._group.written()

    def apply(self, state: State) -> None:
        self._group.partition.waiting_sync -= 1
        if self._created is not None:
            apply(state, self._created)
        self._group.apply(state)
        for fact in self.facts:
            if isinstance(fact, Deleted | DeadLettered):
                apply(state, fact)
        if self._topic.config.durability == "ephemeral":
            self.partition.kill(self._seqs)

    def after_apply(self) -> None:
        self._group.after_apply()
        self._core.checkpointer.collect_dropped(self.partition, self.lsn)

    def rollback(self) -> None:
        self._group.partition.waiting_sync -= 1
        self._core.state.cancel_create(self._target)
        self._leases.dead_letters_decided -= len(self._seqs)
        self._group.rollback()
        self._leases.put_back_dead(self._seqs)

    def reply(self, error: TopicsError | None) -> None:
        self._group.reply(error)
        call(self._done, len(self._seqs) if error is None else 0)

    def release(self) -> None:
        if self._created is not None:
            self._core.release(self._created.name)


def with_origin(meta: bytes, topic: str, deliveries: int, seq: int, reason: str | None = None) -> bytes:
    """The job's `meta` with the keys that say where it came from, and why if that is known; its own keys keep their bytes."""
    origin = b'"%b":%b,"%b":%d,"%b":%d' % (
        ORIGIN_KEYS[0],
        msgspec.json.encode(topic),
        ORIGIN_KEYS[1],
        deliveries,
        ORIGIN_KEYS[2],
        seq,
    )
    if reason is not None:
        origin += b',"%b":%b' % (ORIGIN_KEYS[3], msgspec.json.encode(reason))
    if not meta:
        return b"{" + origin + b"}"
    if b'"$dead_letter_' in meta:
        # It was a dead letter before: replace the keys of the earlier move.
        names = {key.decode() for key in ORIGIN_KEYS}
        try:
            kept = {key: value for key, value in _decode_meta(meta).items() if key not in names}
            meta = msgspec.json.encode(kept)
        except msgspec.DecodeError:
            # The decoder refuses lone surrogates. Then the keys are there twice; readers use the last ones.
            pass
    body = meta.rstrip()[:-1].rstrip()
    return body + (b"" if body == b"{" else b",") + origin + b"}"


def first_commit(partition: Partition, seqs: list[int]) -> list[int]:
    """The first of these live jobs, as many as one commit moves."""
    size = 0
    for index, seq in enumerate(seqs[:MAX_MOVE_RECORDS]):
        size += partition.segment_at(seq).size_between(seq, seq + 1)
        if size > MAX_MOVE_BYTES and index:
            return seqs[:index]
    return seqs[:MAX_MOVE_RECORDS]


def _copies(topic: Topic, partition: Partition, seqs: list[int]) -> Batch:
    leases = _leases(partition)
    data: list[bytes] = []
    metas: list[bytes] = []
    nodes: list[bytes] = []
    tags: list[bytes] = []
    page: Page | None = None
    columns: list[list[bytes]] = []
    for seq in seqs:
        if page is None or seq > page.last_seq:
            page = partition.find(seq)
            assert page is not None
            # Split once for all jobs of the page.
            count = page.count
            columns = [page_datas(page), *[column(each, count) for each in (page.metas, page.nodes, page.tags)]]
        text, meta, node, tag = [each[seq - page.first_seq] for each in columns]
        data.append(text)
        metas.append(with_origin(meta, topic.name, leases.delivery_count(seq) - 1, seq, leases.reason(seq)))
        nodes.append(node)
        tags.append(tag)
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


def _leases(partition: Partition) -> Leases:
    assert partition.leases is not None
    return partition.leases


def _ignore(_outcome: Append | TopicsError) -> None:
    pass
