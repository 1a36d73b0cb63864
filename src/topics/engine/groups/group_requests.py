"""What requests say about a consumer group: its name, where it starts, where a seek puts it."""

from msgspec import Struct

from topics.engine.groups.group import Group, Lag, Position
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.errors import Conflict, InvalidRequest, NotFound

GROUP_NAME_CHARS = 255


EARLIEST = "Earliest"


LATEST = "Latest"


class Offset(Struct, frozen=True):
    offset: int


class Timestamp(Struct, frozen=True):
    """The first record at or after this time, in milliseconds."""

    ts: int


Start = str | Offset


Target = str | Offset | Timestamp


class Seek(Struct):
    """Where a seek puts a group in one partition, and where the group was before."""

    partition: int
    before: int | None
    after: int
    lag: Lag


def check_group(name: str) -> str:
    """Any text names a group; only its length is bounded."""
    if not 1 <= len(name) <= GROUP_NAME_CHARS:
        raise InvalidRequest(f"a group name has 1 to {GROUP_NAME_CHARS} characters")
    return name


def find_group(topic: Topic, name: str) -> Group:
    group = topic.groups.get(name)
    if group is None or not (group.positions or group.members):
        raise NotFound(
            f'topic "{topic.name}" has no consumer group "{name}"',
            code="group_not_found",
            detail={"topic": topic.name, "group_id": name},
        )
    return group


def dropped_group(topic: Topic, group_name: str) -> Conflict:
    return Conflict(
        f'group "{group_name}" of topic "{topic.name}" was dropped meanwhile',
        code="group_not_found",
        detail={"topic": topic.name, "group_id": group_name},
    )


def start_offset(partition: Partition, position: Position, start: Start) -> int:
    """Where a poll begins: an explicit offset counts unless something behind it was acked."""
    if isinstance(start, Offset):
        return max(start.offset, position.acked + 1)
    return position.next_offset
