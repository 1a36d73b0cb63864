"""GET /v0/topics/:q/work — jobs pushed to a worker over one connection, as server-sent events.

At most `max` jobs are with the connection at once; each one that is acked, nacked or runs out makes room for the next.
When the connection goes, what was pushed over it and is still held is anybody's again at once; what the same worker
claimed otherwise stays its own.
"""

from topics.broker.broker import Broker
from topics.broker.desk import Claimed, Desk
from topics.broker.runtime import Timer
from topics.model.config import LEASE_MS_LEAST, LEASE_MS_MOST, clamp
from topics.model.errors import InvalidRequest, TopicsError
from topics.model.names import check_topic_name
from topics.server.bodies import Query
from topics.server.http import Request, Stream
from topics.server.live import Live
from topics.server.queues import check_node
from topics.server.sse import error_event, event, heartbeat
from topics.server.watch import open_stream, require_event_stream

HEARTBEAT_MS = 15_000
# A worker that does not read gets no more until it has taken most of what was sent.
BUFFERED_MOST = 1 << 20


def stream_work(live: Live, broker: Broker, request: Request, name: str) -> None:
    check_topic_name(name)
    query = Query(request.query)
    node = query.text("node")
    if not node:
        raise InvalidRequest("node must name the worker")
    check_node(node, broker.limits)
    most = clamp(query.number("max", 1), 1, broker.limits.max_claim)
    lease_ms = query.number("lease_ms", -1)
    topic, partition, _ = broker.queues.find(name, query.number("partition", 0))
    require_event_stream(request)
    stream = open_stream(live, request)
    lease = None if lease_ms < 0 else clamp(lease_ms, LEASE_MS_LEAST, LEASE_MS_MOST)
    WorkStream(broker, broker.queues.desk(topic, partition), stream, node, most, lease)


class WorkStream:
    """One worker's connection: a claimer that goes on until it is closed."""

    def __init__(
        self,
        broker: Broker,
        desk: Desk,
        stream: Stream,
        node: str,
        most: int,
        lease_ms: int | None,
    ) -> None:
        self.node = node
        self.lease_ms = lease_ms
        self.basket: set[int] | None = set()
        self._broker = broker
        self._desk = desk
        self._stream = stream
        self._most = most
        self._start = b'{"topic":"%b",' % desk.topic.name_bytes
        self._sent = False
        stream.write(heartbeat(broker.runtime.now_ms()))
        self._heartbeat: Timer = broker.runtime.call_later(HEARTBEAT_MS, self._beat)
        desk.join(self)
        stream.on_close(self._closed)
        stream.on_shutdown(self._end)
        stream.on_drain(desk.serve_soon)
        if not stream.closed:
            desk.serve_soon()

    def room(self) -> int:
        assert self.basket is not None
        if self._stream.closed or self._stream.buffered > BUFFERED_MOST:
            return 0
        return max(0, self._most - len(self.basket))

    def deliver(self, claimed: Claimed) -> None:
        if self._stream.closed:
            # Went while the log was written; what it would have got was given back when it went.
            return
        assert claimed.grant is not None
        start = self._start
        frames = [
            event(b"job", start + job[1:], b"%d" % seq)
            for seq, job in zip(claimed.grant.seqs, claimed.jobs, strict=True)
        ]
        self._sent = True
        self._stream.write(b"".join(frames))

    def fail(self, error: TopicsError) -> None:
        """The queue is gone, or its log is: the worker may come again."""
        if not self._stream.closed:
            gone = error.code in ("topic_not_found", "not_a_queue")
            name = self._desk.topic.name
            message = f'topic "{name}" is no longer a queue' if gone else error.message
            self._stream.write(error_event(409 if gone else 503, message, topic=name))
            self._end()

    def _beat(self) -> None:
        if not self._sent:
            self._stream.write(heartbeat(self._broker.runtime.now_ms()))
        self._sent = False
        self._heartbeat = self._broker.runtime.call_later(HEARTBEAT_MS, self._beat)

    def _end(self) -> None:
        self._stream.close()
        self._closed()

    def _closed(self) -> None:
        self._heartbeat.cancel()
        self._desk.leave(self)
        assert self.basket is not None
        self._broker.queues.release(self._desk.topic, self._desk.partition, self.basket)
