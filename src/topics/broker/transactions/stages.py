"""Stages and commits over several topics: records are stored first, and become readable together, at most once.

A stage holds validated records for one topic that are not readable yet. A commit names stages, or contains records itself, and
makes all of them readable in one frame of the log: all or none, on every topic. A commit may carry a producer and a batch
number; the producer's fence is in the same frame, so it never disagrees with the data. A batch at or below the fence is a
repeat: it changes nothing, and its reply contains what the fence stores.

Only the last batch of a producer is stored. A producer belongs to the key that used it first: otherwise a high batch of another
key would turn all commits of the owner into repeats (`check_owner`). Stages that are neither committed nor renewed expire.
"""

from collections.abc import Callable

from msgspec import Struct, structs

from topics.broker.core import Core
from topics.broker.log.apply import apply
from topics.broker.log.commit import Commit, FactCommit
from topics.broker.log.sync_policy import must_sync
from topics.broker.state import State
from topics.broker.topics.append import choose_partition
from topics.broker.topics.quota import Growth
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reservation import Reservation
from topics.engine.topics.topic import Topic
from topics.engine.transactions.commit_request import CommitRequest, Committed, check_owner, check_repeat
from topics.engine.transactions.stages import numbered
from topics.model.errors import NotFound, Throttled, TopicsError, topic_not_found
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
from topics.model.records.batch import Batch
from topics.model.records.page import Page
from topics.runtime.replies import retried, run_each, send

# The tags of a larger commit are indexed in slices afterwards: to index a million tags takes a third of a second.
MAX_INDEXED_RECORDS = 20_000


# Staging


def stage(
    core: Core,
    stage_id: str,
    topic: Topic,
    batches: list[Batch],
    reply: Callable[[Staged | TopicsError], None],
    producer: str | None = None,
) -> None:
    """Keep the batches for the topic under a new `stage_id`; each goes to the partition an append of it would go to.

    `producer` is the one that will commit the stage, so that it can renew all of its stages together.
    """
    expire_stages(core)
    stages = core.state.stages
    most = core.limits.max_staged_bytes
    if most and stages.bytes + sum([batch.size for batch in batches]) > most:
        raise Throttled(
            f"stages hold {stages.bytes} bytes; at most {most}", detail={"limit": "max_staged_bytes", "max": most}
        )
    core.committer.check_writable()
    parts = [StagedPart(choose_partition(topic, batch).number, page) for batch in batches for page in batch.parts()]
    staged = Staged(stage_id, topic.id, parts, core.runtime.now_ms(), producer)
    # Stages of an ephemeral topic are not logged; the commit keeps their order in the log.
    logged = topic.config.durability != "ephemeral"

    def applied(_: Commit) -> None:
        if not logged:
            stages.keep(staged)
            stages.unlogged.add(stage_id)

    # Synced whatever the topic's class: the client may discard the records once the stage is acknowledged.
    facts: list[Fact] = [staged] if logged else [StagesDropped([])]
    core.committer.submit(FactCommit(facts, lambda error: reply(error or staged), after_apply=applied))


def drop_stages(core: Core, stage_ids: list[str]) -> int:
    """Drop these stages, except those that are being committed; returns how many were dropped.

    Applied at once and logged later: a stage that a crash restores expires.
    """
    stages = core.state.stages
    known = [each for each in stage_ids if each in stages.stages and each not in core.committing_stages]
    if known:
        fact = StagesDropped(known)
        apply(core.state, fact)
        core.committer.note(fact)
    return len(known)


def expire_stages(core: Core) -> None:
    """Drop the stages that were neither committed nor renewed for `stage_ttl_ms`."""
    stages = core.state.stages
    oldest = core.runtime.now_ms() - core.limits.stage_ttl_ms
    stale = []
    for stage_id, renewed_ms in stages.renewed_ms.items():
        if renewed_ms > oldest:
            break
        stale.append(stage_id)
    stages.expired_total += drop_stages(core, stale)


# Committing


CommitReply = Callable[[Committed | TopicsError], None]


class _WantedPage(Struct):
    """A page of records for one partition, from a stage or from the commit itself, before its seqs are reserved."""

    stage: Staged | None
    topic: Topic
    partition: Partition
    page: Page
    # It goes on where the one before it ends: a large write or stage has several pages.
    continues: bool = False


class _PlacedPage(Struct):
    """The same page with its seqs."""

    topic: Topic
    partition: Partition
    page: Page
    reservation: Reservation


class CommitTogether(Commit):
    """Everything a commit names becomes readable, and the fence moves, in one frame."""

    __slots__ = ("_core", "_pages", "_placed", "_reply", "_request", "_unlogged")

    def __init__(
        self,
        core: Core,
        request: CommitRequest,
        wanted: list[_WantedPage],
        reply: CommitReply,
    ) -> None:
        logs = list({id(each.partition): each.partition for each in wanted}.values())
        super().__init__([], logs[0] if logs else None, sum([each.page.count for each in wanted]))
        self.others = tuple(logs[1:])
        fenced = request.producer is not None or bool(request.facts)
        self.sync = fenced or any([must_sync(each.topic.config, each.partition) for each in wanted])
        self._core = core
        self._request = request
        self._reply = reply
        self._pages: list[_PlacedPage] = []
        self._placed: list[Placed] = []
        # The records of ephemeral topics, by topic, partition and last seq.
        self._unlogged: dict[tuple[int, int, int], list[Page]] = {}
        self._place(wanted)
        self.reservations = [each.reservation for each in self._pages]

    def apply(self, state: State) -> None:
        self.settle_reservations()
        index_later = self.records > MAX_INDEXED_RECORDS or None
        for fact in self.facts:
            if isinstance(fact, HeadMoved):
                # The records of an ephemeral topic are in no fact. Those of a stage are applied again with it, without effect.
                apply(state, fact, self._unlogged[fact.topic_id, fact.partition, fact.head])
            else:
                apply(state, fact, index_later if isinstance(fact, Appended | StageApplied) else None)
        state.stages.commits_total += 1

    def after_apply(self) -> None:
        core = self._core
        for each in self._pages:
            core.evict(each.topic, each.partition)
            core.appended(each.topic, each.partition, each.page.size)
        if self.records > MAX_INDEXED_RECORDS:
            for partition in {id(each.partition): each.partition for each in self._pages}.values():
                core.tidy_tags(partition)

    def reply(self, error: TopicsError | None) -> None:
        send(self._reply, error or Committed(self._placed, False, self._request.batch, self.wal_ms, self.sync_ms))

    def release(self) -> None:
        for stage_id in self._request.stage_ids:
            run_each(self._core.committing_stages.pop(stage_id, []))
        _release_producer(self._core, self._request)

    def _place(self, wanted: list[_WantedPage]) -> None:
        """Reserve seqs for every page and build the facts."""
        now_ms = self._core.runtime.now_ms()
        # One time for all, behind everything that any of their logs holds.
        ts = max([now_ms, *[each.partition.last_ts for each in wanted]])
        applied: dict[str, StageApplied] = {}
        for each in wanted:
            partition = each.partition
            self._core.close_group(partition)
            reservation = partition.reserve(each.page.count, each.page.size, ts)
            page = numbered(each.page, reservation.first_seq, ts)
            self._pages.append(_PlacedPage(each.topic, partition, page, reservation))
            stage_id = None if each.stage is None else each.stage.stage_id
            if each.continues:
                before = self._placed[-1]
                self._placed[-1] = structs.replace(before, count=before.count + page.count)
            else:
                self._placed.append(Placed(stage_id, each.topic.name, partition.number, page.first_seq, page.count))
            if each.topic.config.durability == "ephemeral":
                self.facts.append(HeadMoved(each.topic.id, partition.number, page.last_seq))
                self._unlogged[each.topic.id, partition.number, page.last_seq] = [page]
            elif each.stage is None or each.stage.stage_id in self._core.state.stages.unlogged:
                # Not in the log yet, perhaps because the topic was ephemeral when the stage was made.
                self.facts.append(Appended(each.topic.id, partition.number, page, None))
            if each.stage is not None:
                fact = applied.get(each.stage.stage_id)
                if fact is None:
                    fact = applied[each.stage.stage_id] = StageApplied(each.stage.stage_id, each.topic.id, [], ts)
                    self.facts.append(fact)
                fact.first_seqs.append(page.first_seq)
        producer = self._request.producer
        if producer is not None:
            fence = self._core.state.stages.fences.get(producer)
            owner = self._request.prefixes if fence is None or fence.prefixes is None else fence.prefixes
            prefixes = None if owner is None else list(owner)
            self.facts.append(Fenced(producer, self._request.batch, self._placed, ts, prefixes, self._request.digest))
        self.facts += self._request.facts


def commit(core: Core, request: CommitRequest, reply: CommitReply) -> None:
    """Make everything the request names readable, all of it or nothing, unless the producer's fence says it was.

    A producer that belongs to another key is Forbidden, and a repeated batch with another digest is a Conflict: raised, or
    passed to `reply` if the commit had to wait for an earlier one of the producer.
    """
    producer = request.producer
    stages = core.state.stages
    if producer is not None:
        waiting = core.committing.get(producer)
        if waiting is not None:
            waiting.append(retried(lambda: commit(core, request, reply), reply))
            return
        fence = stages.fences.get(producer)
        if fence is not None:
            check_owner(fence, request.prefixes)
        if fence is not None and request.batch <= fence.batch:
            check_repeat(fence, request)
            stages.repeats_total += 1
            drop_stages(core, request.stage_ids)
            reply(Committed(fence.placed if request.batch == fence.batch else [], True, fence.batch))
            return
        most = core.limits.max_producers
        if fence is None and most and len(stages.fences) >= most:
            raise Throttled(f"{most} producers are known already", detail={"limit": "max_producers", "max": most})
    names = list(dict.fromkeys([each.topic.name for each in _wanted_pages(core, request)]))
    if producer is not None:
        # Until the commit is decided: a later batch that overtook it would make it a repeat.
        core.committing[producer] = []
    _submit(core, request, names, reply)


def _submit(core: Core, request: CommitRequest, names: list[str], reply: CommitReply) -> None:
    """Decide and submit the commit, as soon as none of its topics is being created, changed or deleted, and none of its
    stages is being committed."""

    def again() -> None:
        _submit(core, request, names, reply)

    for name in names:
        if core.parked(name, again, reply):
            return
    for stage_id in request.stage_ids:
        waiting = core.committing_stages.get(stage_id)
        if waiting is not None:
            waiting.append(retried(again, reply))
            return
    try:
        core.committer.check_writable()
        # Looked up again: other requests may have come first while this one was parked.
        together = CommitTogether(core, request, _wanted_pages(core, request), reply)
    except TopicsError as error:
        send(reply, error)
        _release_producer(core, request)
        return
    core.committing_stages.update({stage_id: [] for stage_id in request.stage_ids})
    core.committer.submit(together)


def _release_producer(core: Core, request: CommitRequest) -> None:
    """The producer's commit is decided; run the commits that waited for it, in order."""
    if request.producer is not None:
        run_each(core.committing.pop(request.producer, []))


def _wanted_pages(core: Core, request: CommitRequest) -> list[_WantedPage]:
    """What the request names, in its order. Raises when a stage or topic is missing or something does not fit."""
    stages = core.state.stages
    missing = [stage_id for stage_id in request.stage_ids if stage_id not in stages.stages]
    if missing:
        raise NotFound(
            "a stage does not exist (any more); stage its records again",
            code="stage_not_found",
            detail={"stages": missing[:100]},
        )
    wanted = []
    for stage_id in request.stage_ids:
        staged = stages.stages[stage_id]
        topic = core.state.by_id.get(staged.topic_id)
        if topic is None:
            raise NotFound(f'the topic of stage "{stage_id}" was deleted', detail={"stage": stage_id})
        before = None
        for each in staged.parts:
            wanted.append(
                _WantedPage(staged, topic, topic.partitions[each.partition], each.page, each.partition == before)
            )
            before = each.partition
    for write in request.writes:
        found = core.state.topics.get(write.topic)
        if found is None:
            raise topic_not_found(write.topic)
        batch = write.batch
        partition = choose_partition(found, batch)
        for index, page in enumerate(batch.parts()):
            wanted.append(_WantedPage(None, found, partition, page, index > 0))
    _check_room(core, wanted)
    return wanted


def _check_room(core: Core, wanted: list[_WantedPage]) -> None:
    by_partition: dict[int, list[_WantedPage]] = {}
    for each in wanted:
        by_partition.setdefault(id(each.partition), []).append(each)
    writes = []
    for some in by_partition.values():
        pages = [each.page for each in some]
        count, size = sum([page.count for page in pages]), sum([page.size for page in pages])
        writes.append(Growth(some[0].topic, some[0].partition, count, size, pages))
    core.quotas.check(*writes)
