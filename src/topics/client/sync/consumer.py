"""A member of a consumer group: an iteration over messages, with acknowledgements and heartbeats. Generated from topics.client.asynchronous by `make generate`; do not edit."""

from __future__ import annotations  # keeps the import quick

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal

import msgspec
from msgspec import Raw

from topics.client.errors import ServerUnreachable, SessionLost
from topics.client.items import LostMessages, Message
from topics.client.messages import group_start, message_from, partition_of, seek_target
from topics.client.options import Ack, Started
from topics.client.sync.concurrency import Background, Event, Interrupt, Stopped, wait_event
from topics.client.values import Consumed, D, GroupMessage, Sought, Tombstone
from topics.model.errors import Conflict, InvalidRequest, NotFound, TopicsError

if TYPE_CHECKING:
    from topics.client.sync.client import Client

log = logging.getLogger("topics.client")
_SESSION_CODES = ("session_expired", "partition_owned")


class Consumer(Generic[D]):
    """A member of a consumer group. The members of a group share the partitions of the topic.

    Iterating yields `Message`, with its payload in `data`, and `LostMessages` where messages were lost before the group
    read them. A message that is not acknowledged is delivered again, to this member or another one, after the session
    ends. Acknowledging a message acknowledges all before it in its partition.

    The session is renewed while the loop handles messages. When it ends anyway, as after a server restart or a long
    pause of the process, the next call raises SessionLost; iterating again joins the group again. Leaving the context, and
    SIGTERM or SIGINT (Ctrl-C), end the iteration and leave the group, so that the partitions go to other members at once.
    Messages that were fetched are delivered first; a second SIGINT raises KeyboardInterrupt.

    Example:

        with client.consumer("orders", group="billing", follow=False) as consumer:
            for message in consumer:
                if isinstance(message, LostMessages):
                    print("lost", message.gap_from, message.gap_to)
                else:
                    print(message.data)
                consumer.ack(message)
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        group: str,
        *,
        decoder: Callable[[bytes | Raw], D] | None,
        ack: Ack,
        ack_interval_s: float,
        start: Started,
        follow: bool,
        limit: int,
        poll_s: float,
        heartbeat_s: float,
        name: str | None,
        handle_signals: bool,
    ) -> None:
        if ack not in ("explicit", "each", "timed"):
            raise InvalidRequest(f'ack must be "explicit", "each" or "timed", not {ack!r}')
        self.topic = topic
        self.group = group
        self.name = name or f"consumer-{os.getpid()}-{os.urandom(4).hex()}"
        self._client = client
        self._decoder: Callable[[bytes | Raw], Any] = decoder or msgspec.json.decode
        self._ack = ack
        self._ack_interval_s = ack_interval_s
        self._start = group_start(start)
        self._follow = follow
        self._limit = limit
        self._poll_s = poll_s
        self._heartbeat_s = heartbeat_s
        self._handle_signals = handle_signals
        self._interrupt = Interrupt()
        # Payloads are decoded when they are taken, so that one that does not fit holds back no other.
        self._fetched: deque[GroupMessage | LostMessages] = deque()
        # By partition: the last offset that was fetched, that the loop has finished, and that was acknowledged.
        self._received: dict[int, int] = {}
        self._finished: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        self._current: Message[D] | LostMessages | None = None
        self._acked_at = time.monotonic()
        self._renewed_at = time.monotonic()
        self._polling = False
        self._joined = False
        self._closed = Event()
        self._lost: TopicsError | None = None
        self._heart: Background | None = None

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} of group {self.group!r}, topic {self.topic!r}>"

    def __enter__(self) -> Consumer[D]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TopicsError as problem:
            if error is None:
                raise
            log.warning("%r could not leave its group: %s", self, problem)

    def __iter__(self) -> Consumer[D]:
        # Not for `poll`, whose caller would not see that it is stopped.
        if self._handle_signals:
            self._interrupt.listen()
        return self

    def __next__(self) -> Message[D] | LostMessages:
        self._finish_current()
        while not self._fetched:
            if self._interrupt.stopped:
                raise StopIteration
            try:
                found = self._interrupt.guard(self._fetch, self._poll_s if self._follow else 0)
            except Stopped:
                raise StopIteration from None
            if not found and not self._follow:
                raise StopIteration
        taken = self._take()
        self._current = taken
        return taken

    def poll(self, wait_s: float = 0.0) -> list[Message[D] | LostMessages]:
        """The messages of one request, at most `limit`; none when none come within `wait_s`.

        Acknowledge them with `ack`. Not to be mixed with iterating.

        Example:

            with client.consumer("orders", group="audit") as consumer:
                messages = consumer.poll(wait_s=1)
                consumer.ack(*messages)
        """
        self._fetch(wait_s)
        return [self._take() for _ in range(len(self._fetched))]

    def ack(self, *messages: Message[Any] | LostMessages) -> None:
        """Acknowledge messages, and all before them in their partitions. Without an argument, all that were taken.

        Returns when that is as durable as a write to the topic. Raises SessionLost when another member may have the
        messages now; they are not acknowledged then.

        Example:

            with client.consumer("orders", group="billing", follow=False) as consumer:
                for message in consumer:
                    consumer.ack(message)
        """
        offsets: dict[int, int] = {}
        for message in messages or ([self._current] if self._current is not None else []):
            offsets[message.partition] = max(message.offset, offsets.get(message.partition, 0))
        if not messages:
            offsets = {**self._finished, **offsets}
        self._send_acks(offsets)

    def seek(self, to: Literal["earliest", "latest"] | str | int, *, partition: int | None = None) -> Sought:
        """Move the group: all its members continue there. Drops messages that were fetched and not taken yet.

        to: "earliest", "latest", an offset, or a time such as "-1h", "2026-11-01" or "2026-11-01T12:00:00Z".
        partition: Only this partition.

        Example:

            with client.consumer("orders", group="billing") as consumer:
                consumer.seek("-1h")
        """
        target = seek_target(to)
        try:
            sought = self._client.seek_group(self.topic, self.group, target, partition=partition)
        except NotFound as error:
            if error.code != "group_not_found":
                raise
            # The first poll makes the group.
            self._fetch(0)
            sought = self._client.seek_group(self.topic, self.group, target, partition=partition)
        for each in sought.partitions:
            for known in (self._received, self._finished, self._acked):
                known.pop(each.partition_id, None)
        moved = {each.partition_id for each in sought.partitions}
        self._fetched = deque([each for each in self._fetched if partition_of(each) not in moved])
        self._current = None
        return sought

    def stop(self) -> None:
        """End the iteration: at once while it waits for messages, otherwise when the next one is taken.

        Example:

            with client.consumer("orders", group="billing") as consumer:
                for message in consumer:
                    print(message.data)
                    consumer.stop()
        """
        self._interrupt.stop()

    def close(self) -> None:
        """Acknowledge what the mode says, and leave the group.

        Example:

            consumer = client.consumer("orders", group="billing", ack="each", follow=False)
            for message in consumer:
                print(message.data)
            consumer.close()
        """
        if self._closed.is_set():
            return
        self._interrupt.stop()
        self._interrupt.unlisten()
        self._closed.set()
        if self._heart is not None:
            self._heart.join()
        if self._joined and self._lost is None:
            if self._ack != "explicit":
                self._send_acks(self._finished)
            self._client.leave_group(self.topic, self.group, self.name)

    # Taking messages

    def _finish_current(self) -> None:
        """The loop is done with the message that it took last."""
        if self._lost is not None:
            raise self._session_lost(self._lost)
        current, self._current = self._current, None
        if current is not None:
            self._finished[current.partition] = current.offset
            if self._ack == "each":
                self._send_acks({current.partition: current.offset})
        if self._ack == "timed" and (not self._fetched or time.monotonic() - self._acked_at >= self._ack_interval_s):
            self._send_acks(self._finished)

    def _take(self) -> Message[D] | LostMessages:
        """The next message that was fetched. Raises PayloadMismatch, and UndecodablePayload as asked."""
        found = self._fetched.popleft()
        if isinstance(found, LostMessages):
            return found
        return message_from(self.topic, found, self._decoder, self._client.settings.lone_surrogates)

    def _fetch(self, wait_s: float) -> bool:
        """Ask for messages, and keep them; whether there were any."""
        self._polling = True
        try:
            consumed = self._client.consume(
                self.topic,
                self.group,
                start=self._start,
                limit=self._limit,
                timeout_seconds=math.ceil(wait_s),
                consumer=self.name,
                received=self._received or None,
            )
        finally:
            self._polling = False
            self._renewed_at = time.monotonic()
        self._joined = True
        if self._heart is None and not self._closed.is_set():
            self._heart = Background(self._renew)
        return self._keep(consumed)

    def _keep(self, consumed: Consumed) -> bool:
        partition = consumed.partition_id
        if partition is None:
            return False
        if consumed.tombstone is not None:
            fields = {name: getattr(consumed.tombstone, name) for name in Tombstone.__struct_fields__}
            self._fetched.append(LostMessages(**fields, topic=self.topic, partition=partition))
            self._received[partition] = consumed.tombstone.gap_to
        for each in consumed.messages:
            self._fetched.append(each)
            self._received[partition] = each.offset
        return bool(self._fetched)

    # Session

    def _send_acks(self, offsets: dict[int, int]) -> None:
        if self._lost is not None:
            raise self._session_lost(self._lost)
        self._acked_at = time.monotonic()
        for partition, offset in list(offsets.items()):
            if offset <= self._acked.get(partition, 0):
                continue
            try:
                self._client.ack_group(self.topic, self.group, offset, partition=partition, consumer=self.name)
            except Conflict as error:
                if error.code not in _SESSION_CODES:
                    raise
                raise self._session_lost(error) from error
            self._acked[partition] = offset
            self._renewed_at = time.monotonic()

    def _session_lost(self, error: TopicsError) -> SessionLost:
        """Forget the session; the next poll begins another one."""
        self._lost = None
        self._joined = False
        for known in (self._received, self._finished, self._acked):
            known.clear()
        self._fetched.clear()
        self._current = None
        return SessionLost(f"consumer {self.name!r} lost its session: {error}", detail=error.detail)

    def _renew(self) -> None:
        """Renew the session while messages are handled: acknowledge offset 0, which moves nothing."""
        while not wait_event(self._closed, self._heartbeat_s):
            quiet_s = time.monotonic() - self._renewed_at
            if self._polling or not self._joined or self._lost is not None or quiet_s < self._heartbeat_s:
                continue
            try:
                partition = next(iter(self._received), 0)
                self._client.ack_group(self.topic, self.group, 0, partition=partition, consumer=self.name)
                self._renewed_at = time.monotonic()
            except Conflict as error:
                log.warning("%r lost its session: %s", self, error)
                self._lost = error
            except (TopicsError, ServerUnreachable) as error:
                log.warning("%r could not renew its session: %s", self, error)
