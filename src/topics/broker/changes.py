"""Changes of tables become records of their change topics: once each, however often their source sends them.

Requests for one table are decided one after the other, because each must know how far the one before it brought the
source's mark. Records and marks are one commit (see `stages`), and synced with it: a source that was answered forgets.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from topics.broker.control import Configured
from topics.broker.marks import Sifted, marks_facts
from topics.broker.stages import CommitRequest, Committed, Write, commit
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.change import Change, Events, Refused, change_topic
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.facts import Placed
from topics.model.page import SEPARATOR, page_size
from topics.model.placing import hashed_partition

if TYPE_CHECKING:
    from topics.broker.broker import Broker


class ChangesKept(Struct):
    """What became of the events of one request."""

    topic: str
    appended: int
    duplicates: int
    tombstones: int
    refused: list[Refused]
    placed: list[Placed]
    wal_ms: float = 0.0
    sync_ms: float = 0.0


Reply = Callable[[ChangesKept | TopicsError], None]


class ChangeDesk:
    """Takes the changes of all tables, each table's in order."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # Topics with a request under way, each with those that wait for it.
        self._waiting: dict[str, deque[tuple[Events, Reply]]] = {}

    def append(self, table: str, events: Events, reply: Reply) -> None:
        """Append what is new of the events to the table's change topic, which is created if need be."""
        name = change_topic(table)
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append((events, reply))
            return
        self._waiting[name] = deque()
        self._take(name, events, reply)

    def _take(self, name: str, events: Events, reply: Reply) -> None:
        def done(outcome: ChangesKept | TopicsError) -> None:
            reply(outcome)
            self._next(name)

        def created(outcome: Configured | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                done(outcome)
            else:
                self._commit(name, events, done)

        if self._broker.parked(name, lambda: self._take(name, events, reply), done):
            return
        if not events.changes or name in self._broker.state.topics:
            self._commit(name, events, done)
            return
        try:
            change = ConfigChange(durability="fsync")
            self._broker.create_topic(name, change, None, if_absent=True, reply=created)
        except TopicsError as error:
            done(error)

    def _next(self, name: str) -> None:
        waiting = self._waiting[name]
        if waiting:
            events, reply = waiting.popleft()
            # Not from here: a long line of repeats, each answered at once, would be as deep a stack.
            self._broker.runtime.call_soon(lambda: self._take(name, events, reply))
        else:
            del self._waiting[name]

    def _commit(self, name: str, events: Events, done: Reply) -> None:
        broker = self._broker
        # What is new is judged by the marks of the very topic that the records go to.
        if broker.parked(name, lambda: self._commit(name, events, done), done):
            return
        kept = ChangesKept(name, 0, 0, events.tombstones, list(events.refused), [])
        topic = broker.state.topics.get(name)
        if topic is None and not events.changes:
            done(kept)
            return
        fresh: list[Change] = []

        def answer(outcome: Committed | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                done(outcome)
                return
            kept.appended = len(fresh)
            kept.placed = outcome.placed
            kept.wal_ms, kept.sync_ms = outcome.wal_ms, outcome.sync_ms
            done(kept)

        try:
            topic = broker.topic(name)
            sifted = broker.state.marks.sift(topic.id, events.changes)
            fresh += sifted.fresh
            kept.duplicates = sifted.duplicates
            kept.refused += [Refused(index, message) for index, message in sifted.refused]
            kept.refused.sort(key=lambda refused: refused.index)
            if not fresh:
                done(kept)
                return
            commit(broker, _request(topic, sifted, broker.runtime.now_ms()), answer)
        except TopicsError as error:
            done(error)


def _request(topic: Topic, sifted: Sifted, now_ms: int) -> CommitRequest:
    partitions = len(topic.partitions)
    if partitions == 1:
        writes = [_write(topic, 0, sifted.fresh)]
    else:
        divided: dict[int, list[Change]] = {}
        for change in sifted.fresh:
            for number in _partitions_of(change, partitions):
                divided.setdefault(number, []).append(change)
        writes = [_write(topic, number, changes) for number, changes in sorted(divided.items())]
    return CommitRequest([], writes, facts=[*marks_facts(topic.id, sifted.marks, now_ms)])


def _partitions_of(change: Change, partitions: int) -> range | list[int]:
    # A truncate is about the keys of every partition, and has its place among their changes in each.
    return range(partitions) if change.key is None else [hashed_partition(change.partition_key, partitions)]


def _write(topic: Topic, partition: int, changes: list[Change]) -> Write:
    data = SEPARATOR.join([change.data for change in changes])
    size = page_size(len(changes), data, None, None, None)
    return Write(topic.name, Batch(len(changes), data, None, None, None, size, partition=partition))
