"""POST /v0/heads: the last seqs of the partitions of many topics; waits, if wanted, until one of them changes.

    {"topics": {"orders": {"0": 12, "1": 40}}, "wait_ms": 500}    what the reader knows
    {"topics": {"orders": {"epoch": 7, "heads": {"0": 12, "1": 41}}}}

A reader that has caught up with many partitions waits for all of them with one request. A topic or partition that does not
exist is null in the response, which is then sent at once.

    {"topics": {"orders": {}}, "describe": true}
    {"topics": {"orders": {"epoch": 7, "type": "log", "heads": {"0": 12, "1": 41}, "earliest": {"0": 1, "1": 30}}}}

With `describe` the response has the type of each topic, and the first and last seqs of all its partitions.
"""

from functools import partial
from typing import Any

from topics.api.topics import HeadsBody
from topics.broker.broker import Broker, Topic
from topics.broker.long_poll import LongPoll
from topics.model.errors import InvalidRequest
from topics.server.http import Request
from topics.server.limits import wait_ms
from topics.server.operations import Call, handles
from topics.server.responses import send, send_error

# Describing one takes some microseconds for each of its partitions.
MAX_DESCRIBED_TOPICS = 500

Known = dict[str, dict[int, int]]


@handles("post_heads")
def post_heads(call: Call[HeadsBody, None]) -> None:
    broker, request, body = call.broker, call.request, call.body
    if body.describe:
        _describe(broker, request, body)
        return
    waits_ms = wait_ms(body.wait_ms, broker.limits)
    if waits_ms and not any([_moved(broker, name, known) for name, known in body.topics.items()]):
        _wait(broker, request, body.topics, waits_ms)
    else:
        _send(broker, request, body.topics)


def _wait(broker: Broker, request: Request, known: Known, waits_ms: int) -> None:
    """Answer when one of the topics has moved, or when the time is over."""
    poll = LongPoll(broker, lambda: _send(broker, request, known), partial(send_error, request))

    def look(topic: Topic) -> None:
        # A topic that was created again is not watched, so its first change would be missed.
        if broker.state.topics.get(topic.name) is not topic or _moved(broker, topic.name, known[topic.name]):
            poll.finish()

    for name in known:
        # One callback for each topic: a change of one topic compares only its heads.
        topic = broker.topic(name)
        poll.watch(topic, partial(look, topic))
    poll.wait(waits_ms)
    request.on_disconnect(poll.end)


def _moved(broker: Broker, name: str, known: dict[int, int]) -> bool:
    """Whether a head differs from the one the client sent."""
    topic = broker.state.topics.get(name)
    if topic is None:
        return True
    partitions = topic.partitions
    return any(
        [number >= len(partitions) or partitions[number].head_seq != head for number, head in known.items()],
    )


def _send(broker: Broker, request: Request, asked: Known) -> None:
    send(request, 200, {"topics": {name: _heads(broker, name, known) for name, known in asked.items()}})


def _describe(broker: Broker, request: Request, body: HeadsBody) -> None:
    if body.wait_ms:
        raise InvalidRequest("describe answers at once: leave out wait_ms")
    if len(body.topics) > MAX_DESCRIBED_TOPICS:
        raise InvalidRequest(
            f"{len(body.topics)} topics with describe; at most {MAX_DESCRIBED_TOPICS}",
            detail={"max": MAX_DESCRIBED_TOPICS},
        )
    send(request, 200, {"topics": {name: _description(broker, name) for name in body.topics}})


def _description(broker: Broker, name: str) -> dict[str, Any] | None:
    topic = broker.state.topics.get(name)
    if topic is None:
        return None
    for partition in topic.partitions:
        broker.evict(topic, partition)
    return {
        "epoch": topic.epoch,
        "type": topic.config.type,
        "heads": {str(partition.number): partition.head_seq for partition in topic.partitions},
        "earliest": {str(partition.number): partition.earliest_seq for partition in topic.partitions},
    }


def _heads(broker: Broker, name: str, known: dict[int, int]) -> dict[str, Any] | None:
    topic = broker.state.topics.get(name)
    if topic is None:
        return None
    partitions = topic.partitions
    heads = {str(number): partitions[number].head_seq if number < len(partitions) else None for number in known}
    return {"epoch": topic.epoch, "heads": heads}
