"""Stages and commits: records written ahead, and made readable together, over several topics, at most once.

A stage keeps checked records for one topic, as safe as the topic's class demands, readable by nobody. A commit names
stages (or brings its records along) and makes them all readable in one frame of the log: all of them or none, on every
topic. A commit may carry a producer and a batch number; the producer's fence is in the same frame, so it can never
disagree with the data. A batch at or below the fence is a repeat: it changes nothing and is told what the fence knows.

Of a producer only its last batch is kept. It belongs to whoever used it first, or a stranger's high batch would turn all
that its owner commits into repeats: see `check_owner`. Stages that no commit names expire.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from topics.broker.append import check_room, choose_partition
from topics.broker.barrier import other_lanes, when_safe
from topics.broker.committer import Commit, Lane
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.errors import Forbidden, NotFound, Throttled, TopicsError, topic_not_found
from topics.model.facts import (
    Appended,
    Fact,
    Fenced,
    HeadMoved,
    Placed,
    StageApplied,
    Staged,
    StagedPart,
    StagesDropped,
)
from topics.model.page import Page

if TYPE_CHECKING:
    from topics.broker.broker import Broker
    from topics.broker.state import State


class StageBook:
    """All stages and fences of a server."""

    def __init__(self) -> None:
        self.stages: dict[str, Staged] = {}
        self.fences: dict[str, Fenced] = {}
        self.bytes = 0
        self.commits_total = 0
        self.repeats_total = 0
        self.expired_total = 0

    def keep(self, stage: Staged) -> None:
        if stage.stage_id not in self.stages:
            self.stages[stage.stage_id] = stage
            self.bytes += stage_size(stage)

    def drop(self, stage_id: str) -> Staged | None:
        stage = self.stages.pop(stage_id, None)
        if stage is not None:
            self.bytes -= stage_size(stage)
        return stage

    def fence(self, fact: Fenced) -> None:
        current = self.fences.get(fact.producer)
        if current is None or fact.batch >= current.batch:
            self.fences[fact.producer] = fact

    # What a snapshot keeps. Taken before the topics: a stage that is applied in between is then still there when the
    # fact that applied it is replayed.

    def capture(self) -> Callable[[], bytes]:
        # Encoded later and aside: stages may hold hundreds of megabytes, which the loop must not wait for. They never change.
        image = _Image(list(self.stages.values()), list(self.fences.values()))
        return lambda: msgspec.msgpack.encode(image)

    def restore(self, body: bytes) -> None:
        image = _decode_image(body)
        for stage in image.stages:
            self.keep(stage)
        for fence in image.fences:
            self.fence(fence)


class _Image(Struct):
    stages: list[Staged]
    fences: list[Fenced]


_decode_image = msgspec.msgpack.Decoder(_Image).decode


def stage_size(stage: Staged) -> int:
    return sum([each.page.size for each in stage.parts])


def apply_stage(state: "State", fact: StageApplied) -> None:
    """What a StageApplied means: its records are readable and the stage is gone."""
    stage = state.stages.drop(fact.stage_id)
    topic = state.by_id.get(fact.topic_id)
    if stage is None or topic is None:
        return
    for each, first_seq in zip(stage.parts, fact.first_seqs, strict=True):
        state.append(topic, topic.partitions[each.partition], numbered(each.page, first_seq, fact.ts), None)


def numbered(page: Page, first_seq: int, ts: int) -> Page:
    return Page(first_seq, page.count, ts, page.data, page.metas, page.nodes, page.tags, page.size)


# Staging


class KeepStage(Commit):
    """A stage is written; it exists when the log has it."""

    __slots__ = ("_book", "_reply", "_stage")

    def __init__(
        self, book: StageBook, stage: Staged, *, logged: bool, reply: Callable[["Staged | TopicsError"], None]
    ) -> None:
        super().__init__([stage] if logged else [StagesDropped([])])
        self._book = book
        self._stage = stage
        self._reply = reply

    def apply(self) -> None:
        self._book.keep(self._stage)
        self._reply(self._stage)

    def fail(self, error: TopicsError) -> None:
        self._reply(error)


def stage(
    broker: "Broker",
    stage_id: str,
    topic: Topic,
    batches: list[Batch],
    reply: Callable[[Staged | TopicsError], None],
) -> None:
    """Keep the batches for the topic under `stage_id`, which nobody used before; each goes where an append of it would."""
    expire_stages(broker)
    book = broker.state.stages
    most = broker.limits.max_staged_bytes
    if most and book.bytes + sum([batch.size for batch in batches]) > most:
        raise Throttled(
            f"stages hold {book.bytes} bytes; at most {most}", detail={"limit": "max_staged_bytes", "max": most}
        )
    lane = broker.committer.lane_of(topic.id)
    broker.committer.check_writable(lane)
    parts = [StagedPart(choose_partition(topic, batch).number, unnumbered(batch)) for batch in batches]
    staged = Staged(stage_id, topic.id, parts, broker.runtime.now_ms())
    commit = KeepStage(book, staged, logged=topic.config.durability != "ephemeral", reply=reply)
    # Whatever the class: a commit in another shard may be safe before this one is, and must find its records.
    commit.sync = True
    broker.committer.submit(lane, commit)


def drop_stages(broker: "Broker", stage_ids: list[str]) -> int:
    """Give up these stages; answers how many there were. Remembered soon after: a stage that comes back expires."""
    book = broker.state.stages
    known = [stage_id for stage_id in stage_ids if stage_id in book.stages]
    for stage_id in known:
        dropped = book.drop(stage_id)
        assert dropped is not None
    if known:
        broker.committer.note(broker.committer.lanes[0], StagesDropped(known))
    return len(known)


def expire_stages(broker: "Broker") -> None:
    """Give up stages that no commit has named for too long. They stand in the order they were made."""
    book = broker.state.stages
    oldest = broker.runtime.now_ms() - broker.limits.stage_ttl_ms
    stale = []
    for stage_id, staged in book.stages.items():
        if staged.ts > oldest:
            break
        stale.append(stage_id)
    book.expired_total += drop_stages(broker, stale)


def unnumbered(batch: Batch) -> Page:
    """The batch as a page that has no place yet."""
    return Page(0, batch.count, 0, batch.data, batch.metas, batch.nodes, batch.tags, batch.size)


# Committing


class Write(Struct):
    """Records that come with the commit itself."""

    topic: str
    batch: Batch


class CommitRequest(Struct):
    """What is to become readable together. `producer` and `batch` come together or not at all.

    `prefixes` are those of the key that asks, empty for every name; None where nobody needs a key.
    """

    stage_ids: list[str]
    writes: list[Write]
    producer: str | None = None
    batch: int = 0
    prefixes: tuple[str, ...] | None = None
    # What else becomes true together with it, and not without it.
    facts: list[Fact] = []


class Committed(Struct):
    """The outcome. A repeat of an older batch than the last knows no places any more."""

    placed: list[Placed]
    deduped: bool
    batch: int
    wal_ms: float = 0.0
    sync_ms: float = 0.0


CommitReply = Callable[[Committed | TopicsError], None]


class _Piece(Struct):
    """Records for one partition, from a stage or from the commit itself."""

    stage: Staged | None
    topic: Topic
    partition: Partition
    page: Page


class CommitTogether(Commit):
    """Everything a commit names becomes readable, and the fence moves, in one frame."""

    __slots__ = ("_broker", "_lane", "_pieces", "_placed", "_release", "_reply", "_request")

    def __init__(
        self,
        broker: "Broker",
        lane: Lane,
        request: CommitRequest,
        pieces: list[_Piece],
        release: Callable[[], None],
        reply: CommitReply,
    ) -> None:
        logs = list({id(piece.partition): piece.partition for piece in pieces}.values())
        super().__init__([], logs[0] if logs else None, sum([piece.page.count for piece in pieces]))
        self.others = tuple(logs[1:])
        fenced = request.producer is not None or bool(request.facts)
        # What comes first into a log is synced whatever its class, as a first write is (see `append.py`).
        self.sync = fenced or any(
            [each.topic.config.durability == "fsync" or not each.partition.head_seq for each in pieces]
        )
        self._broker = broker
        self._lane = lane
        self._request = request
        self._release = release
        self._reply = reply
        self._pieces: list[_Piece] = []
        self._placed: list[Placed] = []
        self._place(pieces)

    def apply(self) -> None:
        broker = self._broker
        book = broker.state.stages
        for piece in self._pieces:
            partition, page = piece.partition, piece.page
            partition.pending_records -= page.count
            partition.pending_bytes -= page.size
            broker.state.append(piece.topic, partition, page, None)
        for fact in self.facts:
            if isinstance(fact, StageApplied):
                book.drop(fact.stage_id)
            elif isinstance(fact, Fenced):
                book.fence(fact)
        for fact in self._request.facts:
            broker.state.apply(fact)
        for piece in self._pieces:
            broker.evict(piece.topic, piece.partition)
            broker.appended(piece.topic, piece.partition, piece.page.size)
        book.commits_total += 1
        self._reply(Committed(self._placed, False, self._request.batch, self.wal_ms, self.sync_ms))
        self._finish()

    def take_back(self) -> None:
        for piece in reversed(self._pieces):
            partition, page = piece.partition, piece.page
            partition.pending_records -= page.count
            partition.pending_bytes -= page.size
            if not self._lane.shard.failed:
                # Otherwise the frame may stand there all the same, and the next start find it: in a topic of another shard,
                # which goes on, nobody else may get these seqs.
                partition.next_seq = min(partition.next_seq, page.first_seq)

    def fail(self, error: TopicsError) -> None:
        self._reply(error)
        self._finish()

    def _finish(self) -> None:
        self._release()
        if self._request.producer is not None:
            for again in self._broker.committing.pop(self._request.producer, []):
                again()

    def _place(self, pieces: list[_Piece]) -> None:
        """Give every piece its seqs and say so in facts."""
        now_ms = self._broker.runtime.now_ms()
        # One time for all, behind everything that any of their logs holds.
        ts = max([now_ms, *[piece.partition.last_ts for piece in pieces]])
        applied: dict[str, StageApplied] = {}
        for piece in pieces:
            partition = piece.partition
            page = numbered(piece.page, partition.next_seq, ts)
            partition.gathering = None
            partition.last_ts = ts
            partition.next_seq += page.count
            partition.pending_records += page.count
            partition.pending_bytes += page.size
            self._pieces.append(_Piece(piece.stage, piece.topic, partition, page))
            stage_id = None if piece.stage is None else piece.stage.stage_id
            self._placed.append(Placed(stage_id, piece.topic.name, partition.number, page.first_seq, page.count))
            if piece.topic.config.durability == "ephemeral":
                self.facts.append(HeadMoved(piece.topic.id, partition.number, page.last_seq))
            elif piece.stage is None:
                self.facts.append(Appended(piece.topic.id, partition.number, page, None))
            if piece.stage is not None:
                fact = applied.get(piece.stage.stage_id)
                if fact is None:
                    fact = applied[piece.stage.stage_id] = StageApplied(piece.stage.stage_id, piece.topic.id, [], ts)
                    self.facts.append(fact)
                fact.first_seqs.append(page.first_seq)
        producer = self._request.producer
        if producer is not None:
            fence = self._broker.state.stages.fences.get(producer)
            owner = self._request.prefixes if fence is None or fence.prefixes is None else fence.prefixes
            prefixes = None if owner is None else list(owner)
            self.facts.append(Fenced(producer, self._request.batch, self._placed, ts, prefixes))
        self.facts += self._request.facts


def commit(broker: "Broker", request: CommitRequest, reply: CommitReply) -> None:
    """Make everything the request names readable, all of it or nothing, unless the producer's fence says it was.

    A producer that is another's is Forbidden: raised, or told to `reply` when it was being used for the first time.
    """
    producer = request.producer
    book = broker.state.stages
    if producer is not None:
        waiting = broker.committing.get(producer)
        if waiting is not None:
            waiting.append(lambda: _again(broker, request, reply))
            return
        fence = book.fences.get(producer)
        if fence is not None:
            check_owner(fence, request.prefixes)
        if fence is not None and request.batch <= fence.batch:
            book.repeats_total += 1
            drop_stages(broker, request.stage_ids)
            reply(Committed(fence.placed if request.batch == fence.batch else [], True, fence.batch))
            return
        most = broker.limits.max_producers
        if fence is None and most and len(book.fences) >= most:
            raise Throttled(f"{most} producers are known already", detail={"limit": "max_producers", "max": most})
    names = [piece.topic.name for piece in _pieces(broker, request)]
    if producer is not None:
        broker.committing[producer] = []

    def act(lane: Lane, release: Callable[[], None]) -> None:
        def refuse(error: TopicsError) -> None:
            release()
            reply(error)
            if producer is not None:
                for again in broker.committing.pop(producer, []):
                    again()

        def write(unsafe: TopicsError | None) -> None:
            if unsafe is not None:
                refuse(unsafe)
                return
            try:
                broker.committer.check_writable(lane)
                # Looked up again: between the first look and this moment other requests may have come first.
                together = CommitTogether(broker, lane, request, _pieces(broker, request), release, reply)
            except TopicsError as error:
                refuse(error)
                return
            together.sync = together.sync or bool(others)
            broker.committer.submit(lane, together)

        topics = [broker.state.topics[name] for name in names if name in broker.state.topics]
        others = other_lanes(broker.committer, lane, [topic.id for topic in topics])
        when_safe(broker.committer, others, write)

    broker.together(list(dict.fromkeys(names)), act)


def check_owner(fence: Fenced, prefixes: Sequence[str] | None) -> None:
    """Raises Forbidden unless a key with these prefixes may use and see the producer.

    A key may when it reaches every name that the owner reaches, whatever the last batch was about: the next one may be
    about more. A producer that is nobody's yet, because no keys were asked for when it was used, is for those who may touch
    all that its last batch placed.
    """
    if not prefixes:
        return
    reached = tuple(prefixes)
    if fence.prefixes is None:
        allowed = all([each.topic.startswith(reached) for each in fence.placed])
    else:
        allowed = bool(fence.prefixes) and all([prefix.startswith(reached) for prefix in fence.prefixes])
    if not allowed:
        raise Forbidden(
            "the producer belongs to a key with other prefixes; take another name", detail={"producer": fence.producer}
        )


def _again(broker: "Broker", request: CommitRequest, reply: CommitReply) -> None:
    try:
        commit(broker, request, reply)
    except TopicsError as error:
        reply(error)


def _pieces(broker: "Broker", request: CommitRequest) -> list[_Piece]:
    """What the request names, in its order. Raises when a stage or topic is missing or something does not fit."""
    book = broker.state.stages
    missing = [stage_id for stage_id in request.stage_ids if stage_id not in book.stages]
    if missing:
        raise NotFound(
            "a stage does not exist (any more); stage its records again",
            code="stage_not_found",
            detail={"stages": missing[:100]},
        )
    pieces = []
    for stage_id in request.stage_ids:
        staged = book.stages[stage_id]
        topic = broker.state.by_id.get(staged.topic_id)
        if topic is None:
            raise NotFound(f'the topic of stage "{stage_id}" was deleted', detail={"stage": stage_id})
        for each in staged.parts:
            pieces.append(_Piece(staged, topic, topic.partitions[each.partition], each.page))
    for write in request.writes:
        found = broker.state.topics.get(write.topic)
        if found is None:
            raise topic_not_found(write.topic)
        batch = write.batch
        pieces.append(_Piece(None, found, choose_partition(found, batch), unnumbered(batch)))
    _check_room(broker, pieces)
    return pieces


def _check_room(broker: "Broker", pieces: list[_Piece]) -> None:
    totals: dict[int, tuple[_Piece, int, int]] = {}
    for piece in pieces:
        _, count, size = totals.get(id(piece.partition), (piece, 0, 0))
        totals[id(piece.partition)] = (piece, count + piece.page.count, size + piece.page.size)
    for piece, count, size in totals.values():
        check_room(broker, piece.topic, piece.partition, count, size)
    if broker.limits.max_total_bytes:
        broker.check_total_bytes(
            *[(piece.topic, piece.partition, count, size) for piece, count, size in totals.values()]
        )
