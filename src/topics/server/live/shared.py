"""What all live readers of a server share: their sessions, their slots, and how long they may stay behind."""

from msgspec import Struct

from topics.model.limits import Limits
from topics.server.live.delivery import Pace
from topics.server.live.sessions import Sessions
from topics.server.ops.connection_limits import StreamSlots


class LiveSettings(Struct, frozen=True):
    """Times in milliseconds."""

    session_ttl_ms: int = 300_000
    buffer_grace_ms: int = 5_000
    slow_consumer_timeout_ms: int = 30_000
    # A WebSocket over which nothing was sent for so long is pinged; one that then stays silent as long is closed.
    ping_ms: int = 20_000


class Live:
    """The live side of one server."""

    def __init__(self, limits: Limits, settings: LiveSettings, slots: StreamSlots) -> None:
        self.slots = slots
        self.sessions = Sessions(limits, settings.session_ttl_ms)
        self.pace = Pace(settings.buffer_grace_ms, settings.slow_consumer_timeout_ms)
        self.ping_ms = settings.ping_ms
