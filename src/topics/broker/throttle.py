"""The elastic throttle: under pressure, writes to topics that matter less wait, and are refused if they wait too long.

    gate open     every write goes straight in; this is one attribute to look at
    gate closed   writes below the cutoff are parked, the others go in

The gate closes when the loop's lag says so and opens when the pressure is off and nobody is parked any more. Parked
writes go in by their effective priority and the time they have waited. One that waited `wait_ms` gets 429, unless it
insists (`disable_backpressure`): then it goes on waiting until ageing brings it in.

What is parked is bounded; beyond that, writes are refused at once, and those that insist go straight in.

Refusing a write costs about as much as a small write itself. What really takes the load off is that a parked client sends
nothing more meanwhile.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from topics.broker.runtime import Runtime, Timer
from topics.engine.pressure import Pressure
from topics.engine.priority import rank
from topics.model.errors import Throttled

SAMPLE_MS = 20
# While somebody is parked, lag is looked at more often: what is let in at once gets smaller with it.
BUSY_SAMPLE_MS = 5

PARKED_MOST = 10_000
PARKED_BYTES_MOST = 64 << 20


class Parked:
    """A write that waits. `enter` lets it in with the time it waited, `refuse` answers it, `insists` says it may not be refused."""

    __slots__ = ("enter", "insists", "refuse", "since_ms", "size", "waiting")

    def __init__(
        self,
        since_ms: float,
        size: int,
        enter: Callable[[float], None],
        refuse: Callable[[Throttled], None],
        insists: Callable[[], bool],
    ) -> None:
        self.since_ms = since_ms
        self.size = size
        self.enter = enter
        self.refuse = refuse
        self.insists = insists
        self.waiting = True


class Throttle:
    """The gate before the writes of one server."""

    def __init__(self, *, lag_ms: int = 0, wait_ms: int = 250) -> None:
        """`lag_ms` is how late the loop may run before anybody has to wait; 0 turns the throttle off."""
        self.closed = False
        self.pressure = Pressure(lag_ms)
        self.throttled_total = 0
        self.parked_total = 0
        self.waited_ms_total = 0.0
        self.parked_bytes = 0
        self.parked = 0
        self._lag_ms_most = 0.0
        self._wait_ms = wait_ms
        self._runtime: Runtime | None = None
        self._timer: Timer | None = None
        self._due = 0.0
        # By rank, and in the order they came. An entry that has left is skipped.
        self._by_rank: list[tuple[float, int, Parked]] = []
        self._by_age: deque[Parked] = deque()
        self._number = 0

    def start(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._arm(SAMPLE_MS)

    def take_lag_ms_most(self) -> float:
        """The worst sample since the last call."""
        most, self._lag_ms_most = self._lag_ms_most, self.pressure.lag_ms
        return most

    def stop(self) -> None:
        """Everybody who waits goes in, and nobody waits from here on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.closed = False
        self.pressure.tolerated_ms = 0
        self._let_in(self.parked)

    def park(
        self,
        priority: int,
        size: int,
        enter: Callable[[float], None],
        refuse: Callable[[Throttled], None],
        insists: Callable[[], bool],
    ) -> bool:
        """Whether the write has to wait (or was refused); False when it may go in now. Only while `closed`."""
        if priority >= self.pressure.cutoff():
            return False
        if self.parked >= PARKED_MOST or self.parked_bytes + size > PARKED_BYTES_MOST:
            if insists():
                return False
            self._refuse(refuse)
            return True
        parked = Parked(self._now_ms(), size, enter, refuse, insists)
        self._number += 1
        heappush(self._by_rank, (rank(priority, parked.since_ms), self._number, parked))
        self._by_age.append(parked)
        self.parked += 1
        self.parked_total += 1
        self.parked_bytes += size
        return True

    def observe(self, lag_ms: float) -> None:
        """A new sample of the loop's lag: close or open the gate, let some in, refuse who waited too long."""
        self._lag_ms_most = max(self._lag_ms_most, lag_ms)
        pressure = self.pressure
        allowed = pressure.sample(lag_ms)
        if pressure.on and not self.closed:
            self.closed = True
            pressure.begin()
        if self.parked:
            self._let_in(allowed)
            self._refuse_late()
        if self.closed and not pressure.on and not self.parked:
            self.closed = False

    def _let_in(self, count: int) -> None:
        while count > 0 and self._by_rank:
            parked = heappop(self._by_rank)[2]
            if parked.waiting:
                count -= 1
                self._leave(parked)
                waited_ms = self._now_ms() - parked.since_ms
                self.waited_ms_total += waited_ms
                parked.enter(waited_ms)

    def _refuse_late(self) -> None:
        before_ms = self._now_ms() - self._wait_ms
        by_age = self._by_age
        while by_age and (not by_age[0].waiting or by_age[0].since_ms <= before_ms):
            parked = by_age.popleft()
            if parked.waiting and not parked.insists():
                self._leave(parked)
                self._refuse(parked.refuse)
        if len(self._by_rank) > 2 * self.parked + 64:
            self._by_rank = sorted([entry for entry in self._by_rank if entry[2].waiting])

    def _leave(self, parked: Parked) -> None:
        parked.waiting = False
        self.parked -= 1
        self.parked_bytes -= parked.size

    def _refuse(self, refuse: Callable[[Throttled], None]) -> None:
        self.throttled_total += 1
        refuse(Throttled("the server is under pressure", retry_after_ms=self.pressure.retry_after_ms()))

    def _now_ms(self) -> float:
        assert self._runtime is not None
        return self._runtime.perf() * 1000

    def _arm(self, delay_ms: float) -> None:
        assert self._runtime is not None
        self._due = self._runtime.perf() + delay_ms / 1000
        self._timer = self._runtime.call_later(delay_ms, self._measure)

    def _measure(self) -> None:
        assert self._runtime is not None
        lag_ms = max(0.0, (self._runtime.perf() - self._due) * 1000)
        # Armed first: what is let in now is a part of the next sample.
        self._arm(BUSY_SAMPLE_MS if self.parked else SAMPLE_MS)
        self.observe(lag_ms)
