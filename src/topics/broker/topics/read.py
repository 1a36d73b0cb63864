"""Reads: what a reader at a cursor gets to see of a partition now.

A read that leaves out records may have to pass very many of them before it finds one. Each call does one step of bounded
work; an answer that is `unfinished` is continued from where it ended, in a later turn of the loop, with `continued` and
`joined`.
"""

import msgspec
from msgspec import Struct

from topics.broker.core import Core
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reading import Read, read_records
from topics.engine.partitions.render import View
from topics.engine.topics.topic import Topic

__all__ = ["Answer", "ReadRequest", "View", "begin_read", "continued", "joined", "read", "view_of"]


class ReadRequest(Struct, frozen=True):
    """The cursor of a reader and what it asks for."""

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
    # For a reader that says where it ends: behind which seq this page begins, and how many records it passes are live,
    # filtered ones included.
    coverage: tuple[int, int] | None = None

    @property
    def nothing(self) -> bool:
        """The reader is at the tail and there is nothing to deliver."""
        read = self.read
        return not read.count and read.tombstone is None and read.next_from_seq >= self.head_seq


class Cursor(Struct):
    """Where a read begins. `recreated`: the reader's cursor is of an earlier instance of the topic."""

    topic: Topic
    partition: Partition
    from_seq: int
    recreated: bool


def begin_read(core: Core, wanted: ReadRequest) -> Cursor:
    """Evict what has expired, touch the topic, and find where to read. Raises NotFound; never creates a topic."""
    topic = core.topic(wanted.topic)
    partition = core.partition(topic, wanted.partition)
    core.evict(topic, partition)
    core.touch(topic)
    from_seq = wanted.from_seq
    if wanted.from_ts is not None:
        from_seq = max(from_seq, partition.first_at_or_after(wanted.from_ts) - 1)
    return Cursor(topic, partition, from_seq, wanted.epoch is not None and wanted.epoch != topic.epoch)


def view_of(topic: Topic, view: View) -> View:
    """The view of a reader of this topic: records of nodes are left out only if the topic is configured so."""
    if view.without_nodes and not topic.config.dedupe_node:
        return msgspec.structs.replace(view, without_nodes=frozenset())
    return view


def read(core: Core, wanted: ReadRequest) -> Answer:
    """Records after the cursor, as far as one step goes. Raises NotFound."""
    cursor = begin_read(core, wanted)
    topic, partition, from_seq, recreated = cursor.topic, cursor.partition, cursor.from_seq, cursor.recreated
    view = view_of(topic, wanted.view)
    found = read_records(
        partition, from_seq, wanted.limit, wanted.budget, view, to_seq=wanted.to_seq, recreated=recreated
    )
    answer = Answer(topic, found, partition.head_seq, partition.earliest_seq)
    if wanted.to_seq is not None:
        live = partition.live_between(1 if recreated else from_seq + 1, found.next_from_seq)
        answer.coverage = (from_seq, live)
    return answer


def continued(wanted: ReadRequest, answer: Answer) -> ReadRequest:
    """The request that reads on behind this answer, in the same instance of the topic."""
    return msgspec.structs.replace(wanted, from_seq=answer.read.next_from_seq, from_ts=None, epoch=answer.topic.epoch)


def joined(answer: Answer, following: Answer) -> Answer:
    """Both as one answer. `answer` is unfinished: it holds no record, perhaps a tombstone.

    Records that were lost while the read was under way are reported in the next answer if this one has a tombstone already.
    """
    read, next_read = answer.read, following.read
    if read.tombstone is not None:
        if next_read.tombstone is not None:
            return msgspec.structs.replace(answer, read=msgspec.structs.replace(read, unfinished=False))
        next_read.tombstone = read.tombstone
    next_read.scanned += read.scanned
    if answer.coverage is not None and following.coverage is not None:
        following.coverage = (answer.coverage[0], answer.coverage[1] + following.coverage[1])
    return following
