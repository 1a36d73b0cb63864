"""Consumer groups: how far each group has come in each partition of a topic, and which member works on which partition.

A position is two numbers:

    start   where the group was pinned by its first poll, or put by a seek
    acked   everything up to here is done; 0 while nothing was acked since the pin

The next offset to hand out is `max(start, acked + 1)`: until an ack moves it, the same records come again. Positions are
durable: they change by facts, which carry the whole position, so applying one twice changes nothing more. A position
that is decided and not yet committed is kept apart, so that the next decision builds on it.

Members are not durable. A member lives as long as one of its polls is open and for a while after; a partition belongs to
one live member. When members come, partitions are moved from those that have too many, but never one of which records
were handed out and not yet acked: so two live members never hold the same record. When a member's session ends, what it held is
free at once, and what it had not acked comes again to the next owner. Time comes in as an argument.
"""

from msgspec import Struct

from topics.engine.partitions.partition import Partition
from topics.engine.partitions.segment import Segment


class Position(Struct, frozen=True, gc=False):
    """The position of a group in a partition."""

    start: int
    acked: int = 0
    ts: int = 0

    @property
    def next_offset(self) -> int:
        return max(self.start, self.acked + 1)

    def acked_up_to(self, offset: int, now_ms: int) -> "Position":
        """An older ack never rewinds."""
        return self if offset <= self.acked else Position(self.start, offset, now_ms)


class Member(Struct):
    """One consumer of a group; `until_ms` counts when none of its polls is open."""

    consumer_id: str
    until_ms: int
    open_polls: int = 0
    # Named the partition that it reads, and gets no other.
    fixed: bool = False
    # The partition it was served from last; the next answer begins looking behind it.
    served: int = -1


class Group:
    """One consumer group of one topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Committed positions; positions whose commit is pending.
        self.positions: dict[int, Position] = {}
        self.decided: dict[int, Position] = {}
        self.members: dict[str, Member] = {}
        self.owners: dict[int, str] = {}
        # The highest offset handed out to the present owner of a partition.
        self.delivered: dict[int, int] = {}

    # Positions

    def latest(self, partition: int) -> Position | None:
        """The position as last decided: what the next decision builds on."""
        return self.decided.get(partition) or self.positions.get(partition)

    # Members

    def join(
        self, consumer_id: str, now_ms: int, session_ms: int, partitions: int, wanted: int | None = None
    ) -> Member | None:
        """The consumer is a live member from now on.

        It gets its share of the partitions, as far as they can be moved; with `wanted` it gets that one and no other,
        or None when that one is another live member's.
        """
        self.expire(now_ms, partitions)
        if wanted is not None and not self._may_claim(wanted, consumer_id):
            return None
        member = self.members.get(consumer_id)
        if member is None:
            member = self.members[consumer_id] = Member(consumer_id, now_ms + session_ms)
        else:
            member.until_ms = max(member.until_ms, now_ms + session_ms)
        member.fixed = wanted is not None
        if wanted is not None and self.owners.get(wanted) != consumer_id:
            self.owners[wanted] = consumer_id
            self.delivered.pop(wanted, None)
        self.share(partitions)
        return member

    def renew(self, consumer_id: str, now_ms: int, session_ms: int) -> bool:
        """Extend the session of a live member. False when it has ended, or there was none."""
        member = self.members.get(consumer_id)
        if member is None or (not member.open_polls and member.until_ms <= now_ms):
            return False
        member.until_ms = max(member.until_ms, now_ms + session_ms)
        return True

    def leave(self, consumer_id: str, partitions: int) -> bool:
        """The member's session ends now. False when there was none."""
        if self.members.pop(consumer_id, None) is None:
            return False
        self._free(consumer_id)
        self.share(partitions)
        return True

    def expire(self, now_ms: int, partitions: int) -> bool:
        """End the sessions that have expired and share what they held; whether there were any."""
        gone = [each.consumer_id for each in self.members.values() if not each.open_polls and each.until_ms <= now_ms]
        for consumer_id in gone:
            del self.members[consumer_id]
            self._free(consumer_id)
        if gone:
            self.share(partitions)
        return bool(gone)

    def next_expiry_ms(self) -> int | None:
        """When the next session ends if nothing is heard of its member."""
        return min([each.until_ms for each in self.members.values() if not each.open_polls], default=None)

    def share(self, partitions: int) -> None:
        """Assign free partitions to the members with the fewest, then rebalance what can be moved.

        Members that name the partition they want take no part in this.
        """
        held: dict[str, list[int]] = {each.consumer_id: [] for each in self.members.values() if not each.fixed}
        if not held:
            return
        for partition, owner in sorted(self.owners.items()):
            if owner in held:
                held[owner].append(partition)
        for partition in range(partitions):
            if partition not in self.owners:
                self._give(partition, min(held, key=lambda each: len(held[each])), held)
        for _ in range(partitions):
            poorest = min(held, key=lambda each: len(held[each]))
            movable = [
                (len(mine), partition)
                for mine in held.values()
                if len(mine) > len(held[poorest]) + 1
                for partition in mine
                if not self.outstanding(partition)
            ]
            if not movable:
                return
            _, partition = max(movable)
            held[self.owners[partition]].remove(partition)
            self.delivered.pop(partition, None)
            self._give(partition, poorest, held)

    def owned(self, consumer_id: str) -> list[int]:
        return sorted([partition for partition, owner in self.owners.items() if owner == consumer_id])

    def outstanding(self, partition: int) -> bool:
        """Whether the owner was handed records of this partition that are not acked."""
        position = self.latest(partition)
        delivered = self.delivered.get(partition, 0)
        return bool(delivered) and (position is None or delivered >= position.next_offset)

    def hand_out(self, partition: int, offset: int) -> None:
        """Records up to `offset` go to the partition's owner."""
        if partition in self.owners:
            self.delivered[partition] = max(self.delivered.get(partition, 0), offset)

    def _may_claim(self, partition: int, consumer_id: str) -> bool:
        owner = self.owners.get(partition)
        return owner is None or owner == consumer_id or not (self.members[owner].fixed or self.outstanding(partition))

    def _give(self, partition: int, consumer_id: str, held: dict[str, list[int]]) -> None:
        self.owners[partition] = consumer_id
        held[consumer_id].append(partition)

    def _free(self, consumer_id: str) -> None:
        for partition in self.owned(consumer_id):
            del self.owners[partition]
            self.delivered.pop(partition, None)


class Lag(Struct, frozen=True, gc=False):
    """How far a group is behind: live records it has not acked, and the age of the oldest of them."""

    records: int
    seconds: float


NO_LAG = Lag(0, 0.0)


def lag(partition: Partition, next_offset: int, now_ms: int) -> Lag:
    """Exact: records that were deleted or lost do not count."""
    first = partition.next_live(next_offset)
    if first is None:
        return NO_LAG
    records = sum(
        [live_from(segment, next_offset) for segment in partition.segments if segment.last_seq >= next_offset]
    )
    return Lag(records, max(0, now_ms - partition.ts_at(first)) / 1000)


def live_from(segment: Segment, seq: int) -> int:
    """How many records of the segment are live at or behind `seq`."""
    if seq <= segment.low:
        return segment.live
    flags = segment.flags()
    gone = 0 if flags is None else flags.count(1, seq - segment.first_seq)
    return segment.last_seq - seq + 1 - gone
