"""Operations on consumer groups: pin, fetch, ack, seek.

What moves a group is a commit like any other: decided on what is decided already, applied when the log has it, answered as
late as the topic's class demands. An ack on an `fsync` topic is synced before it is answered.

Fetching changes nothing: what was handed out and not acked comes again.
"""

import contextlib
from collections.abc import Callable, Sequence

from msgspec import Struct

from topics.broker.core import Core
from topics.broker.log.commit import FactCommit
from topics.engine.groups.group import Group, Lag, Member, Position, lag
from topics.engine.groups.group_requests import (
    EARLIEST,
    Offset,
    Seek,
    Start,
    Target,
    Timestamp,
    check_group,
    find_group,
)
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reading import Tombstone, read_records
from topics.engine.partitions.render import USUAL
from topics.engine.topics.topic import Topic
from topics.model.errors import Conflict, InvalidRequest, Throttled, TopicsError, topic_not_found
from topics.model.facts import Fact, GroupDropped, GroupMoved
from topics.runtime.replies import ignore
from topics.wire.group_messages import Message, decode_messages


class Fetched(Struct):
    """What a group gets of a partition, and where it continues."""

    partition: int
    messages: list[Message]
    next_offset: int
    has_more: bool
    tombstone: Tombstone | None

    @property
    def nothing(self) -> bool:
        return not self.messages and self.tombstone is None


def group_of(core: Core, topic: Topic, name: str) -> Group:
    """The group, made if it is new: nothing of it is durable before its first position is."""
    group = topic.groups.get(name)
    if group is None:
        most = core.limits.max_groups
        if most and len(topic.groups) >= most:
            raise Throttled(
                f'topic "{topic.name}" has {most} consumer groups already', detail={"limit": "max_groups", "max": most}
            )
        group = topic.groups[check_group(name)] = Group(name)
    return group


def group_lag(core: Core, partition: Partition, position: Position) -> Lag:
    return lag(partition, position.next_offset, core.runtime.now_ms())


# Reading


def fetch(core: Core, topic: Topic, partition: Partition, next_offset: int, limit: int, budget: int) -> Fetched:
    """Records from `next_offset` on. `has_more` says whether there is a record behind the last one handed out."""
    if topic.config.ttl_ms:
        core.evict(topic, partition)
    core.touch(topic)
    number = partition.number
    if next_offset > partition.head_seq:
        return Fetched(number, [], next_offset, False, None)
    read = read_records(partition, next_offset - 1, limit, budget, USUAL)
    messages = decode_messages(b"[%b]" % read.records) if read.count else []
    if messages:
        next_offset = messages[-1].offset + 1
    elif read.tombstone is not None:
        next_offset = read.tombstone.gap_to + 1
    more = partition.next_live(next_offset) is not None
    return Fetched(number, messages, next_offset, more, read.tombstone)


def deliver(
    core: Core, topic: Topic, group: Group, fetched: Fetched, member: Member | None, *, ahead: bool = False
) -> None:
    """Note that a consumer of the group gets `fetched`, as `member` if it names itself.

    When all that the group had not read is lost, the group goes on behind the gap: there is nothing to ack. `ahead` says
    that the member has messages before `fetched` which are not acked; it acks the gap with them.
    """
    if member is not None:
        member.served = fetched.partition
        if fetched.messages:
            group.hand_out(fetched.partition, fetched.messages[-1].offset)
    if not fetched.messages and fetched.tombstone is not None:
        if ahead:
            group.hand_out(fetched.partition, fetched.tombstone.gap_to)
            return
        _move_past(core, topic, group, fetched)


# Sessions


def end_sessions(core: Core, topic: Topic, group: Group) -> None:
    """End the sessions of the group that have expired; polls of live members that got their partitions are woken."""
    if group.members and group.expire(core.runtime.now_ms(), len(topic.partitions)):
        core.wake(topic)


def check_owner(
    core: Core, topic: Topic, group_name: str, partition: Partition, up_to: int, consumer_id: str, session_ms: int
) -> None:
    """Raise Conflict unless this consumer may ack: it has a live session, which is renewed, and owns the partition.

    A repeated ack, which moves nothing, needs the session only: the partition may have moved on after the first one.
    """
    group = topic.groups.get(group_name)
    if group is None or not group.renew(consumer_id, core.runtime.now_ms(), session_ms):
        if group is not None:
            end_sessions(core, topic, group)
        raise Conflict(
            f'consumer "{consumer_id}" has no live session in group "{group_name}": poll to join the group again',
            code="session_expired",
            detail={"consumer_id": consumer_id, "group_id": group_name},
        )
    if group.owners.get(partition.number) != consumer_id and _would_move(group, partition, up_to):
        raise owned_partition(group, partition.number)


def check_not_owned(core: Core, topic: Topic, group_name: str, partition: Partition, up_to: int) -> None:
    """Raise Conflict when an ack of no session would move a partition that a live member owns.

    A repeated ack, which moves nothing, is allowed.
    """
    group = topic.groups.get(group_name)
    if group is None:
        return
    end_sessions(core, topic, group)
    if partition.number in group.owners and _would_move(group, partition, up_to):
        raise owned_partition(group, partition.number)


def _would_move(group: Group, partition: Partition, up_to: int) -> bool:
    position = group.latest(partition.number)
    return position is None or position.acked < up_to


def owned_partition(group: Group, number: int) -> Conflict:
    return Conflict(
        f'partition {number} belongs to another member of group "{group.name}"',
        code="partition_owned",
        detail={"partition_id": number},
    )


# Moving


def pin(
    core: Core,
    topic: Topic,
    group: Group,
    partitions: Sequence[Partition],
    start: Start,
    reply: Callable[[TopicsError | None], None],
) -> None:
    """Every one of these partitions has a durable position of the group, made from `start` where there was none."""
    missing = [partition for partition in partitions if partition.number not in group.positions]
    if not missing:
        reply(None)
        return
    now_ms = core.runtime.now_ms()
    positions = {}
    for partition in missing:
        # Another poll's pin may be on its way: repeating it is how this one waits for it.
        decided = group.decided.get(partition.number)
        positions[partition.number] = decided or Position(_resolve(core, topic, partition, start), 0, now_ms)
    _move(core, topic, group, positions, reply)


def ack(
    core: Core,
    topic: Topic,
    group_name: str,
    partition: Partition,
    up_to: int,
    reply: Callable[[int | TopicsError], None],
) -> None:
    """Everything up to `up_to` is done for this group. Returns the current position, which never goes back.

    Raises InvalidRequest beyond the last record.
    """
    if up_to > partition.head_seq:
        raise InvalidRequest(
            f"offset {up_to} does not exist yet; the last one is {partition.head_seq}",
            detail={"upto_offset": up_to, "last_offset": partition.head_seq},
        )
    known = topic.groups.get(group_name)
    if not up_to and (known is None or known.latest(partition.number) is None):
        check_group(group_name)
        reply(0)
        return
    group = group_of(core, topic, group_name)
    now_ms = core.runtime.now_ms()
    before = group.latest(partition.number)
    after = (before or Position(up_to + 1, 0, now_ms)).acked_up_to(up_to, now_ms)
    if after is before and partition.number not in group.decided:
        reply(after.acked)
        return

    def moved(error: TopicsError | None) -> None:
        if group.members:
            # What was handed out is done, so its partition may be passed on to a member that has none.
            group.share(len(topic.partitions))
            core.wake(topic)
        reply(after.acked if error is None else error)

    _move(core, topic, group, {partition.number: after}, moved)


def _move_past(core: Core, topic: Topic, group: Group, fetched: Fetched) -> None:
    """Move the group behind a gap that leaves it nothing to read and ack."""
    number = fetched.partition
    position = group.latest(number)
    if position is not None and position.next_offset < fetched.next_offset:
        moved = Position(position.start, fetched.next_offset - 1, core.runtime.now_ms())
        # When the log takes no more writes, the gap is reported again.
        with contextlib.suppress(TopicsError):
            _move(core, topic, group, {number: moved}, ignore)


def seek(
    core: Core,
    topic: Topic,
    group_name: str,
    partitions: Sequence[Partition],
    target: Target,
    *,
    dry_run: bool,
    reply: Callable[[list[Seek] | TopicsError], None],
) -> None:
    """Put the group somewhere else in these partitions, all or none. A dry run only says where that would be."""
    group = find_group(topic, group_name)
    now_ms = core.runtime.now_ms()
    seeks: list[Seek] = []
    positions: dict[int, Position] = {}
    for partition in partitions:
        after = _resolve(core, topic, partition, target)
        if after > partition.head_seq + 1:
            raise InvalidRequest(
                f"offset {after} does not exist yet; the last one of partition {partition.number} is "
                f"{partition.head_seq}",
                detail={"partition_id": partition.number, "last_offset": partition.head_seq},
            )
        before = group.latest(partition.number)
        seeks.append(
            Seek(partition.number, None if before is None else before.next_offset, after, lag(partition, after, now_ms))
        )
        positions[partition.number] = Position(after, after - 1, now_ms)
    if dry_run:
        reply(seeks)
        return

    def moved(error: TopicsError | None) -> None:
        if error is None:
            # What members have received no longer counts: they get everything from the new position on.
            for number in positions:
                group.delivered.pop(number, None)
        core.wake(topic)
        reply(seeks if error is None else error)

    _move(core, topic, group, positions, moved)


def drop_group(core: Core, topic: Topic, group_name: str, reply: Callable[[TopicsError | None], None]) -> None:
    """Forget the group and its positions."""
    find_group(topic, group_name)
    core.committer.check_writable()
    core.committer.submit(FactCommit([GroupDropped(topic.id, group_name)], reply, partition=topic.partitions[0]))


def _move(
    core: Core,
    topic: Topic,
    group: Group,
    positions: dict[int, Position],
    reply: Callable[[TopicsError | None], None],
) -> None:
    """Commit positions of the group, decided together; they are in effect when the log has them.

    What moves the groups of a topic keeps the order of its first partition, so positions are applied in the order in which they
    were decided.
    """
    if not core.exists(topic):
        raise topic_not_found(topic.name)
    core.committer.check_writable()
    facts: list[Fact] = [
        GroupMoved(topic.id, number, group.name, each.start, each.acked, each.ts) for number, each in positions.items()
    ]
    before = {number: group.decided.get(number) for number in positions}
    group.decided.update(positions)

    def applied(_: FactCommit) -> None:
        for number, position in positions.items():
            # A later decision may be in flight.
            if group.decided.get(number) == position:
                del group.decided[number]

    def rollback() -> None:
        for number, earlier in before.items():
            if earlier is None or earlier == group.positions.get(number):
                group.decided.pop(number, None)
            else:
                group.decided[number] = earlier

    sync = topic.config.durability == "fsync"
    commit = FactCommit(facts, reply, partition=topic.partitions[0], sync=sync, after_apply=applied, rollback=rollback)
    core.committer.submit(commit)


def _resolve(core: Core, topic: Topic, partition: Partition, target: Target) -> int:
    core.evict(topic, partition)
    if isinstance(target, Offset):
        return max(target.offset, 1)
    if isinstance(target, Timestamp):
        return partition.first_at_or_after(target.ts)
    return partition.earliest_seq if target == EARLIEST else partition.head_seq + 1
