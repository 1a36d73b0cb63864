"""Subscriptions as clients write them: topics with where to begin, and what to get of each record.

The same fields make a watch session and a `subscribe` over WebSocket.
"""

from typing import Any

from topics.api.live import Start
from topics.api.live import Subscription as SubscriptionOptions
from topics.broker.broker import Broker, Topic
from topics.broker.topics.feed import Feed
from topics.broker.topics.read import View
from topics.engine.topics.live_frames import Subscription
from topics.model.config import check_u64
from topics.model.errors import InvalidRequest
from topics.model.limits import Limits
from topics.server.decoding import excluded_nodes
from topics.server.limits import read_bytes, read_records


def subscription_of(options: SubscriptionOptions, limits: Limits) -> Subscription:
    view = View(
        tags=options.include_tags,
        metas=options.include_meta,
        data=options.include_data,
        without_nodes=excluded_nodes(options.node),
    )
    limit = read_records(options.limit, limits)
    budget = read_bytes(options.max_batch_bytes, limits)
    return Subscription(view, limit, budget, options.consistency == "eventual")


def find_topics(broker: Broker, starts: dict[str, Start], *, lenient: bool) -> dict[str, Topic]:
    """The named topics, which the caller may touch. `lenient`: without those that do not exist.

    Raises InvalidRequest for a number that is out of range or no topic at all, and NotFound.
    """
    if not starts:
        raise InvalidRequest("topics must name at least one topic")
    for start in starts.values():
        check_u64("from_seq", start.from_seq)
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
            # Additive: lets the client name this topic, and no later one of the same name, when it begins again.
            "epoch": topic.epoch,
        }
    return begun
