"""Feeds: the live reads of one reader over several topics.

A feed holds only cursors, one for each topic. Whenever the reader can take something, `next` makes the next frame from what
the topics hold at that moment. So a slow reader costs no memory, gets what it missed in few large frames, and gets a
tombstone for what it can no longer get.

    records after the cursor             -> Records, up to the subscription's limit and budget
    records after the cursor are lost    -> GapFrame, and the cursor moves to the end of the gap
    the cursor reaches the head          -> CaughtUp, once, and again each time the reader has fallen behind
    the topic is deleted                 -> Gone, once; the feed ends for this topic, also if it is created again
    the records cannot be read           -> Broken, once; no more of this topic until the feed is opened again

A feed is open while its reader is connected and keeps its cursors when closed. When it is opened again it continues from there;
a topic that was deleted and created again meanwhile continues with the new instance, after a tombstone `recreated`.

Cursors of different instances of a topic cannot be compared. So changes of the instance are counted as generations: a reader
that reconnects names the generation it has seen, and gets again what it missed.

Readers with the same cursor and subscription get the same Records object, so its encodings are made once for all of them.
"""

from collections.abc import Callable

import msgspec

from topics.broker.core import Core
from topics.broker.topics.read import view_of
from topics.engine.partitions.partition import Partition
from topics.engine.partitions.reading import read_records, read_unsynced
from topics.engine.topics.live_frames import (
    Broken,
    CaughtUp,
    GapFrame,
    Gone,
    LiveFrame,
    Records,
    Subscription,
)
from topics.engine.topics.topic import Topic
from topics.model.errors import CorruptStorage


class Place:
    """The cursor of one reader in one topic."""

    __slots__ = ("_feed", "cursor", "fresh", "gone", "late", "live", "name", "over", "partition", "recreated", "scanning", "subscription", "topic")  # fmt: skip

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
        # Records lost by now were lost because the reader was disconnected or slow.
        self.late = True
        self.live = False
        # The topic was deleted while watched; and the reader got the frame for it, or the topic was removed from the feed.
        self.gone = False
        self.over = False
        # The topic was created again while the feed was closed, and the reader has not got the tombstone for it.
        self.recreated = False
        # Filtered records are being skipped, a step in each turn of the loop.
        self.scanning = False

    def woken(self) -> None:
        """The topic may have something new."""
        self._feed.woken(self)

    def scan_on(self) -> None:
        """Take the next step of a scan."""
        self.scanning = False
        self._feed.woken(self)


class Feed:
    """The cursors of one reader, in the order in which topics were added."""

    def __init__(self, core: Core) -> None:
        self.places: dict[str, Place] = {}
        # The number of generations that were delivered, and the last of them: the place, and its cursor in the earlier instance.
        self.generation = 0
        self._generations: list[tuple[Place, int | None]] = []
        self._core = core
        self._on_news: Callable[[], None] | None = None
        # Places that may have a frame. The one that had the last frame is at the end.
        self._waiting: dict[Place, None] = {}

    def add(self, topic: Topic, from_seq: int, subscription: Subscription, partition: int = 0) -> Place:
        """Read this topic too, after `from_seq`. Replaces the place of a topic that is in the feed already."""
        if topic.name in self.places:
            self.remove(topic.name)
        place = Place(self, topic, self._core.partition(topic, partition), from_seq, subscription)
        self.places[topic.name] = place
        if self._on_news is not None:
            self._core.watch(topic, place.woken)
            self._waiting[place] = None
        return place

    def remove(self, name: str) -> bool:
        """Remove this topic. Returns False when it is not in the feed."""
        place = self.places.pop(name, None)
        if place is None:
            return False
        self._core.unwatch(place.topic, place.woken)
        self._waiting.pop(place, None)
        # The watchers that are being called may include it: then it has no effect.
        place.over = True
        return True

    def open(self, on_news: Callable[[], None]) -> None:
        """Start, or continue where it was closed; `on_news` is called when there may be a frame again."""
        self._on_news = on_news
        topics = self._core.state.topics
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
            self._core.watch(place.topic, place.woken)
            self._waiting[place] = None

    def close(self) -> None:
        """The reader has disconnected; the cursors stay."""
        if self._on_news is not None:
            self._on_news = None
            self._waiting.clear()
            for place in self.places.values():
                self._core.unwatch(place.topic, place.woken)

    def woken(self, place: Place) -> None:
        if self._on_news is not None and not place.over:
            self._waiting[place] = None
            self._on_news()

    def stalled(self) -> None:
        """The reader was slow: what is lost by now is reported as `from_seq_too_old`."""
        for place in self.places.values():
            place.late = True

    def rewind(self, cursors: dict[str, int], generation: int) -> None:
        """Move the cursors of all topics back to those the reader has. Only while closed.

        Never forward: the reader may name records that it was not sent. Generations beyond `generation` are delivered again.
        """
        missed = self.generation - generation
        if missed < 0:
            return
        if missed:
            for place, cursor in reversed(self._generations[-missed:]):
                place.over = False
                if cursor is not None:
                    place.cursor = cursor
                    place.recreated = True
            self.generation = generation
        self._generations = []
        for name, cursor in cursors.items():
            found = self.places.get(name)
            if found is not None and cursor < found.cursor:
                found.cursor = cursor

    def trust(self) -> None:
        """The reader has got everything it was sent. Only while closed."""
        self._generations = []

    def next(self) -> LiveFrame | None:
        """Return the next frame and move its cursor; None when there is none now.

        Topics alternate, one frame each. One that is damaged on disk is left out until it has new records.
        """
        waiting = self._waiting
        while waiting:
            place = next(iter(waiting))
            del waiting[place]
            if place.scanning:
                # Its next step runs in a later turn.
                continue
            frame = self._next_frame(place)
            if frame is not None:
                # A live reader that got all records has no other frame: the usual case.
                if not (place.over or (place.live and type(frame) is Records) or type(frame) is Broken):
                    waiting[place] = None
                return frame
        return None

    def _next_frame(self, place: Place) -> LiveFrame | None:
        core = self._core
        topic = place.topic
        if place.gone or core.state.by_id.get(topic.id) is not topic:
            place.gone = place.over = True
            core.unwatch(topic, place.woken)
            self._add_generation(place, None)
            # The cursor of a deleted topic is its end.
            place.cursor = place.partition.head_seq
            return Gone(topic, place.partition.head_seq)
        partition = place.partition
        config = topic.config
        if config.ttl_ms:
            core.evict(topic, partition)
        while True:
            head = partition.written_seq if place.subscription.eager else partition.head_seq
            cursor = place.cursor
            # A cursor beyond the head that the reader did not send comes from unsynced records whose sync failed.
            at_head = cursor == head or (cursor > head and not place.fresh)
            if at_head and not place.recreated:
                break
            try:
                frame = self._read(place, topic, partition, head)
            except CorruptStorage as error:
                # The other topics of the feed continue.
                core.unwatch(topic, place.woken)
                return Broken(topic, head, error)
            place.fresh = False
            if frame is not None:
                return frame
            if place.scanning:
                core.slices.add(place.scan_on)
                return None
        place.fresh = place.late = False
        if not place.live:
            place.live = True
            return CaughtUp(topic, head)
        return None

    def _read(self, place: Place, topic: Topic, partition: Partition, head: int) -> LiveFrame | None:
        """Read one step; None when it had no record for this reader."""
        cursor = place.cursor
        subscription = place.subscription
        frames = self._core.frames
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
            view = view_of(topic, subscription.view)
            if partition.head_seq <= cursor < head and not place.recreated:
                found = read_unsynced(partition, cursor, subscription.limit, subscription.budget, view)
            else:
                found = read_records(
                    partition, cursor, subscription.limit, subscription.budget, view, recreated=place.recreated
                )
            tombstone = found.tombstone
            if tombstone is not None:
                if place.late and tombstone.reason != "recreated" and cursor + 1 < partition.evict_floor:
                    tombstone = msgspec.structs.replace(tombstone, reason="from_seq_too_old")
                if place.recreated:
                    self._add_generation(place, cursor)
                place.recreated = place.live = False
                place.cursor = tombstone.gap_to
                self._core.counts.count_read(0, True)
                return GapFrame(topic, tombstone)
            if not found.count:
                place.cursor = found.next_from_seq
                place.scanning = found.unfinished
                return None
            frame = Records(topic, head, cursor, found.next_from_seq, found.records, found.count)
            frames.keep(topic.id, partition.number, state, subscription, frame)
            self._core.touch(topic)
        place.late = False
        self._core.counts.count_read(frame.count, False)
        place.cursor = frame.to_seq
        if frame.to_seq < head:
            place.live = False
        return frame

    def _add_generation(self, place: Place, cursor: int | None) -> None:
        self.generation += 1
        self._generations.append((place, cursor))
