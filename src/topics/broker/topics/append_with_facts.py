"""An append that shares its frame with other facts: the creation of its topic, or the delete of the records that it moves."""

from collections.abc import Callable, Sequence

from topics.broker.log.apply import apply
from topics.broker.log.commit import FactCommit
from topics.broker.state import State
from topics.broker.topics.append import AppendGroup
from topics.engine.partitions.partition import Partition
from topics.model.errors import TopicsError
from topics.model.facts import Fact


class AppendWithFacts(FactCommit):
    """Facts before the append (`before`) and after it (`after`), applied in this order; `unlogged` are applied and not logged.

    Synced whatever the classes are, so that all partitions keep the order of the commit. `partition` is the one that the other
    facts are about, if that is not the one of the append.
    """

    __slots__ = ("_after", "_before", "_group")

    def __init__(
        self,
        group: AppendGroup,
        reply: Callable[[TopicsError | None], None],
        *,
        before: Sequence[Fact] = (),
        after: Sequence[Fact] = (),
        unlogged: Sequence[Fact] = (),
        partition: Partition | None = None,
        after_apply: Callable[[FactCommit], None] | None = None,
        rollback: Callable[[], None] | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(
            [*before, *group.all_facts(), *after],
            reply,
            partition=partition,
            after_apply=after_apply,
            rollback=rollback,
            release=release,
        )
        self.others = (group.partition,)
        self.records = group.records
        self._group = group
        self._before = before
        self._after = [*after, *unlogged]

    def written(self) -> None:
        super().written()
        if not self._before:
            self._group.written()

    def apply(self, state: State) -> None:
        self.is_logged = True
        for fact in self._before:
            apply(state, fact)
        self._group.wal_ms, self._group.sync_ms = self.wal_ms, self.sync_ms
        self._group.apply(state)
        for fact in self._after:
            apply(state, fact)

    def after_apply(self) -> None:
        self._group.after_apply()
        super().after_apply()

    def rollback(self) -> None:
        self._group.rollback()
        super().rollback()

    def reply(self, error: TopicsError | None) -> None:
        self._group.reply(error)
        super().reply(error)
