"""GET /api/groups: consumer groups with their members, partitions and lag."""

from typing import Any

from topics.api.groups import GroupsQuery
from topics.broker.broker import Broker, Topic
from topics.broker.groups.groups import end_sessions, group_lag
from topics.engine.groups.group import Group
from topics.model.errors import TopicsError
from topics.model.steps import Steps
from topics.server.auth.authorization import Caller
from topics.server.lag import total_lag
from topics.server.limits import at_most
from topics.server.operations import Call, handles
from topics.server.responses import send, send_error

MAX_GROUPS = 1000
TOPICS_PER_STEP = 500
GROUPS_PER_STEP = 20


@handles("list_groups")
def list_groups(call: Call[None, GroupsQuery]) -> None:
    broker, query = call.broker, call.query

    def done(found: list[tuple[int, Topic, Group]] | None, error: BaseException | None) -> None:
        if found is None:
            send_error(call.request, error if isinstance(error, TopicsError) else TopicsError("internal error"))
            return
        found.sort(key=lambda each: (-each[0], each[1].name, each[2].name))
        shown = found[: at_most(query.limit, MAX_GROUPS)]
        groups = [_fields(broker, topic, group) for _, topic, group in shown if group.positions]
        send(call.request, 200, {"total": len(found), "groups": groups})

    topic_name = None if query.topic is None else call.name
    broker.slices.run(_find(broker, call.caller, query, topic_name), done)


def _find(
    broker: Broker, caller: Caller, query: GroupsQuery, topic_name: str | None
) -> Steps[list[tuple[int, Topic, Group]]]:
    """The groups that match, each with its lag in records."""
    wanted = query.q.lower()
    found: list[tuple[int, Topic, Group]] = []
    topics = list(broker.state.topics.values()) if topic_name is None else [broker.topic(topic_name)]
    for index, topic in enumerate(topics):
        if index % TOPICS_PER_STEP == TOPICS_PER_STEP - 1:
            yield
        if not topic.groups or not caller.may_touch(topic.name):
            continue
        for group in list(topic.groups.values()):
            if query.group and group.name != query.group:
                continue
            if wanted and wanted not in topic.name.lower() and wanted not in group.name.lower():
                continue
            if not group.positions:
                continue
            found.append((total_lag(broker, topic, group).records, topic, group))
            if not len(found) % GROUPS_PER_STEP:
                yield
    return found


def _fields(broker: Broker, topic: Topic, group: Group) -> dict[str, Any]:
    end_sessions(broker, topic, group)
    now_ms = broker.runtime.now_ms()
    partitions: list[dict[str, Any]] = []
    for number, position in sorted(group.positions.items()):
        partition = topic.partitions[number]
        lag = group_lag(broker, partition, position)
        partitions.append(
            {
                "partition_id": number,
                "next_offset": position.next_offset,
                "last_offset": partition.head_seq,
                "lag_records": lag.records,
                "lag_seconds": lag.seconds,
                "consumer_id": group.owners.get(number),
            }
        )
    members = [
        {
            "consumer_id": member.consumer_id,
            "partitions": group.owned(member.consumer_id),
            "polling": member.open_polls > 0,
            "expires_in_ms": max(0, member.until_ms - now_ms),
        }
        for member in group.members.values()
    ]
    return {
        "topic": topic.name,
        "group_id": group.name,
        "lag_records": sum([each["lag_records"] for each in partitions]),
        "lag_seconds": max([each["lag_seconds"] for each in partitions]),
        "updated_ts": max([each.ts for each in group.positions.values()]),
        "members": members,
        "partitions": partitions,
    }
