"""Changes of tables are appended to their change topics: each once, however often its source sends it.

Requests for one table are decided one after the other, because each needs the source position that the one before it reached.
Records and positions are in one commit, which is synced: a source may discard a change once it is acknowledged.
"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.topics.lifecycle import Configured, create_if_absent
from topics.broker.transactions.stages import commit
from topics.engine.tables.source_positions import NewChanges, position_facts
from topics.engine.topics.topic import Topic
from topics.engine.transactions.commit_request import CommitRequest, Committed, Write
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.facts import Placed
from topics.model.partitioning import hashed_partition
from topics.model.records.large_batch import plain_batch
from topics.model.tables.change import Change, Events, Refused, change_topic
from topics.runtime.replies import retried, send


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


class ChangeWriter:
    """Appends the changes of all tables, those of one table in order."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # Topics with a request under way, each with those that wait for it.
        self._waiting: dict[str, deque[tuple[Events, Reply]]] = {}

    def append(self, table: str, events: Events, reply: Reply) -> None:
        """Append the new events to the table's change topic, which is created if it does not exist."""
        name = change_topic(table)
        waiting = self._waiting.get(name)
        if waiting is not None:
            waiting.append((events, reply))
            return
        self._waiting[name] = deque()
        self._take(name, events, reply)

    def _take(self, name: str, events: Events, reply: Reply) -> None:
        def done(outcome: ChangesKept | TopicsError) -> None:
            send(reply, outcome)
            self._next(name)

        retried(lambda: self._start(name, events, done), done)()

    def _start(self, name: str, events: Events, done: Reply) -> None:
        """Commit the events, after creating their topic if need be, and call `done` once. Raises TopicsError before that."""

        def created(outcome: Configured | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                done(outcome)
            else:
                self._commit(name, events, done)

        if self._core.parked(name, lambda: self._start(name, events, done), done):
            return
        if not events.changes or name in self._core.state.topics:
            self._commit(name, events, done)
            return
        create_if_absent(self._core, name, ConfigChange(durability="fsync"), None, if_absent=True, reply=created)

    def _next(self, name: str) -> None:
        waiting = self._waiting[name]
        if waiting:
            events, reply = waiting.popleft()
            # In another turn: a long queue of repeats, each answered at once, would nest as many calls.
            self._core.runtime.call_soon(lambda: self._take(name, events, reply))
        else:
            del self._waiting[name]

    def _commit(self, name: str, events: Events, done: Reply) -> None:
        core = self._core
        # Duplicates are recognised by the positions of the topic instance that the records are appended to.
        if core.parked(name, lambda: self._commit(name, events, done), done):
            return
        kept = ChangesKept(name, 0, 0, events.tombstones, list(events.refused), [])
        topic = core.state.topics.get(name)
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
            topic = core.topic(name)
            new = core.state.source_positions.find_new(topic.id, events.changes)
            fresh += new.fresh
            kept.duplicates = new.duplicates
            kept.refused += [Refused(index, message) for index, message in new.refused]
            kept.refused.sort(key=lambda refused: refused.index)
            if not fresh:
                done(kept)
                return
            commit(core, _request(topic, new, core.runtime.now_ms()), answer)
        except TopicsError as error:
            done(error)


def _request(topic: Topic, new: NewChanges, now_ms: int) -> CommitRequest:
    partitions = len(topic.partitions)
    if partitions == 1:
        writes = [_write(topic, 0, new.fresh)]
    else:
        divided: dict[int, list[Change]] = {}
        for change in new.fresh:
            for number in _partitions_of(change, partitions):
                divided.setdefault(number, []).append(change)
        writes = [_write(topic, number, changes) for number, changes in sorted(divided.items())]
    return CommitRequest([], writes, facts=[*position_facts(topic.id, new.positions, now_ms)])


def _partitions_of(change: Change, partitions: int) -> range | list[int]:
    # A truncate concerns the keys of every partition, and is ordered among the changes of each.
    return range(partitions) if change.key is None else [hashed_partition(change.partition_key, partitions)]


def _write(topic: Topic, partition: int, changes: list[Change]) -> Write:
    batch = plain_batch([change.data for change in changes])
    batch.partition = partition
    return Write(topic.name, batch)
