"""Retention on topics nobody touches: records that have outlived their time go, and their segments with them.

A read or a write judges its own topic's retention by itself, so nothing here decides what anybody sees. This pass only
gives space back: it walks all topics now and then, some per turn of the loop, and evicts what is due. The segments it
empties are removed as soon as the note of it is safe in the log.
"""

from collections.abc import Callable

from topics.broker.runtime import Runtime, Timer
from topics.broker.state import State
from topics.engine.partition import Partition
from topics.engine.topic import Topic

# Work of one turn. Looking at a topic without retention costs a tenth of a microsecond; an eviction can cost
# a millisecond, when a sealed segment has to be searched for the time.
TOPICS_PER_TURN = 1000
PARTITIONS_PER_TURN = 32


class Retention:
    """Walks the topics. `evict` is the broker's: true at once, noted in the log."""

    def __init__(
        self,
        state: State,
        runtime: Runtime,
        evict: Callable[[Topic, Partition], None],
        interval_ms: int,
        also: Callable[[], None],
    ) -> None:
        self.passes_total = 0
        self._state = state
        self._runtime = runtime
        self._evict = evict
        self._interval_ms = interval_ms
        # What else has a time to live: done once at the beginning of each pass.
        self._also = also
        self._timer: Timer | None = None
        # Of the pass that is under way: the topics it has still to look at, the next one last.
        self._left: list[int] = []

    def start(self) -> None:
        """The first pass begins after the interval; an interval of 0 means none."""
        if self._interval_ms:
            self._timer = self._runtime.call_later(self._interval_ms, self._begin)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._left = []

    def _begin(self) -> None:
        self._also()
        self._left = list(self._state.by_id)
        self._turn()

    def _turn(self) -> None:
        partitions = 0
        for _ in range(TOPICS_PER_TURN):
            if not self._left or partitions >= PARTITIONS_PER_TURN:
                break
            topic = self._state.by_id.get(self._left.pop())
            if topic is None:
                continue
            config = topic.config
            if config.ttl_ms or config.cap_records or config.cap_bytes:
                for partition in topic.partitions:
                    if partition.count:
                        self._evict(topic, partition)
                        partitions += 1
        if self._left:
            self._timer = self._runtime.call_later(0, self._turn)
        else:
            self.passes_total += 1
            self._timer = self._runtime.call_later(self._interval_ms, self._begin)
