"""Watch sessions: the subscription of a client and its cursors, between one stream and the next.

A session is found by its `wid`, which cannot be guessed, and belongs to the caller who made it. It lives as long as it has a stream,
and for its time to live after that. Expired sessions are removed when a session is made or a stream is opened; idle sessions are
ordered by their last use, so that this takes no time when none has expired.
"""

import secrets
from collections.abc import Iterable
from itertools import count
from typing import Protocol

from topics.api.live import EventNames
from topics.broker.topics.feed import Feed
from topics.model.errors import NotFound, Throttled, Unauthorized
from topics.model.limits import Limits
from topics.server.auth.authorization import Caller

WID_BYTES = 16


class OpenStream(Protocol):
    def close(self) -> None:
        """End the stream; another one replaces it."""


class Session:
    """One subscription of one caller."""

    __slots__ = ("caller", "event_names", "feed", "heartbeat_ms", "public_id", "stream", "used_ms", "wid")

    def __init__(self, wid: str, public_id: str, caller: Caller, feed: Feed, heartbeat_ms: int) -> None:
        self.wid = wid
        # Names the session for operators: a `wid` opens it.
        self.public_id = public_id
        self.caller = caller
        self.feed = feed
        self.heartbeat_ms = heartbeat_ms
        self.event_names: EventNames = "sse"
        self.stream: OpenStream | None = None
        self.used_ms = 0

    def belongs_to(self, caller: Caller) -> bool:
        # A credential that can expire makes a new caller with each request.
        return caller is self.caller or (not caller.lasting and caller.name == self.caller.name)


class Sessions:
    """All sessions of a server, those used longest ago first."""

    def __init__(self, limits: Limits, ttl_ms: int) -> None:
        self.ttl_ms = ttl_ms
        self._limits = limits
        self._idle: dict[str, Session] = {}
        self._streaming: dict[str, Session] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._idle) + len(self._streaming)

    def make(self, caller: Caller, feed: Feed, heartbeat_ms: int, now_ms: int) -> Session:
        """Raises Throttled when max_watch_sessions exist."""
        self.reclaim(now_ms)
        max_sessions = self._limits.max_watch_sessions
        if 0 < max_sessions <= len(self):
            raise Throttled(
                f"{max_sessions} watch sessions exist already",
                detail={"limit": "max_watch_sessions", "max": max_sessions},
            )
        session = Session(
            "wid_" + secrets.token_urlsafe(WID_BYTES), f"s{next(self._numbers)}", caller, feed, heartbeat_ms
        )
        session.used_ms = now_ms
        self._idle[session.wid] = session
        return session

    def find(self, wid: str, now_ms: int) -> Session:
        """Raises NotFound when there is no such session, or its time is over."""
        self.reclaim(now_ms)
        session = self._idle.get(wid) or self._streaming.get(wid)
        if session is None:
            raise NotFound("no such watch session; make one with POST /v0/watch", code="not_found")
        return session

    def check_owner(self, wid: str, caller: Caller) -> None:
        """Raises Unauthorized when the session exists and was made with another key."""
        session = self._idle.get(wid) or self._streaming.get(wid)
        if session is not None and not session.belongs_to(caller):
            raise Unauthorized("the watch session was made with another key")

    def idle(self) -> Iterable[Session]:
        """Sessions without a stream."""
        return self._idle.values()

    def idle_by_id(self, public_id: str) -> Session | None:
        return next((each for each in self._idle.values() if each.public_id == public_id), None)

    def forget(self, public_id: str) -> bool:
        """End a session without a stream. False when there is none of this id."""
        session = self.idle_by_id(public_id)
        return session is not None and self._idle.pop(session.wid, None) is not None

    def opened(self, session: Session, stream: OpenStream) -> None:
        """Set the stream of the session, and close the one before: its client has disconnected or reconnected."""
        before, session.stream = session.stream, stream
        self._idle.pop(session.wid, None)
        self._streaming[session.wid] = session
        if before is not None:
            before.close()

    def closed(self, session: Session, stream: OpenStream, now_ms: int) -> None:
        """The stream has ended. Does nothing when another one has replaced it."""
        if session.stream is stream:
            session.stream = None
            session.used_ms = now_ms
            self._streaming.pop(session.wid, None)
            self._idle[session.wid] = session

    def reclaim(self, now_ms: int) -> None:
        """Remove expired sessions."""
        while self._idle:
            oldest = next(iter(self._idle.values()))
            if now_ms - oldest.used_ms < self.ttl_ms:
                return
            del self._idle[oldest.wid]
