"""Inboxes: writes of single records wait unread until their turn is over, and are then read all at once.

A writer of single records sends the same head over and over. Once it is known that such a head means a plain write, the
requests that begin with it go into the inbox of their topic as they are. When the log is about to be written, their bodies are
decoded as one text, become one batch, and are answered together: no handler is called for any of them. (16 writers, socket
left out: 13,000 instructions a write; handled one by one 32,000.)

What turns out to be something else is handled as if it had just arrived, and its head goes there directly from then on.
"""

from collections.abc import Sequence
from weakref import WeakValueDictionary

from topics.broker.append import AnswerJoined
from topics.broker.broker import Broker
from topics.broker.express import Express
from topics.model.batch import decode_singles
from topics.server.access import Caller
from topics.server.http import Door, Request
from topics.server.service import Service
from topics.server.slots import CountedDoor

# More than these become several batches, so that no page of a topic gets large.
READ_AT_ONCE = 256


class Inbox:
    """The writes of one topic that have come in this turn."""

    __slots__ = (
        "__weakref__",
        "_answer",
        "_broker",
        "_express",
        "_limits",
        "_name",
        "_service",
        "bodies",
        "requests",
        "sync",
    )

    def __init__(self, service: Service, broker: Broker, name: str, answer: AnswerJoined) -> None:
        self._service = service
        self._broker = broker
        self._name = name
        self._answer = answer
        self._limits = broker.limits
        self._express = Express(broker, name)
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []
        self.sync = False

    @property
    def waiters(self) -> int:
        return len(self.requests)

    def take(self, request: Request) -> bool:
        """Whether it waits here now. If not, there may be something to decide about it."""
        requests = self.requests
        if not requests:
            service = self._service
            if service.stopping or service.throttle.closed:
                return False
            broker = self._broker
            topic = broker.state.topics.get(self._name)
            if topic is None:
                return False
            self.sync = topic.config.durability == "fsync"
            broker.committer.expect(topic.id, self)
        requests.append(request)
        self.bodies.append(request.body)
        return True

    def open(self) -> None:
        requests, bodies = self.requests[:], self.bodies[:]
        self.requests.clear()
        self.bodies.clear()
        if len(requests) <= READ_AT_ONCE:
            self._read(requests, bodies)
            return
        for start in range(0, len(requests), READ_AT_ONCE):
            some = requests[start : start + READ_AT_ONCE]
            some[0].received_at = requests[0].received_at
            self._read(some, bodies[start : start + READ_AT_ONCE])

    def _read(self, requests: list[Request], bodies: list[bytes]) -> None:
        # A lone writer gains nothing by waiting to be read.
        if len(requests) > 1:
            batch = decode_singles(bodies, self._limits)
            if batch is not None and (
                self._express.write(batch, requests, self._answer)
                or self._broker.join(self._name, batch, requests, self._answer)
            ):
                return
        received_at = requests[0].received_at
        for request, body in zip(requests, bodies, strict=True):
            request.renew(body, received_at)
            request.head.door = None
            request.handle()


def renew_all(requests: Sequence[Request]) -> None:
    """Before they are answered one by one. Of those who came behind the first it is known only that it was in the same turn."""
    received_at = requests[0].received_at
    for request in requests:
        # What was read of their bodies is enough by now.
        request.renew(b"", received_at)


class Inboxes:
    """One inbox for each topic that somebody writes single records to. They last as long as a head that leads to them."""

    def __init__(self, service: Service, answer: AnswerJoined) -> None:
        self._service = service
        self._answer = answer
        self._most = service.settings.limits.max_inflight_per_key
        self._by_name: WeakValueDictionary[str, Inbox] = WeakValueDictionary()

    def door(self, name: str, caller: Caller | None) -> Door:
        """Where to hand in requests; those of a caller are counted."""
        inbox = self._by_name.get(name)
        if inbox is None:
            broker = self._service.broker
            assert broker is not None
            inbox = self._by_name[name] = Inbox(self._service, broker, name, self._answer)
        return inbox if caller is None else CountedDoor(inbox, caller, self._most)
