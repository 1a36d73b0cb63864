"""Subscriptions as clients write them: topics with where to begin, and what to get of each record.

The same fields make a watch session and a `subscribe` over WebSocket.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from topics.broker.broker import Broker, Topic
from topics.broker.feed import Feed, Subscription
from topics.broker.reading import View
from topics.model.batch import node_text
from topics.model.config import U64, check_u64
from topics.model.errors import InvalidRequest
from topics.model.limits import Limits
from topics.model.names import check_topic_name
from topics.server.access import Caller


class Start(Struct):
    """Where to begin in one topic."""

    from_seq: U64 = 0
    tail: bool = False
    # Additive: another partition than the first; which topic of this name `from_seq` is about (see diff).
    partition: Annotated[int, Meta(ge=0, le=2**31)] = 0
    epoch: U64 | None = None


class Wishes(Struct):
    """What a reader wants of every topic it names."""

    node: str | list[str] | None = None
    limit: U64 = 0
    max_batch_bytes: U64 = 256 << 10
    include_meta: bool = True
    include_tags: bool = False
    include_data: bool = True
    consistency: Literal["eventual", "strong"] = "eventual"


def subscription_of(wishes: Wishes, limits: Limits) -> Subscription:
    node = wishes.node
    nodes = [node] if isinstance(node, str) else node or []
    view = View(
        tags=wishes.include_tags,
        metas=wishes.include_meta,
        data=wishes.include_data,
        without_nodes=frozenset([node_text(each) for each in nodes]),
    )
    limit = min(wishes.limit or limits.default_limit, limits.max_limit)
    budget = min(wishes.max_batch_bytes or limits.answer_bytes, limits.answer_bytes_max)
    return Subscription(view, limit, budget, wishes.consistency == "eventual")


def find_topics(broker: Broker, caller: Caller, starts: dict[str, Start], *, lenient: bool) -> dict[str, Topic]:
    """The named topics. `lenient`: without those that do not exist.

    Raises InvalidRequest for a bad name or number, Forbidden for a name the caller may not touch, NotFound.
    """
    most = broker.limits.max_watch_topics
    if not starts:
        raise InvalidRequest("topics must name at least one topic")
    if len(starts) > most:
        raise InvalidRequest(f"{len(starts)} topics in one watch; at most {most}", detail={"max": most})
    for name, start in starts.items():
        check_topic_name(name)
        check_u64("from_seq", start.from_seq)
    for name in starts:
        caller.check_topic(name)
    if lenient:
        starts = {name: start for name, start in starts.items() if name in broker.state.topics}
    topics = {name: broker.topic(name) for name in starts}
    for name, start in starts.items():
        broker.partition(topics[name], start.partition)
    return topics


def subscribe(
    broker: Broker, feed: Feed, topics: dict[str, Topic], starts: dict[str, Start], subscription: Subscription
) -> dict[str, Any]:
    """Add the topics to the feed; answers with where each begins and what it holds now. `tail` begins at its head."""
    begun: dict[str, Any] = {}
    for name, topic in topics.items():
        start = starts[name]
        partition = broker.partition(topic, start.partition)
        broker.evict(topic, partition)
        broker.touch(topic)
        from_seq = partition.head_seq if start.tail else start.from_seq
        place = feed.add(topic, from_seq, subscription, start.partition)
        place.recreated = start.epoch is not None and start.epoch != topic.epoch and not start.tail
        begun[name] = {
            "from_seq": from_seq,
            "head_seq": partition.head_seq,
            "earliest_seq": partition.earliest_seq,
        }
    return begun
