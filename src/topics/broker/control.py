"""Topics come, change and go. Each of these is synced before it is answered, whatever the topic's class.

While one is under way its name is busy: other requests for the same topic wait until it is decided, so nobody sees a
half-made topic and exactly one of many creators creates.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from topics.broker.append import AppendGroup
from topics.broker.committer import Commit
from topics.engine.topic import Topic
from topics.model.config import TopicConfig
from topics.model.errors import TopicsError
from topics.model.facts import AliasSet, HeadMoved, TopicConfigured, TopicCreated, TopicDeleted

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class Configured(Struct):
    """The outcome of a PUT."""

    topic: Topic
    created: bool


class TopicGone(Struct):
    """The outcome of a DELETE."""

    name: str
    deleted: bool
    routers_removed: list[str]


def new_topic_id(broker: "Broker", least: int = 0) -> int:
    """An id that no topic ever had, `least` or above: of a shard that takes writes, as long as there is one."""
    first = max(broker.state.next_topic_id, least)
    for topic_id in range(first, first + len(broker.committer.lanes)):
        if not broker.committer.lane_of(topic_id).shard.failed:
            return topic_id
    return first


class CreateTopic(Commit):
    """A topic comes into being, perhaps together with its first write."""

    __slots__ = ("_broker", "_first", "_reply", "_topic")

    def __init__(
        self,
        broker: "Broker",
        fact: TopicCreated,
        topic: Topic,
        first: AppendGroup | None,
        reply: Callable[[Configured | TopicsError], None] | None,
    ) -> None:
        super().__init__([fact])
        if topic.alias is not None:
            self.facts.append(AliasSet(topic.id, topic.alias))
        if first is not None:
            self.facts += first.all_facts()
            self.records = first.records
        self.sync = True
        self._broker = broker
        self._topic = topic
        self._first = first
        self._reply = reply

    @property
    def size(self) -> int:
        """The bytes of the first write."""
        return self._first.size if self._first is not None else 0

    def apply(self) -> None:
        # The topic object exists already because its first write was decided on it; adding it is what makes it true.
        self._broker.state.add(self._topic)
        self._decided()
        if self._first is not None:
            self._first.members[0].created = True
            self._first.wal_ms = self.wal_ms
            self._first.sync_ms = self.sync_ms if self._topic.config.durability == "fsync" else 0.0
            self._first.apply()
        elif self._reply is not None:
            self._reply(Configured(self._topic, True))
        self._broker.release(self._topic.name)

    def take_back(self) -> None:
        if self._first is not None:
            self._first.take_back()

    def fail(self, error: TopicsError) -> None:
        self._decided()
        if self._first is not None:
            self._first.fail(error)
        elif self._reply is not None:
            self._reply(error)
        self._broker.release(self._topic.name)

    def _decided(self) -> None:
        """Nothing is held for it any more. Before anybody is told, who may create the next one at once."""
        self._broker.creating -= 1
        if self._topic.alias is not None:
            self._broker.aliases_in_flight.discard(self._topic.alias)


class ConfigureTopic(Commit):
    """A topic's configuration changes."""

    __slots__ = ("_broker", "_reply", "_topic")

    def __init__(
        self,
        broker: "Broker",
        topic: Topic,
        config: TopicConfig,
        reply: Callable[[Configured | TopicsError], None],
    ) -> None:
        super().__init__([TopicConfigured(topic.id, config)])
        if topic.config.durability == "ephemeral" != config.durability:
            # How far its log has come: that is what a restart loses, and nothing of what is written from now on.
            heads = [HeadMoved(topic.id, each.number, each.next_seq - 1) for each in topic.partitions]
            self.facts += [fact for fact in heads if fact.head]
        self.sync = True
        self._broker = broker
        self._topic = topic
        self._reply = reply

    def apply(self) -> None:
        before = self._topic.config
        self._broker.state.apply(self.facts[0])
        for partition in self._topic.partitions:
            self._broker.evict(self._topic, partition)
        self._broker.queues.configured(self._topic, before)
        self._reply(Configured(self._topic, False))
        self._broker.release(self._topic.name)

    def fail(self, error: TopicsError) -> None:
        self._reply(error)
        self._broker.release(self._topic.name)


class DeleteTopic(Commit):
    """A topic and all it holds go."""

    __slots__ = ("_broker", "_reply", "_topic")

    def __init__(self, broker: "Broker", topic: Topic, reply: Callable[[TopicGone | TopicsError], None]) -> None:
        super().__init__([TopicDeleted(topic.id)])
        self.sync = True
        self._broker = broker
        self._topic = topic
        self._reply = reply

    def apply(self) -> None:
        broker, topic = self._broker, self._topic
        routers = broker.state.routers.touching(topic.id)
        for fact in self.facts:
            broker.state.apply(fact)
        for router in routers:
            broker.forwarder.removed(router)
        for partition in topic.partitions:
            broker.keeper.collect_dropped(topic.id, partition, self.lsn)
        broker.state.versions.tell(self.facts)
        broker.wake(topic)
        self._reply(TopicGone(topic.name, True, [router.name for router in routers]))
        broker.release(topic.name)
        broker.state.versions.over(self.facts)

    def fail(self, error: TopicsError) -> None:
        self._reply(error)
        self._broker.release(self._topic.name)
        self._broker.state.versions.over(self.facts)
