"""Pending appends: requests that append single records wait until the end of the loop turn, then are decoded and answered together.

A client that appends single records sends equal heads. When the handler has found that a head belongs to a plain append, it sets the
`pending_requests` of the head: further requests with it are added to the pending appends of the topic, and no handler is called. When
the log is about to be written, their bodies are decoded as one text, become one batch and are answered together. (16 writers without
sockets: 13,000 instructions for each append; handled one by one 32,000.)

A batch with a request of another form is handled one by one, and the heads of its requests call the handler again.
"""

import logging
from collections.abc import Sequence
from weakref import WeakValueDictionary

from topics.broker.broker import Broker
from topics.broker.topics.append import ReplyAppends
from topics.broker.topics.fast_append import FastAppend
from topics.model.records.batch import decode_singles
from topics.server.auth.authorization import Caller
from topics.server.http import PendingRequests, Request, drop_together
from topics.server.ops.connection_limits import CountedPendingRequests
from topics.server.service import Service

log = logging.getLogger("topics.server")

# More requests become several batches, so that the pages of a topic stay small.
MAX_BATCH_REQUESTS = 256


class PendingAppends:
    """The appends to one topic that arrived in this loop turn."""

    __slots__ = (
        "__weakref__",
        "_answer",
        "_broker",
        "_fast_append",
        "_limits",
        "_name",
        "_service",
        "bodies",
        "requests",
        "sync",
    )

    def __init__(self, service: Service, broker: Broker, name: str, answer: ReplyAppends) -> None:
        self._service = service
        self._broker = broker
        self._name = name
        self._answer = answer
        self._limits = broker.limits
        self._fast_append = FastAppend(broker, name)
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self.sync = False

    @property
    def waiters(self) -> int:
        return len(self.requests)

    def add(self, request: Request) -> bool:
        """Add the request, or return False when its handler must decide about it."""
        requests = self.requests
        if not requests:
            service = self._service
            broker = self._broker
            # Heads outlive the broker when the process recovers again: an append to the old one would be acknowledged and lost.
            if service.stopping or service.throttle.closed or service.broker is not broker:
                return False
            topic = broker.state.topics.get(self._name)
            if topic is None:
                return False
            self.sync = topic.config.durability == "fsync"
            broker.committer.expect(self)
        requests.append(request)
        self.bodies.append(request.body)
        return True

    def open(self) -> None:
        requests, bodies = self.requests[:], self.bodies[:]
        self.requests.clear()
        self.bodies.clear()
        if len(requests) <= MAX_BATCH_REQUESTS:
            self._append_or_drop(requests, bodies)
            return
        for start in range(0, len(requests), MAX_BATCH_REQUESTS):
            some = requests[start : start + MAX_BATCH_REQUESTS]
            some[0].received_at = requests[0].received_at
            self._append_or_drop(some, bodies[start : start + MAX_BATCH_REQUESTS])

    def _append_or_drop(self, requests: list[Request], bodies: list[bytes]) -> None:
        try:
            self._append(requests, bodies)
        except Exception:
            log.exception("exception while decoding joined appends; their connections are closed")
            drop_together(requests)

    def _append(self, requests: list[Request], bodies: list[bytes]) -> None:
        batch = decode_singles(bodies, self._limits)
        if batch is not None and (
            self._fast_append.write(batch, requests, self._answer)
            or self._broker.join(self._name, batch, requests, self._answer)
        ):
            return
        received_at = requests[0].received_at
        for request, body in zip(requests, bodies, strict=True):
            request.renew(body, received_at)
            request.head.pending_requests = None
            request.handle()


def renew_all(requests: Sequence[Request]) -> None:
    """Set the fields of requests that are answered one by one. All count as received with the first one of the turn."""
    received_at = requests[0].received_at
    for request in requests:
        # Their bodies have been decoded.
        request.renew(b"", received_at)


class PendingAppendsByTopic:
    """The pending appends of each topic that gets single records. They live as long as a head refers to them."""

    def __init__(self, service: Service, answer: ReplyAppends) -> None:
        self.service = service
        self._answer = answer
        self._max_inflight = service.settings.limits.max_inflight_per_key
        self._pending: WeakValueDictionary[tuple[str, bool], PendingAppends] = WeakValueDictionary()

    def pending_requests(self, name: str, caller: Caller | None, *, return_seqs: bool) -> PendingRequests:
        """The batch for requests to this topic with equal responses; those of a caller count as its concurrent requests."""
        pending = self._pending.get((name, return_seqs))
        if pending is None:
            broker = self.service.broker
            assert broker is not None
            pending = self._pending[name, return_seqs] = PendingAppends(self.service, broker, name, self._answer)
        return pending if caller is None else CountedPendingRequests(pending, caller, self._max_inflight)
