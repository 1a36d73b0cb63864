"""What a request does with a consumer group, over HTTP and in SQL: poll, acknowledge, move, drop.

A poll answers at once when there are messages for the group. Otherwise it is a long poll: an append, a partition that becomes
free and the end of its time wake it.

    begin -> [first poll: set the position, commit] -> fetch -> answer, or wait and fetch again

With a `consumer_id` the members of a group share the partitions, and the server chooses one of the member's partitions that has
messages. Without it a poll reads the partition that it names, by default the first that no member owns.
"""

from collections.abc import Callable

from topics.broker.broker import Broker, Topic
from topics.broker.groups.groups import (
    Fetched,
    ack,
    check_not_owned,
    check_owner,
    deliver,
    drop_group,
    end_sessions,
    fetch,
    group_of,
    owned_partition,
    pin,
    seek,
)
from topics.broker.long_poll import LongPoll
from topics.engine.groups.group import Group, Member
from topics.engine.groups.group_requests import Offset, Seek, Start, Timestamp, check_group, dropped_group, start_offset
from topics.model.config import check_u64
from topics.model.errors import TopicsError, topic_not_found
from topics.server.http import Request


def acknowledge(
    broker: Broker,
    topic: Topic,
    group_name: str,
    partition_id: int,
    up_to: int,
    reply: Callable[[int | TopicsError], None],
    *,
    consumer_id: str | None = None,
    session_ms: int = 0,
) -> None:
    """Acknowledge all messages of the partition up to the offset. Only the member that owns the partition may, if one does."""
    check_group(group_name)
    check_u64("offset", up_to)
    partition = broker.partition(topic, partition_id)
    if consumer_id is None:
        check_not_owned(broker, topic, group_name, partition, up_to)
    else:
        check_owner(broker, topic, group_name, partition, up_to, consumer_id, session_ms)
    ack(broker, topic, group_name, partition, up_to, reply)


def move_group(
    broker: Broker,
    topic: Topic,
    group_name: str,
    partition_id: int | None,
    target: str | Offset | Timestamp,
    reply: Callable[[list[Seek] | TopicsError], None],
    *,
    dry_run: bool,
) -> None:
    """Move the position of the group in one partition, or in all."""
    check_group(group_name)
    partitions = topic.partitions if partition_id is None else [broker.partition(topic, partition_id)]
    if isinstance(target, Offset):
        check_u64("offset", target.offset)
    elif isinstance(target, Timestamp):
        check_u64("timestamp", target.ts)
    seek(broker, topic, group_name, partitions, target, dry_run=dry_run, reply=reply)


def remove_group(broker: Broker, topic: Topic, group_name: str, reply: Callable[[TopicsError | None], None]) -> None:
    """Drop the group with its positions. Raises NotFound when there is none."""
    drop_group(broker, topic, check_group(group_name), reply)


class GroupPoll:
    """One poll of a consumer group, from its request to its answer.

    `answer` gets the messages, or None for a member without a partition; `refuse` gets an error. One of them is called once, unless
    the client disconnects.
    """

    __slots__ = (
        "_answer",
        "_broker",
        "_consumer_id",
        "_group_name",
        "_limit",
        "_poll",
        "_polling",
        "_received",
        "_request",
        "_session_ms",
        "_start",
        "_topic",
        "_until_ms",
        "_wanted",
    )

    def __init__(
        self,
        broker: Broker,
        request: Request,
        topic: Topic,
        group_name: str,
        start: Start,
        limit: int,
        wanted: int | None,
        answer: Callable[[Fetched | None], None],
        refuse: Callable[[TopicsError], None],
        *,
        consumer_id: str | None = None,
        wait_ms: int = 0,
        session_ms: int = 0,
        received: dict[int, int] | None = None,
    ) -> None:
        self._broker = broker
        self._request = request
        self._received = received or {}
        self._answer = answer
        self._topic = topic
        self._group_name = group_name
        self._start = start
        self._limit = limit
        self._wanted = wanted
        self._consumer_id = consumer_id
        self._session_ms = session_ms
        self._until_ms = broker.runtime.perf() * 1000 + wait_ms
        self._polling: Member | None = None
        self._poll = LongPoll(broker, lambda: self._send(self._nothing()), refuse)
        self._poll.on_end(self._end_session)

    def begin(self) -> None:
        """Join the group, set the positions that are not set yet, then look for messages."""
        broker, topic = self._broker, self._topic
        group = group_of(broker, topic, self._group_name)
        if self._consumer_id is not None:
            member = group.join(
                self._consumer_id, broker.runtime.now_ms(), self._session_ms, len(topic.partitions), self._wanted
            )
            if member is None:
                assert self._wanted is not None
                raise owned_partition(group, self._wanted)
            member.open_polls += 1
            self._polling = member
            partitions = topic.partitions if self._wanted is None else [topic.partitions[self._wanted]]
        else:
            self._wanted = _free_partition(broker, topic, group, self._wanted)
            partitions = [topic.partitions[self._wanted]]
        self._request.on_disconnect(self._poll.end)
        if self._poll.over:
            return
        try:
            pin(broker, topic, group, partitions, self._start, self._pinned)
        except TopicsError:
            self._poll.end()
            raise

    def _pinned(self, error: TopicsError | None) -> None:
        if self._poll.over:
            return
        if error is not None:
            self._poll.refuse(error)
            return
        self._look()
        if not self._poll.over:
            self._poll.watch(self._topic, self._look)
            self._wait()

    def _look(self) -> None:
        """Answer if there are messages for this consumer now."""
        if self._poll.over:
            return
        broker, topic = self._broker, self._topic
        if broker.state.by_id.get(topic.id) is not topic:
            self._poll.refuse(topic_not_found(topic.name))
            return
        group = topic.groups.get(self._group_name)
        if group is None:
            self._poll.refuse(dropped_group(topic, self._group_name))
            return
        end_sessions(broker, topic, group)
        for number in self._choices(group):
            position = group.latest(number)
            if position is None:
                continue
            partition = topic.partitions[number]
            begins_at = start_offset(partition, position, self._start)
            offset = max(begins_at, self._received_up_to(group, number) + 1)
            try:
                fetched = fetch(broker, topic, partition, offset, self._limit, broker.limits.answer_bytes)
            except TopicsError as error:
                # Answered here, not raised: a commit that wakes several waiters may be the caller.
                self._poll.refuse(error)
                return
            if not fetched.nothing:
                deliver(broker, topic, group, fetched, self._polling, ahead=offset > begins_at)
                self._poll.end()
                self._send(fetched)
                return

    def _choices(self, group: Group) -> list[int]:
        """The partitions this consumer may be served from, in the order in which they are tried."""
        if self._polling is None:
            assert self._wanted is not None
            # A member that joined during the wait owns it: two consumers must not read the same partition.
            return [] if self._wanted in group.owners else [self._wanted]
        mine = group.owned(self._polling.consumer_id)
        if self._wanted is not None:
            return [self._wanted] if self._wanted in mine else []
        served = self._polling.served
        return [each for each in mine if each > served] + [each for each in mine if each <= served]

    def _received_up_to(self, group: Group, partition: int) -> int:
        """The last offset that this member has, as far as it was delivered in this session and not sought away from."""
        if self._polling is None:
            return 0
        return min(self._received.get(partition, 0), group.delivered.get(partition, 0))

    def _nothing(self) -> Fetched | None:
        group = self._topic.groups.get(self._group_name)
        choices = self._choices(group) if group is not None else []
        for number in choices[:1]:
            position = group.latest(number) if group is not None else None
            if position is not None:
                offset = start_offset(self._topic.partitions[number], position, self._start)
                offset = max(offset, self._received_up_to(group, number) + 1) if group is not None else offset
                return Fetched(number, [], offset, False, None)
        return None

    def _wait(self) -> None:
        """Look again when the next session expires, and finish when the time is over."""
        now_ms = self._broker.runtime.perf() * 1000
        left_ms = self._until_ms - now_ms
        if left_ms <= 0:
            self._poll.finish()
            return
        group = self._topic.groups.get(self._group_name)
        expiry_ms = group.next_expiry_ms() if group is not None and self._polling is not None else None
        if expiry_ms is not None:
            left_ms = min(left_ms, max(1, expiry_ms - self._broker.runtime.now_ms()))
        self._poll.wait(left_ms, self._time_passed)

    def _time_passed(self) -> None:
        self._look()
        if not self._poll.over:
            self._wait()

    def _send(self, fetched: Fetched | None) -> None:
        if fetched is not None:
            self._broker.counts.count_read(len(fetched.messages), fetched.tombstone is not None)
        self._answer(fetched)

    def _end_session(self) -> None:
        """The member polls no more: its session lasts from now."""
        member = self._polling
        if member is not None:
            member.open_polls -= 1
            member.until_ms = max(member.until_ms, self._broker.runtime.now_ms() + self._session_ms)


def _free_partition(broker: Broker, topic: Topic, group: Group, wanted: int | None) -> int:
    """The partition that a poll without `consumer_id` reads: `wanted`, or the first that no member owns.

    Raises Conflict when a live member owns it: its records would go to two consumers.
    """
    end_sessions(broker, topic, group)
    if wanted is None:
        free = [number for number in range(len(topic.partitions)) if number not in group.owners]
        wanted = free[0] if free else 0
    if wanted in group.owners:
        raise owned_partition(group, wanted)
    return wanted
