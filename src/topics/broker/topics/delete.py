"""Deletes: records are removed on purpose, for good, without a tombstone.

A delete by tag finds its records in slices (see `engine/partitions/selection.py`), as of the time of the request: later records are not
deleted. It is written as one fact and applied at once, so readers and recovery see all of it or nothing. Deletes by tag on
one partition run one after the other.
"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.log.commit import FactCommit
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.selection import Selection
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError, topic_not_found
from topics.model.facts import DeletedBelow
from topics.model.records.match import TagMatch
from topics.runtime.replies import error_of, send

DeleteReply = Callable[["RecordsGone | TopicsError"], None]


class RecordsGone(Struct):
    """The outcome of a delete: the number of deleted records, and the partition after it."""

    topic: Topic
    partition: Partition
    deleted: int
    sync_ms: float


class TagDeletes:
    """Deletes by tag that are running: one for each partition, and those that wait for it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._waiting: dict[tuple[int, int], deque[Callable[[], None]]] = {}

    def delete(
        self,
        topic: Topic,
        partition: Partition,
        match: TagMatch,
        bound: int,
        reply: DeleteReply,
        *,
        dry_run: bool = False,
    ) -> None:
        """Delete the records below `bound` whose tag matches, all of which exist now. `dry_run`: only count them."""
        key = (topic.id, partition.number)

        def start() -> None:
            if dry_run:
                self._count(topic, partition, match, bound, reply)
            else:
                self._select(topic, partition, match, bound, reply)

        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.append(start)
            return
        self._waiting[key] = deque()
        start()

    def _select(self, topic: Topic, partition: Partition, match: TagMatch, bound: int, reply: DeleteReply) -> None:
        core = self._core

        def over(outcome: RecordsGone | TopicsError) -> None:
            send(reply, outcome)
            # The index is updated before the next delete searches it.
            core.slices.run(partition.forget_tags(match), lambda _, __: self._next(topic, partition))

        def selected(selection: Selection, error: BaseException | None) -> None:
            if error is None:
                commit(selection)
                return
            over(error_of(error))
            if not isinstance(error, TopicsError):
                raise error

        def commit(selection: Selection) -> None:
            if core.parked(topic.name, lambda: commit(selection), over):
                return
            try:
                if not core.exists(topic):
                    raise topic_not_found(topic.name)
                commit_delete(core, topic, partition, selection, over)
            except TopicsError as refusal:
                over(refusal)

        core.slices.run(partition.select(match, bound), selected)

    def _count(self, topic: Topic, partition: Partition, match: TagMatch, bound: int, reply: DeleteReply) -> None:
        def selected(selection: Selection, error: BaseException | None) -> None:
            outcome = RecordsGone(topic, partition, selection.count, 0.0) if error is None else error_of(error)
            send(reply, outcome)
            self._next(topic, partition)

        self._core.slices.run(partition.select(match, bound), selected)

    def _next(self, topic: Topic, partition: Partition) -> None:
        key = (topic.id, partition.number)
        waiting = self._waiting[key]
        if waiting:
            self._core.runtime.call_soon(waiting.popleft())
        else:
            del self._waiting[key]


def commit_delete(
    core: Core, topic: Topic, partition: Partition, what: DeletedBelow | Selection, reply: DeleteReply
) -> None:
    """Write the delete to the log, apply it and answer. Raises Unavailable when nothing can be written."""
    selection = what if isinstance(what, Selection) else None
    fact = what.fact if isinstance(what, Selection) else what
    assert fact is not None
    is_fsync = topic.config.durability == "fsync"

    def answer(error: TopicsError | None) -> None:
        reply(error or RecordsGone(topic, partition, commit.result, commit.sync_ms if is_fsync else 0.0))

    commit = FactCommit(
        [fact],
        answer,
        partition=partition,
        sync=is_fsync,
        after_apply=lambda commit: core.records_removed(partition, commit.lsn),
    )
    commit.prepared = selection
    if topic.config.durability == "ephemeral":
        commit.apply(core.state)
        commit.after_apply()
        commit.reply(None)
        commit.release()
        return
    core.committer.check_writable()
    core.close_group(partition)
    core.committer.submit(commit)
