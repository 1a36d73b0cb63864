"""The state of a server: its topics, and everything that a snapshot keeps beside them. `log/apply.py` changes it."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Protocol

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Partition, Totals
from topics.engine.routers.copy_sources import CopySources
from topics.engine.routers.router import Routers
from topics.engine.tables.source_positions import SourcePositions
from topics.engine.tables.tables import Tables
from topics.engine.tables.versions import Versions
from topics.engine.topics.topic import Topic
from topics.engine.transactions.stages import Stages
from topics.model.config import DEFAULT_CONFIG, TopicConfig
from topics.model.records.page import Page
from topics.model.tables.route import Route
from topics.segments.segment_cache import SegmentCache


class Section(Protocol):
    """A part of the state that a snapshot keeps beside the topics."""

    def capture(self) -> bytes | Callable[[], bytes]:
        """Return the current content, encoded or as a function that encodes it in a thread.

        Facts written after the snapshot's cut are replayed over it.
        """

    def restore(self, body: bytes) -> None:
        """Load the content that `capture` returned. All topics of the snapshot exist already."""


class State:
    """Topics by name and by id. A name belongs to its newest instance."""

    def __init__(self, segment_cache: SegmentCache, texts: Cache) -> None:
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        # Topics whose creation is in a commit that is not applied yet, by id. They may have pending records already.
        self.creating: dict[int, Topic] = {}
        # Sorted, for listing by prefix.
        self.names: list[str] = []
        self.aliases: dict[str, Topic] = {}
        # By table and operation: the topics that take these changes.
        self.routes: dict[tuple[str, str], list[tuple[Topic, Route]]] = {}
        # Topics with an archive, by id.
        self.archived: dict[int, Topic] = {}
        self.versions = Versions()
        self.totals = Totals()
        self.next_topic_id = 1
        # Number for the next pack; numbers in the log or a snapshot are not used again.
        self.next_pack = 1
        self.segment_cache = segment_cache
        segment_cache.topic_name = self._topic_name
        self.texts = texts
        self.stages = Stages()
        self.routers = Routers()
        # Used by recovery only.
        self.copy_sources = CopySources()
        self.source_positions = SourcePositions()
        self.tables = Tables()
        # Kept in snapshots beside the topics. The keys are part of the snapshot format.
        self.sections: dict[str, Section] = {
            "stages": self.stages,
            "routers": self.routers,
            "change_marks": self.source_positions,
            "tables": self.tables,
        }
        # Damaged segments that a repair has replaced and whose files must be moved to `damaged/`.
        self.replaced_segments: set[str] = set()
        # Set during recovery. Then records of ephemeral topics are not restored, and `names` is not kept up to date.
        self.replaying = False

    def end_replay(self) -> None:
        """Recovery has applied all facts."""
        self.replaying = False
        for topic in self.by_id.values():
            for partition in topic.partitions:
                partition.end_replay()
        self.names = sorted(self.topics)
        self.copy_sources.clear()
        self.routers.find_cycles()

    def new_topic(self, topic_id: int, name: str, config: TopicConfig, partitions: int, ts: int) -> Topic:
        # All topics without a configuration of their own share one object.
        config = DEFAULT_CONFIG if config == DEFAULT_CONFIG else config
        return Topic(topic_id, name, config, partitions, ts, texts=self.texts, totals=self.totals)

    def begin_create(self, topic: Topic) -> None:
        """The creation of the topic is submitted: applying it uses this object. `cancel_create` when the commit fails."""
        self.creating[topic.id] = topic
        self.next_topic_id = max(self.next_topic_id, topic.id + 1)

    def cancel_create(self, topic: Topic) -> None:
        self.creating.pop(topic.id, None)

    def add(self, topic: Topic) -> None:
        self.by_id[topic.id] = topic
        current = self.topics.get(topic.name)
        if current is None or current.id <= topic.id:
            self.topics[topic.name] = topic
            if current is None and not self.replaying:
                insort(self.names, topic.name)
        if topic.alias is not None:
            self.aliases[topic.alias] = topic
        self.index_routes(topic)
        if topic.archive is not None:
            self.archived[topic.id] = topic
        self.next_topic_id = max(self.next_topic_id, topic.id + 1)

    def remove(self, topic_id: int) -> None:
        """Remove the topic, the routers from or to it, and all of its records. Has no effect if it does not exist."""
        for router in self.routers.touching(topic_id):
            self.routers.remove(router.id)
        self.source_positions.forget(topic_id)
        self.next_topic_id = max(self.next_topic_id, topic_id + 1)
        topic = self.by_id.pop(topic_id, None)
        if topic is None:
            return
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
            if not self.replaying:
                del self.names[bisect_left(self.names, topic.name)]
        self.set_alias(topic, None)
        self.unindex_routes(topic)
        self.archived.pop(topic.id, None)
        for partition in topic.partitions:
            partition.drop_all()

    def partition(self, topic_id: int, number: int) -> Partition | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None or number >= len(topic.partitions) else topic.partitions[number]

    def all_partitions(self) -> Iterator[tuple[Topic, Partition]]:
        for topic in self.by_id.values():
            for partition in topic.partitions:
                yield topic, partition

    def append(self, topic: Topic, partition: Partition, pages: list[Page], *, index_later: bool = False) -> None:
        """Make these records readable. Those that are there already change nothing."""
        for page in pages:
            partition.apply_append(page, index_later=index_later)
            if self.replaying:
                self.copy_sources.add(partition, page)
        # `partition.last_ts` may be that of a later write, which is pending.
        topic.last_write_ts = max(topic.last_write_ts or 0, pages[-1].last_ts)

    def set_alias(self, topic: Topic, alias: str | None) -> None:
        if topic.alias is not None and self.aliases.get(topic.alias) is topic:
            del self.aliases[topic.alias]
        topic.alias = alias
        if alias is not None:
            current = self.aliases.get(alias)
            if current is not None:
                # An alias that is in use is refused. So the other topic never got it: the sync of that commit failed.
                current.alias = None
            self.aliases[alias] = topic

    def index_routes(self, topic: Topic) -> None:
        for route in topic.routes:
            self.routes.setdefault((route.table, route.op), []).append((topic, route))

    def unindex_routes(self, topic: Topic) -> None:
        for key in {(route.table, route.op) for route in topic.routes}:
            kept = [each for each in self.routes.get(key, []) if each[0] is not topic]
            if kept:
                self.routes[key] = kept
            else:
                self.routes.pop(key, None)

    def _topic_name(self, topic_id: int) -> str | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.name
