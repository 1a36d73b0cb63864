"""POST /api/topics/consume, /ack, /seek and /leave: consumer groups over HTTP. What they do is in `actions`."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

from topics.api.groups import ConsumeBody, GroupAckBody, LeaveBody, OffsetStart, SeekBody, SeekTarget
from topics.broker.broker import Topic
from topics.broker.groups.groups import Fetched
from topics.engine.groups.group_requests import EARLIEST, Offset, Seek, Start, Timestamp, check_group
from topics.model.config import check_u64
from topics.model.errors import InvalidRequest
from topics.server.groups.actions import GroupPoll, acknowledge, move_group
from topics.server.groups.messages import message_objects
from topics.server.http import Request
from topics.server.limits import at_most, consumed_messages
from topics.server.operations import Call, handles
from topics.server.responses import reply_to, send, send_error

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
    limit = consumed_messages(check_u64("limit", body.limit or 0), broker.limits)
    seconds = body.timeout_seconds
    if seconds is None:
        seconds = _preferred_wait(request)
    if seconds is None:
        seconds = settings.default_consume_timeout
    wait_ms = at_most(seconds, settings.max_consume_timeout) * 1000
    wait_ms -= min(EARLY_MS, wait_ms // 20)

    def answer(fetched: Fetched | None) -> None:
        if fetched is None:
            # A member without a partition: more members than partitions.
            fields: dict[str, Any] = {"messages": [], "next_offset": 0, "has_more": False}
            send(request, 200, {**fields, "partition_id": None, "tombstone": None})
            return
        fields = {
            "messages": message_objects(topic, fetched),
            "next_offset": fetched.next_offset,
            "has_more": fetched.has_more,
            "partition_id": fetched.partition,
            "tombstone": fetched.tombstone,
        }
        send(request, 200, fields)

    GroupPoll(
        broker,
        request,
        topic,
        body.group_id,
        start,
        limit,
        body.partition_id,
        answer,
        partial(send_error, request),
        consumer_id=body.consumer_id,
        wait_ms=wait_ms,
        session_ms=settings.consumer_session_ms,
        received=body.received,
    ).begin()


@handles("group_ack")
def ack_messages(call: Call[GroupAckBody, None]) -> None:
    broker, request, body = call.broker, call.request, call.body
    topic = _topic(call)

    @reply_to(request)
    def reply(outcome: int) -> None:
        send(request, 200, {"success": True, "acknowledged_offset": outcome})

    acknowledge(
        broker,
        topic,
        body.group_id,
        body.partition_id,
        body.upto_offset,
        reply,
        consumer_id=body.consumer_id,
        session_ms=call.service.settings.consumer_session_ms,
    )


@handles("group_seek")
def seek_group(call: Call[SeekBody, None]) -> None:
    broker, request, body = call.broker, call.request, call.body
    topic = _topic(call)

    @reply_to(request)
    def reply(outcome: list[Seek]) -> None:
        fields = {"topic_id": topic.name, "group_id": body.group_id, "dry_run": body.dry_run}
        send(request, 200, {**fields, "partitions": [seek_fields(each) for each in outcome]})

    move_group(broker, topic, body.group_id, body.partition_id, _target(body.to), reply, dry_run=body.dry_run)


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


# Parsing of request fields


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
        return Offset(to.Offset)
    assert to.Timestamp is not None
    return Timestamp(to.Timestamp if isinstance(to.Timestamp, int) else parse_time(to.Timestamp))


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
