"""POST /v0/watch and GET /v0/watch/:wid: many topics over one stream of server-sent events.

The POST makes a session, or refuses it with a body that the client can read; the GET is a plain URL that an EventSource can open. A
stream begins at the cursors of the session, moved back by `Last-Event-ID` to what the client has received.
"""

from topics.api.live import Start, WatchBody, WatchQuery
from topics.broker.broker import Broker
from topics.broker.topics.feed import Feed
from topics.engine.topics.live_frames import LiveFrame, Records
from topics.model.errors import TopicsError
from topics.server.http import Request, Stream
from topics.server.http.media_types import EVENT_STREAM, accepts
from topics.server.limits import heartbeat_ms
from topics.server.live import sse
from topics.server.live.delivery import Delivery
from topics.server.live.open_channels import feed_places
from topics.server.live.resume import cursors_in, resume_token, rewind
from topics.server.live.sessions import Session
from topics.server.live.shared import Live
from topics.server.live.subscriptions import find_topics, subscribe, subscription_of
from topics.server.operations import Call, handles
from topics.server.responses import send


@handles("post_watch")
def post_watch(call: Call[WatchBody, WatchQuery]) -> None:
    live, broker, body = call.service.live, call.broker, call.body
    if body.cursor is not None:
        _resume(body.topics, body.cursor)
    topics = find_topics(broker, body.topics, lenient=call.query.lenient)
    feed = Feed(broker)
    begun = subscribe(broker, feed, topics, body.topics, subscription_of(body, broker.limits))
    session = live.sessions.make(call.caller, feed, heartbeat_ms(body.heartbeat_ms), broker.runtime.now_ms())
    session.event_names = body.event_names
    fields = {
        "wid": session.wid,
        "stream_url": f"/v0/watch/{session.wid}",
        "session_ttl_ms": live.sessions.ttl_ms,
        "topics": begun,
    }
    send(call.request, 200, fields)


def _resume(starts: dict[str, Start], token: str) -> None:
    for name, cursor in cursors_in(token, starts).items():
        start = starts.get(name)
        if start is not None:
            start.from_seq = cursor
            start.tail = False


@handles("get_watch")
def get_watch(call: Call[None, None]) -> None:
    live, broker, request = call.service.live, call.broker, call.request
    session = live.sessions.find(call.name, broker.runtime.now_ms())
    require_event_stream(request)
    if request.method == b"HEAD":
        # The session and its open stream do not change.
        request.respond_stream_head(stream_headers(request), sse.CONTENT_TYPE)
        return
    # A client that reconnects before its old connection has timed out is not refused. Closing the old stream may run the next
    # request of its connection, which may open the session again.
    while session.stream is not None:
        session.stream.close()
    live.slots.check(session.caller)
    last_id = request.header(b"last-event-id")
    if last_id:
        rewind(session.feed, last_id)
    session.feed.trust()
    WatchStream(live, broker, session, open_stream(live, request)).start()


def require_event_stream(request: Request) -> None:
    """Raises 406 unless the client accepts server-sent events."""
    if not accepts(request.header(b"accept"), EVENT_STREAM):
        raise TopicsError("this path answers with text/event-stream only", code="not_acceptable")


def open_stream(live: Live, request: Request) -> Stream:
    """Begin the response with the reconnect delay. Raises Throttled when no slot is free."""
    stream = live.slots.stream(request, stream_headers(request), sse.CONTENT_TYPE)
    stream.write(sse.RETRY)
    return stream


def stream_headers(request: Request) -> bytes:
    head = request.head
    keep_alive = head.keep_alive and not head.http_1_0
    return sse.HEADERS + (b"Connection: keep-alive\r\n" if keep_alive else b"")


class WatchStream:
    """One stream of a session."""

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
        places = self._feed.places
        self._live.slots.channels.describe(self._stream, "watch", lambda: feed_places(places.values()))
        self._stream.on_shutdown(self.close)
        self._delivery.start()
        # Last: it is called at once if the client has disconnected.
        self._stream.on_close(self._gone)

    def close(self) -> None:
        """End the stream; the session stays."""
        self._gone()
        self._stream.close()

    def _encode(self, frame: LiveFrame) -> bytes:
        # With one topic and generation 0 the id depends on the frame alone: the event is rendered once for all readers.
        if self._alone and not self._feed.generation and isinstance(frame, Records):
            # Frames with records have the same name in both spellings.
            text = frame.texts.get("sse alone")
            if text is None:
                text = frame.texts["sse alone"] = self._with_id(frame)
            return text
        return self._with_id(frame)

    def _with_id(self, frame: LiveFrame) -> bytes:
        return b"id: %b\n%b" % (resume_token(self._feed), sse.frame_event(frame, self._session.event_names))

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
