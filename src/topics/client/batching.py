"""Batches of a producer, without I/O: which records go out together, and when.

A lane is a topic with a partition. Its records are sent in order: at most one batch of a lane is on its way. A batch is
due when it is full, or when its first record has waited for the linger time.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Raw

from topics.client.call import new_key
from topics.model.errors import TopicsError

Lane = tuple[str, int | None]


class Batch:
    """Records of one lane that are sent with one request. Its idempotency key stays the same over retries."""

    __slots__ = ("bytes", "callbacks", "done", "due_at", "error", "first_seq", "key", "lane", "records")

    def __init__(self, lane: Lane, due_at: float, done: Any) -> None:
        self.lane = lane
        self.key = new_key()
        self.records: list[Raw] = []
        self.callbacks: list[tuple[Callable[[Any], None], Any]] = []
        self.bytes = 0
        self.due_at = due_at
        # An event of the producer's kind, set when the batch is acknowledged or has failed.
        self.done = done
        self.first_seq = 0
        self.error: TopicsError | None = None

    def result(self, index: int) -> int:
        """The seq of a record, once `done` is set. Raises the error of the batch."""
        if self.error is not None:
            raise self.error
        return self.first_seq + index


class Batcher:
    """The records that are not acknowledged yet, by lane. `flushing` makes every batch due."""

    def __init__(
        self, max_batch_records: int, max_batch_bytes: int, linger_s: float, new_event: Callable[[], Any]
    ) -> None:
        self._max_records = max_batch_records
        self._max_bytes = max_batch_bytes
        self._linger_s = linger_s
        self._new_event = new_event
        self._waiting: dict[Lane, list[Batch]] = {}
        self._sending: set[Lane] = set()
        self.buffered_bytes = 0
        self.flushing = False

    @property
    def empty(self) -> bool:
        """Whether everything is acknowledged or has failed."""
        return not self._waiting and not self._sending

    def add(self, lane: Lane, record: bytes, now: float) -> tuple[Batch, int, bool]:
        """Put a record into a batch: the batch, its index there, and whether the batch is full now."""
        batches = self._waiting.setdefault(lane, [])
        batch = batches[-1] if batches else None
        if batch is None or self._full(batch) or batch.bytes + len(record) > self._max_bytes:
            batch = Batch(lane, now + self._linger_s, self._new_event())
            batches.append(batch)
        batch.records.append(Raw(record))
        batch.bytes += len(record)
        self.buffered_bytes += len(record)
        index = len(batch.records) - 1
        return batch, index, self._full(batch)

    def take(self, now: float) -> Batch | None:
        """The next batch that is due, of a lane from which none is on its way."""
        for lane, batches in self._waiting.items():
            if lane in self._sending:
                continue
            batch = batches[0]
            if self.flushing or len(batches) > 1 or self._full(batch) or batch.due_at <= now:
                batches.pop(0)
                if not batches:
                    del self._waiting[lane]
                self._sending.add(lane)
                return batch
        return None

    def finish(self, batch: Batch) -> None:
        """The batch is acknowledged or has failed."""
        self._sending.discard(batch.lane)
        self.buffered_bytes -= batch.bytes

    def next_due_at(self) -> float | None:
        """When the next batch is due; None when none waits for its time."""
        return min(
            [batches[0].due_at for lane, batches in self._waiting.items() if lane not in self._sending], default=None
        )

    def _full(self, batch: Batch) -> bool:
        return len(batch.records) >= self._max_records or batch.bytes >= self._max_bytes
