"""POST /v0/watch and GET /v0/watch/:wid — many topics over one stream of server-sent events.

The POST makes a session and can refuse it with a body the client can read; the GET is a plain URL an EventSource can
open. Where a stream begins: at the session's cursors, taken back by `Last-Event-ID` to what the client has really seen.
"""

import msgspec

from topics.broker.broker import Broker
from topics.broker.feed import Feed, Frame, Records
from topics.model.config import U64, clamp
from topics.model.errors import TopicsError
from topics.server import sse
from topics.server.access import caller_of
from topics.server.answers import send
from topics.server.bodies import Query, decode, require_json
from topics.server.delivery import Delivery
from topics.server.http import Request, Stream
from topics.server.live import Live
from topics.server.resume import cursors_in, resume_token, rewind
from topics.server.sessions import Session
from topics.server.subscriptions import Start, Wishes, find_topics, subscribe, subscription_of

HEARTBEAT_MS_LEAST = 1_000
HEARTBEAT_MS_MOST = 60_000


class WatchBody(Wishes, kw_only=True):
    topics: dict[str, Start]
    # The id of an event of an earlier session: topics it names begin there, whatever `topics` says.
    cursor: str | None = None
    heartbeat_ms: U64 = 15_000


_decoder = msgspec.json.Decoder(WatchBody)


def post_watch(live: Live, broker: Broker, request: Request, _name: str) -> None:
    require_json(request)
    body = decode(request.body, _decoder)
    lenient = Query(request.query).flag("lenient", False)
    caller = caller_of(request)
    if body.cursor is not None:
        _resume(body.topics, body.cursor)
    topics = find_topics(broker, caller, body.topics, lenient=lenient)
    feed = Feed(broker)
    begun = subscribe(broker, feed, topics, body.topics, subscription_of(body, broker.limits))
    heartbeat_ms = clamp(body.heartbeat_ms, HEARTBEAT_MS_LEAST, HEARTBEAT_MS_MOST)
    session = live.sessions.make(caller, feed, heartbeat_ms, broker.runtime.now_ms())
    fields = {
        "wid": session.wid,
        "stream_url": f"/v0/watch/{session.wid}",
        "session_ttl_ms": live.sessions.ttl_ms,
        "topics": begun,
    }
    send(request, 200, fields)


def _resume(starts: dict[str, Start], token: str) -> None:
    for name, cursor in cursors_in(token, starts).items():
        start = starts.get(name)
        if start is not None:
            start.from_seq = cursor
            start.tail = False


def get_watch(live: Live, broker: Broker, request: Request, wid: str) -> None:
    session = live.sessions.find(wid, caller_of(request), broker.runtime.now_ms())
    require_event_stream(request)
    # A client that comes back before its old connection was missed must not be refused for it. There the next request may
    # be waiting, and open the session once more.
    while session.stream is not None:
        session.stream.close()
    live.slots.check(session.caller)
    last_id = request.header(b"last-event-id")
    if last_id:
        rewind(session.feed, last_id)
    session.feed.trust()
    WatchStream(live, broker, session, open_stream(live, request)).start()


def require_event_stream(request: Request) -> None:
    """Raises 406 unless the client takes server-sent events."""
    accept = request.header(b"accept")
    if accept is None:
        return
    for offer in accept.lower().split(b","):
        media_type, *parameters = [part.strip() for part in offer.split(b";")]
        refused = any([part.replace(b" ", b"") in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000") for part in parameters])
        if media_type in (b"text/event-stream", b"text/*", b"*/*") and not refused:
            return
    raise TopicsError("this path answers with text/event-stream only", code="not_acceptable")


def open_stream(live: Live, request: Request) -> Stream:
    """Begin the answer: the head, and how long to wait before coming back. Raises Throttled when no slot is free."""
    head = request.head
    keep_alive = head.keep_alive and not head.http_1_0
    headers = sse.HEADERS + (b"Connection: keep-alive\r\n" if keep_alive else b"")
    stream = live.slots.stream(request, headers, sse.CONTENT_TYPE)
    stream.write(sse.RETRY)
    return stream


class WatchStream:
    """One stream of a session, from the first byte to the last."""

    __slots__ = ("_alone", "_broker", "_delivery", "_feed", "_live", "_over", "_session", "_stream")

    def __init__(self, live: Live, broker: Broker, session: Session, stream: Stream) -> None:
        self._live = live
        self._broker = broker
        self._session = session
        self._stream = stream
        self._feed = session.feed
        self._over = False
        self._alone = len(session.feed.places) == 1
        self._delivery = Delivery(
            broker.runtime,
            stream,
            session.feed,
            self._encode,
            live.pace,
            on_stuck=self._stuck,
            quiet_ms=session.heartbeat_ms,
            on_quiet=self._beat,
        )

    def start(self) -> None:
        self._live.sessions.opened(self._session, self)
        self._stream.on_shutdown(self.close)
        self._delivery.start()
        # Last, because it is called at once if the client has gone already.
        self._stream.on_close(self._gone)

    def close(self) -> None:
        """End it in good order; the session stays."""
        self._gone()
        self._stream.close()

    def _encode(self, frame: Frame) -> bytes:
        # With a single topic and no turn the id says no more than the frame does: the whole event is the same for everybody.
        if self._alone and not self._feed.turns_told and isinstance(frame, Records):
            text = frame.texts.get("sse alone")
            if text is None:
                text = frame.texts["sse alone"] = self._with_id(frame)
            return text
        return self._with_id(frame)

    def _with_id(self, frame: Frame) -> bytes:
        return b"id: %b\n%b" % (resume_token(self._feed), sse.frame_event(frame))

    def _beat(self) -> None:
        self._delivery.send(sse.heartbeat(self._broker.runtime.now_ms()))

    def _stuck(self) -> None:
        timeout_ms = self._live.pace.slow_consumer_timeout_ms
        self._stream.write(
            sse.error_event(
                408, f"slow consumer: nothing was read for {timeout_ms} ms; reconnect to go on", retry_after_ms=2000
            )
        )
        self.close()

    def _gone(self) -> None:
        if not self._over:
            self._over = True
            self._delivery.stop()
            self._live.sessions.closed(self._session, self, self._broker.runtime.now_ms())
