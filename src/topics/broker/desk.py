"""The desk: those who wait for jobs of one partition, and how they share.

Claims with `wait_ms`, claims in a window of `claim_jitter_ms`, and streams all sit here. The desk is woken by an append,
by jobs that come back and by room that comes free, and by one timer for the first moment at which a lease or a delay can
end; then all who have room are served in one pass. With a window, everybody who comes until it closes shares in it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from topics.broker.runtime import Timer
from topics.engine.held import Grant
from topics.engine.lease import Leases
from topics.engine.partition import Partition
from topics.engine.topic import Topic
from topics.model.errors import TopicsError, topic_not_found

if TYPE_CHECKING:
    from topics.broker.broker import Broker
    from topics.broker.queue import Queues


class Claimed(Struct):
    """Jobs leased to somebody, rendered: for a stream one by one, for a request as one text with commas.

    `grant` is None when there were none.
    """

    topic: Topic
    grant: Grant | None
    jobs: list[bytes]
    ready: int

    @property
    def count(self) -> int:
        return 0 if self.grant is None else len(self.grant.seqs)


# Tells everybody who asked in one turn what came of it.
AnswerClaims = Callable[[list[tuple[Any, Claimed | TopicsError]]], None]


class Claimer(Protocol):
    """Somebody who wants jobs: one request, or a connection that takes them as long as it lives."""

    node: str
    # Overrides the topic's.
    lease_ms: int | None
    # The jobs that are with it, for one that goes on.
    basket: set[int] | None

    def room(self) -> int:
        """How many jobs it would take now."""

    def deliver(self, claimed: Claimed) -> None:
        """These jobs are its own. A single request also gets the news that there were none."""

    def fail(self, error: TopicsError) -> None:
        """There will be no jobs."""


class Claim(Struct, eq=False):
    """One claim of one request. Answered once, unless its client goes first and it is cancelled."""

    node: str
    most: int
    lease_ms: int | None
    wait_ms: int
    # Who asked, and who answers.
    asker: Any
    answer: AnswerClaims
    over: bool = False
    # It has its jobs; only the answer is outstanding.
    granted: bool = False
    basket: set[int] | None = None
    # Where it sits, and for how long.
    desk: "Desk | None" = None
    timer: Timer | None = None

    def room(self) -> int:
        return 0 if self.over or self.granted else self.most

    def deliver(self, claimed: Claimed) -> None:
        self.answer([(self.end(), claimed)])

    def fail(self, error: TopicsError) -> None:
        if not self.over:
            self.answer([(self.end(), error)])

    def finish(self) -> None:
        """Answer now, without jobs; or when the turn ends, with those there are, if it has not ended yet."""
        self.wait_ms = 0
        if not self.over and self.desk is not None:
            self.deliver(self.desk.nothing())

    def cancel(self) -> None:
        """The client is gone; nobody is to be answered."""
        self.end()

    def end(self) -> Any:
        """It waits for nothing any more. Answers who asked, whom the caller must answer."""
        self.over = True
        if self.desk is not None:
            self.leave()
        # Whoever can cancel it has it, and it has him: left so, each claim would be work for the garbage collector.
        asker, self.asker = self.asker, None
        return asker

    def wait(self, desk: "Desk") -> None:
        """Sit at the desk; `start_waiting` bounds for how long."""
        self.desk = desk
        desk.join(self)

    def start_waiting(self) -> None:
        if self.timer is None and self.desk is not None:
            self.timer = self.desk.call_later(self.wait_ms, self.finish)

    def leave(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.desk is not None:
            self.desk.leave(self)


class Desk:
    """Those who wait for jobs of one partition."""

    def __init__(self, broker: "Broker", queues: "Queues", topic: Topic, partition: Partition) -> None:
        self.topic = topic
        self.partition = partition
        self._broker = broker
        self._queues = queues
        # In the order in which they are served: whoever got something goes to the end.
        self._waiting: dict[Claimer, None] = {}
        self._scheduled = False
        self._window: Timer | None = None
        self._timer: Timer | None = None
        self._timer_due = 0

    @property
    def leases(self) -> Leases:
        assert self.partition.leases is not None
        return self.partition.leases

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._broker.runtime.call_later(delay_ms, callback)

    def nothing(self) -> Claimed:
        return Claimed(self.topic, None, [], self.leases.ready(self.partition.count))

    def join(self, claimer: Claimer) -> None:
        if claimer in self._waiting:
            return
        if not self._waiting:
            self._broker.watch(self.topic, self._look)
            self.leases.wake = self.serve_soon
        self._waiting[claimer] = None
        if isinstance(claimer, Claim):
            self._broker.polls.add(claimer)

    def leave(self, claimer: Claimer) -> None:
        if claimer not in self._waiting:
            return
        del self._waiting[claimer]
        if isinstance(claimer, Claim):
            self._broker.polls.discard(claimer)
        if not self._waiting:
            self._broker.unwatch(self.topic, self._look)
            self.leases.wake = None
            for timer in (self._window, self._timer):
                if timer is not None:
                    timer.cancel()
            self._window = self._timer = None
            self._queues.close_desk(self.topic, self.partition)

    def open_window(self) -> None:
        """Everybody who comes until it closes shares in what there is then."""
        if self._window is None:
            self._window = self.call_later(self.topic.config.claim_jitter_ms, self._window_over)

    def serve_soon(self) -> None:
        """There may be jobs, or room for them: look when this turn is over, once, or when the window closes."""
        if self.topic.config.claim_jitter_ms:
            if self.leases.ready(self.partition.count) and any([claimer.room() for claimer in self._waiting]):
                self.open_window()
        elif not self._scheduled:
            self._scheduled = True
            self._broker.runtime.call_soon(self._serve)

    def set_timer(self) -> None:
        """Look again when the first lease or delay can end."""
        if not self._waiting:
            return
        due = self.leases.next_due()
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self.call_later(max(1, due - self._broker.runtime.now_ms()), self._timer_over)

    def _look(self) -> None:
        if self._gone():
            return
        if self.topic.config.claim_jitter_ms:
            self.serve_soon()
            self.set_timer()
        else:
            self._serve()

    def _window_over(self) -> None:
        self._window = None
        self._serve()

    def _timer_over(self) -> None:
        self._timer = None
        if self._gone():
            return
        self._queues.refresh(self.topic, self.partition, self.leases)
        self.serve_soon()
        self.set_timer()

    def _serve(self) -> None:
        self._scheduled = False
        if self._gone():
            return
        hungry = [claimer for claimer in self._waiting if claimer.room()]
        if hungry:
            for claimer in hungry:
                if not isinstance(claimer, Claim):
                    del self._waiting[claimer]
                    self._waiting[claimer] = None
            self._queues.serve(self.topic, self.partition, hungry)
        self.set_timer()

    def _gone(self) -> bool:
        if self._broker.state.by_id.get(self.topic.id) is self.topic:
            return False
        for claimer in list(self._waiting):
            self.leave(claimer)
            claimer.fail(topic_not_found(self.topic.name))
        return True


def shares(rooms: list[int], jobs: int) -> list[int]:
    """How many of `jobs` each gets, who has room for so many.

    Nobody with room goes without while another gets two; what is left after one each goes in proportion to the room
    that is left. Equal rooms differ by at most one.
    """
    total = sum(rooms)
    if jobs >= total:
        return list(rooms)
    result = [0] * len(rooms)
    for index, room in enumerate(rooms):
        if room and jobs:
            result[index] = 1
            jobs -= 1
    left = [room - got for room, got in zip(rooms, result, strict=True)]
    total = sum(left)
    if not jobs:
        return result
    parts = [jobs * room for room in left]
    result = [got + part // total for got, part in zip(result, parts, strict=True)]
    rest = jobs - sum([part // total for part in parts])
    for index in sorted(range(len(rooms)), key=lambda index: -(parts[index] % total))[:rest]:
        result[index] += 1
    return result


def deal(seqs: list[int], rooms: list[int]) -> list[list[int]]:
    """The jobs dealt out one by one, round and round, until each has its share."""
    left = shares(rooms, len(seqs))
    hands: list[list[int]] = [[] for _ in rooms]
    dealt = iter(seqs)
    while any(left):
        for index, hand in enumerate(hands):
            if left[index]:
                left[index] -= 1
                hand.append(next(dealt))
    return hands
