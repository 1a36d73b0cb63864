"""The core of the broker: the state, the log, and what every operation needs of them.

Operations (`topics/`, `queues/`, `routers/`, `groups/`, `transactions/`, `tables/`) get the core as an argument. `Broker` adds the
operations to it and is the object that the server uses.
"""

from collections.abc import Callable
from typing import Any, Protocol

from topics.broker.durability.checkpointer import Checkpointer
from topics.broker.durability.recovery import Recovered
from topics.broker.durability.sealer import Sealer
from topics.broker.durability.segment_removal import SegmentRemoval
from topics.broker.durability.storage_thread import StorageContext, StorageThread
from topics.broker.log.apply import apply
from topics.broker.log.commit import FactCommit
from topics.broker.log.committer import Committer
from topics.broker.log.disk_space import DiskSpace
from topics.broker.topics.quota import Quotas
from topics.engine.partitions.partition import Partition
from topics.engine.tables.versions import Version
from topics.engine.topics.live_frames import SharedFrames
from topics.engine.topics.topic import Topic
from topics.model.errors import Conflict, CorruptStorage, InvalidRequest, Throttled, TopicsError, topic_not_found
from topics.model.facts import Fact
from topics.model.limits import Limits
from topics.model.names import check_topic_name
from topics.model.storage_settings import StorageSettings
from topics.model.tables.table import Table
from topics.runtime.counts import Counts
from topics.runtime.health import Health
from topics.runtime.interface import Runtime
from topics.runtime.replies import retried, run_each
from topics.runtime.slices import Slices
from topics.segments.segment_cache import Damage
from topics.storage.fs import FileSystem

SHARED_FRAMES_BYTES = 16 << 20
# Waking readers that took longer than MIN_LONG_WAKE_SECONDS (about ten of them) is followed by a pause of WAKE_PAUSE_SHARE of
# that time. A shorter pause than MIN_WAKE_PAUSE_MS, the resolution of the loop's timers, would be none.
MIN_LONG_WAKE_SECONDS = 0.0001
WAKE_PAUSE_SHARE = 0.5
MIN_WAKE_PAUSE_MS = 1.0
MAX_WAKE_PAUSE_MS = 10.0
# 128 live streams take about a millisecond.
MAX_WAKES_PER_TURN = 128


class Poll(Protocol):
    def finish(self) -> None:
        """Answer now with what there is."""


class Core:
    """The state of one data directory, its log, and the requests that wait for something."""

    def __init__(
        self, fs: FileSystem, runtime: Runtime, recovered: Recovered, limits: Limits, settings: StorageSettings
    ) -> None:
        self.runtime = runtime
        self.limits = limits
        self.state = recovered.state
        self.recovered = recovered
        self.health = Health(runtime.now_ms)
        self.space = DiskSpace(runtime, recovered.wal, recovered.reserve, self.health)
        self.committer = Committer(
            runtime,
            self.state,
            recovered.wal,
            next_lsn=recovered.next_lsn,
            margin=settings.margin,
            sync_interval_ms=settings.sync_interval_ms,
            max_loop_write_bytes=settings.max_loop_write_bytes,
            health=self.health,
            space=self.space,
        )
        self.state.segment_cache.on_damage = self._damage_found
        self.state.segment_cache.on_damage_gone = self._damage_gone
        storage = StorageThread(runtime, self.committer, self.space)
        context = StorageContext(fs, runtime, self.state, self.committer, settings, self.health, self.space, storage)
        self.removal = SegmentRemoval(context)
        self.sealer = Sealer(context, self.removal)
        self.checkpointer = Checkpointer(context, self.removal, self.sealer)
        self.quotas = Quotas(self.state, limits, runtime.now_ms, self.evict)
        self.counts = Counts()
        self.slices = Slices(runtime)
        # Names with a create, configure or delete under way, each with the requests that wait for it.
        self.busy: dict[str, list[Callable[[], None]]] = {}
        # Writes with an idempotency key that are not applied yet; a repeat waits for the first one.
        self.keys_in_flight: dict[tuple[int, str], Any] = {}
        # The append group of each partition that later writes of the turn may join.
        self.open_groups: dict[Partition, Any] = {}
        # Producers with a commit under way, each with the commits that wait for it.
        self.committing: dict[str, list[Callable[[], None]]] = {}
        # Stages with a commit under way, each with the commits that wait for it. They are not dropped meanwhile.
        self.committing_stages: dict[str, list[Callable[[], None]]] = {}
        # Aliases and archive locations of commits that are not applied yet.
        self.aliases_in_flight: set[str] = set()
        self.archives_in_flight: set[str] = set()
        # Tables whose registration is not applied yet, by name.
        self.tables_in_flight: dict[str, Table] = {}
        # Requests that wait for something to read; a stopping server answers them.
        self.polls: set[Poll] = set()
        # The server stops: a request that would wait is answered at once.
        self.polls_finished = False
        # By topic id: callbacks for every write to the topic.
        self.watchers: dict[int, dict[Callable[[], None], None]] = {}
        self._woken: dict[int, None] = {}
        self._wake_paused = False
        # Frames that live readers with the same cursor share.
        self.frames = SharedFrames(SHARED_FRAMES_BYTES)

    def _damage_found(self, damage: Damage) -> None:
        self.health.fail("damaged_file", str(damage), damage.subject)

    def _damage_gone(self, damage: Damage) -> None:
        self.health.clear("damaged_file", damage.subject)

    # Finding topics

    def topic(self, name: str) -> Topic:
        topic = self.state.topics.get(name)
        if topic is None:
            raise topic_not_found(check_topic_name(name))
        return topic

    def name_of(self, name: str) -> str:
        """The name of the topic that has this alias; otherwise, also when there is no topic, the name itself."""
        topic = self.state.aliases.get(name)
        return name if topic is None or name in self.state.topics else topic.name

    def exists(self, topic: Topic) -> bool:
        """Whether this instance of the topic still exists."""
        return self.state.by_id.get(topic.id) is topic

    def partition(self, topic: Topic, number: int) -> Partition:
        if number >= len(topic.partitions):
            raise InvalidRequest(
                f'topic "{topic.name}" has {len(topic.partitions)} partitions',
                detail={"partitions": len(topic.partitions)},
            )
        return topic.partitions[number]

    def finish_polls(self) -> None:
        """Answer all requests that wait, and from now on at once those that would wait."""
        self.polls_finished = True
        run_each([poll.finish for poll in self.polls])

    def touch(self, topic: Topic) -> None:
        """The topic is being read: that raises its priority for a while."""
        topic.last_read_ts = self.runtime.now_ms()

    # Creating topics

    def check_new_topics(self, *names: str) -> None:
        """Raise Conflict when a new topic of one of these names would hide an alias, Throttled when there are too many."""
        for name in names:
            if name in self.state.aliases or name in self.aliases_in_flight:
                raise Conflict(f'"{name}" is the alias of a topic', detail={"alias": name})
        limit = self.limits.max_topics
        if names and limit and len(self.state.topics) + len(self.state.creating) + len(names) > limit:
            raise Throttled(f"the server holds {limit} topics already", detail={"limit": "max_topics", "max": limit})

    def begin_create(self, topic: Topic) -> None:
        """The topic's creation is about to be submitted: requests for it wait until `release`."""
        self.state.begin_create(topic)
        self.keep_busy(topic.name)

    # Writing

    def commit_facts(
        self,
        facts: list[Fact],
        reply: Callable[[TopicsError | None], None],
        *,
        after_apply: Callable[[FactCommit], None] | None = None,
        rollback: Callable[[], None] | None = None,
        release: Callable[[], None] | None = None,
    ) -> None:
        """Write these facts, sync, apply them and reply. Raises Unavailable when the log takes no more writes."""
        self.committer.check_writable()
        commit = FactCommit(facts, reply, after_apply=after_apply, rollback=rollback, release=release)
        self.committer.submit(commit)

    def evict(self, topic: Topic, partition: Partition) -> None:
        """Evict what exceeds the caps or has expired, as of now.

        Applied at once and logged right after: the note precedes everything that is decided later, and if a crash loses it
        recovery reaches the same floor again.
        """
        config = topic.config
        if not (config.ttl_ms or config.cap_records or config.cap_bytes):
            return
        try:
            fact = partition.decide_eviction(config, self.runtime.now_ms())
        except CorruptStorage:
            # A damaged segment is evicted as a whole, later. It is reported, and a write must not fail because of it.
            return
        if fact is not None:
            apply(self.state, fact)
            self.records_removed(partition, self.committer.note(fact))

    def records_removed(self, partition: Partition, lsn: int) -> None:
        """The fact at `lsn` has removed records: free what they used."""
        self.tidy_tags(partition)
        self.removal.collect_dropped(partition, lsn)

    def tidy_tags(self, partition: Partition) -> None:
        """Update the tag index in slices; the first search would have to do it otherwise."""
        if partition.has_stale_tags:
            self.slices.run(partition.tidy_tags(), lambda _, __: None)

    def close_group(self, partition: Partition) -> None:
        """Appends that are decided from now on come after what is submitted now."""
        self.open_groups.pop(partition, None)

    # Waking readers

    def watch(self, topic: Topic, callback: Callable[[], None]) -> None:
        """Call back, soon and once per turn, whenever the topic may have something new or is deleted."""
        self.watchers.setdefault(topic.id, {})[callback] = None

    def unwatch(self, topic: Topic, callback: Callable[[], None]) -> None:
        watchers = self.watchers.get(topic.id)
        if watchers is not None:
            watchers.pop(callback, None)
            if not watchers:
                del self.watchers[topic.id]
                self.frames.forget(topic.id)

    def appended(self, topic: Topic, partition: Partition, size: int) -> None:
        """Called after every append that was applied: seal what is large, and wake readers."""
        if topic.config.durability != "ephemeral":
            self.sealer.appended(topic, partition, size)
        if self.watchers:
            self.wake(topic)

    def wake(self, topic: Topic) -> None:
        if topic.id in self.watchers:
            if not self._woken and not self._wake_paused:
                self.runtime.call_soon(self._wake_watchers)
            self._woken[topic.id] = None

    def _wake_watchers(self) -> None:
        """Call the watchers of the topics that have changed, MAX_WAKES_PER_TURN in each turn. If that took long, pause before
        it is done again.

        Otherwise a busy server with a thousand watchers would do nothing else. What is written during the pause reaches the
        watchers together, which costs them less than the pause delays them. Between two turns what the first watchers have
        written is sent, so that their clients read it while the others are called.
        """
        woken, self._woken = self._woken, {}
        callbacks = [callback for topic_id in woken for callback in self.watchers.get(topic_id, ())]
        self._wake_some(callbacks, 0, self.runtime.perf())

    def _wake_some(self, callbacks: list[Callable[[], None]], start: int, started: float) -> None:
        stop = start + MAX_WAKES_PER_TURN
        run_each(callbacks[start:stop])
        runtime = self.runtime
        if stop < len(callbacks):
            self._wake_paused = True
            runtime.call_soon(lambda: self._wake_some(callbacks, stop, started))
        elif runtime.perf() - started > MIN_LONG_WAKE_SECONDS:
            self._wake_paused = True
            # A turn later what was written to the watchers has been sent as well.
            runtime.call_soon(lambda: self._pause_waking((runtime.perf() - started) * 1000))
        elif self._wake_paused:
            self._resume_waking()

    def _pause_waking(self, took_ms: float) -> None:
        pause_ms = min(max(took_ms * WAKE_PAUSE_SHARE, MIN_WAKE_PAUSE_MS), MAX_WAKE_PAUSE_MS)
        self.runtime.call_later(pause_ms, self._resume_waking)

    def _resume_waking(self) -> None:
        self._wake_paused = False
        if self._woken:
            self._wake_watchers()

    # Topics that are being changed

    def keep_busy(self, name: str) -> None:
        """Requests for this topic wait until `release`."""
        self.busy.setdefault(name, [])

    def is_busy(self, name: str) -> bool:
        return name in self.busy

    def parked(self, name: str, again: Callable[[], None], reply: Callable[[TopicsError], None]) -> bool:
        """Whether the topic is being created, changed or deleted; then `again` is called when that is decided."""
        waiting = self.busy.get(name) if self.busy else None
        if waiting is None:
            return False
        waiting.append(retried(again, reply))
        return True

    def release(self, name: str) -> None:
        """The topic's change is decided: run the requests that waited for it, in order."""
        run_each(self.busy.pop(name, []))


__all__ = ["Core", "Poll", "Version"]
