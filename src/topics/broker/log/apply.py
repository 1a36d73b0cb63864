"""Apply facts to the state: one function for each kind of fact, called live and in recovery.

    apply(state, fact)              recovery: the fact comes from the log
    apply(state, fact, prepared)    live: the operation has computed a part of the result, or chooses when to do a part of the work

`prepared` never changes the result: recovery computes the same from the fact alone.

Facts carry outcomes, not conditions, and applying one twice has no further effect. So recovery may replay facts that the
snapshot already holds. A fact about a topic that does not exist any more has no effect.

Two kinds of facts are applied when they are decided, before they are written, because later decisions depend on them: evictions
and leases. If they do not reach the log, recovery reaches the same floor again, or the job is claimable again.
"""

from collections.abc import Callable
from typing import Any

from msgspec import structs

from topics.broker.log.router_copies import forwarded
from topics.broker.state import State
from topics.engine.groups.group import Group, Position
from topics.engine.leases.lease import Leases, seqs_of
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.segment import Segment
from topics.engine.partitions.selection import Selection
from topics.engine.routers.router import Router
from topics.engine.transactions.stages import numbered
from topics.model import facts
from topics.model.errors import CorruptStorage
from topics.model.images import DeliveryImage, KeptWrite
from topics.model.records.page import Page, part
from topics.model.tables.archive import Archive
from topics.segments.packed_segments import PackedSegment
from topics.segments.sealed_segments import SealedSegment
from topics.storage.segments.segment_format import segment_base


def apply(state: State, fact: facts.Fact, prepared: Any = None) -> Any:
    """Change the state as the fact says. Return what its function returns: for a delete, the number of records removed."""
    function = APPLY[type(fact)]
    return function(state, fact) if prepared is None else function(state, fact, prepared)


# Topics


def topic_created(state: State, fact: facts.TopicCreated) -> None:
    state.next_topic_id = max(state.next_topic_id, fact.topic_id + 1)
    topic = state.creating.pop(fact.topic_id, None)
    current = state.topics.get(fact.name)
    if current is not None and current.id < fact.topic_id:
        # A name that is in use is refused. So the older topic was never created: the sync of its commit failed.
        state.remove(current.id)
        current = None
    if current is None:
        state.add(topic or state.new_topic(fact.topic_id, fact.name, fact.config, fact.partitions, fact.ts))


def topic_configured(state: State, fact: facts.TopicConfigured) -> None:
    topic = state.by_id.get(fact.topic_id)
    if topic is None:
        return
    before, topic.config = topic.config, fact.config
    if state.replaying and before.leases_durable and not fact.config.leases_durable:
        # From here on the log has no facts about leases; those it has are out of date.
        for partition in topic.partitions:
            if partition.leases is not None:
                partition.leases.clear(keep_delays=True)
    if before.durability == "ephemeral" != fact.config.durability:
        for partition in topic.partitions:
            partition.unlogged_below = partition.next_seq


def alias_set(state: State, fact: facts.AliasSet) -> None:
    topic = state.by_id.get(fact.topic_id)
    if topic is not None:
        state.set_alias(topic, fact.alias)


def routes_set(state: State, fact: facts.RoutesSet) -> None:
    # The version rises also for a topic that does not exist any more: a pipeline must notice the change.
    state.versions.routes.reach(fact.version)
    topic = state.by_id.get(fact.topic_id)
    if topic is not None:
        state.unindex_routes(topic)
        topic.routes = list(fact.routes)
        state.index_routes(topic)


# Records


def appended(state: State, fact: facts.Appended, index_later: bool = False) -> None:
    """`index_later`: leave the tag index to `Partition.tidy_tags`."""
    topic = state.by_id.get(fact.topic_id)
    if topic is not None and fact.partition < len(topic.partitions):
        page = fact.page
        state.append(topic, topic.partitions[fact.partition], [page], index_later=index_later)
        if fact.key is not None:
            topic.dedupe.keep(fact.key, KeptWrite(fact.partition, page.first_seq, page.count, page.last_ts))


def keys_kept(state: State, fact: facts.KeysKept) -> None:
    topic = state.by_id.get(fact.topic_id)
    if topic is not None:
        for first_seq, count, key in fact.writes:
            topic.dedupe.keep(key, KeptWrite(fact.partition, first_seq, count, fact.ts))


def deleted(state: State, fact: facts.Deleted | facts.DeletedRuns, prepared: Selection | None = None) -> int:
    """Return how many records were live. `prepared` has measured them already."""
    partition = state.partition(fact.topic_id, fact.partition)
    if partition is None:
        return 0
    if prepared is not None:
        return partition.apply_selection(prepared)
    return partition.apply_deleted(fact) if isinstance(fact, facts.Deleted) else partition.apply_deleted_runs(fact)


def _of_partition(apply_to: Callable[[Partition, Any], Any]) -> Callable[[State, Any], Any]:
    """The apply function of a fact that changes one partition only."""

    def apply_fact(state: State, fact: Any) -> Any:
        partition = state.partition(fact.topic_id, fact.partition)
        return 0 if partition is None else apply_to(partition, fact)

    return apply_fact


def head_moved(state: State, fact: facts.HeadMoved, prepared: list[Page] | None = None) -> None:
    """Records of an ephemeral topic, which are not in the log (`prepared`): a restart loses them and keeps their seqs."""
    partition = state.partition(fact.topic_id, fact.partition)
    if partition is None:
        return
    if prepared is not None:
        state.append(state.by_id[fact.topic_id], partition, prepared)
    elif state.replaying:
        partition.apply_head(fact.head)


# Segments


def sealed(state: State, fact: facts.Sealed) -> None:
    partition = state.partition(fact.topic_id, fact.partition)
    if partition is None:
        return
    first_seq = fact.segment.first_seq
    if any([isinstance(each, SealedSegment) and each.first_seq == first_seq for each in partition.segments]):
        return
    segment = SealedSegment(state.segment_cache, fact.topic_id, fact.partition, fact.segment)
    if state.replaying:
        if not _is_usable(state, partition, segment):
            return
        _refill(partition, segment)
        segment.restore_flags()
    partition.apply_sealed(segment)


def packed(state: State, fact: facts.Packed) -> None:
    state.next_pack = max(state.next_pack, fact.entry.pack + 1)
    partition = state.partition(fact.topic_id, fact.partition)
    if partition is None:
        return
    segment = PackedSegment(state.segment_cache, fact.topic_id, fact.partition, fact.entry)
    if state.replaying:
        if not _is_usable_entry(state, partition, segment):
            return
        _refill(partition, segment)
    partition.apply_packed(segment)


def repaired(state: State, fact: facts.Repaired) -> None:
    partition = state.partition(fact.topic_id, fact.partition)
    if partition is None:
        return
    segments = [SealedSegment(state.segment_cache, fact.topic_id, fact.partition, info) for info in fact.segments]
    bases = {segment.base for segment in segments}
    there = [each for each in partition.segments if each.first_seq <= fact.last and each.last_seq >= fact.first]
    if not there or any([isinstance(each, SealedSegment) and each.base in bases for each in there]):
        # The snapshot holds the repaired segments already, or they were dropped since.
        return
    for segment in segments:
        segment.restore_flags()
    for replaced in partition.replace_range(fact.first, fact.last, segments, fact.lost):
        if isinstance(replaced, SealedSegment):
            state.segment_cache.forget_damage(replaced.base)
        elif isinstance(replaced, PackedSegment):
            partition.dropped.append(replaced)
            state.replaced_segments.add(replaced.base)
    if fact.generation != facts.PACKED:
        # Also when the segment is not there: in replay its records may come from the log, and its files still exist.
        state.replaced_segments.add(segment_base(fact.topic_id, fact.partition, fact.first, fact.generation))


def _is_usable(state: State, partition: Partition, segment: SealedSegment) -> bool:
    """Whether the files of a segment whose sealing is replayed exist and are whole.

    If not, its records stay in memory: the log or the snapshot still holds them. Missing files belonged to a segment that was
    dropped later, as a later fact of the log says.
    """
    if not segment.files_exist():
        return False
    try:
        if segment.was_replaced():
            return False
        segment.verify()
        for first, last in _holes_in(partition, segment):
            segment.check(first, last)
    except CorruptStorage as error:
        state.segment_cache.forget_damage(segment.base)
        state.segment_cache.replaced.append(error)
        return False
    return True


def _is_usable_entry(state: State, partition: Partition, segment: PackedSegment) -> bool:
    """The same for an entry of a pack. A missing pack was replaced by a newer one, or its records are gone."""
    if not segment.files_exist():
        return False
    try:
        state.segment_cache.pack(segment.info.pack)
        if _holes_in(partition, segment):
            segment.pages()
    except CorruptStorage as error:
        state.segment_cache.forget_damage(segment.damage_key)
        if error not in state.segment_cache.replaced:
            state.segment_cache.replaced.append(error)
        return False
    return True


def _refill(partition: Partition, segment: Segment) -> None:
    """Restore copies from a segment that was sealed before a power cut lost their source (`_copied`)."""
    for seq, last in _holes_in(partition, segment):
        while seq <= last:
            page = segment.page_at(seq)
            stop = min(page.last_seq, last)
            partition.refill(part(page, seq - page.first_seq, stop - page.first_seq + 1))
            seq = stop + 1


def _holes_in(partition: Partition, segment: Segment) -> list[tuple[int, int]]:
    ranges = [(max(hole.first, segment.first_seq), min(hole.last, segment.last_seq)) for hole in partition.holes]
    return [each for each in ranges if each[0] <= each[1]]


# Queues


def _leases(state: State, fact: facts.Leased | facts.Returned | facts.Delayed | facts.DeadLettered) -> Leases | None:
    partition = state.partition(fact.topic_id, fact.partition)
    return None if partition is None else partition.leases


def leased(state: State, fact: facts.Leased) -> None:
    leases = _leases(state, fact)
    # Live, the lease is in effect since it was decided, and may have ended or been extended since.
    if leases is not None and state.replaying:
        leases.restore_delivery(
            DeliveryImage(fact.node, fact.token, fact.deadline, seqs_of(fact.seqs), fact.deliveries)
        )


def returned(state: State, fact: facts.Returned) -> None:
    partition = state.partition(fact.topic_id, fact.partition)
    if partition is not None and partition.leases is not None:
        jobs = zip(seqs_of(fact.seqs), fact.deliveries, strict=True)
        # A job may have been deleted while its return waited for the log.
        partition.leases.apply_returned([(seq, count) for seq, count in jobs if partition.is_live(seq)], fact.due)


def delayed(state: State, fact: facts.Delayed) -> None:
    leases = _leases(state, fact)
    if leases is not None:
        leases.delay(fact.first_seq, fact.dues)


def dead_lettered(state: State, fact: facts.DeadLettered) -> None:
    leases = _leases(state, fact)
    if leases is not None:
        leases.dead_lettered = max(leases.dead_lettered, fact.total)


# Groups


def group_moved(state: State, fact: facts.GroupMoved) -> None:
    topic = state.by_id.get(fact.topic_id)
    if topic is not None:
        group = topic.groups.get(fact.group)
        if group is None:
            group = topic.groups[fact.group] = Group(fact.group)
        group.positions[fact.partition] = Position(fact.start, fact.acked, fact.ts)


def group_dropped(state: State, fact: facts.GroupDropped) -> None:
    topic = state.by_id.get(fact.topic_id)
    if topic is not None:
        topic.groups.pop(fact.group, None)


# Stages


def stages_dropped(state: State, fact: facts.StagesDropped) -> None:
    for stage_id in fact.stage_ids:
        state.stages.drop(stage_id)


def stage_applied(state: State, fact: facts.StageApplied, index_later: bool = False) -> None:
    """The records of the stage become readable, and the stage is dropped."""
    stage = state.stages.drop(fact.stage_id)
    topic = state.by_id.get(fact.topic_id)
    if stage is None or topic is None:
        return
    for each, first_seq in zip(stage.parts, fact.first_seqs, strict=True):
        page = numbered(each.page, first_seq, fact.ts)
        state.append(topic, topic.partitions[each.partition], [page], index_later=index_later)


# Tables and archives


def changes_marked(state: State, fact: facts.ChangesMarked) -> None:
    if fact.topic_id in state.by_id:
        state.source_positions.apply(fact)


def table_set(state: State, fact: facts.TableSet) -> None:
    state.versions.tables.reach(fact.version)
    state.tables.put(fact)


def table_dropped(state: State, fact: facts.TableDropped) -> None:
    state.versions.tables.reach(fact.version)
    state.tables.drop(fact)


def archive_set(state: State, fact: facts.ArchiveSet) -> None:
    state.versions.archives.reach(fact.version)
    topic = state.by_id.get(fact.topic_id)
    if topic is not None:
        archive = Archive(fact.options, fact.begun, fact.ts)
        if topic.archive is not None and topic.archive.begun == fact.begun:
            # The same table as before: its progress is kept.
            archive = structs.replace(topic.archive, options=fact.options, set_ts=fact.ts)
        topic.archive = archive
        state.archived[topic.id] = topic


def archive_cleared(state: State, fact: facts.ArchiveCleared) -> None:
    # The version rises also for a topic that does not exist any more, as it does for routes.
    state.versions.archives.reach(fact.version)
    topic = state.archived.pop(fact.topic_id, None)
    if topic is not None:
        topic.archive = None


def archive_progressed(state: State, fact: facts.ArchiveProgressed) -> None:
    topic = state.by_id.get(fact.topic_id)
    if topic is not None and topic.archive is not None and topic.archive.begun == fact.begun:
        topic.archive = topic.archive.progressed(fact.places, fact.table_version, fact.ts)


# Routers


def router_created(state: State, fact: facts.RouterCreated) -> None:
    """Has no effect when one of its topics does not exist any more, or the router exists already."""
    source = state.by_id.get(fact.source_id)
    routers = state.routers
    routers.next_id = max(routers.next_id, fact.router_id + 1)
    if source is None or fact.dest_id not in state.by_id or fact.router_id in routers.by_id:
        return
    current = routers.by_name.get(fact.name)
    if current is not None and current.id < fact.router_id:
        # As with topics: a name that is in use is refused, so the sync of the older router's commit failed.
        routers.remove(current.id)
    routers.add(Router(fact))
    if state.replaying:
        state.copy_sources.keep(source)


def router_configured(state: State, fact: facts.RouterConfigured) -> None:
    router = state.routers.by_id.get(fact.router_id)
    if router is not None:
        router.options = fact.options


APPLY: dict[type, Callable[..., Any]] = {
    facts.TopicCreated: topic_created,
    facts.TopicConfigured: topic_configured,
    facts.TopicDeleted: lambda state, fact: state.remove(fact.topic_id),
    facts.AliasSet: alias_set,
    facts.RoutesSet: routes_set,
    facts.Appended: appended,
    facts.KeysKept: keys_kept,
    facts.Deleted: deleted,
    facts.DeletedRuns: deleted,
    facts.DeletedBelow: _of_partition(Partition.apply_deleted_below),
    facts.Evicted: _of_partition(Partition.apply_evicted),
    facts.Lost: _of_partition(Partition.apply_lost),
    facts.HeadMoved: head_moved,
    facts.Sealed: sealed,
    facts.Packed: packed,
    facts.Repaired: repaired,
    facts.Leased: leased,
    facts.Returned: returned,
    facts.Delayed: delayed,
    facts.DeadLettered: dead_lettered,
    facts.GroupMoved: group_moved,
    facts.GroupDropped: group_dropped,
    facts.Staged: lambda state, fact: state.stages.keep(fact),
    facts.StagesDropped: stages_dropped,
    facts.StageApplied: stage_applied,
    facts.Fenced: lambda state, fact: state.stages.fence(fact),
    facts.ChangesMarked: changes_marked,
    facts.TableSet: table_set,
    facts.TableDropped: table_dropped,
    facts.ArchiveSet: archive_set,
    facts.ArchiveCleared: archive_cleared,
    facts.ArchiveProgressed: archive_progressed,
    facts.RouterCreated: router_created,
    facts.RouterConfigured: router_configured,
    facts.RouterDeleted: lambda state, fact: state.routers.remove(fact.router_id),
    facts.Forwarded: forwarded,
}
