"""Retention of topics that are not in use: expired records are evicted, and their segments are removed.

Every read and write evicts the expired records of its own topic first, so this pass does not change what readers see. It only
frees space: from time to time it visits all topics, some per turn of the loop, and evicts what has expired. The segments that
become empty are removed when the eviction is durable in the log.
"""

from collections.abc import Callable

from topics.broker.state import State
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.runtime.interface import Runtime, Timer

# Work of one turn. Looking at a topic without retention costs a tenth of a microsecond; an eviction can cost
# a millisecond, when a sealed segment has to be searched for the time.
TOPICS_PER_TURN = 1000
PARTITIONS_PER_TURN = 32


class Retention:
    """Visits the topics. `evict` is `Core.evict`."""

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
        # Called once at the beginning of each pass, for other things that expire.
        self._also = also
        self._timer: Timer | None = None
        # The topics that the current pass has not visited yet, the next one last.
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
