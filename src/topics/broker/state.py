"""The state: every topic, and the one place where a fact becomes true, live and in replay alike.

Facts carry outcomes and applying one twice changes nothing more, so recovery may replay facts that the snapshot
already holds.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import structs

from topics.broker.marks import ChangeMarks
from topics.broker.origins import Origins
from topics.broker.sealed import SealedSegment, Shelf
from topics.broker.stages import StageBook, apply_stage
from topics.broker.tables import TableBook
from topics.broker.versions import Versions
from topics.engine.cache import Cache
from topics.engine.copying import STAMP, Columns, chosen_seqs, gather, shaped, stamped
from topics.engine.dedupe import KeptWrite
from topics.engine.group import Group, Position
from topics.engine.lease import GrantImage, Leases, seqs_of
from topics.engine.partition import Partition, Totals
from topics.engine.router import Router, Routers
from topics.engine.topic import Topic
from topics.model.archive import Archive
from topics.model.config import TopicConfig
from topics.model.facts import (
    RESTART,
    AliasSet,
    Appended,
    ArchiveCleared,
    ArchiveProgressed,
    ArchiveSet,
    ChangesMarked,
    Copy,
    DeadLettered,
    Delayed,
    Deleted,
    DeletedBelow,
    DeletedRuns,
    Evicted,
    Fact,
    Fenced,
    Forwarded,
    GroupDropped,
    GroupMoved,
    HeadMoved,
    Leased,
    Lost,
    Returned,
    RouterConfigured,
    RouterCreated,
    RouterDeleted,
    RoutesSet,
    Sealed,
    StageApplied,
    Staged,
    StagesDropped,
    TableDropped,
    TableSet,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from topics.model.page import Page, part
from topics.model.route import Route


class Section(Protocol):
    """Something that a snapshot keeps beside the topics."""

    def capture(self) -> bytes | Callable[[], bytes]:
        """As it is now, encoded or to be encoded aside. Facts written from the snapshot's cut on are replayed over it."""

    def restore(self, body: bytes) -> None:
        """Take over what `capture` answered. All topics of the snapshot are there already."""


class State:
    """Topics by name and by id. A name belongs to its newest instance."""

    def __init__(self, shelf: Shelf, texts: Cache) -> None:
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[int, Topic] = {}
        # Sorted, for listing by prefix.
        self.names: list[str] = []
        # Second names, and which topics take which changes of which table.
        self.aliases: dict[str, Topic] = {}
        self.routes: dict[tuple[str, str], list[tuple[Topic, Route]]] = {}
        # Topics with an archive, by id.
        self.archived: dict[int, Topic] = {}
        self.versions = Versions()
        self.totals = Totals()
        self.next_topic_id = 1
        self.shelf = shelf
        self.texts = texts
        self.stages = StageBook()
        self.routers = Routers()
        self.origins = Origins()
        self.marks = ChangeMarks()
        self.tables = TableBook()
        # Kept in snapshots beside the topics, by kind.
        self.sections: dict[str, Section] = {
            "stages": self.stages,
            "routers": self.routers,
            "change_marks": self.marks,
            "tables": self.tables,
        }
        # During replay an ephemeral topic has seqs but no records.
        self.replaying = False
        self._apply: dict[type, Callable[[Any], object]] = {
            TopicCreated: self._topic_created,
            TopicConfigured: self._topic_configured,
            TopicDeleted: self._topic_deleted,
            Appended: self._appended,
            Deleted: lambda fact: self._at(fact, Partition.apply_deleted),
            DeletedRuns: lambda fact: self._at(fact, Partition.apply_deleted_runs),
            DeletedBelow: lambda fact: self._at(fact, Partition.apply_deleted_below),
            Evicted: lambda fact: self._at(fact, Partition.apply_evicted),
            Lost: lambda fact: self._at(fact, Partition.apply_lost),
            HeadMoved: self._head_moved,
            Sealed: self._sealed,
            GroupMoved: self._group_moved,
            GroupDropped: self._group_dropped,
            AliasSet: self._alias_set,
            RoutesSet: self._routes_set,
            Leased: self._leased,
            Returned: self._returned,
            DeadLettered: self._dead_lettered,
            Delayed: self._delayed,
            Staged: self.stages.keep,
            StagesDropped: self._stages_dropped,
            StageApplied: lambda fact: apply_stage(self, fact),
            Fenced: self.stages.fence,
            RouterCreated: self._router_created,
            RouterConfigured: self._router_configured,
            RouterDeleted: lambda fact: self.routers.remove(fact.router_id),
            Forwarded: self._forwarded,
            ChangesMarked: self._changes_marked,
            TableSet: self._table_set,
            TableDropped: self._table_dropped,
            ArchiveSet: self._archive_set,
            ArchiveCleared: self._archive_cleared,
            ArchiveProgressed: self._archive_progressed,
        }

    def apply(self, fact: Fact) -> Any:
        """The fact is true from here on. Facts about topics that are gone mean nothing any more."""
        return self._apply[type(fact)](fact)

    def append(self, topic: Topic, partition: Partition, page: Page, key: str | None) -> None:
        """What `apply` does for an Appended, without making one: the hot path."""
        partition.apply_append(page)
        if self.replaying:
            self.origins.add(partition, page)
        topic.last_write_ts = partition.last_ts
        if key is not None:
            topic.dedupe.keep(key, KeptWrite(partition.number, page.first_seq, page.count, page.last_ts))

    def new_topic(self, topic_id: int, name: str, config: TopicConfig, partitions: int, ts: int) -> Topic:
        return Topic(topic_id, name, config, partitions, ts, texts=self.texts, totals=self.totals)

    def add(self, topic: Topic) -> None:
        self.by_id[topic.id] = topic
        current = self.topics.get(topic.name)
        if current is None or current.id <= topic.id:
            self.topics[topic.name] = topic
            if current is None:
                insort(self.names, topic.name)
        if topic.alias is not None:
            self.aliases[topic.alias] = topic
        self._index_routes(topic)
        if topic.archive is not None:
            self.archived[topic.id] = topic
        self.next_topic_id = max(self.next_topic_id, topic.id + 1)

    def partition(self, topic_id: int, number: int) -> Partition | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None or number >= len(topic.partitions) else topic.partitions[number]

    def _at(self, fact: Any, apply: Callable[[Partition, Any], object]) -> object:
        partition = self.partition(fact.topic_id, fact.partition)
        return None if partition is None else apply(partition, fact)

    def _topic_created(self, fact: TopicCreated) -> None:
        self.next_topic_id = max(self.next_topic_id, fact.topic_id + 1)
        current = self.topics.get(fact.name)
        if current is not None and current.id < fact.topic_id:
            # Nobody creates a name that is taken. So the older one never was: its creation could not be synced.
            self._topic_deleted(TopicDeleted(current.id))
            current = None
        if current is None:
            self.add(self.new_topic(fact.topic_id, fact.name, fact.config, fact.partitions, fact.ts))

    def _topic_configured(self, fact: TopicConfigured) -> None:
        topic = self.by_id.get(fact.topic_id)
        if topic is None:
            return
        was_ephemeral = topic.config.durability == "ephemeral"
        forget_leases = self.replaying and topic.config.leases_durable and not fact.config.leases_durable
        topic.config = fact.config
        if forget_leases:
            # From here on the log says nothing about leases any more; those it knew have long moved on.
            for partition in topic.partitions:
                if partition.leases is not None:
                    partition.leases.clear(keep_delays=True)
        if was_ephemeral and fact.config.durability != "ephemeral":
            for partition in topic.partitions:
                partition.unlogged_below = partition.next_seq

    def _topic_deleted(self, fact: TopicDeleted) -> None:
        # Routers go with either of their topics, by this same fact.
        for router in self.routers.touching(fact.topic_id):
            self.routers.remove(router.id)
        self.marks.forget(fact.topic_id)
        topic = self.by_id.pop(fact.topic_id, None)
        self.next_topic_id = max(self.next_topic_id, fact.topic_id + 1)
        if topic is None:
            return
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
            del self.names[bisect_left(self.names, topic.name)]
        if topic.alias is not None and self.aliases.get(topic.alias) is topic:
            del self.aliases[topic.alias]
        self._forget_routes(topic)
        self.archived.pop(topic.id, None)
        for partition in topic.partitions:
            partition.drop_all()

    def _appended(self, fact: Appended) -> None:
        topic = self.by_id.get(fact.topic_id)
        if topic is None or fact.partition >= len(topic.partitions):
            return
        self.append(topic, topic.partitions[fact.partition], fact.page, fact.key)

    def _stages_dropped(self, fact: StagesDropped) -> None:
        for stage_id in fact.stage_ids:
            self.stages.drop(stage_id)

    def _head_moved(self, fact: HeadMoved) -> None:
        partition = self.partition(fact.topic_id, fact.partition)
        if partition is not None and self.replaying:
            partition.apply_head(fact.head)

    def _sealed(self, fact: Sealed) -> None:
        partition = self.partition(fact.topic_id, fact.partition)
        if partition is None:
            return
        first_seq = fact.segment.first_seq
        if any([segment.sealed and segment.first_seq == first_seq for segment in partition.segments]):
            return
        segment = SealedSegment(self.shelf, fact.topic_id, fact.partition, fact.segment)
        if self.replaying:
            if not segment.files_exist() or segment.was_replaced():
                # Dropped later on, as a fact further down the log will say; until then its records are still hot.
                return
            _refill(partition, segment)
            segment.restore_flags()
        partition.apply_sealed(segment)

    def _changes_marked(self, fact: ChangesMarked) -> None:
        if fact.topic_id in self.by_id:
            self.marks.mark(fact)

    def _group_moved(self, fact: GroupMoved) -> None:
        topic = self.by_id.get(fact.topic_id)
        if topic is None:
            return
        group = topic.groups.get(fact.group)
        if group is None:
            group = topic.groups[fact.group] = Group(fact.group)
        group.positions[fact.partition] = Position(fact.start, fact.acked, fact.ts)

    def _group_dropped(self, fact: GroupDropped) -> None:
        topic = self.by_id.get(fact.topic_id)
        if topic is not None:
            topic.groups.pop(fact.group, None)

    def _alias_set(self, fact: AliasSet) -> None:
        topic = self.by_id.get(fact.topic_id)
        if topic is None:
            return
        if topic.alias is not None and self.aliases.get(topic.alias) is topic:
            del self.aliases[topic.alias]
        topic.alias = fact.alias
        if fact.alias is not None:
            current = self.aliases.get(fact.alias)
            if current is not None:
                # Nobody asks for an alias that is taken: that topic could not be given it, because of a sync that failed.
                current.alias = None
            self.aliases[fact.alias] = topic

    def _routes_set(self, fact: RoutesSet) -> None:
        # The version rises even for a topic that is gone: whoever looks at it must see that something changed.
        self.versions.routes.reach(fact.version)
        topic = self.by_id.get(fact.topic_id)
        if topic is not None:
            self._forget_routes(topic)
            topic.routes = list(fact.routes)
            self._index_routes(topic)

    def _index_routes(self, topic: Topic) -> None:
        for route in topic.routes:
            self.routes.setdefault((route.table, route.op), []).append((topic, route))

    def _forget_routes(self, topic: Topic) -> None:
        for key in {(route.table, route.op) for route in topic.routes}:
            kept = [each for each in self.routes.get(key, []) if each[0] is not topic]
            if kept:
                self.routes[key] = kept
            else:
                self.routes.pop(key, None)

    # Tables and archives

    def _table_set(self, fact: TableSet) -> None:
        self.versions.tables.reach(fact.version)
        self.tables.put(fact)

    def _table_dropped(self, fact: TableDropped) -> None:
        self.versions.tables.reach(fact.version)
        self.tables.drop(fact)

    def _archive_set(self, fact: ArchiveSet) -> None:
        self.versions.archives.reach(fact.version)
        topic = self.by_id.get(fact.topic_id)
        if topic is not None:
            archive = Archive(fact.options, fact.begun, fact.ts)
            if topic.archive is not None and topic.archive.begun == fact.begun:
                # The same table as before: what stands in it stays there.
                archive = structs.replace(topic.archive, options=fact.options, set_ts=fact.ts)
            topic.archive = archive
            self.archived[topic.id] = topic

    def _archive_cleared(self, fact: ArchiveCleared) -> None:
        # The version rises even for a topic that is gone, as it does for routes.
        self.versions.archives.reach(fact.version)
        topic = self.archived.pop(fact.topic_id, None)
        if topic is not None:
            topic.archive = None

    def _archive_progressed(self, fact: ArchiveProgressed) -> None:
        topic = self.by_id.get(fact.topic_id)
        if topic is not None and topic.archive is not None and topic.archive.begun == fact.begun:
            topic.archive = topic.archive.progressed(fact.places, fact.table_version, fact.ts)

    # Leases: what happens live has already happened when its fact is written; only replay learns it from here.

    def _leases(self, fact: Leased | Returned | Delayed | DeadLettered) -> Leases | None:
        partition = self.partition(fact.topic_id, fact.partition)
        return None if partition is None else partition.leases

    def _leased(self, fact: Leased) -> None:
        leases = self._leases(fact)
        if leases is not None:
            leases.restore_grant(GrantImage(fact.node, fact.token, fact.deadline, seqs_of(fact.seqs), fact.deliveries))

    def _returned(self, fact: Returned) -> None:
        leases = self._leases(fact)
        if leases is not None:
            for seq, deliveries in zip(seqs_of(fact.seqs), fact.deliveries, strict=True):
                leases.restore_returned(seq, deliveries, fact.due)

    def _delayed(self, fact: Delayed) -> None:
        leases = self._leases(fact)
        if leases is not None:
            for seq, due in enumerate(fact.dues, fact.first_seq):
                if due:
                    leases.restore_returned(seq, 0, due)

    def _dead_lettered(self, fact: DeadLettered) -> None:
        leases = self._leases(fact)
        if leases is not None:
            leases.dead_lettered = max(leases.dead_lettered, fact.total)

    # Routers

    def _router_created(self, fact: RouterCreated) -> Router | None:
        """None when one of its topics is gone, or it is there already."""
        source = self.by_id.get(fact.source_id)
        self.routers.next_id = max(self.routers.next_id, fact.router_id + 1)
        if source is None or fact.dest_id not in self.by_id or fact.router_id in self.routers.by_id:
            return None
        current = self.routers.by_name.get(fact.name)
        if current is not None and current.id < fact.router_id:
            # As with topics: nobody creates a name that is taken, so the older one could not be synced and never was.
            self.routers.remove(current.id)
        router = Router(fact)
        self.routers.add(router)
        if self.replaying:
            self.origins.keep(source)
        return router

    def _router_configured(self, fact: RouterConfigured) -> None:
        router = self.routers.by_id.get(fact.router_id)
        if router is not None:
            router.options = fact.options

    def _forwarded(self, fact: Forwarded) -> None:
        """Replay: make the copies again. Live, the router has them in hand when the fact becomes true."""
        for copy in fact.copies:
            topic = self.by_id.get(copy.topic_id)
            if topic is not None and copy.count:
                self._copied(fact, copy, topic)
            router = self.routers.by_id.get(copy.router_id)
            if router is not None:
                router.advance(fact.partition, fact.last, copy.count)
                if copy.hops:
                    # Without records it is a loss that was told: as many seqs as the source lost.
                    count = copy.count or fact.last - fact.first + 1
                    self.routers.copied(copy.topic_id, copy.partition, copy.first_seq, count, copy.hops)

    def _copied(self, fact: Forwarded, copy: Copy, topic: Topic) -> None:
        partition = topic.partitions[copy.partition]
        last_seq = copy.first_seq + copy.count - 1
        if topic.config.durability == "ephemeral":
            partition.apply_head(last_seq)
            return
        if last_seq <= partition.head_seq:
            return
        if copy.pages is not None:
            for page in copy.pages:
                self.append(topic, partition, page, None)
            return
        seqs = chosen_seqs(fact.first, fact.last, copy.chosen)
        source = self.partition(fact.topic_id, fact.partition)
        known: list[Columns | int] = [copy.count]
        if source is not None:
            known = gather(lambda seq: self.origins.find(source, seq), seqs)
        seq, at = copy.first_seq, 0
        for columns in known:
            if isinstance(columns, int):
                # A power cut took the source's records from another shard: they were not safe, and neither were these.
                partition.apply_lost(Lost(topic.id, partition.number, seq, seq + columns - 1, RESTART))
                seq, at = seq + columns, at + columns
                continue
            router = self.routers.by_id.get(copy.router_id)
            columns = shaped(columns, copy.how)
            if copy.how & STAMP and router is not None:
                origin = self.by_id[fact.topic_id]
                run = seqs[at : at + columns.count]
                columns = stamped(columns, run, router.name, origin.name, origin.epoch, fact.partition)
            page = columns.page(seq, fact.ts + copy.late_ms)
            self.append(topic, partition, page, None)
            seq, at = seq + columns.count, at + columns.count


def _refill(partition: Partition, segment: SealedSegment) -> None:
    """Copies whose source a power cut took (`State._copied`) may have been sealed before it: then they are not lost."""
    for hole in list(partition.holes):
        seq, last = max(hole.first, segment.first_seq), min(hole.last, segment.last_seq)
        while seq <= last:
            page = segment.page_at(seq)
            stop = min(page.last_seq, last)
            partition.refill(part(page, seq - page.first_seq, stop - page.first_seq + 1))
            seq = stop + 1
