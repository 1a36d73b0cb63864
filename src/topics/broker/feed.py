"""Feeds: what a live reader of several topics is told next.

A feed holds nothing but places: for each topic, up to where its reader has been told. Whenever the reader can take
something, `next` makes the next frame from what the logs hold at that moment. So a reader that is slow costs no
memory, gets what it missed in few large frames, and is told by a tombstone what it can no longer get.

    behind     records after the place -> Records, up to the subscription's limit and budget
    fallen off the log begins behind the place -> Lost, and the place moves to its end
    drained    -> CaughtUp, once, and again each time the reader has been behind
    gone       the topic was deleted while watched -> Gone, once; that topic is over, also for a namesake made later
    broken     the log cannot be read there -> Broken, once; no more of that topic until the feed is opened again

A feed is open while somebody listens and keeps its places when closed. Opened again it goes on from there; a topic that
was deleted and made again meanwhile goes on with the new one, after a tombstone `recreated`.

Both ends of a topic are turns: what a cursor means is different before and after. Turns are counted, so that a reader that
comes back and names the count it has seen can be told again what it missed.

Readers at the same place with the same wishes get the same Records object, so that whatever is derived from it (its
bytes on the wire) is made once for all of them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from topics.engine.cache import Cache
from topics.engine.partition import Partition, Tombstone
from topics.engine.render import USUAL, View
from topics.engine.topic import Topic
from topics.model.errors import CorruptStorage, TopicsError

if TYPE_CHECKING:
    from topics.broker.broker import Broker

__all__ = ["Broken", "CaughtUp", "Feed", "Frame", "Gone", "Lost", "Place", "Records", "SharedFrames", "Subscription"]

# Whatever changes what a reader at a cursor gets changes one of these: the head, how much of that is synced, the number of
# live records, the floor below which they were lost, whether nodes are filtered; and the cursor.
State = tuple[int, int, int, int, bool, int]


class Subscription(Struct, frozen=True):
    """How a topic is read: which records, which of their parts, and how much at a time."""

    view: View = USUAL
    limit: int = 256
    budget: int = 256 << 10
    # Whether records are told as soon as the log has them, though a power cut may still take those of an fsync topic.
    eager: bool = True


class Frame:
    """Something to tell. `texts` keeps what was made of it, for the next reader that is told the same."""

    __slots__ = ("head_seq", "texts", "topic")

    def __init__(self, topic: Topic, head_seq: int) -> None:
        self.topic = topic
        self.head_seq = head_seq
        self.texts: dict[object, bytes] = {}


class Records(Frame):
    """Records from_seq + 1 .. to_seq, without those that are deleted or left out by the view; rendered, comma between."""

    __slots__ = ("from_seq", "records", "to_seq")

    def __init__(self, topic: Topic, head_seq: int, from_seq: int, to_seq: int, records: bytes) -> None:
        super().__init__(topic, head_seq)
        self.from_seq = from_seq
        self.to_seq = to_seq
        self.records = records


class Lost(Frame):
    """Records this reader can no longer get."""

    __slots__ = ("tombstone",)

    def __init__(self, topic: Topic, tombstone: Tombstone) -> None:
        super().__init__(topic, tombstone.head_seq)
        self.tombstone = tombstone


class CaughtUp(Frame):
    """There is nothing behind this; what comes next is new."""

    __slots__ = ()


class Gone(Frame):
    """The topic was deleted."""

    __slots__ = ()


class Broken(Frame):
    """What comes next in the topic cannot be read."""

    __slots__ = ("error",)

    def __init__(self, topic: Topic, head_seq: int, error: TopicsError) -> None:
        super().__init__(topic, head_seq)
        self.error = error


class SharedFrames:
    """Frames that other readers are about to be told as well.

    The last one of each partition is found by comparing a few numbers: nearly always it is the one, because watchers of a
    topic are told one after the other. Others are found by hash.
    """

    def __init__(self, most_bytes: int) -> None:
        self._last: dict[int, dict[int, tuple[State, Subscription, Records]]] = {}
        self._all = Cache(most_bytes)

    def find(self, topic_id: int, partition: int, state: State, subscription: Subscription) -> Records | None:
        of_topic = self._last.get(topic_id)
        if of_topic is None:
            return None
        last = of_topic.get(partition)
        if last is not None and last[0] == state and last[1] == subscription:
            return last[2]
        return self._all.get((topic_id, partition, state, subscription))

    def keep(self, topic_id: int, partition: int, state: State, subscription: Subscription, frame: Records) -> None:
        self._last.setdefault(topic_id, {})[partition] = (state, subscription, frame)
        # Its bytes on the wire are kept with it, once for each kind of wire.
        self._all.put((topic_id, partition, state, subscription), frame, len(frame.records) * 3 + 500)

    def forget(self, topic_id: int) -> None:
        """Nobody watches the topic any more."""
        self._last.pop(topic_id, None)


class Place:
    """Up to where one reader has been told about one topic."""

    __slots__ = ("_feed", "cursor", "fresh", "gone", "late", "live", "name", "over", "partition", "recreated", "subscription", "topic")  # fmt: skip

    def __init__(
        self, feed: "Feed", topic: Topic, partition: Partition, from_seq: int, subscription: Subscription
    ) -> None:
        self._feed = feed
        self.name = topic.name_bytes
        self.topic = topic
        self.partition = partition
        self.subscription = subscription
        self.cursor = from_seq
        # The cursor came from outside and nothing has been read with it yet.
        self.fresh = True
        # What is lost by now was lost because the reader was away or stuck.
        self.late = True
        self.live = False
        # The topic was deleted while watched; and this has been told.
        self.gone = False
        self.over = False
        # The topic was made again while nobody listened, and this is still to be told.
        self.recreated = False

    def woken(self) -> None:
        """The topic may have something new."""
        self._feed.woken(self)


class Feed:
    """The places of one reader, in the order they were added."""

    def __init__(self, broker: "Broker") -> None:
        self.places: dict[str, Place] = {}
        # How many turns were told, and the last of them: the place, and its cursor before if the topic is another one now.
        self.turns_told = 0
        self._turns: list[tuple[Place, int | None]] = []
        self._broker = broker
        self._on_news: Callable[[], None] | None = None
        # Places that may have something to tell; the one that told last stands at the end.
        self._waiting: dict[Place, None] = {}

    @property
    def is_open(self) -> bool:
        return self._on_news is not None

    def add(self, topic: Topic, from_seq: int, subscription: Subscription, partition: int = 0) -> Place:
        """Read this topic too, after `from_seq`. Instead of before, when it is in the feed already."""
        if topic.name in self.places:
            self.remove(topic.name)
        place = Place(self, topic, self._broker.partition(topic, partition), from_seq, subscription)
        self.places[topic.name] = place
        if self._on_news is not None:
            self._broker.watch(topic, place.woken)
            self._waiting[place] = None
        return place

    def remove(self, name: str) -> bool:
        """No more about this topic. False when it is not in the feed."""
        place = self.places.pop(name, None)
        if place is None:
            return False
        self._broker.unwatch(place.topic, place.woken)
        self._waiting.pop(place, None)
        # Those who are being told may include it: whoever calls it now is too late.
        place.over = True
        return True

    def open(self, on_news: Callable[[], None]) -> None:
        """Begin, or go on where it was closed; `on_news` is called when there may be something to tell again."""
        self._on_news = on_news
        topics = self._broker.state.topics
        for name, place in self.places.items():
            if place.over:
                continue
            place.late = True
            place.live = False
            current = topics.get(name)
            if not place.gone and current is not None and current is not place.topic:
                place.topic = current
                place.partition = current.partitions[min(place.partition.number, len(current.partitions) - 1)]
                place.recreated = True
            self._broker.watch(place.topic, place.woken)
            self._waiting[place] = None

    def close(self) -> None:
        """Nobody listens any more; the places stay."""
        if self._on_news is not None:
            self._on_news = None
            self._waiting.clear()
            for place in self.places.values():
                self._broker.unwatch(place.topic, place.woken)

    def woken(self, place: Place) -> None:
        if self._on_news is not None and not place.over:
            self._waiting[place] = None
            self._on_news()

    def stalled(self) -> None:
        """The reader took nothing for so long that what was lost meanwhile is told as its own lateness."""
        for place in self.places.values():
            place.late = True

    def rewind(self, cursors: dict[str, int], turns_told: int) -> None:
        """Go back to where the reader says it is, for all topics at once. Only while closed.

        Never forward: it may name records it was not sent. Turns beyond `turns_told` are told again.
        """
        missed = self.turns_told - turns_told
        if missed < 0:
            return
        if missed:
            for place, cursor in reversed(self._turns[-missed:]):
                place.over = False
                if cursor is not None:
                    place.cursor = cursor
                    place.recreated = True
            self.turns_told = turns_told
        self._turns = []
        for name, cursor in cursors.items():
            found = self.places.get(name)
            if found is not None and cursor < found.cursor:
                found.cursor = cursor

    def trust(self) -> None:
        """The reader has seen all it was sent, as far as it says. Only while closed."""
        self._turns = []

    def next(self) -> Frame | None:
        """The next thing to tell, and the places moved as if it were told; None when there is nothing now.

        Topics take turns, one frame each. One that is damaged on disk is left out until it has something new.
        """
        waiting = self._waiting
        while waiting:
            place = next(iter(waiting))
            del waiting[place]
            frame = self._tell(place)
            if frame is not None:
                # A live reader that was told all there is has nothing more: the usual case, known without another look.
                if not (place.over or (place.live and type(frame) is Records) or type(frame) is Broken):
                    waiting[place] = None
                return frame
        return None

    def _tell(self, place: Place) -> Frame | None:
        broker = self._broker
        topic = place.topic
        if place.gone or broker.state.by_id.get(topic.id) is not topic:
            place.gone = place.over = True
            broker.unwatch(topic, place.woken)
            self._turn(place, None)
            # Also for the next id: the place of a topic that is over is its end.
            place.cursor = place.partition.head_seq
            return Gone(topic, place.partition.head_seq)
        partition = place.partition
        config = topic.config
        if config.ttl_ms:
            broker.evict(topic, partition)
        while True:
            head = partition.written_seq if place.subscription.eager else partition.head_seq
            cursor = place.cursor
            # A cursor beyond the head that did not come from outside read what was written and then not synced.
            at_head = cursor == head or (cursor > head and not place.fresh)
            if at_head and not place.recreated:
                break
            try:
                frame = self._read(place, topic, partition, head)
            except CorruptStorage as error:
                # Whoever is told of the news must not suffer for one topic, nor those who are told after him.
                broker.keeper.damaged(error, "reading records for a live reader")
                broker.unwatch(topic, place.woken)
                return Broken(topic, head, error)
            place.fresh = False
            if frame is not None:
                return frame
        place.fresh = place.late = False
        if not place.live:
            place.live = True
            return CaughtUp(topic, head)
        return None

    def _read(self, place: Place, topic: Topic, partition: Partition, head: int) -> Frame | None:
        """One step towards the head; None when there was nothing on it that this reader wants."""
        cursor = place.cursor
        subscription = place.subscription
        frames = self._broker.frames
        state = (
            head,
            partition.head_seq,
            partition.count,
            partition.evict_floor,
            topic.config.dedupe_node,
            cursor,
        )
        frame = None if place.recreated else frames.find(topic.id, partition.number, state, subscription)
        if frame is None:
            view = subscription.view
            if view.without_nodes and not topic.config.dedupe_node:
                view = msgspec.structs.replace(view, without_nodes=frozenset())
            if partition.head_seq <= cursor < head and not place.recreated:
                found = partition.read_unsynced(cursor, subscription.limit, subscription.budget, view)
            else:
                found = partition.read(cursor, subscription.limit, subscription.budget, view, recreated=place.recreated)
            tombstone = found.tombstone
            if tombstone is not None:
                if place.late and tombstone.reason != "recreated" and cursor + 1 < partition.evict_floor:
                    tombstone = msgspec.structs.replace(tombstone, reason="from_seq_too_old")
                if place.recreated:
                    self._turn(place, cursor)
                place.recreated = place.live = False
                place.cursor = tombstone.gap_to
                return Lost(topic, tombstone)
            if not found.count:
                place.cursor = found.next_from_seq
                return None
            frame = Records(topic, head, cursor, found.next_from_seq, found.records)
            frames.keep(topic.id, partition.number, state, subscription, frame)
            self._broker.touch(topic)
        place.late = False
        place.cursor = frame.to_seq
        if frame.to_seq < head:
            place.live = False
        return frame

    def _turn(self, place: Place, cursor: int | None) -> None:
        self.turns_told += 1
        self._turns.append((place, cursor))
