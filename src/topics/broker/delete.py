"""Deletes: records taken out of a log on purpose, for good, without telling its readers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from topics.broker.committer import Commit
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.errors import TopicsError
from topics.model.facts import Deleted, DeletedBelow
from topics.model.match import TagMatch

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class RecordsGone(Struct):
    """The outcome of a delete: how many records it took, and the log after it."""

    topic: Topic
    partition: Partition
    deleted: int
    sync_ms: float


class DeleteRecords(Commit):
    """Records decided to be deleted; gone when the log has it."""

    __slots__ = ("_broker", "_match", "_reply", "_topic")

    partition: Partition

    def __init__(
        self,
        broker: "Broker",
        topic: Topic,
        partition: Partition,
        fact: Deleted | DeletedBelow,
        match: TagMatch | None,
        reply: Callable[[RecordsGone | TopicsError], None],
    ) -> None:
        super().__init__([fact], partition)
        self.sync = topic.config.durability == "fsync"
        self._broker = broker
        self._topic = topic
        self._match = match
        self._reply = reply

    def apply(self) -> None:
        deleted = self._broker.state.apply(self.facts[0]) or 0
        if self._match is not None:
            for segment in self.partition.segments:
                segment.forget(self._match)
        self._broker.keeper.collect_dropped(self._topic.id, self.partition, self.lsn)
        sync_ms = self.sync_ms if self._topic.config.durability == "fsync" else 0.0
        self._reply(RecordsGone(self._topic, self.partition, deleted, sync_ms))

    def fail(self, error: TopicsError) -> None:
        self._reply(error)
