"""What the handlers share: the broker once it is there, and how far the process is in its life."""

from collections.abc import Callable
from time import perf_counter

from topics.broker.broker import Broker
from topics.broker.throttle import Throttle
from topics.server.authority import Authority
from topics.server.live import Live
from topics.server.login import Users
from topics.server.pipeline import Pipelines
from topics.server.settings import Settings
from topics.server.slots import StreamSlots
from topics.sql.select import SelectProcess


class Service:
    """One server. `broker` is None until recovery is done."""

    def __init__(self, settings: Settings | None = None, authority: Authority | None = None) -> None:
        self.settings = settings if settings is not None else Settings()
        self.authority = authority if authority is not None else Authority()
        self.streams = StreamSlots(self.settings.limits)
        self.throttle = Throttle(lag_ms=self.settings.throttle_lag_ms, wait_ms=self.settings.throttle_wait_ms)
        # Figures for /v0/metrics that other parts of the server count: by name, what they mean and how to read them.
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self.live = Live(self.settings.limits, self.settings.live, self.streams, self.throttle)
        sessions = self.live.sessions
        self.gauges["topics_watch_sessions"] = ("Watch sessions, with or without a stream.", lambda: len(sessions))
        # Those with passwords and tokens, if there are any.
        self.users: Users | None = None
        # Runs SELECTs, one after the other.
        self.selects = SelectProcess()
        self.selects_waiting = 0
        self.pipelines = Pipelines()
        self.broker: Broker | None = None
        self.stopping = False
        self.recovery_progress = 0.0
        self.recovery_error: str | None = None
        self._started = perf_counter()

    def uptime_ms(self) -> float:
        return (perf_counter() - self._started) * 1000
