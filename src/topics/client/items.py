"""What reading and consuming yields, besides the values that calls answer."""

from typing import Any, Generic

from msgspec import Struct

from topics.client.values import D, Record, Tombstone


class WatchedRecord(Struct):
    """A record of a watched topic.

    Example:

        for item in client.watch("orders"):
            if isinstance(item, WatchedRecord):
                print(item.topic, item.record.data)
            if isinstance(item, CaughtUp):
                break
    """

    topic: str
    record: Record


class WatchedTombstone(Struct):
    """Records of a watched topic are lost.

    Example:

        for item in client.watch("orders"):
            if isinstance(item, WatchedTombstone):
                print(item.topic, item.tombstone.gap_from, item.tombstone.gap_to)
            if isinstance(item, CaughtUp):
                break
    """

    topic: str
    tombstone: Tombstone


class CaughtUp(Struct):
    """Everything that a watched topic held has been delivered; what follows is live.

    Example:

        for item in client.watch("orders"):
            if isinstance(item, CaughtUp):
                print(item.topic, "is read up to", item.head_seq)
                break
    """

    topic: str
    head_seq: int


class TopicDeleted(Struct):
    """A watched topic was deleted; nothing more comes from it.

    Example:

        for item in client.watch(["orders", "audit"]):
            if isinstance(item, CaughtUp) and item.topic == "audit":
                client.drop("audit")
            if isinstance(item, TopicDeleted):
                print(item.topic)
                break
    """

    topic: str
    head_seq: int


Watched = WatchedRecord | WatchedTombstone | CaughtUp | TopicDeleted


class TopicDescription(Struct):
    """The instance and type of a topic, and where each of its partitions begins and ends.

    Example:

        described = client.describe(["orders"])["orders"]
        if described is not None:
            print(described.type, described.heads[0])
    """

    epoch: int
    type: str
    heads: dict[int, int]
    earliest: dict[int, int]


class Descriptions(Struct):
    """By topic; None for one that does not exist."""

    topics: dict[str, TopicDescription | None]


class Message(Struct, Generic[D]):
    """A message of a consumer group. `data` is its payload, decoded.

    id: The same for every delivery of the message; sorts by time.
    table: Table of a routed change, with `op` and `mode`.

    Example:

        with client.consumer("orders", group="audit", follow=False) as consumer:
            for message in consumer:
                print(message.partition, message.offset, message.data)
    """

    topic: str
    partition: int
    offset: int
    ts: int
    data: D
    id: str | None = None
    table: str | None = None
    op: str | None = None
    mode: str | None = None


class LostMessages(Tombstone, kw_only=True):
    """Messages gap_from..gap_to of a partition are lost: the group has not seen them and never will.

    Example:

        with client.consumer("orders", group="audit", follow=False) as consumer:
            for message in consumer:
                if isinstance(message, LostMessages):
                    print("lost", message.gap_from, "to", message.gap_to)
    """

    topic: str
    partition: int

    @property
    def offset(self) -> int:
        """Acknowledging it acknowledges everything up to the end of the gap."""
        return self.gap_to

    @property
    def data(self) -> Any:
        """Nothing."""
        return None
