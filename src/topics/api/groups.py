"""Consumer groups: consume, ack, seek, leave."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Literal

from msgspec import Struct

from topics.api.common import Count, Response, Tombstone, about
from topics.api.operation import CONSUME, READ, WRITE_ERRORS, Example, Header, Name, Operation

TOPIC = Name("body", "topic|topic_id", "aliased_topic")
GROUP_ERRORS = ("topic_not_found", "group_not_found", "not_found", *WRITE_ERRORS)
StartWord = Literal["Earliest", "Latest", "earliest", "latest", "EARLIEST", "LATEST"]
GroupId = Annotated[str, about("Name of the consumer group; 1 to 255 characters.")]
NamedTopic = Annotated[str | None, about("Name or alias of the topic. Required, as `topic` or as `topic_id`.")]
NamedTopicId = Annotated[str | None, about("Another name of the field `topic`.")]


class OffsetStart(Struct, forbid_unknown_fields=True):
    """Begin at this offset."""

    Offset: Annotated[int, about("Offset of the first message.", ge=0)]


class SeekTarget(Struct, forbid_unknown_fields=True):
    """An offset or a time; one of the two."""

    Offset: Annotated[int, about("Offset of the next message.", ge=0)] | None = None
    Timestamp: Annotated[int, about("Unix milliseconds.", ge=0)] | str | None = None


class ConsumeBody(Struct):
    """A poll of a consumer group."""

    group_id: GroupId
    topic: NamedTopic = None
    topic_id: NamedTopicId = None
    start: Annotated[
        StartWord | OffsetStart | None, about("Where a group without a position begins. Default Earliest.")
    ] = None
    limit: Annotated[int, about("Most messages; default 100, at most 1000.", ge=1)] | None = None
    partition_id: Annotated[int, about("Partition to read; default the member's own, or 0.", ge=0, le=2**31)] | None = (
        None
    )
    timeout_seconds: (
        Annotated[int, about("Wait this long for messages; default and limit are settings.", ge=0)] | None
    ) = None
    consumer_id: Annotated[
        str | None, about("Name of the member: members share the partitions. 1 to 255 characters.")
    ] = None
    received: Annotated[
        dict[Count, Count] | None,
        about(
            "By partition, the last offset that the member has: delivery continues after it, also before it is acknowledged. "
            "Counts until the session ends or the group is moved."
        ),
    ] = None


class GroupAckBody(Struct):
    """Acknowledge messages of a partition."""

    group_id: GroupId
    upto_offset: Annotated[int, about("All messages up to this offset.", ge=0)]
    topic: NamedTopic = None
    topic_id: NamedTopicId = None
    partition_id: Annotated[int, about("Partition of the messages.", ge=0, le=2**31)] = 0
    consumer_id: Annotated[
        str | None,
        about(
            "Member that polled them: 409 when it does not own the partition any more, or when a live member owns it and this is absent."
        ),
    ] = None


class SeekBody(Struct):
    """Move the position of a group."""

    group_id: GroupId
    to: Annotated[StartWord | SeekTarget, about("Where the group continues.")]
    topic: NamedTopic = None
    topic_id: NamedTopicId = None
    partition_id: Annotated[int, about("Partition to move; default all.", ge=0, le=2**31)] | None = None
    dry_run: Annotated[bool, about("Answer what would happen, and change nothing.")] = False


class LeaveBody(Struct):
    """End the session of a member."""

    group_id: GroupId
    consumer_id: Annotated[str, about("Name of the member.")]
    topic: NamedTopic = None
    topic_id: NamedTopicId = None


class Message(Struct):
    """One message of a consumer group; `payload` is base64 of its JSON bytes."""

    offset: Annotated[int, about("Offset of the message.")]
    partition_id: Annotated[int, about("Number of the partition.")]
    ts: Annotated[int, about("When it was appended, in Unix milliseconds.")]
    payload: Annotated[str, about("Base64 of the JSON bytes.")]
    topic_id: Annotated[str, about("Name of the topic.")] = ""
    message_id: Annotated[str | None, about("Id of the message; always the same for the same record.")] = None
    source_table: Annotated[str | None, about("Table of a routed change.")] = None
    op: Annotated[str | None, about("Insert, Update or Delete.")] = None
    payload_mode: Annotated[str | None, about("Key, Full or Diff.")] = None


class Consumed(Response):
    """Messages of one partition."""

    messages: Annotated[list[Message], about("The messages.")]
    next_offset: Annotated[int, about("Offset of the next message.")]
    has_more: Annotated[bool, about("Whether there are more messages in the partition.")]
    tombstone: Annotated[Tombstone | None, about("Set when messages before these were lost.")] = None
    partition_id: Annotated[int | None, about("null for a member without a partition.")] = None


class GroupAcked(Response):
    """The position of a group after an ack."""

    success: Annotated[bool, about("Always true.")]
    acknowledged_offset: Annotated[int, about("The group has acknowledged everything up to here.")]


class SeekResult(Struct):
    """The position of one partition."""

    partition_id: Annotated[int, about("Number of the partition.")]
    previous_offset: Annotated[int | None, about("Position before; null when there was none.")]
    next_offset: Annotated[int, about("Position after.")]
    lag_records: Annotated[int, about("Records that are not acknowledged.")]
    lag_seconds: Annotated[float | None, about("Age of the next record that is not acknowledged.")]


class Sought(Response):
    """The positions of a group after a seek."""

    topic_id: Annotated[str, about("Name of the topic.")]
    group_id: Annotated[str, about("Name of the consumer group.")]
    dry_run: Annotated[bool, about("Whether nothing was changed.")]
    partitions: Annotated[list[SeekResult], about("The positions, by partition.")]


class Left(Response):
    """The end of a member's session."""

    success: Annotated[bool, about("False when there was no such member.")]


class GroupsQuery(Struct):
    topic: Annotated[str | None, about("Only groups of this topic; its name or its alias.")] = None
    group: Annotated[str, about("Only this group.")] = ""
    q: Annotated[str, about("Only groups whose name, or whose topic's name, contains this.")] = ""
    limit: Annotated[int, about("Most groups in the response; at most 1000.", ge=1)] = 100


class GroupMember(Struct):
    """A live member of a group."""

    consumer_id: Annotated[str, about("Name of the member.")]
    partitions: Annotated[list[int], about("Partitions that it owns.")]
    polling: Annotated[bool, about("Whether one of its polls waits now.")]
    expires_in_ms: Annotated[int, about("When its session ends without another poll.")]


class GroupPartition(Struct):
    """How far a group is in one partition."""

    partition_id: Annotated[int, about("Number of the partition.")]
    next_offset: Annotated[int, about("Offset of the next message.")]
    last_offset: Annotated[int, about("Highest offset of the partition.")]
    lag_records: Annotated[int, about("Records that are not acknowledged.")]
    lag_seconds: Annotated[float, about("Age of the next record that the group has not acknowledged.")]
    consumer_id: Annotated[str | None, about("Member that owns the partition.")] = None


class GroupInfo(Struct):
    """A consumer group of a topic."""

    topic: Annotated[str, about("Name of the topic.")]
    group_id: Annotated[str, about("Name of the consumer group.")]
    lag_records: Annotated[int, about("Records of all partitions that are not acknowledged.")]
    lag_seconds: Annotated[float, about("The largest of its partitions.")]
    updated_ts: Annotated[int, about("When it acknowledged last, in Unix milliseconds.")]
    members: Annotated[list[GroupMember], about("Live members.")]
    partitions: Annotated[list[GroupPartition], about("Its positions.")]


class GroupList(Response):
    """Consumer groups, those with the largest lag first."""

    total: Annotated[int, about("Groups that match.")]
    groups: Annotated[list[GroupInfo], about("The groups.")]


CONSUME_GROUP = READ | CONSUME

OPERATIONS = (
    Operation(
        name="consume", noun="groups", method="POST", path="/api/topics/consume",
        summary="Fetch the next messages of a consumer group, at once or as soon as there are some.",
        description="A poll delivers again what is not acknowledged, unless `received` says that the member has it.",
        scope=CONSUME_GROUP, names=(TOPIC,), body=ConsumeBody, response=Consumed,
        headers=(Header("Prefer", "`wait=10`: seconds to wait, when the body has no `timeout_seconds`."),),
        errors=(*GROUP_ERRORS, "partition_owned", "corrupt_storage"),
        example=Example("/api/topics/consume", {"topic": "orders", "group_id": "billing", "limit": 10}, {
            "messages": [{"topic_id": "orders", "partition_id": 0, "offset": 1, "message_id": "01JE", "source_table": None,
                          "op": "Insert", "ts": 1767225600000, "payload_mode": "Full", "payload": "eyJpZCI6MX0="}],
            "next_offset": 2, "has_more": False, "partition_id": 0, "tombstone": None,
            "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="group_ack", noun="groups", method="POST", path="/api/topics/ack",
        summary="Acknowledge all messages of a partition up to an offset.",
        scope=CONSUME_GROUP, names=(TOPIC,), body=GroupAckBody, response=GroupAcked,
        errors=(*GROUP_ERRORS, "partition_owned", "session_expired"),
        example=Example("/api/topics/ack", {"topic": "orders", "group_id": "billing", "partition_id": 0, "upto_offset": 1}, {
            "success": True, "acknowledged_offset": 1, "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="group_seek", noun="groups", method="POST", path="/api/topics/seek",
        summary="Move the position of a consumer group.",
        scope=CONSUME_GROUP, names=(TOPIC,), body=SeekBody, response=Sought, errors=(*GROUP_ERRORS, "partition_owned"),
        example=Example("/api/topics/seek", {"topic": "orders", "group_id": "billing", "to": "Earliest"}, {
            "topic_id": "orders", "group_id": "billing", "dry_run": False,
            "partitions": [{"partition_id": 0, "previous_offset": 2, "next_offset": 1, "lag_records": 1, "lag_seconds": 4.2}],
            "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="list_groups", noun="groups", method="GET", path="/api/groups",
        summary="List consumer groups with their members, partitions and lag.",
        description="A key with prefixes sees the groups of topics that it may touch.",
        scope=READ, names=(Name("query", "topic", "aliased_topic"),), query=GroupsQuery, response=GroupList,
        errors=("topic_not_found",),
        example=Example("/api/groups?topic=orders", response={
            "total": 1, "groups": [{
                "topic": "orders", "group_id": "billing", "lag_records": 1, "lag_seconds": 4.2, "updated_ts": 1767225600000,
                "members": [{"consumer_id": "c1", "partitions": [0], "polling": True, "expires_in_ms": 30000}],
                "partitions": [{"partition_id": 0, "next_offset": 2, "last_offset": 2, "lag_records": 1, "lag_seconds": 4.2,
                                "consumer_id": "c1"}]}],
            "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="group_leave", noun="groups", method="POST", path="/api/topics/leave",
        summary="End the session of a member; its partitions go to the others.",
        scope=CONSUME_GROUP, names=(TOPIC,), body=LeaveBody, response=Left, errors=GROUP_ERRORS,
        example=Example("/api/topics/leave", {"topic": "orders", "group_id": "billing", "consumer_id": "c1"}, {
            "success": True, "performance": {"server_total_ms": 0.1}}),
    ),
)  # fmt: skip
