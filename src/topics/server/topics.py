"""/v0/topics and /v0/topics/:topic — create, look at, list and delete topics."""

from itertools import chain
from typing import Any

import msgspec

from topics.broker.broker import Broker, Configured, Topic, TopicGone
from topics.model.config import ConfigChange
from topics.model.errors import TopicsError
from topics.model.names import check_topic_name
from topics.server.access import caller_of
from topics.server.aliases import reached
from topics.server.answers import send, send_error
from topics.server.bodies import Query, decode, list_cursor, parse_list_cursor, require_json
from topics.server.http import Request

PAGE_SIZE = 100
PAGE_SIZE_MOST = 1000

_decoder = msgspec.json.Decoder(ConfigChange)


def put_topic(broker: Broker, request: Request, name: str) -> None:
    check_topic_name(name)
    change = ConfigChange()
    # A PUT without any body asks for a topic with defaults.
    if request.body or request.header(b"content-type") is not None:
        require_json(request)
        change = decode(request.body, _decoder)
    if isinstance(change.dead_letter, str):
        caller_of(request).check_topic(change.dead_letter)

    def reply(outcome: Configured | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {"topic": name, "created": outcome.created, "config": outcome.topic.config}
        send(request, 201 if outcome.created else 200, fields)

    broker.configure(name, change, reply)


def get_topic(broker: Broker, request: Request, name: str) -> None:
    check_topic_name(name)
    touch = Query(request.query).flag("touch", True)
    topic = broker.topic(reached(broker, request, name))
    if touch:
        broker.touch(topic)
    send(request, 200, topic_state(broker, topic))


def list_topics(broker: Broker, request: Request, _name: str) -> None:
    query = Query(request.query)
    after = parse_list_cursor(query.text("cursor"))
    page_size = min(query.number("page_size", PAGE_SIZE, low=1), PAGE_SIZE_MOST)
    touch = query.flag("touch", False)
    page: list[dict[str, Any]] = []
    more = False
    caller = caller_of(request)
    prefixes = caller.prefixes_within(query.text("prefix"))
    for name in chain.from_iterable([broker.names(prefix, after) for prefix in prefixes]):
        if not caller.may_touch(name):
            continue
        if len(page) == page_size:
            more = True
            break
        topic = broker.topic(name)
        if touch:
            broker.touch(topic)
        page.append(_summary(broker, topic))
    fields: dict[str, Any] = {"topics": page}
    if more:
        fields["next_cursor"] = list_cursor(page[-1]["topic"])
    send(request, 200, fields)


def delete_topic(broker: Broker, request: Request, name: str) -> None:
    check_topic_name(name)
    if_empty = Query(request.query).flag("if_empty", False)

    def reply(outcome: TopicGone | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {"topic": name, "deleted": outcome.deleted, "routers_removed": outcome.routers_removed}
        send(request, 200, fields)

    broker.delete_topic(name, if_empty=if_empty, reply=reply)


def topic_state(broker: Broker, topic: Topic) -> dict[str, Any]:
    for partition in topic.partitions:
        broker.evict(topic, partition)
    first = topic.partitions[0]
    fields: dict[str, Any] = {
        "topic": topic.name,
        "type": topic.config.type,
        "head_seq": first.head_seq,
        "earliest_seq": first.earliest_seq,
        "next_seq": first.head_seq + 1,
        "count": topic.count,
        "bytes": topic.bytes,
        "epoch": topic.epoch,
        "config": topic.config,
        "effective_priority": topic.effective_priority(broker.runtime.now_ms()),
        "last_write_ts": topic.last_write_ts,
        "last_read_ts": topic.last_read_ts,
    }
    if topic.config.type == "queue":
        fields["queue"] = broker.queues.counters(topic)
    if len(topic.partitions) > 1:
        fields["partitions"] = [
            {
                "partition": partition.number,
                "head_seq": partition.head_seq,
                "earliest_seq": partition.earliest_seq,
                "count": partition.count,
                "bytes": partition.bytes,
            }
            for partition in topic.partitions
        ]
    return fields


def _summary(broker: Broker, topic: Topic) -> dict[str, Any]:
    for partition in topic.partitions:
        broker.evict(topic, partition)
    first = topic.partitions[0]
    return {
        "topic": topic.name,
        "head_seq": first.head_seq,
        "earliest_seq": first.earliest_seq,
        "count": topic.count,
        "bytes": topic.bytes,
        "durable": topic.config.durable,
        "effective_priority": topic.effective_priority(broker.runtime.now_ms()),
    }
