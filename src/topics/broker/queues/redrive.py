"""Redrive: dead letters become jobs again, in the queues they came from.

The copy to the queue and the delete from the dead-letter topic are in one frame, as when they were moved there (`dead_letters.py`): a
crash leaves all of it or nothing. The copy has the same data, tag and node; the keys that say where it came from are removed
from `meta`. It is delivered as a new job.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from topics.broker.core import Core
from topics.broker.log.apply import apply
from topics.broker.log.commit import Commit
from topics.broker.queues.dead_letters import ORIGIN_KEYS, first_commit
from topics.broker.state import State
from topics.broker.topics.append import Append, AppendGroup, decide_append
from topics.engine.lease import seqs_bytes
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.errors import TopicsError, topic_not_found
from topics.model.facts import Deleted, Fact
from topics.model.match import TagMatch
from topics.model.page import SEPARATOR, Page, column, page_datas, page_size
from topics.model.steps import Steps
from topics.runtime.replies import send

# Dead letters that one request moves.
MAX_REDRIVE_RECORDS = 10_000
RECORDS_PER_STEP = 100

_decode_meta = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class Wanted(Struct, frozen=True):
    """Which dead letters: those that meet all conditions given."""

    queue: str | None = None
    seqs: frozenset[int] | None = None
    match: TagMatch | None = None


class Letters(Struct):
    """Dead letters that were found: by queue, their seqs."""

    by_queue: dict[str, list[int]]
    skipped: int = 0
    remaining: int = 0


class RedriveResult(Struct):
    moved: dict[str, int]
    skipped: int
    remaining: int


RedriveReply = Callable[[RedriveResult | TopicsError], None]
MayTouch = Callable[[str], bool]


def redrive(core: Core, name: str, wanted: Wanted, may_touch: MayTouch, reply: RedriveReply, *, dry_run: bool) -> None:
    """Move the wanted dead letters of the topic back. `dry_run`: only count them. Letters of queues outside `may_touch` stay."""
    topic = core.topic(name)
    partition = topic.partitions[0]
    core.evict(topic, partition)

    def found(letters: Letters, error: BaseException | None) -> None:
        if error is not None:
            send(reply, error if isinstance(error, TopicsError) else TopicsError("internal error"))
        elif dry_run:
            counts = {queue: len(seqs) for queue, seqs in letters.by_queue.items()}
            send(reply, RedriveResult(counts, letters.skipped, letters.remaining))
        else:
            _Move(core, topic, partition, letters, reply).go_on()

    core.slices.run(_find(core, topic, partition, wanted, may_touch), found)


def _find(core: Core, topic: Topic, partition: Partition, wanted: Wanted, may_touch: MayTouch) -> Steps[Letters]:
    letters = Letters({})
    found = 0
    seq = partition.next_live(1)
    examined = 0
    while seq is not None:
        page = partition.find(seq)
        assert page is not None
        metas = column(page.metas, page.count)
        tags = column(page.tags, page.count)
        while seq is not None and seq <= page.last_seq:
            examined += 1
            position = seq - page.first_seq
            if _is_wanted(wanted, seq, tags[position]):
                queue = origin_of(metas[position])
                target = None if queue is None else core.state.topics.get(queue)
                if wanted.queue is not None and queue != wanted.queue:
                    pass
                elif (
                    queue is None
                    or target is None
                    or target.config.type != "queue"
                    or target is topic
                    or not may_touch(queue)
                ):
                    letters.skipped += 1
                elif found < MAX_REDRIVE_RECORDS:
                    found += 1
                    letters.by_queue.setdefault(queue, []).append(seq)
                else:
                    letters.remaining += 1
            seq = partition.next_live(seq + 1)
            if not examined % RECORDS_PER_STEP:
                yield
        yield
    return letters


def _is_wanted(wanted: Wanted, seq: int, tag: bytes) -> bool:
    if wanted.seqs is not None and seq not in wanted.seqs:
        return False
    return wanted.match is None or (bool(tag) and wanted.match.matches(_decode_text(tag)))


def origin_of(meta: bytes) -> str | None:
    """The queue that a dead letter came from; None for other records."""
    if ORIGIN_KEYS[0] not in meta:
        return None
    try:
        return _decode_text(_decode_meta(meta)[ORIGIN_KEYS[0].decode()])
    except (msgspec.DecodeError, KeyError):
        return None


def without_origin(meta: bytes) -> bytes:
    """The meta that the job had before it was a dead letter; its own keys keep their bytes."""
    names = {key.decode() for key in ORIGIN_KEYS}
    kept = {key: value for key, value in _decode_meta(meta).items() if key not in names}
    return msgspec.json.encode(kept) if kept else b""


class _Move:
    """The commits of one request, one after the other."""

    def __init__(self, core: Core, topic: Topic, partition: Partition, letters: Letters, reply: RedriveReply) -> None:
        self._core = core
        self._topic = topic
        self._partition = partition
        self._left = [(queue, seqs) for queue, seqs in letters.by_queue.items()]
        self._result = RedriveResult({}, letters.skipped, letters.remaining)
        self._reply = reply

    def go_on(self) -> None:
        """Move the next ones, or reply."""
        core, topic = self._core, self._topic
        if not self._left:
            send(self._reply, self._result)
            return
        queue, seqs = self._left[0]
        for name in (topic.name, queue):
            # While one of the topics is being created, changed or deleted: run again when that is decided.
            if core.parked(name, self.go_on, lambda error: send(self._reply, error)):
                return
        if not core.exists(topic):
            send(self._reply, topic_not_found(topic.name))
            return
        alive = [seq for seq in seqs if self._partition.is_live(seq)]
        target = core.state.topics.get(queue)
        if target is None or target.config.type != "queue" or not alive:
            self._left.pop(0)
            self._result.skipped += len(alive)
            core.runtime.call_soon(self.go_on)
            return
        some = first_commit(self._partition, alive)
        self._left[0] = (queue, alive[len(some) :])
        try:
            commit = self._decide(target, some)
        except TopicsError as error:
            if not self._result.moved:
                send(self._reply, error)
                return
            # What was moved is answered; the queue is full, or the log refuses writes.
            self._left.pop(0)
            self._result.skipped += len(alive)
            core.runtime.call_soon(self.go_on)
            return
        core.committer.submit(commit)

    def _decide(self, target: Topic, seqs: list[int]) -> "RedriveCommit":
        core = self._core
        core.committer.check_writable()
        # The copies have a frame of their own, after the writes of this turn and before later ones.
        core.close_group(target.partitions[0])
        group = decide_append(core, target, _copies(self._partition, seqs), _ignore)
        core.close_group(target.partitions[0])
        assert group is not None
        return RedriveCommit(core, self._topic, self._partition, seqs, group, self._committed)

    def _committed(self, queue: str, moved: int, error: TopicsError | None) -> None:
        if error is not None:
            send(self._reply, error)
            return
        self._result.moved[queue] = self._result.moved.get(queue, 0) + moved
        # In another turn: the reply of this commit is sent first.
        self._core.runtime.call_soon(self.go_on)


class RedriveCommit(Commit):
    """Dead letters that are moved to a queue."""

    __slots__ = ("_core", "_done", "_group", "_seqs", "_topic")

    partition: Partition

    def __init__(
        self,
        core: Core,
        topic: Topic,
        partition: Partition,
        seqs: list[int],
        group: AppendGroup,
        done: Callable[[str, int, TopicsError | None], None],
    ) -> None:
        facts: list[Fact] = [*group.all_facts()]
        if topic.config.durability != "ephemeral":
            facts.append(Deleted(topic.id, partition.number, seqs_bytes(seqs)))
        # Synced whatever the classes are, so that both partitions keep the order of the commit.
        super().__init__(facts, partition, group.records, sync=True)
        group.partition.waiting_sync += 1
        self._core = core
        self._topic = topic
        self._seqs = seqs
        self._group = group
        self._done = done

    def written(self) -> None:
        self._group.written()

    def apply(self, state: State) -> None:
        self._group.partition.waiting_sync -= 1
        self._group.apply(state)
        for fact in self.facts:
            if isinstance(fact, Deleted):
                apply(state, fact)
        if self._topic.config.durability == "ephemeral":
            self.partition.kill(self._seqs)

    def after_apply(self) -> None:
        self._group.after_apply()
        self._core.tidy_tags(self.partition)
        self._core.checkpointer.collect_dropped(self.partition, self.lsn)

    def rollback(self) -> None:
        self._group.partition.waiting_sync -= 1
        self._group.rollback()

    def reply(self, error: TopicsError | None) -> None:
        self._group.reply(error)
        self._done(self._group.topic.name, len(self._seqs), error)


def _copies(partition: Partition, seqs: list[int]) -> Batch:
    columns: list[list[bytes]] = [[], [], [], []]
    page: Page | None = None
    texts: list[list[bytes]] = []
    for seq in seqs:
        if page is None or seq > page.last_seq:
            page = partition.find(seq)
            assert page is not None
            # Split once for all letters of the page.
            texts = [page_datas(page), *[column(each, page.count) for each in (page.metas, page.nodes, page.tags)]]
        values = [each[seq - page.first_seq] for each in texts]
        values[1] = without_origin(values[1])
        for collected, value in zip(columns, values, strict=True):
            collected.append(value)
    data = SEPARATOR.join(columns[0])
    metas, nodes, tags = [SEPARATOR.join(each) if any(each) else None for each in columns[1:]]
    return Batch(len(seqs), data, metas, nodes, tags, page_size(len(seqs), data, metas, nodes, tags))


def _ignore(_outcome: Append | TopicsError) -> None:
    pass
