"""Reads: what a reader at a cursor gets to see of a partition now."""

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from topics.engine.partition import Read
from topics.engine.render import View
from topics.engine.topic import Topic

if TYPE_CHECKING:
    from topics.broker.broker import Broker

__all__ = ["Answer", "ReadRequest", "View", "read"]


class ReadRequest(Struct, frozen=True):
    """Where a reader stands and what it wants."""

    topic: str
    from_seq: int
    limit: int
    budget: int
    view: View
    partition: int = 0
    from_ts: int | None = None
    epoch: int | None = None
    to_seq: int | None = None


class Answer(Struct):
    """What was found, and the log it was found in."""

    topic: Topic
    read: Read
    head_seq: int
    earliest_seq: int

    @property
    def nothing(self) -> bool:
        """The reader stands at the tail and there is nothing to tell it."""
        return not self.read.count and self.read.tombstone is None and self.read.next_from_seq >= self.head_seq


def read(broker: "Broker", wanted: ReadRequest) -> Answer:
    """Records after the cursor. Raises NotFound; never creates a topic. Counts as a look at the topic."""
    topic = broker.topic(wanted.topic)
    partition = broker.partition(topic, wanted.partition)
    config = topic.config
    if config.ttl_ms:
        broker.evict(topic, partition)
    broker.touch(topic)
    view = wanted.view
    if view.without_nodes and not config.dedupe_node:
        view = msgspec.structs.replace(view, without_nodes=frozenset())
    from_seq = wanted.from_seq
    if wanted.from_ts is not None:
        from_seq = max(from_seq, partition.first_at_or_after(wanted.from_ts) - 1)
    recreated = wanted.epoch is not None and wanted.epoch != topic.epoch
    found = partition.read(from_seq, wanted.limit, wanted.budget, view, to_seq=wanted.to_seq, recreated=recreated)
    counts = broker.counts
    counts.reads += 1
    counts.records_read += found.count
    if found.tombstone is not None:
        counts.tombstones += 1
    return Answer(topic, found, partition.head_seq, partition.earliest_seq)
