"""Claims: requests and connections that want jobs, and how jobs are divided among several of them."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from msgspec import Struct

from topics.broker.long_poll import LongPoll
from topics.engine.leases.delivery import Delivery
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError
from topics.runtime.replies import call


class ClaimResult(Struct):
    """Jobs leased to one claimer, rendered: one text per job for a connection, one text with commas for a request.

    `delivery` is None when there were none.
    """

    topic: Topic
    delivery: Delivery | None
    jobs: list[bytes]
    ready: int

    @property
    def count(self) -> int:
        return 0 if self.delivery is None else len(self.delivery.seqs)


# Answers all claims of one turn: pairs of a claim's context and its outcome.
ReplyClaims = Callable[[list[tuple[Any, ClaimResult | TopicsError]]], None]


class Claimer(Protocol):
    """Something that takes jobs: one request (`Claim`), or a connection that takes jobs until it closes."""

    node: str
    # Overrides the lease of the topic.
    lease_ms: int | None
    # The jobs leased to the connection; None for a request.
    connection_jobs: set[int] | None

    def capacity(self) -> int:
        """How many jobs it takes now."""

    def deliver(self, result: ClaimResult) -> None:
        """Take these jobs. A request is also called with a result without jobs."""

    def fail(self, error: TopicsError) -> None:
        """There will be no jobs."""


class ClaimState(Enum):
    """PENDING -> [WAITING ->] [LEASED ->] ENDED; every state may go to ENDED directly."""

    # Served at the end of the turn, or when it is registered at its `ClaimWaiters`.
    PENDING = "pending"
    # Waits at the `ClaimWaiters` of its partition with a long poll.
    WAITING = "waiting"
    # Has its jobs; the reply waits for the log.
    LEASED = "leased"
    # Answered or cancelled.
    ENDED = "ended"


# An attribute of an enumeration takes 40 ns, and every claim needs this one.
ENDED = ClaimState.ENDED


class Claim(Struct, eq=False):
    """One claim of one request. It is answered once, unless its client disconnects first and it is cancelled."""

    node: str
    max_jobs: int
    lease_ms: int | None
    wait_ms: int
    # Passed to `reply` with the outcome; the request, for example.
    context: Any
    reply: ReplyClaims
    state: ClaimState = ClaimState.PENDING
    connection_jobs: set[int] | None = None
    # While it waits: ends with the wait, and ends the wait.
    poll: LongPoll | None = None

    def capacity(self) -> int:
        return self.max_jobs if self.state in (ClaimState.PENDING, ClaimState.WAITING) else 0

    def deliver(self, result: ClaimResult) -> None:
        call(self.reply, [(self.end(), result)])

    def fail(self, error: TopicsError) -> None:
        if self.state is not ENDED:
            call(self.reply, [(self.end(), error)])

    def cancel(self) -> None:
        """The client has disconnected: do not reply."""
        self.end()

    def end(self) -> Any:
        """Stop waiting. Return the context; the caller must reply to it."""
        self.state = ENDED
        self._stop_waiting()
        # Break the reference cycle of request and claim, so that they are freed without the garbage collector.
        context, self.context = self.context, None
        return context

    def wait(self, poll: LongPoll) -> None:
        """Wait for jobs."""
        self.state = ClaimState.WAITING
        self.poll = poll

    def leased(self) -> None:
        """It has its jobs and waits for the log only."""
        self.state = ClaimState.LEASED
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        poll, self.poll = self.poll, None
        if poll is not None:
            poll.end()
