"""Slots: how many connections may stay open, all together and for one key, and how many requests one key may have under way.

A slot is given back by what ends, whoever ends it: the request by its answer or its client's going, the stream by its
channel's end. No handler has to remember it.
"""

from topics.model.errors import Throttled
from topics.model.limits import Limits
from topics.server.access import Caller, caller_of
from topics.server.http import Channel, Door, Duplex, Request, Stream


class StreamSlots:
    """Connections that stay open: SSE streams and WebSockets together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.open = 0

    def stream(self, request: Request, headers: bytes = b"", content_type: bytes = b"text/event-stream") -> Stream:
        """Answer with a stream that holds a slot until it ends. Raises Throttled, and then the request is unanswered."""
        self.check(caller_of(request))
        stream = request.stream(headers, content_type)
        self._hold(caller_of(request), stream)
        return stream

    def upgrade(self, request: Request) -> Duplex:
        """Leave HTTP with a duplex that holds a slot until it ends. Raises Throttled, and then nothing has happened."""
        self.check(caller_of(request))
        duplex = request.upgrade()
        self._hold(caller_of(request), duplex)
        return duplex

    def check(self, caller: Caller) -> None:
        """Raises Throttled when the caller may not open another one now."""
        most = self._limits.max_sse_connections
        if most and self.open >= most:
            raise over("max_sse_connections", most, f"{most} streams are open already")
        most = self._limits.max_sse_connections_per_key
        if most and caller.streams >= most and caller.limited:
            raise over("max_sse_connections_per_key", most, f"this key has {most} streams open already")

    def _hold(self, caller: Caller, channel: Channel) -> None:
        self.open += 1
        caller.streams += 1

        def release() -> None:
            self.open -= 1
            caller.streams -= 1

        channel.on_end(release)


def hold_request(request: Request, caller: Caller, most: int) -> None:
    """The caller has one more request under way until this one is over. Raises Throttled."""
    if most and caller.inflight >= most:
        raise over("max_inflight_per_key", most, f"this key has {most} requests under way already")
    caller.inflight += 1
    request.ended = _give_back


class CountedDoor:
    """A door for requests of one caller, each of which holds a slot. Whoever finds none is not taken, to be refused."""

    __slots__ = ("_caller", "_most", "_take", "bodies", "requests")

    def __init__(self, door: Door, caller: Caller, most: int) -> None:
        self._take = door.take
        self._caller = caller
        self._most = most
        # Always empty: everybody must ask.
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []

    def take(self, request: Request) -> bool:
        caller = self._caller
        if (self._most and caller.inflight >= self._most) or not self._take(request):
            return False
        caller.inflight += 1
        request.ended = _give_back
        return True


def _give_back(request: Request) -> None:
    caller_of(request).inflight -= 1


def over(limit: str, most: int, message: str) -> Throttled:
    """The refusal of a resource cap."""
    return Throttled(message, detail={"limit": limit, "max": most})
