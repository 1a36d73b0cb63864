"""Channels that are open now: who opened each, and what it reads. For operators; nothing is decided with it."""

from collections.abc import Callable, Iterable
from itertools import count
from time import time
from typing import Any

from msgspec import Struct, field

from topics.broker.topics.feed import Place
from topics.server.auth.authorization import Caller
from topics.server.http import Channel


class TopicPlace(Struct, frozen=True):
    """How far a reader is in one topic. A work stream has no cursor."""

    topic: str
    partition: int
    cursor: int | None
    lag: int


class OpenChannel(Struct, eq=False):
    """One connection that stays open."""

    id: str
    channel: Channel
    caller: Caller
    peer: str | None
    since_ms: int
    kind: str = "stream"
    places: Callable[[], list[TopicPlace]] = list
    # Further fields of the response.
    more: Callable[[], dict[str, Any]] = field(default=dict)


class OpenChannels:
    """All of them, in the order they were opened."""

    def __init__(self) -> None:
        self.by_id: dict[str, OpenChannel] = {}
        self._ids: dict[Channel, str] = {}
        self._numbers = count(1)

    def add(self, channel: Channel, caller: Caller, peer: Any) -> None:
        opened = OpenChannel(f"c{next(self._numbers)}", channel, caller, _address(peer), int(time() * 1000))
        self.by_id[opened.id] = opened
        self._ids[channel] = opened.id

    def remove(self, channel: Channel) -> None:
        self.by_id.pop(self._ids.pop(channel, ""), None)

    def describe(
        self,
        channel: Channel,
        kind: str,
        places: Callable[[], list[TopicPlace]],
        more: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """Say what the channel is for. Has no effect when it has ended already."""
        opened = self.by_id.get(self._ids.get(channel, ""))
        if opened is not None:
            opened.kind, opened.places, opened.more = kind, places, more


def feed_places(places: Iterable[Place]) -> list[TopicPlace]:
    return [
        TopicPlace(
            place.topic.name, place.partition.number, place.cursor, max(0, place.partition.head_seq - place.cursor)
        )
        for place in places
    ]


def _address(peer: Any) -> str | None:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else None
