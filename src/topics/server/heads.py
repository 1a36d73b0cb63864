"""POST /v0/heads — how far the partitions of many topics have come; waits, if wanted, until one has come further.

    {"topics": {"orders": {"0": 12, "1": 40}}, "wait_ms": 500}    what the asker knows
    {"topics": {"orders": {"epoch": 7, "heads": {"0": 12, "1": 41}}}}

A reader of many partitions that has caught up waits here with one request, whatever their number. A topic or partition
that does not exist (any more) is told as null, at once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from topics.broker.broker import Broker, Topic
from topics.broker.runtime import Timer
from topics.model.config import U64
from topics.model.errors import InvalidRequest
from topics.model.names import check_topic_name
from topics.server.access import caller_of
from topics.server.answers import send
from topics.server.bodies import decode, require_json
from topics.server.http import Request

# Watching one topic costs about a microsecond, and so does looking at one.
TOPICS_MOST = 10_000

Known = dict[str, dict[int, int]]


class HeadsBody(Struct):
    topics: dict[str, dict[U64, U64]]
    wait_ms: U64 = 0


_decoder = msgspec.json.Decoder(HeadsBody)


def post_heads(broker: Broker, request: Request, _name: str) -> None:
    require_json(request)
    body = decode(request.body, _decoder)
    if len(body.topics) > TOPICS_MOST:
        raise InvalidRequest(
            f"{len(body.topics)} topics in one look; at most {TOPICS_MOST}", detail={"max": TOPICS_MOST}
        )
    caller = caller_of(request)
    for name in body.topics:
        caller.check_topic(check_topic_name(name))
    wait_ms = min(body.wait_ms, broker.limits.max_wait_ms)
    if wait_ms and not any([_moved(broker, name, known) for name, known in body.topics.items()]):
        HeadsPoll(broker, request, body.topics, wait_ms)
    else:
        _send(broker, request, body.topics)


class HeadsPoll:
    """An asker whom nobody has anything new to tell yet."""

    __slots__ = ("_broker", "_known", "_over", "_request", "_timer", "_unwatch")

    def __init__(self, broker: Broker, request: Request, known: Known, wait_ms: int) -> None:
        self._broker = broker
        self._request = request
        self._known = known
        self._over = False
        # One callback for each topic: a wake of one is no reason to look at all of them.
        self._unwatch: list[Callable[[], None]] = []
        for name in known:
            topic = broker.topic(name)
            look = partial(self._look, topic)
            broker.watch(topic, look)
            self._unwatch.append(partial(broker.unwatch, topic, look))
        broker.polls.add(self)
        self._timer: Timer = broker.runtime.call_later(wait_ms, self.finish)
        request.on_disconnect(self._end)

    def finish(self) -> None:
        """Answer with what there is now."""
        if not self._over:
            self._end()
            _send(self._broker, self._request, self._known)

    def _look(self, topic: Topic) -> None:
        if self._over:
            return
        name = topic.name
        # One that is another by now has come as far perhaps, but nobody would tell us when it comes further.
        if self._broker.state.topics.get(name) is not topic or _moved(self._broker, name, self._known[name]):
            self.finish()

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch = []
        self._broker.polls.discard(self)


def _moved(broker: Broker, name: str, known: dict[int, int]) -> bool:
    """Whether there is more than is known, or less than there was."""
    topic = broker.state.topics.get(name)
    if topic is None:
        return True
    partitions = topic.partitions
    return any(
        [number >= len(partitions) or partitions[number].head_seq != head for number, head in known.items()],
    )


def _send(broker: Broker, request: Request, asked: Known) -> None:
    send(request, 200, {"topics": {name: _heads(broker, name, known) for name, known in asked.items()}})


def _heads(broker: Broker, name: str, known: dict[int, int]) -> dict[str, Any] | None:
    topic = broker.state.topics.get(name)
    if topic is None:
        return None
    partitions = topic.partitions
    heads = {str(number): partitions[number].head_seq if number < len(partitions) else None for number in known}
    return {"epoch": topic.epoch, "heads": heads}
