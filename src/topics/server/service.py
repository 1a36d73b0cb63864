"""The service: what all handlers share, among it the broker after recovery."""

from collections.abc import Callable
from time import perf_counter

from topics.broker.broker import Broker
from topics.model.errors import Unavailable
from topics.server.auth.archive_roots import ArchiveRoots
from topics.server.auth.authentication import Authority
from topics.server.auth.login import Users
from topics.server.live.shared import Live
from topics.server.ops.connection_limits import StreamSlots
from topics.server.ops.monitoring.attention import Attention
from topics.server.ops.monitoring.process_metrics import process_gauges
from topics.server.ops.monitoring.sampler import Sampler
from topics.server.ops.settings import Settings
from topics.server.sql.selects import SelectPool
from topics.server.tables.pipeline_registry import Pipelines
from topics.server.topics.order import Orders
from topics.server.topics.rates import Rates
from topics.server.topics.throttle import Throttle


class Service:
    """One server. `broker` is None until recovery is done."""

    def __init__(self, settings: Settings | None = None, authority: Authority | None = None) -> None:
        self.settings = settings if settings is not None else Settings()
        self.authority = authority if authority is not None else Authority()
        self.streams = StreamSlots(self.settings.limits)
        self.throttle = Throttle(lag_ms=self.settings.throttle_lag_ms, wait_ms=self.settings.throttle_wait_ms)
        # Figures for /v0/metrics that other parts of the server count: by name, what they mean and how to read them.
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = process_gauges(self.settings.data_dir)
        self.live = Live(self.settings.limits, self.settings.live, self.streams)
        sessions = self.live.sessions
        self.gauges["topics_watch_sessions"] = ("Watch sessions, with or without a stream.", lambda: len(sessions))
        # Those with passwords and tokens, if there are any.
        self.users: Users | None = None
        self.selects = SelectPool()
        self.pipelines = Pipelines()
        self.sampler = Sampler(self.throttle, self.open_connections, lambda: self.streams.open)
        self.attention = Attention(self.settings.data_dir, self.pipelines)
        self.rates = Rates()
        self.orders: Orders = {}
        self.archive_roots = ArchiveRoots(self.settings.archive_roots, self.settings.data_dir)
        self.broker: Broker | None = None
        self.stopping = False
        self.recovery_progress = 0.0
        self.recovery_error: str | None = None
        self._started = perf_counter()

    def open_connections(self) -> int:
        """Connections of the listener; 0 for a service without one."""
        gauge = self.gauges.get("topics_connections")
        return 0 if gauge is None else int(gauge[1]())

    def uptime_ms(self) -> float:
        return (perf_counter() - self._started) * 1000


def not_serving(service: Service) -> Unavailable:
    """The error of a request that needs the broker while it has stopped or is being recovered."""
    if service.stopping:
        return Unavailable("the server is shutting down", code="shutting_down")
    progress = round(service.recovery_progress, 3)
    return Unavailable("the log is being replayed", detail={"replay_progress": progress})
