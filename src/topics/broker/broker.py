"""The broker: the one object the server talks to. It decides with the engine, commits to storage, applies, and wakes.

Everything runs on one loop, so nothing is locked. Operations that can fail at once raise; those that end later answer
through `reply`, which gets the outcome or a TopicsError, exactly once.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from topics.broker.append import AnswerJoined, Append, AppendGroup, Reply, decide_append, open_group, takes_unseen
from topics.broker.changes import ChangeDesk
from topics.broker.checkpoint import Keeper, StorageSettings
from topics.broker.committer import Committer, Consequences, Lane
from topics.broker.control import Configured, ConfigureTopic, CreateTopic, DeleteTopic, TopicGone, new_topic_id
from topics.broker.counts import Counts
from topics.broker.delete import DeleteRecords, RecordsGone
from topics.broker.feed import SharedFrames
from topics.broker.forward import Forwarder
from topics.broker.queue import Queues
from topics.broker.recovery import Recovered
from topics.broker.retention import Retention
from topics.broker.routers import RouterControl
from topics.broker.routes import ChangeTopic
from topics.broker.runtime import Runtime
from topics.broker.stages import expire_stages
from topics.broker.versions import Version
from topics.engine.partition import Partition
from topics.engine.segment import PAGE_RECORDS_MOST
from topics.engine.topic import Topic
from topics.model.batch import Batch
from topics.model.config import DEFAULT_CONFIG, ConfigChange, merged
from topics.model.errors import Conflict, CorruptStorage, InvalidRequest, Throttled, TopicsError, topic_not_found
from topics.model.facts import (
    AliasSet,
    ArchiveCleared,
    Fact,
    RoutesSet,
    TopicCreated,
)
from topics.model.limits import Limits
from topics.model.match import TagMatch
from topics.model.names import check_topic_name
from topics.model.route import Route
from topics.storage.fs import FileSystem
from topics.storage.wal import WalShard

# How often all topics are looked at for expired records while there is no room for new ones.
SWEEP_INTERVAL_MS = 1000
FRAMES_BYTES = 16 << 20
# Telling watchers that took longer than the first is followed by a rest of this share of it, up to the last.
REST_FROM_SECONDS = 0.0005
REST_SHARE = 0.5
REST_MOST_MS = 10.0


class Poll(Protocol):
    def finish(self) -> None:
        """Answer now with what there is."""


class Broker:
    """All topics of one data directory."""

    def __init__(
        self, fs: FileSystem, runtime: Runtime, recovered: Recovered, limits: Limits, settings: StorageSettings
    ) -> None:
        self.runtime = runtime
        self.limits = limits
        self.state = recovered.state
        self.recovered = recovered
        self.committer = Committer(
            runtime,
            _shards(fs, recovered, settings),
            next_lsn=recovered.next_lsn,
            margin=settings.margin,
            sync_interval_ms=settings.sync_interval_ms,
        )
        self.keeper = Keeper(fs, runtime, self.state, self.committer, settings)
        self.retention = Retention(self.state, runtime, self.evict, settings.retention_interval_ms, self._tidy)
        # Writes whose idempotency key is decided but not yet remembered.
        self.keys_in_flight: dict[tuple[int, str], Append] = {}
        self.creating = 0
        # Writes that wait until there is room for their records in memory.
        self._waiting: list[Callable[[], None]] = []
        self._waiting_bytes = 0
        self.keeper.on_room = self._room
        # Producers with a commit under way, each with the commits that wait for it.
        self.committing: dict[str, list[Callable[[], None]]] = {}
        # Aliases and places of archives that are decided but not yet true.
        self.aliases_in_flight: set[str] = set()
        self.archives_in_flight: set[str] = set()
        self.counts = Counts()
        self.queues = Queues(self)
        # Readers that wait for something to read; a stopping server answers them.
        self.polls: set[Poll] = set()
        # Names with a create, configure or delete under way, each with the requests that wait for it.
        self.busy: dict[str, list[Callable[[], None]]] = {}
        # By the topic's id, who is told when something is written to it.
        self.watchers: dict[int, dict[Callable[[], None], None]] = {}
        self._woken: dict[int, None] = {}
        self._resting = False
        self._swept_ms = 0
        # What live readers at the same place are all told, made once for all of them.
        self.frames = SharedFrames(FRAMES_BYTES)
        self._fs = fs
        self.forwarder = Forwarder(self)
        self.routers = RouterControl(self)
        self.changes = ChangeDesk(self)

    def start(self) -> None:
        """Go on from where recovery left off. What follows from a power cut is in the log before anything new is."""
        recovered = self.recovered
        self.keeper.start(recovered)
        # Shard 0 last: a frame of this boot there tells the next recovery that all shards have theirs.
        for lane in reversed(self.committer.lanes):
            facts: list[Fact] = [
                fact for fact in recovered.consequences if self.committer.lane_of(fact.topic_id) is lane
            ]
            for fact in facts:
                self.state.apply(fact)
            if facts or recovered.new_boot:
                # One frame, so that a second end half-way through leaves all of it or nothing.
                self.committer.submit(lane, Consequences(self.committer, facts))
                self.committer.flush()
        for topic in self.state.by_id.values():
            for partition in topic.partitions:
                self.evict(topic, partition)
        self.committer.flush()
        self.committer.sync_all()
        # Counted from here: what recovery did is not what this process did.
        totals = self.state.totals
        totals.appended = totals.evicted = totals.deleted = 0
        self.forwarder.start()
        self.retention.start()

    # Topics

    def topic(self, name: str) -> Topic:
        topic = self.state.topics.get(name)
        if topic is None:
            raise topic_not_found(check_topic_name(name))
        return topic

    def resolve(self, name: str) -> Topic:
        """The topic of this name or, if there is none, of this alias."""
        topic = self.state.topics.get(name) or self.state.aliases.get(name)
        if topic is None:
            raise topic_not_found(check_topic_name(name))
        return topic

    def name_of(self, name: str) -> str:
        """The name of the topic that has this alias; otherwise, also when there is no topic, the name itself."""
        topic = self.state.aliases.get(name)
        return name if topic is None or name in self.state.topics else topic.name

    def touch(self, topic: Topic) -> None:
        """Somebody looks at the topic: that makes it matter more for a while."""
        topic.last_read_ts = self.runtime.now_ms()

    def configure(self, name: str, change: ConfigChange, reply: Callable[[Configured | TopicsError], None]) -> None:
        """Create the topic or change the named fields of its configuration."""
        check_topic_name(name)
        if self._parked(name, lambda: self.configure(name, change, reply), reply):
            return
        topic = self.state.topics.get(name)
        if topic is None:
            self._create(name, change, None, reply)
            return
        config = merged(name, topic.config, change, exists=True)
        if isinstance(change.partitions, int) and change.partitions != len(topic.partitions):
            raise Conflict(
                f'topic "{name}" has {len(topic.partitions)} partitions; their number cannot change',
                detail={"topic": name, "partitions": len(topic.partitions)},
            )
        if config == topic.config:
            reply(Configured(topic, False))
            return
        lane = self.committer.lane_of(topic.id)
        self.committer.check_writable(lane)
        for partition in topic.partitions:
            # What has expired or was over the cap until now stays gone, whatever the new configuration says.
            self.evict(topic, partition)
        commit = ConfigureTopic(self, topic, config, reply)
        self.busy[name] = []
        self.committer.submit(lane, commit)

    def create_topic(
        self,
        name: str,
        change: ConfigChange,
        alias: str | None,
        *,
        if_absent: bool,
        reply: Callable[[Configured | TopicsError], None],
    ) -> None:
        """Create the topic, with its alias in one commit. One that exists is left alone: Conflict unless `if_absent`."""
        check_topic_name(name)
        again = lambda: self.create_topic(name, change, alias, if_absent=if_absent, reply=reply)  # noqa: E731
        if self._parked(name, again, reply):
            return
        topic = self.state.topics.get(name)
        if topic is None:
            if alias is not None:
                self._check_alias(name, alias)
            self._create(name, change, None, reply, alias)
        elif if_absent:
            reply(Configured(topic, False))
        else:
            raise Conflict(f'topic "{name}" exists already', detail={"topic": name})

    def set_alias(self, name: str, alias: str | None, reply: Callable[[Configured | TopicsError], None]) -> None:
        """Give the topic a second name, or take it away."""
        if self._parked(name, lambda: self.set_alias(name, alias, reply), reply):
            return
        topic = self.topic(name)
        if alias == topic.alias:
            reply(Configured(topic, False))
            return
        if alias is not None:
            self._check_alias(name, alias)
        self.change_topic(topic, [AliasSet(topic.id, alias)], reply, alias, self.aliases_in_flight)

    def change_routes(
        self,
        name: str,
        change: Callable[[list[Route], int], list[Route]],
        reply: Callable[[Configured | TopicsError], None],
    ) -> None:
        """Replace the topic's routes by what `change` makes of them; it is also given the version they will have."""
        if self._parked(name, lambda: self.change_routes(name, change, reply), reply):
            return
        topic = self.topic(name)
        if self.in_turn([self.state.versions.routes], lambda: self.change_routes(name, change, reply), reply):
            return
        version = self.state.versions.routes.next()
        routes = change(topic.routes, version)
        self.change_topic(topic, [RoutesSet(topic.id, routes, version)], reply)

    def change_topic(
        self,
        topic: Topic,
        facts: list[Fact],
        reply: Callable[[Configured | TopicsError], None],
        claimed: str | None = None,
        claims: set[str] | None = None,
    ) -> None:
        """These facts about the topic become true together. REQUIRES: the topic is not busy. See `ChangeTopic`."""
        lane = self.committer.lane_of(topic.id)
        self.committer.check_writable(lane)
        commit = ChangeTopic(self, topic, facts, reply, claimed, claims)
        self.busy[topic.name] = []
        self.state.versions.begin(facts)
        self.committer.submit(lane, commit)

    def in_turn(self, versions: list[Version], again: Callable[[], None], reply: Callable[[TopicsError], None]) -> bool:
        """Whether a change that makes one of these versions is under way, maybe in another shard; `again` comes behind it."""
        if len(self.committer.lanes) > 1:
            for version in versions:
                if version.under_way:
                    version.waiting.append(_told(again, reply))
                    return True
        return False

    def delete_topic(self, name: str, *, if_empty: bool, reply: Callable[[TopicGone | TopicsError], None]) -> None:
        if self._parked(name, lambda: self.delete_topic(name, if_empty=if_empty, reply=reply), reply):
            return
        topic = self.state.topics.get(name)
        if topic is None:
            reply(TopicGone(name, False, []))
            return
        if if_empty:
            for partition in topic.partitions:
                self.evict(topic, partition)
            pending = sum([partition.pending_records for partition in topic.partitions])
            if topic.count or pending:
                raise Conflict(
                    f'topic "{name}" holds {topic.count + pending} records',
                    code="topic_not_empty",
                    detail={"topic": name, "count": topic.count + pending},
                )
        versions = self.state.versions
        made = [versions.routes] * bool(topic.routes) + [versions.archives] * (topic.archive is not None)
        if self.in_turn(made, lambda: self.delete_topic(name, if_empty=if_empty, reply=reply), reply):
            return
        lane = self.committer.lane_of(topic.id)
        self.committer.check_writable(lane)
        commit = DeleteTopic(self, topic, reply)
        self.busy[name] = []
        if topic.routes:
            # That its routes go too is told by the version of all routes; likewise its archive.
            commit.facts.append(RoutesSet(topic.id, [], versions.routes.next()))
        if topic.archive is not None:
            commit.facts.append(ArchiveCleared(topic.id, versions.archives.next()))
        versions.begin(commit.facts)
        self.committer.submit(lane, commit)

    def names(self, prefix: str, after: str) -> Iterator[str]:
        """Topic names with the prefix, in order, behind `after`."""
        names = self.state.names
        index = bisect_left(names, max(prefix, after))
        for position in range(index, len(names)):
            name = names[position]
            if not name.startswith(prefix):
                return
            if name > after or not after:
                yield name

    # Records

    def append(self, name: str, batch: Batch, reply: Reply) -> None:
        """Append the batch, creating the topic if that is allowed. Answers when the topic's class says it may."""
        if self.keeper.full:
            self._wait_for_room(batch.size, lambda: self.append(name, batch, reply), reply)
            return
        if self.busy and self._parked(name, lambda: self.append(name, batch, reply), reply):
            return
        topic = self.state.topics.get(name)
        if topic is None:
            check_topic_name(name)
            if batch.create is False:
                raise topic_not_found(name)
            self._create(name, batch.config or ConfigChange(), batch, reply)
            return
        if batch.plain:
            partition = topic.partitions[0]
            group: AppendGroup | None = partition.gathering
            if group is not None and group.records + batch.count <= group.unseen_most:
                group.add(batch, Append(topic, partition, partition.next_seq, batch.count, None, reply))
                return
        group = decide_append(self, topic, batch, reply)
        if group is not None:
            self.committer.submit(self._lane(topic), group)

    def join(self, name: str, batch: Batch, asked: Sequence[Any], answer: AnswerJoined) -> bool:
        """Append writes of one record each, a plain batch in all, to be answered together with others of their turn.

        False, and nothing has happened, when there is something to decide about them: then each takes the way of `append`.
        """
        topic = self.state.topics.get(name)
        if topic is None or self.busy or self.keeper.full:
            return False
        partition = topic.partitions[0]
        group: AppendGroup | None = partition.gathering
        if group is None or group.records + batch.count > PAGE_RECORDS_MOST:
            if not takes_unseen(topic, self.limits):
                return False
            group = partition.gathering = open_group(self, topic, partition, True)
            group.answer = answer
            self.committer.submit(self._lane(topic), group)
        elif not group.unseen_most:
            return False
        elif group.answer is not answer:
            if group.joined:
                return False
            group.answer = answer
        group.joined.append((partition.next_seq, asked))
        group.waiters += len(asked)
        group.take(batch)
        return True

    def _lane(self, topic: Topic) -> Lane:
        lanes = self.committer.lanes
        return lanes[topic.id % len(lanes)]

    def delete_records(
        self,
        name: str,
        before_seq: int | None,
        match: TagMatch | None,
        partition_number: int,
        reply: Callable[[RecordsGone | TopicsError], None],
    ) -> None:
        again = lambda: self.delete_records(name, before_seq, match, partition_number, reply)  # noqa: E731
        if self.busy and self._parked(name, again, reply):
            return
        topic = self.topic(name)
        partition = self.partition(topic, partition_number)
        self.evict(topic, partition)
        fact = (
            partition.decide_delete_match(match, before_seq)
            if match
            else partition.decide_delete_below(before_seq or 0)
        )
        commit = DeleteRecords(self, topic, partition, fact, match, reply)
        if topic.config.durability == "ephemeral":
            commit.apply()
            return
        lane = self.committer.lane_of(topic.id)
        self.committer.check_writable(lane)
        # A write decided after this delete comes behind it in the log.
        partition.gathering = None
        self.committer.submit(lane, commit)

    def partition(self, topic: Topic, number: int) -> Partition:
        if number >= len(topic.partitions):
            raise InvalidRequest(
                f'topic "{topic.name}" has {len(topic.partitions)} partitions',
                detail={"partitions": len(topic.partitions)},
            )
        return topic.partitions[number]

    def evict(self, topic: Topic, partition: Partition) -> None:
        """Caps hold and nothing expired is left, as of now.

        True at once, remembered right after: the note stands in the log before anything that is decided later, and if
        it is lost in a crash recovery reaches the same floor again.
        """
        config = topic.config
        if not (config.ttl_ms or config.cap_records or config.cap_bytes):
            return
        try:
            fact = partition.decide_eviction(config, self.runtime.now_ms())
        except CorruptStorage as error:
            # Whoever reads that far is told. Writers need not be, and nobody may be left without an answer.
            self.keeper.damaged(error)
            return
        if fact is not None:
            partition.apply_evicted(fact)
            lsn = self.committer.note(self.committer.lane_of(topic.id), fact)
            self.keeper.collect_dropped(topic.id, partition, lsn)

    def check_total_bytes(self, *writes: tuple[Topic, Partition, int, int]) -> None:
        """These writes, of so many records and bytes each, leave the live total within its bound. Raises Throttled."""
        most = self.limits.max_total_bytes
        growth = self._pending_bytes() + sum([size for _, _, _, size in writes])
        if self.state.totals.bytes + growth > most:
            for topic, partition, _, _ in writes:
                self.evict(topic, partition)
            self._evict_expired()
        if self.state.totals.bytes + growth > most:
            growth -= sum([self._making_way(*write) for write in writes])
        if self.state.totals.bytes + growth > most:
            raise Throttled(
                f"all topics together may hold {most} bytes", detail={"limit": "max_total_bytes", "max": most}
            )

    # Waking

    def watch(self, topic: Topic, callback: Callable[[], None]) -> None:
        """Call back, soon and once per turn, whenever the topic may have something new or is gone."""
        self.watchers.setdefault(topic.id, {})[callback] = None

    def unwatch(self, topic: Topic, callback: Callable[[], None]) -> None:
        watchers = self.watchers.get(topic.id)
        if watchers is not None:
            watchers.pop(callback, None)
            if not watchers:
                del self.watchers[topic.id]
                self.frames.forget(topic.id)

    def appended(self, topic: Topic, partition: Partition, size: int) -> None:
        """Called for every append that became true."""
        if topic.config.durability != "ephemeral":
            self.keeper.appended(topic, partition, size)
        if self.watchers:
            self.wake(topic)

    def wake(self, topic: Topic) -> None:
        if topic.id in self.watchers:
            if not self._woken and not self._resting:
                self.runtime.call_soon(self._wake_watchers)
            self._woken[topic.id] = None

    def _wake_watchers(self) -> None:
        """Tell those who wait, and when that took long leave others some time before it is done again.

        Otherwise telling a thousand watchers of every single write would be all that a busy server does. What is written
        meanwhile is told together, so the rest costs a watcher less than it saves.
        """
        perf = self.runtime.perf
        started = perf()
        woken, self._woken = self._woken, {}
        for topic_id in woken:
            for callback in list(self.watchers.get(topic_id, ())):
                callback()
        if perf() - started > REST_FROM_SECONDS:
            self._resting = True
            # A turn later what was written to the watchers has been sent as well.
            self.runtime.call_soon(lambda: self._rest((perf() - started) * 1000))

    def _rest(self, took_ms: float) -> None:
        self.runtime.call_later(min(took_ms * REST_SHARE, REST_MOST_MS), self._rested)

    def _rested(self) -> None:
        self._resting = False
        if self._woken:
            self._wake_watchers()

    # Stopping

    def stop(self, done: Callable[[bool], None]) -> None:
        """Commit what is queued, take a last snapshot, close the files; `done` says whether all of that worked."""
        self.forwarder.stop()
        self.retention.stop()
        self.committer.flush()

        def closed(worked: bool) -> None:
            try:
                for lane in self.committer.lanes:
                    lane.shard.close()
                self.state.shelf.close()
            except OSError:
                worked = False
            done(worked)

        self.keeper.checkpoint(clean=True, done=closed)

    # Commits over several topics

    def together(self, names: list[str], act: Callable[[Lane, Callable[[], None]], None]) -> None:
        """Run `act` when a commit over all these topics can be decided, giving it the lane to submit to.

        One frame goes to one shard. When the topics' own shard is that one, their order of commits is the shard's and
        `act` runs at once. Otherwise the topics are first drained and kept busy until `act` calls its second argument,
        which it must do when its commit is applied or failed. Nobody can overtake in between.
        """
        topics = [self.state.topics[name] for name in names if name in self.state.topics]
        lanes = {self.committer.lane_of(topic.id).shard.number for topic in topics}
        if not any([name in self.busy for name in names]):
            if len(lanes) <= 1:
                act(self.committer.lane_of(topics[0].id) if topics else self.committer.lanes[0], _nothing)
                return
            if not any([_unsettled(partition) for topic in topics for partition in topic.partitions]):
                for name in names:
                    self.busy[name] = []

                def release() -> None:
                    for name in names:
                        self.release(name)

                act(self.committer.lane_of(topics[0].id), release)
                return
        self.committer.sync_all()
        self.runtime.call_later(1, lambda: self.together(names, act))

    # Names under change

    def release(self, name: str) -> None:
        """What changed the topic is decided; those who waited go on, in order."""
        for again in self.busy.pop(name, []):
            again()

    def parked(self, name: str, again: Callable[[], None], reply: Callable[[TopicsError], None]) -> bool:
        """Whether the topic is being created, changed or deleted; then `again` is called when that is decided."""
        return bool(self.busy) and self._parked(name, again, reply)

    def keep_busy(self, name: str) -> None:
        """Requests for this topic wait until `release`."""
        self.busy.setdefault(name, [])

    def is_busy(self, name: str) -> bool:
        return name in self.busy

    def _wait_for_room(self, size: int, again: Callable[[], None], reply: Callable[[TopicsError], None]) -> None:
        """Memory is full of records that are being sealed; the write goes on when some of them are.

        Raises Throttled when as much waits already as may be hot, or as one request may bring.
        """
        self.counts.no_room += 1
        most = max(self.keeper.settings.hot_bytes, self.limits.max_body_bytes)
        if self._waiting and self._waiting_bytes + size > most:
            raise Throttled("records come faster than the disk takes them", retry_after_ms=200)

        self._waiting_bytes += size
        self._waiting.append(_told(again, reply))

    def _room(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for later in waiting:
            later()

    def _parked(self, name: str, again: Callable[[], None], reply: Callable[[TopicsError], None]) -> bool:
        waiting = self.busy.get(name)
        if waiting is None:
            return False

        waiting.append(_told(again, reply))
        return True

    def _create(
        self,
        name: str,
        change: ConfigChange,
        batch: Batch | None,
        reply: Callable[..., None],
        alias: str | None = None,
    ) -> None:
        self.check_no_alias(name)
        config = merged(name, DEFAULT_CONFIG, change, exists=False)
        partitions = change.partitions if isinstance(change.partitions, int) else 1
        most = self.limits.max_topics
        if most and len(self.state.topics) + self.creating >= most:
            raise Throttled(f"the server holds {most} topics already", detail={"limit": "max_topics", "max": most})
        topic_id = new_topic_id(self)
        lane = self.committer.lane_of(topic_id)
        self.committer.check_writable(lane)
        now_ms = self.runtime.now_ms()
        topic = self.state.new_topic(topic_id, name, config, partitions, now_ms)
        fact = TopicCreated(topic_id, name, config, partitions, now_ms)
        first = None
        if alias is not None:
            topic.alias = alias
            self.aliases_in_flight.add(alias)
        if batch is not None:
            first = decide_append(self, topic, batch, reply)
            assert first is not None
        self.state.next_topic_id = topic_id + 1
        self.creating += 1
        self.busy[name] = []
        self.committer.submit(lane, CreateTopic(self, fact, topic, first, None if first is not None else reply))

    def check_no_alias(self, name: str) -> None:
        """Raises Conflict when a new topic of this name would stand in the way of an alias."""
        if name in self.state.aliases or name in self.aliases_in_flight:
            raise Conflict(f'"{name}" is the alias of a topic', detail={"alias": name})

    def _check_alias(self, name: str, alias: str) -> None:
        check_topic_name(alias, "alias")
        taken = alias in self.state.aliases or alias in self.aliases_in_flight
        if taken or alias == name or alias in self.state.topics or alias in self.busy:
            raise Conflict(f'"{alias}" already names a topic', detail={"alias": alias})

    def _pending_bytes(self) -> int:
        pending = [commit for lane in self.committer.lanes for commit in (*lane.commits, *lane.waiting)]
        return sum([commit.size for commit in pending if isinstance(commit, AppendGroup | CreateTopic)])

    def _making_way(self, topic: Topic, partition: Partition, count: int, size: int) -> int:
        """The bytes that leave a topic that trims itself when this write comes."""
        try:
            return partition.making_way(topic.config, count, size)
        except CorruptStorage as error:
            self.keeper.damaged(error)
            return 0

    def _tidy(self) -> None:
        expire_stages(self)
        self.committer.write_owed()

    def _evict_expired(self) -> None:
        """What has expired is let go although nobody asks for it. At most once a second: it looks at every topic."""
        now_ms = self.runtime.now_ms()
        if abs(now_ms - self._swept_ms) < SWEEP_INTERVAL_MS:
            return
        self._swept_ms = now_ms
        for topic in self.state.by_id.values():
            if topic.config.ttl_ms:
                for partition in topic.partitions:
                    self.evict(topic, partition)


def _shards(fs: FileSystem, recovered: Recovered, settings: StorageSettings) -> list[WalShard]:
    shards = []
    for number in range(settings.shards):
        last_lsn, next_file = recovered.shards.get(number, (0, 1))
        shards.append(
            WalShard(
                fs,
                number,
                last_lsn=last_lsn,
                next_file=next_file,
                file_bytes=settings.wal_file_bytes,
                margin=settings.margin,
            )
        )
    return shards


def _unsettled(partition: Partition) -> bool:
    return bool(partition.pending_records or partition.waiting_sync)


def _told(again: Callable[[], None], reply: Callable[[TopicsError], None]) -> Callable[[], None]:
    """Does it again; whoever asked is told why not, as he would have been at first."""

    def later() -> None:
        try:
            again()
        except TopicsError as error:
            reply(error)

    return later


def _nothing() -> None:
    pass


__all__ = ["Append", "Broker", "Configured", "Poll", "RecordsGone", "Topic", "TopicGone"]
