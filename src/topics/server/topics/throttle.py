"""The throttle: under pressure, writes to topics with a low priority wait, and are refused if they wait too long.

    open      every write is admitted at once; this takes one attribute access
    closed    writes below the cutoff are parked, the others are admitted

The throttle closes when the lag of the loop is too large, and opens when the pressure has ended and no write is parked. Parked
writes are admitted by their effective priority and the time they have waited. One that has waited `wait_ms` gets 429, unless
it sets `disable_backpressure`: then it waits until its rank is high enough.

The number and size of parked writes are limited; above the limit, writes are refused at once, and those with
`disable_backpressure` are admitted at once.

Refusing a write costs about as much as a small write. The load falls because a parked client sends nothing meanwhile.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from topics.broker.broker import Broker
from topics.engine.pressure import Pressure
from topics.engine.topics.priority import rank
from topics.model.errors import Throttled
from topics.runtime.interface import Runtime, Timer

SAMPLE_MS = 20
# While writes are parked the lag is sampled more often, so that fewer are admitted at once.
BUSY_SAMPLE_MS = 5

# The largest lag is kept for this long, counted in parts: a part is dropped when it is older than the window.
LAG_WINDOW_MS = 60_000
LAG_WINDOW_PARTS = 6

MAX_PARKED_WRITES = 10_000
MAX_PARKED_BYTES = 64 << 20


class Parked:
    """A write that waits. `enter` admits it with the time it waited, `refuse` answers it, `insists` says it may not be refused."""

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


class RecentMax:
    """The largest of the values of the last `window_ms`, up to one part of the window more. Reading it changes nothing."""

    __slots__ = ("_count", "_part_ms", "_parts")

    def __init__(self, window_ms: int, parts: int) -> None:
        self._count = parts
        self._part_ms = window_ms / parts
        # The number of each part of the window that has a value, oldest first, and the largest value in it.
        self._parts: deque[tuple[int, float]] = deque(maxlen=parts + 1)

    def add(self, now_ms: float, value: float) -> None:
        number = int(now_ms // self._part_ms)
        parts = self._parts
        if parts and parts[-1][0] == number:
            value = max(value, parts.pop()[1])
        parts.append((number, value))

    def get(self, now_ms: float) -> float:
        """0 when no value was added within the window."""
        oldest = int(now_ms // self._part_ms) - self._count
        return max([value for number, value in self._parts if number >= oldest], default=0.0)


def write_priority(broker: Broker, name: str) -> int:
    """The priority of a write to this topic; 0 for a topic that does not exist."""
    topic = broker.state.topics.get(name)
    return 0 if topic is None else topic.effective_priority(broker.runtime.now_ms())


class Throttle:
    """The throttle of one server."""

    def __init__(self, *, lag_ms: int = 0, wait_ms: int = 250) -> None:
        """`lag_ms` is the tolerated lag of the loop; 0 turns the throttle off."""
        self.closed = False
        self.pressure = Pressure(lag_ms)
        self.throttled_total = 0
        self.parked_total = 0
        self.waited_ms_total = 0.0
        self.parked_bytes = 0
        self.parked = 0
        self._lags = RecentMax(LAG_WINDOW_MS, LAG_WINDOW_PARTS)
        self._wait_ms = wait_ms
        # None before `start`.
        self.runtime: Runtime | None = None
        self._timer: Timer | None = None
        self._due = 0.0
        # By rank, and in the order of arrival. Entries that are not waiting any more are skipped.
        self._by_rank: list[tuple[float, int, Parked]] = []
        self._by_age: deque[Parked] = deque()
        self._number = 0

    def start(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._arm(SAMPLE_MS)

    @property
    def lag_ms_max(self) -> float:
        """The largest lag measured within the last minute (`LAG_WINDOW_MS`); 0 before the throttle is started."""
        return 0.0 if self.runtime is None else self._lags.get(self._now_ms())

    def stop(self) -> None:
        """Admit all parked writes, and every later one at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.closed = False
        self.pressure.tolerated_ms = 0
        self._admit(self.parked)

    def park(
        self,
        priority: int,
        size: int,
        enter: Callable[[float], None],
        refuse: Callable[[Throttled], None],
        insists: Callable[[], bool],
    ) -> bool:
        """Park the write or refuse it. Returns False when it is admitted now. Only while `closed`."""
        if priority >= self.pressure.cutoff():
            return False
        if self.parked >= MAX_PARKED_WRITES or self.parked_bytes + size > MAX_PARKED_BYTES:
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
        """Add a sample of the lag: close or open, admit some writes, refuse those that waited too long."""
        self._lags.add(self._now_ms(), lag_ms)
        pressure = self.pressure
        allowed = pressure.sample(lag_ms)
        if pressure.on and not self.closed:
            self.closed = True
            pressure.begin()
        if self.parked:
            self._admit(allowed)
            self._refuse_late()
        if self.closed and not pressure.on and not self.parked:
            self.closed = False

    def _admit(self, count: int) -> None:
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
        assert self.runtime is not None
        return self.runtime.perf() * 1000

    def _arm(self, delay_ms: float) -> None:
        assert self.runtime is not None
        self._due = self.runtime.perf() + delay_ms / 1000
        self._timer = self.runtime.call_later(delay_ms, self._measure)

    def _measure(self) -> None:
        assert self.runtime is not None
        lag_ms = max(0.0, (self.runtime.perf() - self._due) * 1000)
        # Set first: the writes that are admitted now are part of the next sample.
        self._arm(BUSY_SAMPLE_MS if self.parked else SAMPLE_MS)
        self.observe(lag_ms)
