"""POST /api/topics/consume, /ack, /seek and /leave: consumer groups.

A consume answers at once when there are messages for the group. Otherwise it is a long poll: an append, a partition that becomes
free and the end of its time, a little before that of the client, wake it.

    consume -> [first poll: set the position, commit] -> fetch -> answer, or wait and fetch again

With a `consumer_id` the members of a group share the partitions, and the server chooses one of the member's partitions that has
messages. Without it a poll reads the partition that it names, by default the first that no member owns.
"""

from datetime import UTC, datetime
from typing import Any

from topics.api.groups import ConsumeBody, GroupAckBody, LeaveBody, OffsetStart, SeekBody, SeekTarget
from topics.broker.broker import Broker, Topic
from topics.broker.groups.groups import (
    EARLIEST,
    Fetched,
    Group,
    Member,
    Offset,
    Seek,
    Start,
    Timestamp,
    ack,
    check_group,
    check_not_owned,
    check_owner,
    deliver,
    dropped_group,
    end_sessions,
    fetch,
    group_of,
    owned_partition,
    pin,
    seek,
    start_offset,
)
from topics.model.config import check_u64
from topics.model.errors import InvalidRequest, TopicsError, topic_not_found
from topics.server.groups.messages import message_objects
from topics.server.http import Request
from topics.server.long_poll import LongPoll
from topics.server.operations import Call, handles
from topics.server.responses import send, send_error

DEFAULT_LIMIT = 100
CONSUMER_ID_CHARS = 255
# How much before the end of a poll it is answered: at most this, and a twentieth of a short one.
EARLY_MS = 500


# Handlers


@handles("consume")
def consume_messages(call: Call[ConsumeBody, None]) -> None:
    broker, request, body = call.broker, call.request, call.body
    topic = _topic(call)
    check_group(body.group_id)
    if body.consumer_id is not None:
        _check_consumer(body.consumer_id)
    if body.partition_id is not None:
        broker.partition(topic, body.partition_id)
    start: Start = EARLIEST
    if isinstance(body.start, OffsetStart):
        start = Offset(max(1, check_u64("start.Offset", body.start.Offset)))
    elif body.start is not None:
        start = body.start.capitalize()
    settings = call.service.settings
    limit = min(check_u64("limit", body.limit or DEFAULT_LIMIT), broker.limits.max_limit)
    seconds = body.timeout_seconds
    if seconds is None:
        seconds = _preferred_wait(request)
    if seconds is None:
        seconds = settings.default_consume_timeout
    wait_ms = min(seconds, settings.max_consume_timeout) * 1000
    wait_ms -= min(EARLY_MS, wait_ms // 20)
    Consume(
        broker,
        request,
        topic,
        body.group_id,
        start,
        limit,
        body.partition_id,
        body.consumer_id,
        wait_ms,
        settings.consumer_session_ms,
        body.received or {},
    ).begin()


@handles("group_ack")
def ack_messages(call: Call[GroupAckBody, None]) -> None:
    broker, request, body = call.broker, call.request, call.body
    topic = _topic(call)
    check_group(body.group_id)
    up_to = check_u64("upto_offset", body.upto_offset)
    partition = broker.partition(topic, body.partition_id)
    if body.consumer_id is None:
        check_not_owned(broker, topic, body.group_id, partition, up_to)
    else:
        session_ms = call.service.settings.consumer_session_ms
        check_owner(broker, topic, body.group_id, partition, up_to, body.consumer_id, session_ms)

    def reply(outcome: int | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
        else:
            send(request, 200, {"success": True, "acknowledged_offset": outcome})

    ack(broker, topic, body.group_id, partition, up_to, reply)


@handles("group_seek")
def seek_group(call: Call[SeekBody, None]) -> None:
    broker, request, body = call.broker, call.request, call.body
    topic = _topic(call)
    check_group(body.group_id)
    partitions = topic.partitions if body.partition_id is None else [broker.partition(topic, body.partition_id)]

    def reply(outcome: list[Seek] | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {"topic_id": topic.name, "group_id": body.group_id, "dry_run": body.dry_run}
        send(request, 200, {**fields, "partitions": [seek_fields(each) for each in outcome]})

    seek(broker, topic, body.group_id, partitions, _target(body.to), dry_run=body.dry_run, reply=reply)


@handles("group_leave")
def leave_group(call: Call[LeaveBody, None]) -> None:
    broker, body = call.broker, call.body
    topic = _topic(call)
    group = topic.groups.get(body.group_id)
    left = group is not None and group.leave(body.consumer_id, len(topic.partitions))
    if left:
        broker.wake(topic)
    send(call.request, 200, {"success": left})


def seek_fields(outcome: Seek) -> dict[str, Any]:
    return {
        "partition_id": outcome.partition,
        "previous_offset": outcome.before,
        "next_offset": outcome.after,
        "lag_records": outcome.lag.records,
        "lag_seconds": outcome.lag.seconds,
    }


class Consume:
    """One consume, from its request to its answer."""

    __slots__ = (
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
        consumer_id: str | None,
        wait_ms: int,
        session_ms: int,
        received: dict[int, int],
    ) -> None:
        self._broker = broker
        self._request = request
        self._received = received
        self._topic = topic
        self._group_name = group_name
        self._start = start
        self._limit = limit
        self._wanted = wanted
        self._consumer_id = consumer_id
        self._session_ms = session_ms
        self._until_ms = broker.runtime.perf() * 1000 + wait_ms
        self._polling: Member | None = None
        self._poll = LongPoll(broker, request, lambda: self._send(self._nothing()))
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
            self._wanted = free_partition(broker, topic, group, self._wanted)
            partitions = [topic.partitions[self._wanted]]
        self._poll.cancel_on_disconnect()
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
            # A member that came meanwhile has it now; two do not read side by side.
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
        if fetched is None:
            # A member without a partition: more members than partitions.
            fields: dict[str, Any] = {"messages": [], "next_offset": 0, "has_more": False}
            send(self._request, 200, {**fields, "partition_id": None, "tombstone": None})
            return
        self._broker.counts.count_read(len(fetched.messages), fetched.tombstone is not None)
        fields = {
            "messages": message_objects(self._topic, fetched),
            "next_offset": fetched.next_offset,
            "has_more": fetched.has_more,
            "partition_id": fetched.partition,
            "tombstone": fetched.tombstone,
        }
        send(self._request, 200, fields)

    def _end_session(self) -> None:
        """The member polls no more: its session lasts from now."""
        member = self._polling
        if member is not None:
            member.open_polls -= 1
            member.until_ms = max(member.until_ms, self._broker.runtime.now_ms() + self._session_ms)


# What requests mean


def _topic(call: Call[Any, None]) -> Topic:
    """The topic that the body names, by its name or its alias."""
    if call.body.topic is None and call.body.topic_id is None:
        raise InvalidRequest("Object missing required field `topic`")
    return call.broker.topic(call.name)


def _target(to: str | SeekTarget) -> str | Offset | Timestamp:
    if isinstance(to, str):
        return to.capitalize()
    if (to.Offset is None) == (to.Timestamp is None):
        raise InvalidRequest('to must be "Earliest", "Latest", {"Offset": n} or {"Timestamp": t}')
    if to.Offset is not None:
        return Offset(check_u64("to.Offset", to.Offset))
    assert to.Timestamp is not None
    return Timestamp(
        check_u64("to.Timestamp", to.Timestamp) if isinstance(to.Timestamp, int) else parse_time(to.Timestamp)
    )


def parse_time(text: str) -> int:
    """Milliseconds of an ISO 8601 time; one without an offset is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise InvalidRequest("a time is written as 2026-01-31T12:00:00Z") from None


def _preferred_wait(request: Request) -> int | None:
    """`Prefer: wait=10`: how long the client would like to wait."""
    header = request.header(b"prefer")
    for preference in (header or b"").split(b","):
        name, _, value = preference.partition(b";")[0].partition(b"=")
        if name.strip().lower() == b"wait":
            value = value.strip().strip(b'"')
            if not (value.isdigit() and len(value) <= 9):
                raise InvalidRequest("Prefer: wait takes a whole number of seconds")
            return int(value)
    return None


def _check_consumer(consumer_id: str) -> None:
    if not 1 <= len(consumer_id) <= CONSUMER_ID_CHARS:
        raise InvalidRequest(f"consumer_id has 1 to {CONSUMER_ID_CHARS} characters")


def free_partition(broker: Broker, topic: Topic, group: Group, wanted: int | None) -> int:
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
