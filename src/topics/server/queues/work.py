"""GET /v0/topics/:q/work: push jobs to a worker over one connection, as server-sent events.

At most `max` jobs are leased to the connection at once; the next one is pushed when one is acked or nacked, or its lease expires.
When the connection closes, the jobs that it still holds return to the queue at once. Jobs that the same worker claimed by other
requests stay leased.
"""

from msgspec import UNSET

from topics.api.queues import WorkQuery
from topics.broker.broker import Broker
from topics.broker.queues.claim_waiters import ClaimWaiters
from topics.broker.queues.claims import ClaimResult
from topics.model.errors import TopicsError
from topics.runtime.interface import Timer
from topics.server.http import Stream
from topics.server.limits import lease_ms, streamed_jobs
from topics.server.live.open_channels import TopicPlace
from topics.server.live.sse import CONTENT_TYPE, error_event, event, heartbeat
from topics.server.live.watch import open_stream, require_event_stream, stream_headers
from topics.server.operations import Call, handles
from topics.server.queues.queues import check_node

HEARTBEAT_MS = 15_000
# A worker that does not read gets no more jobs while this much is buffered.
MAX_BUFFERED_BYTES = 1 << 20


@handles("stream_work")
def stream_work(call: Call[None, WorkQuery]) -> None:
    broker, request, query = call.broker, call.request, call.query
    check_node(query.node, broker.limits)
    max_jobs = streamed_jobs(query.max, broker.limits)
    topic, partition, _ = broker.queues.find(call.name, query.partition)
    require_event_stream(request)
    if request.method == b"HEAD":
        # No job is leased.
        request.respond_stream_head(stream_headers(request), CONTENT_TYPE)
        return
    stream = open_stream(call.service.live, request)
    leased_ms = None if query.lease_ms is UNSET else lease_ms(query.lease_ms)
    work = WorkStream(broker, broker.queues.waiters(topic, partition), stream, query.node, max_jobs, leased_ms)
    places = [TopicPlace(topic.name, partition.number, None, 0)]
    call.service.live.slots.channels.describe(
        stream, "work", lambda: places, lambda: {"node": work.node, "jobs": len(work.connection_jobs or ())}
    )


class WorkStream:
    """The connection of one worker: a claimer until it is closed."""

    def __init__(
        self,
        broker: Broker,
        waiters: ClaimWaiters,
        stream: Stream,
        node: str,
        max_jobs: int,
        lease_ms: int | None,
    ) -> None:
        self.node = node
        self.lease_ms = lease_ms
        self.connection_jobs: set[int] | None = set()
        self._broker = broker
        self._waiters = waiters
        self._stream = stream
        self._max_jobs = max_jobs
        self._start = b'{"topic":"%b",' % waiters.topic.name_bytes
        self._sent = False
        stream.write(heartbeat(broker.runtime.now_ms()))
        self._heartbeat: Timer = broker.runtime.call_later(HEARTBEAT_MS, self._beat)
        waiters.add(self)
        stream.on_close(self._closed)
        stream.on_shutdown(self._end)
        stream.on_drain(waiters.notify)
        if not stream.closed:
            waiters.notify()

    def capacity(self) -> int:
        assert self.connection_jobs is not None
        if self._stream.closed or self._stream.buffered > MAX_BUFFERED_BYTES:
            return 0
        return max(0, self._max_jobs - len(self.connection_jobs))

    def deliver(self, result: ClaimResult) -> None:
        if self._stream.closed:
            # Closed while the log was written: the jobs returned to the queue then.
            return
        assert result.delivery is not None
        start = self._start
        frames = [
            event(b"job", start + job[1:], b"%d" % seq)
            for seq, job in zip(result.delivery.seqs, result.jobs, strict=True)
        ]
        self._sent = True
        self._stream.write(b"".join(frames))

    def fail(self, error: TopicsError) -> None:
        """The queue was deleted, or the log failed: close the stream; the worker may reconnect."""
        if not self._stream.closed:
            gone = error.code in ("topic_not_found", "not_a_queue")
            name = self._waiters.topic.name
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
        self._waiters.remove(self)
        assert self.connection_jobs is not None
        self._broker.queues.release(self._waiters.topic, self._waiters.partition, self.connection_jobs)
