"""Watch sessions: what a client asked to watch, and where it is, between one stream and the next.

A session is found by its `wid`, which cannot be guessed, and belongs to the caller who made it. It lives as long as it has
a stream, and for its time to live after that. Sessions that are over are looked for when somebody makes a session or
opens a stream; the oldest stand first, so that looking costs nothing when none is over.
"""

import secrets
from typing import Protocol

from topics.broker.feed import Feed
from topics.model.errors import NotFound, Throttled, Unauthorized
from topics.model.limits import Limits
from topics.server.access import Caller

WID_BYTES = 16


class OpenStream(Protocol):
    def close(self) -> None:
        """End the stream; another one has taken its place."""


class Session:
    """One subscription of one caller."""

    __slots__ = ("caller", "feed", "heartbeat_ms", "stream", "used_ms", "wid")

    def __init__(self, wid: str, caller: Caller, feed: Feed, heartbeat_ms: int) -> None:
        self.wid = wid
        self.caller = caller
        self.feed = feed
        self.heartbeat_ms = heartbeat_ms
        self.stream: OpenStream | None = None
        self.used_ms = 0

    def belongs_to(self, caller: Caller) -> bool:
        # A credential that runs out makes a new caller each time it is looked at.
        return caller is self.caller or (not caller.lasting and caller.name == self.caller.name)


class Sessions:
    """All sessions of a server, those used longest ago first."""

    def __init__(self, limits: Limits, ttl_ms: int) -> None:
        self.ttl_ms = ttl_ms
        self._limits = limits
        self._idle: dict[str, Session] = {}
        self._streaming: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._idle) + len(self._streaming)

    def make(self, caller: Caller, feed: Feed, heartbeat_ms: int, now_ms: int) -> Session:
        """Raises Throttled when there are as many as there may be."""
        self.reclaim(now_ms)
        most = self._limits.max_watch_sessions
        if 0 < most <= len(self):
            raise Throttled(f"{most} watch sessions exist already", detail={"limit": "max_watch_sessions", "max": most})
        session = Session("wid_" + secrets.token_urlsafe(WID_BYTES), caller, feed, heartbeat_ms)
        session.used_ms = now_ms
        self._idle[session.wid] = session
        return session

    def find(self, wid: str, caller: Caller, now_ms: int) -> Session:
        """Raises NotFound when there is none (any more), Unauthorized when it is somebody else's."""
        self.reclaim(now_ms)
        session = self._idle.get(wid) or self._streaming.get(wid)
        if session is None:
            raise NotFound("no such watch session; make one with POST /v0/watch", code="not_found")
        if not session.belongs_to(caller):
            raise Unauthorized("the watch session was made with another key")
        return session

    def opened(self, session: Session, stream: OpenStream) -> None:
        """The session has this stream now. One it had before is closed: its client is gone or has come back."""
        before, session.stream = session.stream, stream
        self._idle.pop(session.wid, None)
        self._streaming[session.wid] = session
        if before is not None:
            before.close()

    def closed(self, session: Session, stream: OpenStream, now_ms: int) -> None:
        """The stream is over. Means nothing when another one has taken its place."""
        if session.stream is stream:
            session.stream = None
            session.used_ms = now_ms
            self._streaming.pop(session.wid, None)
            self._idle[session.wid] = session

    def reclaim(self, now_ms: int) -> None:
        """Forget the sessions whose time is over."""
        while self._idle:
            oldest = next(iter(self._idle.values()))
            if now_ms - oldest.used_ms < self.ttl_ms:
                return
            del self._idle[oldest.wid]
