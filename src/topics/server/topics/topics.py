"""/v0/topics and /v0/topics/:topic — create, look at, list and delete topics."""

from itertools import chain
from typing import Any

from topics.api.topics import DropQuery, PutQuery, TopicQuery, TopicsQuery
from topics.broker.broker import Broker, Configured, Topic, TopicGone
from topics.model.config import ConfigChange
from topics.server.operations import Call, handles
from topics.server.paging import first_after, page_of
from topics.server.responses import reply_to, send


@handles("put_topic")
def put_topic(call: Call[ConfigChange, PutQuery]) -> None:
    request, name = call.request, call.name
    if call.query.dry_run:
        config, records, size = call.broker.preview_configure(name, call.body)
        created = name not in call.broker.state.topics
        preview = {"dry_run": True, "evicts_records": records, "evicts_bytes": size}
        send(request, 200, {"topic": name, "created": created, "config": config, **preview})
        return

    @reply_to(request)
    def reply(outcome: Configured) -> None:
        fields = {"topic": name, "created": outcome.created, "config": outcome.topic.config}
        send(request, 201 if outcome.created else 200, fields)

    call.broker.configure(name, call.body, reply)


@handles("get_topic")
def get_topic(call: Call[None, TopicQuery]) -> None:
    topic = call.broker.topic(call.name)
    if call.query.touch:
        call.broker.touch(topic)
    send(call.request, 200, topic_state(call.broker, topic))


@handles("list_topics")
def list_topics(call: Call[None, TopicsQuery]) -> None:
    broker, caller, query = call.broker, call.caller, call.query
    after = first_after(query)
    prefixes = caller.prefixes_within(query.prefix)
    names = chain.from_iterable([broker.names(prefix, after) for prefix in prefixes])
    page, next_cursor = page_of(filter(caller.may_touch, names), query, lambda name: name)
    topics = [broker.topic(name) for name in page]
    if query.touch:
        for topic in topics:
            broker.touch(topic)
    send(call.request, 200, {"topics": [_summary(broker, topic) for topic in topics], **next_cursor})


@handles("delete_topic")
def delete_topic(call: Call[None, DropQuery]) -> None:
    request, name = call.request, call.name

    @reply_to(request)
    def reply(outcome: TopicGone) -> None:
        fields = {"topic": name, "deleted": outcome.deleted, "routers_removed": outcome.routers_removed}
        send(request, 200, fields)

    call.broker.delete_topic(name, if_empty=call.query.if_empty, may_touch=call.caller.may_touch, reply=reply)


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
        fields["queue"] = broker.queues.stats(topic)
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
