"""The broker: the one object that the server uses. It decides with the engine, commits to storage, applies, and wakes readers.

Everything runs on one loop, so nothing is locked. Operations that can fail at once raise; those that end later answer
through `reply`, which gets the outcome or a TopicsError, exactly once.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from topics.broker.core import Core, Poll
from topics.broker.durability.recovery import Recovered
from topics.broker.queues.queues import Queues
from topics.broker.routers.forwarder import Forwarder
from topics.broker.routers.routers import MayTouch, RouterControl, touch_any
from topics.broker.tables.changes import ChangeWriter
from topics.broker.topics import lifecycle
from topics.broker.topics.append import Append, Reply, ReplyAppends, decide_append, join_group
from topics.broker.topics.delete import RecordsGone, TagDeletes, commit_delete
from topics.broker.topics.lifecycle import Configured, ConfigureReply, TopicGone
from topics.broker.topics.retention import Retention
from topics.broker.transactions.stages import expire_stages
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.config import DEFAULT_CONFIG, ConfigChange, TopicConfig, merged
from topics.model.errors import Throttled, TopicsError, topic_not_found
from topics.model.limits import Limits
from topics.model.names import check_topic_name
from topics.model.records.batch import Batch
from topics.model.records.match import TagMatch
from topics.model.storage_settings import StorageSettings
from topics.model.tables.route import Route
from topics.runtime.interface import Runtime
from topics.runtime.replies import retried, run_each
from topics.storage.fs import FileSystem


class Broker(Core):
    """All topics of one data directory, and every operation on them."""

    def __init__(
        self, fs: FileSystem, runtime: Runtime, recovered: Recovered, limits: Limits, settings: StorageSettings
    ) -> None:
        super().__init__(fs, runtime, recovered, limits, settings)
        self.retention = Retention(self.state, runtime, self.evict, settings.retention_interval_ms, self._expire)
        # Writes that wait until memory has room for their records.
        self._waiting_writes: list[Callable[[], None]] = []
        self._waiting_bytes = 0
        self.sealer.on_room = self._run_waiting_writes
        self._tag_deletes = TagDeletes(self)
        self.queues = Queues(self)
        self.forwarder = Forwarder(self)
        self.routers = RouterControl(self, self.forwarder)
        self.changes = ChangeWriter(self)

    def start(self) -> None:
        """Continue from the recovered state."""
        recovered = self.recovered
        self.health.declare("damaged_file", "damaged_snapshot")
        for damage in recovered.damage:
            self._damage_found(damage)
        for error in recovered.bad_snapshots:
            self.health.fail("damaged_snapshot", f"{error}; an older snapshot was used", error.path)
        # Their writers could not renew them while the server was down.
        stages = self.state.stages
        stages.renew(list(stages.stages), self.runtime.now_ms())
        self.checkpointer.start(recovered)
        if recovered.wal_error is not None:
            self.committer.report_read_only(recovered.wal_error)
        self.space.start(self.checkpointer.measure_need)
        for topic, partition in self.state.all_partitions():
            self.evict(topic, partition)
        self.committer.flush()
        self.committer.sync()
        # Recovery counted what it replayed; the totals count what this process does.
        totals = self.state.totals
        totals.appended = totals.evicted = totals.deleted = 0
        self.forwarder.start()
        self.retention.start()

    def stop(self, done: Callable[[bool], None]) -> None:
        """Commit what is queued, take a last snapshot, close the files; `done` says whether all of that worked."""
        self.forwarder.stop()
        self.retention.stop()
        self.committer.flush()

        def closed(worked: bool) -> None:
            try:
                self.committer.wal.close()
                self.state.segment_cache.close()
            except OSError:
                worked = False
            done(worked)

        self.checkpointer.checkpoint(clean=True, done=closed)

    # Topics

    def names(self, prefix: str, after: str) -> Iterator[str]:
        """Topic names with the prefix, in order, behind `after`."""
        names = self.state.names
        for position in range(bisect_left(names, max(prefix, after)), len(names)):
            name = names[position]
            if not name.startswith(prefix):
                return
            if name > after or not after:
                yield name

    def configure(self, name: str, change: ConfigChange, reply: ConfigureReply) -> None:
        """Create the topic or change the named fields of its configuration."""
        check_topic_name(name)
        if self.parked(name, lambda: self.configure(name, change, reply), reply):
            return
        topic = self.state.topics.get(name)
        if topic is None:
            lifecycle.create(self, name, change, reply=reply)
        else:
            lifecycle.configure(self, topic, change, reply, self.queues.configured)

    def preview_configure(self, name: str, change: ConfigChange) -> tuple[TopicConfig, int, int]:
        """The configuration after this change, and the records and bytes it would evict. Nothing changes.

        Raises what `configure` would raise.
        """
        topic = self.state.topics.get(name)
        if topic is None:
            return merged(name, DEFAULT_CONFIG, change, exists=False), 0, 0
        config = merged(name, topic.config, change, exists=True)
        now_ms = self.runtime.now_ms()
        for partition in topic.partitions:
            self.evict(topic, partition)
        evicted = [partition.evicted_by(config, now_ms) for partition in topic.partitions]
        return config, sum([records for records, _ in evicted]), sum([size for _, size in evicted])

    def create_topic(
        self, name: str, change: ConfigChange, alias: str | None, *, if_absent: bool, reply: ConfigureReply
    ) -> None:
        """Create the topic, with its alias in one commit. One that exists is not changed: Conflict unless `if_absent`."""
        check_topic_name(name)
        again = lambda: self.create_topic(name, change, alias, if_absent=if_absent, reply=reply)  # noqa: E731
        if not self.parked(name, again, reply):
            lifecycle.create_if_absent(self, name, change, alias, if_absent=if_absent, reply=reply)

    def set_alias(self, name: str, alias: str | None, reply: ConfigureReply) -> None:
        """Give the topic a second name, or remove it."""
        if not self.parked(name, lambda: self.set_alias(name, alias, reply), reply):
            lifecycle.set_alias(self, self.topic(name), alias, reply)

    def change_routes(
        self, name: str, change: Callable[[list[Route], int], list[Route]], reply: ConfigureReply
    ) -> None:
        """Replace the topic's routes by the result of `change`, which also gets the version they will have."""
        if not self.parked(name, lambda: self.change_routes(name, change, reply), reply):
            lifecycle.change_routes(self, self.topic(name), change, reply)

    def delete_topic(
        self,
        name: str,
        *,
        if_empty: bool,
        reply: Callable[[TopicGone | TopicsError], None],
        may_touch: MayTouch = touch_any,
    ) -> None:
        """Delete the topic and every router from or to it. Raises Forbidden if one is outside `may_touch`."""
        again = lambda: self.delete_topic(name, if_empty=if_empty, reply=reply, may_touch=may_touch)  # noqa: E731
        # A router that is being created counts: it may be applied before the delete.
        if self.routers.deferred(again, reply) or self.parked(name, again, reply):
            return
        topic = self.state.topics.get(name)
        if topic is None:
            reply(TopicGone(name, False, []))
            return
        self.routers.check_removable(topic, may_touch)
        lifecycle.delete(self, topic, if_empty, reply, self.forwarder.removed)

    # Records

    def append(self, name: str, batch: Batch, reply: Reply) -> None:
        """Append the batch, creating the topic if that is allowed. Replies when the topic's class says it may."""
        if self.sealer.full:
            self.sealer.check_sealing()
            self._wait_for_room(batch.size, lambda: self.append(name, batch, reply), reply)
            return
        if self.busy and self.parked(name, lambda: self.append(name, batch, reply), reply):
            return
        topic = self.state.topics.get(name)
        if topic is None:
            check_topic_name(name)
            if batch.create is False:
                raise topic_not_found(name)
            lifecycle.create(self, name, batch.config or ConfigChange(), reply=reply, first=batch)
            return
        group = decide_append(self, topic, batch, reply)
        if group is not None:
            self.committer.submit(group)

    def join(self, name: str, batch: Batch, requests: Sequence[Any], reply: ReplyAppends) -> bool:
        """Append writes of one record each, which are answered together with others of their turn.

        Returns False, and nothing has happened, when there is something to decide about one of them: then use `append` for
        each.
        """
        topic = self.state.topics.get(name)
        if topic is None or self.busy or self.sealer.full:
            return False
        return join_group(self, topic, batch, requests, reply)

    def delete_records(
        self,
        name: str,
        before_seq: int | None,
        match: TagMatch | None,
        partition_number: int,
        reply: Callable[[RecordsGone | TopicsError], None],
        *,
        dry_run: bool = False,
    ) -> None:
        """Delete records for good. `dry_run`: answer how many there are, and delete none."""
        again = lambda: self.delete_records(name, before_seq, match, partition_number, reply, dry_run=dry_run)  # noqa: E731
        if self.parked(name, again, reply):
            return
        topic = self.topic(name)
        partition = self.partition(topic, partition_number)
        self.evict(topic, partition)
        if match is not None:
            # Records that are appended later are not deleted, however large `before_seq` is.
            bound = partition.head_seq + 1 if before_seq is None else min(before_seq, partition.head_seq + 1)
            self._tag_deletes.delete(topic, partition, match, bound, reply, dry_run=dry_run)
        elif dry_run:
            reply(RecordsGone(topic, partition, partition.measure_below(before_seq or 0)[0], 0.0))
        else:
            commit_delete(self, topic, partition, partition.decide_delete_below(before_seq or 0), reply)

    def _wait_for_room(self, size: int, again: Callable[[], None], reply: Callable[[TopicsError], None]) -> None:
        """Memory is full of records that are being sealed; the write runs again when some of them are.

        Raises Throttled when as much waits already as may be hot, or as one request may hold.
        """
        self.counts.no_room += 1
        max_bytes = max(self.checkpointer.settings.hot_bytes, self.limits.max_body_bytes)
        if self._waiting_writes and self._waiting_bytes + size > max_bytes:
            raise Throttled("records come faster than the disk takes them", retry_after_ms=200)
        self._waiting_bytes += size
        self._waiting_writes.append(retried(again, reply))

    def _run_waiting_writes(self) -> None:
        waiting, self._waiting_writes, self._waiting_bytes = self._waiting_writes, [], 0
        run_each(waiting)

    def _expire(self) -> None:
        expire_stages(self)
        self.committer.retry_unwritten_notes()


__all__ = ["Append", "Broker", "Configured", "Partition", "Poll", "RecordsGone", "Topic", "TopicGone"]
