"""Live frames: what a live reader gets, and a cache of frames that several readers get."""

from msgspec import Struct

from topics.engine.cache import Cache
from topics.engine.partitions.reading import Tombstone
from topics.engine.partitions.render import USUAL, View
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError

# What a reader at a cursor gets depends on these: the head, the synced head, the number of live records, the eviction floor,
# whether nodes are filtered; and the cursor.
ReadState = tuple[int, int, int, int, bool, int]


class Subscription(Struct, frozen=True):
    """How a topic is read: which records, which of their parts, and how much at a time."""

    view: View = USUAL
    limit: int = 256
    budget: int = 256 << 10
    # Deliver records as soon as the log has them, although a power cut may still lose those of an fsync topic.
    eager: bool = True


class LiveFrame:
    """One message to a live reader. `texts` caches its encodings for the next reader that gets the same frame."""

    __slots__ = ("head_seq", "texts", "topic")

    def __init__(self, topic: Topic, head_seq: int) -> None:
        self.topic = topic
        self.head_seq = head_seq
        self.texts: dict[object, bytes] = {}


class Records(LiveFrame):
    """Records from_seq + 1 .. to_seq except deleted and filtered ones, rendered with commas between them."""

    __slots__ = ("count", "from_seq", "records", "to_seq")

    def __init__(self, topic: Topic, head_seq: int, from_seq: int, to_seq: int, records: bytes, count: int) -> None:
        super().__init__(topic, head_seq)
        self.count = count
        self.from_seq = from_seq
        self.to_seq = to_seq
        self.records = records


class GapFrame(LiveFrame):
    """A range of records that the reader can no longer get."""

    __slots__ = ("tombstone",)

    def __init__(self, topic: Topic, tombstone: Tombstone) -> None:
        super().__init__(topic, tombstone.head_seq)
        self.tombstone = tombstone


class CaughtUp(LiveFrame):
    """The reader has everything; later frames are new records."""

    __slots__ = ()


class Gone(LiveFrame):
    """The topic was deleted."""

    __slots__ = ()


class Broken(LiveFrame):
    """The next records of the topic cannot be read."""

    __slots__ = ("error",)

    def __init__(self, topic: Topic, head_seq: int, error: TopicsError) -> None:
        super().__init__(topic, head_seq)
        self.error = error


class SharedFrames:
    """Frames that several readers get.

    The last frame of each partition is compared first: it is nearly always the one, because the watchers of a topic are
    served one after the other. Others are found by hash.
    """

    def __init__(self, max_bytes: int) -> None:
        self._last: dict[int, dict[int, tuple[ReadState, Subscription, Records]]] = {}
        self._all = Cache(max_bytes)

    def find(self, topic_id: int, partition: int, state: ReadState, subscription: Subscription) -> Records | None:
        of_topic = self._last.get(topic_id)
        if of_topic is None:
            return None
        last = of_topic.get(partition)
        if last is not None and last[0] == state and last[1] == subscription:
            return last[2]
        return self._all.get((topic_id, partition, state, subscription))

    def keep(self, topic_id: int, partition: int, state: ReadState, subscription: Subscription, frame: Records) -> None:
        self._last.setdefault(topic_id, {})[partition] = (state, subscription, frame)
        # Its encodings are cached with it, one for each protocol.
        self._all.put((topic_id, partition, state, subscription), frame, len(frame.records) * 3 + 500)

    def forget(self, topic_id: int) -> None:
        """The topic has no watcher any more."""
        self._last.pop(topic_id, None)
