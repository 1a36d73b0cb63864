"""POST /api/topics/consume, /ack, /seek and /leave — consumer groups.

A consume answers at once when there is something for the group, and otherwise waits as a long poll does: woken by an
append, by a partition coming free, or by its time running out, a little before the client's own clock does.

    consume -> [first poll: pin the position, commit] -> fetch -> answer, or wait and fetch again

With a `consumer_id` the members of a group share the partitions, and the server picks one of the member's own that has
something. Without it a poll reads the partition it names, 0 if it names none.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from topics.broker.broker import Broker, Topic
from topics.broker.groups import (
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
    fetch,
    group_of,
    move_past,
    pin,
    seek,
    start_offset,
)
from topics.broker.runtime import Timer
from topics.model.config import U64, check_u64
from topics.model.errors import Conflict, InvalidRequest, TopicsError, topic_not_found
from topics.server.access import caller_of, check_consume
from topics.server.answers import send, send_error
from topics.server.bodies import decode, require_json
from topics.server.http import Request
from topics.server.messages import message_objects
from topics.server.service import Service

DEFAULT_LIMIT = 100
CONSUMER_ID_CHARS = 255
# How much before the end of a poll it is answered: at most this, and a twentieth of a short one.
EARLY_MS = 500

PartitionId = Annotated[int, Meta(ge=0, le=2**31)]
Word = Literal["Earliest", "Latest", "earliest", "latest", "EARLIEST", "LATEST"]


class _OffsetStart(Struct, forbid_unknown_fields=True):
    Offset: U64


class _SeekTarget(Struct, forbid_unknown_fields=True):
    Offset: U64 | None = None
    Timestamp: U64 | str | None = None


class ConsumeBody(Struct):
    group_id: str
    topic: str | None = None
    topic_id: str | None = None
    start: Word | _OffsetStart | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    partition_id: PartitionId | None = None
    timeout_seconds: U64 | None = None
    consumer_id: str | None = None


class AckBody(Struct):
    group_id: str
    upto_offset: U64
    topic: str | None = None
    topic_id: str | None = None
    partition_id: PartitionId = 0
    consumer_id: str | None = None


class SeekBody(Struct):
    group_id: str
    to: Word | _SeekTarget
    topic: str | None = None
    topic_id: str | None = None
    partition_id: PartitionId | None = None
    dry_run: bool = False


class LeaveBody(Struct):
    group_id: str
    consumer_id: str
    topic: str | None = None
    topic_id: str | None = None


_consume_decoder = msgspec.json.Decoder(ConsumeBody)
_ack_decoder = msgspec.json.Decoder(AckBody)
_seek_decoder = msgspec.json.Decoder(SeekBody)
_leave_decoder = msgspec.json.Decoder(LeaveBody)


# Handlers


def consume_messages(service: Service, broker: Broker, request: Request) -> None:
    require_json(request)
    check_consume(caller_of(request))
    body = decode(request.body, _consume_decoder)
    topic = _topic(broker, request, body)
    check_group(body.group_id)
    if body.consumer_id is not None:
        _check_consumer(body.consumer_id)
    if body.partition_id is not None:
        broker.partition(topic, body.partition_id)
    start: Start = EARLIEST
    if isinstance(body.start, _OffsetStart):
        start = Offset(max(1, check_u64("start.Offset", body.start.Offset)))
    elif body.start is not None:
        start = body.start.capitalize()
    settings = service.settings
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
    ).begin()


def ack_messages(service: Service, broker: Broker, request: Request) -> None:
    require_json(request)
    check_consume(caller_of(request))
    body = decode(request.body, _ack_decoder)
    topic = _topic(broker, request, body)
    check_group(body.group_id)
    up_to = check_u64("upto_offset", body.upto_offset)
    partition = broker.partition(topic, body.partition_id)
    if body.consumer_id is not None:
        group = topic.groups.get(body.group_id)
        if group is not None:
            group.heard_of(body.consumer_id, broker.runtime.now_ms(), service.settings.consumer_session_ms)

    def reply(outcome: int | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
        else:
            send(request, 200, {"success": True, "acknowledged_offset": outcome})

    ack(broker, topic, body.group_id, partition, up_to, reply)


def seek_group(broker: Broker, request: Request) -> None:
    require_json(request)
    check_consume(caller_of(request))
    body = decode(request.body, _seek_decoder)
    topic = _topic(broker, request, body)
    check_group(body.group_id)
    partitions = topic.partitions if body.partition_id is None else [broker.partition(topic, body.partition_id)]

    def reply(outcome: list[Seek] | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {"topic_id": topic.name, "group_id": body.group_id, "dry_run": body.dry_run}
        send(request, 200, {**fields, "partitions": [seek_fields(each) for each in outcome]})

    seek(broker, topic, body.group_id, partitions, _target(body.to), dry_run=body.dry_run, reply=reply)


def leave_group(broker: Broker, request: Request) -> None:
    require_json(request)
    check_consume(caller_of(request))
    body = decode(request.body, _leave_decoder)
    topic = _topic(broker, request, body)
    group = topic.groups.get(body.group_id)
    left = group is not None and group.leave(body.consumer_id, len(topic.partitions))
    if left:
        broker.wake(topic)
    send(request, 200, {"success": left})


def seek_fields(outcome: Seek) -> dict[str, Any]:
    return {
        "partition_id": outcome.partition,
        "previous_offset": outcome.before,
        "next_offset": outcome.after,
        "lag_records": outcome.lag.records,
        "lag_seconds": outcome.lag.seconds,
    }


class Consume:
    """One consume, from its request to its answer. Owns a timer and a place among the topic's watchers while it waits."""

    __slots__ = (
        "_broker",
        "_consumer_id",
        "_group_name",
        "_limit",
        "_over",
        "_polling",
        "_request",
        "_session_ms",
        "_start",
        "_timer",
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
    ) -> None:
        self._broker = broker
        self._request = request
        self._topic = topic
        self._group_name = group_name
        self._start = start
        self._limit = limit
        self._wanted = wanted
        self._consumer_id = consumer_id
        self._session_ms = session_ms
        self._until_ms = broker.runtime.perf() * 1000 + wait_ms
        self._over = False
        self._polling: Member | None = None
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Take a place in the group, pin what has no position yet, then look."""
        broker, topic = self._broker, self._topic
        group = group_of(broker, topic, self._group_name)
        if self._consumer_id is not None:
            member = group.join(
                self._consumer_id, broker.runtime.now_ms(), self._session_ms, len(topic.partitions), self._wanted
            )
            if member is None:
                assert self._wanted is not None
                raise _owned(group, self._wanted)
            member.open_polls += 1
            self._polling = member
            partitions = topic.partitions if self._wanted is None else [topic.partitions[self._wanted]]
        else:
            self._wanted = _free_partition(group, topic, self._wanted, broker.runtime.now_ms())
            partitions = [topic.partitions[self._wanted]]
        self._request.on_disconnect(self._end)
        if self._over:
            return
        try:
            pin(broker, topic, group, partitions, self._start, self._pinned)
        except TopicsError:
            self._end()
            raise

    def finish(self) -> None:
        """Answer now with what there is: nothing, or it would have been answered before."""
        if not self._over:
            self._answer(self._nothing())

    def _pinned(self, error: TopicsError | None) -> None:
        if self._over:
            return
        if error is not None:
            self._refuse(error)
            return
        self._look()
        if not self._over:
            self._broker.polls.add(self)
            self._broker.watch(self._topic, self._look)
            self._wait()

    def _look(self) -> None:
        """Answer if there is something for this consumer now."""
        if self._over:
            return
        broker, topic = self._broker, self._topic
        if broker.state.by_id.get(topic.id) is not topic:
            self._refuse(topic_not_found(topic.name))
            return
        group = topic.groups.get(self._group_name)
        if group is None:
            self._refuse(_dropped(topic, self._group_name))
            return
        if group.members and group.expire(broker.runtime.now_ms()):
            group.share(len(topic.partitions))
        for number in self._choices(group):
            position = group.latest(number)
            if position is None:
                continue
            partition = topic.partitions[number]
            offset = start_offset(partition, position, self._start)
            try:
                fetched = fetch(broker, topic, partition, offset, self._limit, broker.limits.answer_bytes)
            except TopicsError as error:
                # Told here: this may be called from within a commit, which has others to tell.
                self._refuse(error)
                return
            if not fetched.nothing:
                self._hand_out(group, fetched)
                return

    def _hand_out(self, group: Group, fetched: Fetched) -> None:
        if self._polling is not None:
            self._polling.served = fetched.partition
            if fetched.messages:
                group.hand_out(fetched.partition, fetched.messages[-1].offset)
        if not fetched.messages:
            move_past(self._broker, self._topic, group, fetched)
        self._answer(fetched)

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

    def _nothing(self) -> Fetched | None:
        group = self._topic.groups.get(self._group_name)
        choices = self._choices(group) if group is not None else []
        for number in choices[:1]:
            position = group.latest(number) if group is not None else None
            if position is not None:
                offset = start_offset(self._topic.partitions[number], position, self._start)
                return Fetched(number, [], offset, False, None)
        return None

    def _wait(self) -> None:
        """Look again when the next session ends, and give up when the time is over."""
        now_ms = self._broker.runtime.perf() * 1000
        left_ms = self._until_ms - now_ms
        if left_ms <= 0:
            self.finish()
            return
        group = self._topic.groups.get(self._group_name)
        expiry_ms = group.next_expiry_ms() if group is not None and self._polling is not None else None
        if expiry_ms is not None:
            left_ms = min(left_ms, max(1, expiry_ms - self._broker.runtime.now_ms()))
        self._timer = self._broker.runtime.call_later(left_ms, self._time_passed)

    def _time_passed(self) -> None:
        self._look()
        if not self._over:
            self._wait()

    def _answer(self, fetched: Fetched | None) -> None:
        self._end()
        if fetched is None:
            # A member without a partition: more members than partitions.
            fields: dict[str, Any] = {"messages": [], "next_offset": 0, "has_more": False}
            send(self._request, 200, {**fields, "partition_id": None, "tombstone": None})
            return
        fields = {
            "messages": message_objects(self._topic, fetched),
            "next_offset": fetched.next_offset,
            "has_more": fetched.has_more,
            "partition_id": fetched.partition,
            "tombstone": fetched.tombstone,
        }
        send(self._request, 200, fields)

    def _refuse(self, error: TopicsError) -> None:
        self._end()
        send_error(self._request, error)

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._broker.unwatch(self._topic, self._look)
        self._broker.polls.discard(self)
        member = self._polling
        if member is not None:
            member.open_polls -= 1
            member.until_ms = max(member.until_ms, self._broker.runtime.now_ms() + self._session_ms)


# What requests mean


def _topic(broker: Broker, request: Request, body: Any) -> Topic:
    """The topic a body names, by its name or its alias. 403 comes before 404."""
    name = body.topic if body.topic is not None else body.topic_id
    if name is None:
        raise InvalidRequest("Object missing required field `topic`")
    caller = caller_of(request)
    topic = broker.state.topics.get(name) or broker.state.aliases.get(name)
    caller.check_topic(name if topic is None else topic.name)
    return broker.resolve(name)


def _target(to: str | _SeekTarget) -> str | Offset | Timestamp:
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


def _free_partition(group: Group, topic: Topic, wanted: int | None, now_ms: int) -> int:
    """The partition a poll without a name reads; one that belongs to a member is not read beside it."""
    if group.members:
        group.expire(now_ms)
    if wanted is not None:
        if wanted in group.owners:
            raise _owned(group, wanted)
        return wanted
    free = [number for number in range(len(topic.partitions)) if number not in group.owners]
    if not free:
        raise _owned(group, 0)
    return free[0]


def _owned(group: Group, number: int) -> Conflict:
    return Conflict(
        f'partition {number} belongs to another member of group "{group.name}"',
        code="partition_owned",
        detail={"partition_id": number},
    )


def _dropped(topic: Topic, group_name: str) -> TopicsError:
    return Conflict(
        f'group "{group_name}" of topic "{topic.name}" was dropped meanwhile',
        code="group_not_found",
        detail={"topic": topic.name, "group_id": group_name},
    )
