"""Limits on open streams, in total and per key, and on concurrent requests per key.

The end of a request or a stream releases its slot, whatever ends it: the response, the disconnect, or the end of the
channel. No handler has to release one.
"""

from collections.abc import Callable

from topics.model.errors import Throttled
from topics.model.limits import Limits
from topics.server.auth.authorization import Caller, caller_of
from topics.server.http import Channel, Duplex, PendingRequests, Request, Stream
from topics.server.live.open_channels import OpenChannels


class StreamSlots:
    """Slots for connections that stay open: SSE streams and WebSockets together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.open = 0
        self.channels = OpenChannels()

    def stream(self, request: Request, headers: bytes = b"", content_type: bytes = b"text/event-stream") -> Stream:
        """Respond with a stream that holds a slot until it ends. If Throttled is raised, the request is unanswered."""
        self.check(caller_of(request))
        stream = request.stream(headers, content_type)
        self._hold(request, stream)
        return stream

    def upgrade(self, request: Request) -> Duplex:
        """Leave HTTP with a duplex that holds a slot until it ends. If Throttled is raised, nothing has happened."""
        self.check(caller_of(request))
        duplex = request.upgrade()
        self._hold(request, duplex)
        return duplex

    def check(self, caller: Caller) -> None:
        """Raise Throttled if the caller may not open another stream now."""
        limit = self._limits.max_sse_connections
        if limit and self.open >= limit:
            raise over("max_sse_connections", limit, f"{limit} streams are open, which is the limit")
        limit = self._limits.max_sse_connections_per_key
        if limit and caller.streams >= limit and caller.limited:
            raise over("max_sse_connections_per_key", limit, f"this key has {limit} streams open, which is the limit")

    def end_those_of(self, removed: Callable[[Caller], bool]) -> int:
        """End the streams of the callers for which `removed` is true, as a shutdown does. Return how many."""
        ended = [opened.channel for opened in self.channels.by_id.values() if removed(opened.caller)]
        for channel in ended:
            channel.shut_down()
        return len(ended)

    def _hold(self, request: Request, channel: Channel) -> None:
        caller = caller_of(request)
        self.open += 1
        caller.streams += 1
        self.channels.add(channel, caller, request.peer)

        def release() -> None:
            self.open -= 1
            caller.streams -= 1
            self.channels.remove(channel)

        channel.on_end(release)


def hold_request(request: Request, caller: Caller, limit: int) -> None:
    """Count the request as one of the caller's concurrent requests until it ends. Raises Throttled."""
    if limit and caller.inflight >= limit:
        raise over("max_inflight_per_key", limit, f"this key has {limit} concurrent requests, which is the limit")
    caller.inflight += 1
    request.ended = _release


class CountedPendingRequests:
    """A batch for the requests of one caller, each of which holds a slot. Without a free slot `add` returns False."""

    __slots__ = ("_add", "_caller", "_limit", "bodies", "requests")

    def __init__(self, batch: PendingRequests, caller: Caller, limit: int) -> None:
        self._add = batch.add
        self._caller = caller
        self._limit = limit
        # Always empty, so that `add` is called for every request.
        self.requests: list[Request] = []
        self.bodies: list[bytes] = []

    def add(self, request: Request) -> bool:
        caller = self._caller
        if (self._limit and caller.inflight >= self._limit) or not self._add(request):
            return False
        caller.inflight += 1
        request.ended = _release
        return True


def _release(request: Request) -> None:
    caller_of(request).inflight -= 1


def over(name: str, limit: int, message: str) -> Throttled:
    """Return the error for a reached limit."""
    return Throttled(message, detail={"limit": name, "max": limit})
