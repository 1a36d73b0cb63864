"""What the handlers share: the broker once it is there, and how far the process is in its life."""

from time import perf_counter

from topics.broker.broker import Broker
from topics.server.authority import Authority
from topics.server.settings import Settings
from topics.server.slots import StreamSlots


class Service:
    """One server. `broker` is None until recovery is done."""

    def __init__(self, settings: Settings | None = None, authority: Authority | None = None) -> None:
        self.settings = settings if settings is not None else Settings()
        self.authority = authority if authority is not None else Authority()
        self.streams = StreamSlots(self.settings.limits)
        self.broker: Broker | None = None
        self.stopping = False
        self.recovery_progress = 0.0
        self.recovery_error: str | None = None
        self._started = perf_counter()

    def uptime_ms(self) -> float:
        return (perf_counter() - self._started) * 1000
