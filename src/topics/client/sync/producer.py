"""A producer: records in batches, in order, with bounded memory and a result for each. Generated from topics.client.asynchronous by `make generate`; do not edit."""

from __future__ import annotations  # keeps the import quick

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from topics.client import calls
from topics.client.batching import Batch, Batcher
from topics.client.errors import ServerUnreachable
from topics.client.sync.concurrency import Background, Condition, Event, wait_condition, wait_event
from topics.client.values import RecordIn
from topics.model.errors import InvalidRequest, TopicsError

if TYPE_CHECKING:
    from topics.client.sync.client import Client

log = logging.getLogger("topics.client")


class Sent:
    """A record that was given to a producer.

    Example:

        with client.producer() as producer:
            sent = producer.send("orders", {"sku": "FILTERS"})
            print(sent.result(), sent.done)
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return bool(self._batch.done.is_set())

    def result(self, timeout_s: float | None = None) -> int:
        """The seq of the record, once it is acknowledged. Raises the error of its batch, or TimeoutError.

        Example:

            with client.producer() as producer:
                sent = producer.send("orders", {"sku": "FILTERS"})
            print(sent.result())
        """
        if not wait_event(self._batch.done, timeout_s):
            raise TimeoutError(f"the record was not acknowledged within {timeout_s} s")
        return self._batch.result(self._index)


class Producer:
    """A writer that sends records in batches.

    Records of one topic and partition are written in the order in which they were sent, also over retries: one batch is
    on its way at a time, with one idempotency key. Records without a partition and a key are spread over the partitions,
    a batch at a time. `send` waits while too much is not acknowledged yet.

    Leaving the context sends everything that is left, and raises the first error since the last flush.

    Example:

        with client.producer() as producer:
            for sku in ("AEROPRESS", "FILTERS"):
                producer.send("orders", {"sku": sku})
    """

    def __init__(
        self,
        client: Client,
        *,
        max_batch_records: int,
        max_batch_bytes: int,
        linger_s: float,
        max_buffered_bytes: int,
        node: str | None,
    ) -> None:
        if max_batch_records < 1 or max_batch_bytes < 1 or max_buffered_bytes < 1:
            raise InvalidRequest("max_batch_records, max_batch_bytes and max_buffered_bytes must be at least 1")
        self._client = client
        self._node = node
        self._max_buffered_bytes = max_buffered_bytes
        self._batcher = Batcher(max_batch_records, max_batch_bytes, linger_s, Event)
        self._changed = Condition()
        self._sender: Background | None = None
        self._closed = False
        self._error: TopicsError | None = None
        self._partitions: dict[str, int] = {}
        # By topic: counts the batches of records without a key. Each goes to the next partition.
        self._turns: dict[str, int] = {}

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TopicsError as problem:
            if error is None:
                raise
            log.warning("records were not written: %s", problem)

    def send(
        self,
        topic: str,
        data: Any,
        *,
        tag: str | None = None,
        node: str | None = None,
        meta: dict[str, Any] | None = None,
        delay_ms: int | None = None,
        partition: int | None = None,
        key: str | None = None,
        callback: Callable[[Sent], None] | None = None,
    ) -> Sent:
        """Give a record to the producer; waits only while the buffer is full.

        partition: Partition to append to, or
        key: text that selects it; records with the same key keep their order.
        callback: Called with what `send` returned when the record is acknowledged or has failed. No batch is sent while it
            runs, so it must not wait for this producer.

        Example:

            with client.producer(linger_ms=20) as producer:
                producer.send("orders", {"sku": "FILTERS"}, key="customer-7")
        """
        record = RecordIn(data, tag=tag, node=node or self._node, delay_ms=delay_ms)
        if meta is not None:
            record.meta = meta
        encoded = msgspec.json.encode(record)
        spread = partition is None and key is None
        if partition is None:
            partition = self._partition(topic, key)
        with self._changed:
            if self._closed:
                raise InvalidRequest("the producer is closed")
            while self._batcher.buffered_bytes and (
                self._batcher.buffered_bytes + len(encoded) > self._max_buffered_bytes
            ):
                wait_condition(self._changed, None)
            batch, index, full = self._batcher.add((topic, partition), encoded, time.monotonic())
            sent = Sent(batch, index)
            if callback is not None:
                batch.callbacks.append((callback, sent))
            if self._sender is None:
                self._sender = Background(self._send_batches)
            if full and spread:
                self._turn(topic, partition)
            if full or not index:
                self._changed.notify_all()
        return sent

    def flush(self) -> None:
        """Send what is left and wait until it is acknowledged. Raises the first error since the last flush.

        Example:

            producer = client.producer()
            producer.send("orders", {"sku": "FILTERS"})
            producer.flush()
            producer.close()
        """
        with self._changed:
            self._batcher.flushing = True
            self._changed.notify_all()
            while not self._batcher.empty:
                wait_condition(self._changed, None)
            self._batcher.flushing = False
            error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Flush, and accept no more records.

        Example:

            producer = client.producer()
            producer.send("orders", {"sku": "FILTERS"})
            producer.close()
        """
        if self._closed:
            return
        try:
            self.flush()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            if self._sender is not None:
                self._sender.join()

    def _partition(self, topic: str, key: str | None) -> int | None:
        count = self._partitions.get(topic)
        if count is None:
            count = self._client.partition_count(topic)
            self._partitions[topic] = count
        if count == 1:
            return None
        if key is None:
            return self._turns.get(topic, 0) % count
        # Imported when it is needed, so that importing the client stays quick.
        from topics.model.partitioning import hashed_partition

        return hashed_partition(key, count)

    def _turn(self, topic: str, partition: int | None) -> None:
        """Let the records without a key that follow this batch go to the next partition."""
        turns = self._turns.get(topic, 0)
        if partition == turns % self._partitions.get(topic, 1):
            self._turns[topic] = turns + 1

    def _send_batches(self) -> None:
        while True:
            with self._changed:
                batch = self._batcher.take(time.monotonic())
                while batch is None:
                    if self._closed:
                        return
                    due_at = self._batcher.next_due_at()
                    wait_s = None if due_at is None else max(0.0, due_at - time.monotonic())
                    wait_condition(self._changed, wait_s)
                    batch = self._batcher.take(time.monotonic())
            self._turn(*batch.lane)
            self._send_batch(batch)
            with self._changed:
                self._batcher.finish(batch)
                if batch.error is not None and self._error is None:
                    self._error = batch.error
                batch.done.set()
                self._changed.notify_all()
            for callback, sent in batch.callbacks:
                try:
                    callback(sent)
                except Exception:
                    log.exception("the callback of a record failed")

    def _send_batch(self, batch: Batch) -> None:
        topic, partition = batch.lane
        call = calls.append(topic, batch.records, partition=partition, idempotency_key=batch.key, return_seqs=False)
        try:
            batch.first_seq = (self._client.run(call)).first_seq
        except (TopicsError, ServerUnreachable) as error:
            log.warning("%d records for topic %r were not written: %s", len(batch.records), topic, error)
            batch.error = error
