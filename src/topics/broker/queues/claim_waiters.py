"""ClaimWaiters: the claims and connections that wait for jobs of one partition.

    waiters.add(claimer)        wait; the first one registers the object with its host
    waiters.wait(claim)         the same with a long poll, which ends when the claim is served
    waiters.remove(claimer)     stop waiting; the last one unregisters it
    waiters.notify()            jobs or capacity may have become free: serve all claimers at the end of this turn
    waiters.set_timer()         the next deadline or delay may have changed
    waiters.open_window()       start the claim window (`claim_jitter_ms`): claimers that join until it closes share the jobs

All claimers with capacity are served in one pass: on an append, on `notify`, when the claim window closes, and on one timer for
the next time at which a lease or a delay ends.
"""

from collections.abc import Callable
from typing import Protocol

from topics.broker.long_poll import LongPoll
from topics.broker.queues.claims import Claim, Claimer, ClaimResult
from topics.engine.leases.lease import Leases
from topics.engine.partitions.partition import Partition
from topics.engine.topics.topic import Topic
from topics.model.errors import TopicsError, topic_not_found
from topics.runtime.interface import Runtime, Timer
from topics.runtime.replies import call


class ClaimHost(Protocol):
    """What `ClaimWaiters` needs of the queues it belongs to."""

    def exists(self, topic: Topic) -> bool: ...

    def refresh(self, topic: Topic, partition: Partition, leases: Leases) -> int:
        """Expire leases and records."""

    def serve(self, topic: Topic, partition: Partition, claimers: list[Claimer]) -> None:
        """Lease ready jobs to these claimers."""

    def waiting_began(self, waiters: "ClaimWaiters") -> None:
        """The first claimer has joined: call `topic_changed` on every append to the topic from now on."""

    def waiting_ended(self, waiters: "ClaimWaiters") -> None:
        """The last claimer has left."""

    def long_poll(self, answer: Callable[[], None], refuse: Callable[[TopicsError], None]) -> LongPoll: ...


class ClaimWaiters:
    """The claimers that wait for jobs of one partition."""

    def __init__(self, host: ClaimHost, runtime: Runtime, topic: Topic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self._host = host
        self._runtime = runtime
        # In the order in which they are served. A connection that was served moves to the end.
        self._claimers: dict[Claimer, None] = {}
        self._scheduled = False
        self._window: Timer | None = None
        self._timer: Timer | None = None
        self._timer_due = 0

    def __len__(self) -> int:
        return len(self._claimers)

    def add(self, claimer: Claimer) -> None:
        """Wait for jobs. Has no effect for a claimer that waits already."""
        if claimer in self._claimers:
            return
        if not self._claimers:
            self._host.waiting_began(self)
            self._leases.on_jobs_freed = self.notify
        self._claimers[claimer] = None

    def wait(self, claim: Claim, wait_ms: int | None = None) -> None:
        """Wait until the claim is served, for `wait_ms` at most from the first call with a time."""
        poll = claim.poll
        if poll is None:

            def answer() -> None:
                claim.deliver(ClaimResult(self.topic, None, [], self._leases.ready(self.partition.count)))

            poll = self._host.long_poll(answer, claim.fail)
            claim.wait(poll)
            self.add(claim)
            poll.on_end(lambda: self.remove(claim))
        poll.wait(wait_ms)

    def remove(self, claimer: Claimer) -> None:
        """Stop waiting. Has no effect for a claimer that does not wait."""
        if claimer not in self._claimers:
            return
        del self._claimers[claimer]
        if not self._claimers:
            self._leases.on_jobs_freed = None
            for timer in (self._window, self._timer):
                if timer is not None:
                    timer.cancel()
            self._window = self._timer = None
            self._host.waiting_ended(self)

    def open_window(self) -> None:
        """Start the claim window, if none is open. Its end serves all claimers that wait then."""
        if self._window is None:
            self._window = self._runtime.call_later(self.topic.config.claim_jitter_ms, self._close_window)

    def notify(self) -> None:
        """Jobs or capacity may have become free: serve once, at the end of this turn or of the claim window."""
        if self.topic.config.claim_jitter_ms:
            if self._leases.ready(self.partition.count) and any([claimer.capacity() for claimer in self._claimers]):
                self.open_window()
        elif not self._scheduled:
            self._scheduled = True
            self._runtime.call_soon(self._serve)

    def set_timer(self) -> None:
        """Set the timer to the next time at which a lease or a delay ends."""
        if not self._claimers:
            return
        due = self._leases.next_due()
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._runtime.call_later(max(1, due - self._runtime.now_ms()), self._on_timer)

    def topic_changed(self) -> None:
        """Records were appended to the topic, or it was deleted."""
        if self._topic_gone():
            return
        if self.topic.config.claim_jitter_ms:
            self.notify()
            self.set_timer()
        else:
            self._serve()

    @property
    def _leases(self) -> Leases:
        assert self.partition.leases is not None
        return self.partition.leases

    def _close_window(self) -> None:
        self._window = None
        self._serve()

    def _on_timer(self) -> None:
        self._timer = None
        if self._topic_gone():
            return
        self._host.refresh(self.topic, self.partition, self._leases)
        self.notify()
        self.set_timer()

    def _serve(self) -> None:
        self._scheduled = False
        if self._topic_gone():
            return
        claimers = [claimer for claimer in self._claimers if claimer.capacity()]
        if claimers:
            for claimer in claimers:
                if not isinstance(claimer, Claim):
                    del self._claimers[claimer]
                    self._claimers[claimer] = None
            self._host.serve(self.topic, self.partition, claimers)
        self.set_timer()

    def _topic_gone(self) -> bool:
        """Fail all claimers when the topic was deleted; return whether it was."""
        if self._host.exists(self.topic):
            return False
        for claimer in list(self._claimers):
            self.remove(claimer)
            call(claimer.fail, topic_not_found(self.topic.name))
        return True
