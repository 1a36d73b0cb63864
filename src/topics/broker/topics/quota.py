"""Quotas: how much a topic may hold (`cap_records`, `cap_bytes`) and how much all topics may hold (`max_total_bytes`).

Every write asks here before it reserves seqs: appends, commits of stages, router copies and dead letters. A topic with
`discard: "old"` takes every write: the records that exceed its caps, which may be records of the write itself, are evicted
when the write is applied. A topic with `discard: "reject"` refuses a write that does not fit as a whole.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct

from topics.broker.state import State
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig
from topics.model.errors import Throttled, TopicFull
from topics.model.limits import Limits
from topics.model.records.page import RecordTexts, record_sizes

# How often all topics are searched for expired records while `max_total_bytes` is reached.
SWEEP_INTERVAL_MS = 1000


class Growth(Struct):
    """Records that a write adds to a partition: `texts` holds them in order, `size` is their sum."""

    topic: Topic
    partition: Partition
    count: int
    size: int
    texts: Sequence[RecordTexts]


class Quotas:
    """The quotas of a server. `evict` applies the retention of a partition as of now."""

    def __init__(
        self, state: State, limits: Limits, now_ms: Callable[[], int], evict: Callable[[Topic, Partition], None]
    ) -> None:
        self._state = state
        self._max_total_bytes = limits.max_total_bytes
        self._now_ms = now_ms
        self._evict = evict
        self._swept_ms = 0

    def takes_all(self, config: TopicConfig) -> bool:
        """No write to the topic is ever refused, because it has no quota or evicts its oldest records."""
        return not self._max_total_bytes and not _rejects(config)

    def check(self, *writes: Growth) -> None:
        """Raise TopicFull or Throttled unless all writes fit. At most one write for each partition."""
        for write in writes:
            if self._fitting_caps(write) < write.count:
                raise _topic_full(write)
        if self._max_total_bytes:
            self._check_total(writes)

    def fitting(self, write: Growth) -> int:
        """How many of the records fit now, counted from the first one."""
        if self._max_total_bytes:
            try:
                self._check_total([write])
            except Throttled:
                return 0
        return self._fitting_caps(write)

    def _fitting_caps(self, write: Growth) -> int:
        config, partition, count = write.topic.config, write.partition, write.count
        if not _rejects(config):
            return count
        if config.ttl_ms:
            self._evict(write.topic, partition)
        fits = count
        if config.cap_records:
            fits = min(fits, config.cap_records - partition.count - partition.pending_records)
        if config.cap_bytes:
            left = config.cap_bytes - partition.bytes - partition.pending_bytes
            if write.size > left:
                taken = 0
                for record_size in [size for texts in write.texts for size in record_sizes(texts)]:
                    left -= record_size
                    if left < 0:
                        break
                    taken += 1
                fits = min(fits, taken)
        return max(fits, 0)

    def _check_total(self, writes: Sequence[Growth]) -> None:
        """Raise Throttled when the live records of all topics would exceed `max_total_bytes` after these writes.

        What the writes evict, from their topics or of their own records, does not count.
        """
        totals, max_bytes = self._state.totals, self._max_total_bytes
        growth = totals.pending_bytes + sum([write.size for write in writes])
        if totals.bytes + growth > max_bytes:
            for write in writes:
                self._evict(write.topic, write.partition)
            self._evict_expired()
        if totals.bytes + growth > max_bytes:
            growth -= sum([_bytes_evicted_by(write) for write in writes])
        if totals.bytes + growth > max_bytes:
            raise Throttled(
                f"all topics together may hold {max_bytes} bytes", detail={"limit": "max_total_bytes", "max": max_bytes}
            )

    def _evict_expired(self) -> None:
        """Evict expired records of all topics. At most once a second, because it looks at every topic."""
        now_ms = self._now_ms()
        if abs(now_ms - self._swept_ms) < SWEEP_INTERVAL_MS:
            return
        self._swept_ms = now_ms
        for topic, partition in self._state.all_partitions():
            if topic.config.ttl_ms:
                self._evict(topic, partition)


def _rejects(config: TopicConfig) -> bool:
    return config.discard != "old" and bool(config.cap_records or config.cap_bytes)


def _bytes_evicted_by(write: Growth) -> int:
    return write.partition.bytes_evicted_by(write.topic.config, write.count, write.size, write.texts)


def _topic_full(write: Growth) -> TopicFull:
    config, name = write.topic.config, write.topic.name
    return TopicFull(
        f'topic "{name}" is full: no room for {write.count} records of {write.size} bytes',
        detail={
            "topic": name,
            "cap_records": config.cap_records,
            "cap_bytes": config.cap_bytes,
            "records": write.count,
            "bytes": write.size,
        },
    )
