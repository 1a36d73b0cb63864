"""The client for ordinary programs: each call returns its answer. Threads may share one client."""

import http.client
import select
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from topics.client import calls
from topics.client.address import find_address
from topics.client.calls import Call, Node, retry_after_s
from topics.client.errors import ServerUnreachable
from topics.client.events import EventParser, WatchState, starts
from topics.client.retry import RetryPolicy
from topics.client.values import (
    Acked,
    Appended,
    ArchivedTo,
    ArchiveGone,
    ArchiveInfo,
    ArchiveList,
    ChangesSent,
    Claimed,
    Committed,
    Configured,
    Consumed,
    Deleted,
    Dropped,
    GroupAcked,
    Heads,
    Health,
    JobStatus,
    Page,
    PipelineGone,
    PipelineInfo,
    PipelineOrders,
    Producer,
    Ready,
    Record,
    RouteList,
    RouterDropped,
    RouterInfo,
    SqlResult,
    Staged,
    StageDropped,
    TableGone,
    TableInfo,
    Tombstone,
    TopicInfo,
    TopicSummary,
    Watched,
)
from topics.model.errors import NotFound, Throttled, Unavailable

T = TypeVar("T")
# How long one look at the tail waits on the server before it looks again.
FOLLOW_MS = 20_000


class Client:
    """One server. Connections are kept open and used again; close it, or use it as a context."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._address = find_address(url, token)
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._address.url

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # Topics

    def create(self, topic: str, **config: Any) -> Configured:
        """Create the topic, or change the named fields of its configuration."""
        return self.run(calls.create(topic, config))

    def info(self, topic: str, *, touch: bool = True) -> TopicInfo:
        return self.run(calls.info(topic, touch))

    def heads(self, known: Mapping[str, Mapping[int, int]], *, wait_ms: int | None = None) -> Heads:
        """How far these partitions of these topics have come; waits until one is not at the seq given for it any more."""
        return self.run(calls.heads(known, wait_ms))

    def topics(self, prefix: str = "") -> Iterator[TopicSummary]:
        """All topics with the prefix, page after page."""
        cursor = None
        while True:
            page = self.run(calls.list_topics(prefix, 1000, cursor))
            yield from page.topics
            cursor = page.next_cursor
            if cursor is None:
                return

    def drop(self, topic: str, *, if_empty: bool = False) -> Dropped:
        """Delete the topic and all it holds."""
        return self.run(calls.drop(topic, if_empty))

    # Records

    def append(self, topic: str, records: Sequence[Any], **options: Any) -> Appended:
        """Append payloads (or `calls.RecordIn`s), all or none. See `calls.append` for the options."""
        return self.run(calls.append(topic, records, **options))

    def diff(self, topic: str, from_seq: int = 0, **options: Any) -> Page:
        """One page after the cursor. See `calls.diff` for the options."""
        return self.run(calls.diff(topic, from_seq, **options))

    def diff_arrow(self, topic: str, from_seq: int = 0, **options: Any) -> bytes:
        """One page as an Arrow IPC stream, cursor fields in its schema's metadata."""
        return self.run(calls.diff_arrow(topic, from_seq, **options))

    def read(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        follow: bool = False,
        limit: int = 1000,
        node: Node = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record | Tombstone]:
        """Records after the cursor, and a Tombstone where some are lost; ends at the tail unless it is to follow."""
        epoch: int | None = None
        while True:
            page = self.diff(
                topic,
                from_seq,
                limit=limit,
                node=node,
                from_ts=from_ts,
                epoch=epoch,
                partition=partition,
                wait_ms=FOLLOW_MS if follow else None,
            )
            if page.tombstone is not None:
                yield page.tombstone
            yield from page.records
            from_seq, epoch, from_ts = page.next_from_seq, page.epoch or None, None
            if page.caught_up and not follow:
                return

    def delete(
        self, topic: str, *, before_seq: int | None = None, match: Any = None, partition: int | None = None
    ) -> Deleted:
        """Delete records for good, by seq, by tag, or both."""
        return self.run(calls.delete(topic, before_seq, match, partition))

    # Queues

    def claim(
        self,
        topic: str,
        node: str,
        max: int = 1,
        *,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        partition: int | None = None,
    ) -> Claimed:
        return self.run(calls.claim(topic, node, max, lease_ms, wait_ms, partition))

    def ack(self, topic: str, node: str, seqs: Sequence[int], *, lease_ids: Sequence[str] | None = None) -> Acked:
        return self.run(calls.settle(topic, "ack", node, seqs, lease_ids=lease_ids))

    def nack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        delay_ms: int = 0,
        lease_ids: Sequence[str] | None = None,
    ) -> Acked:
        return self.run(calls.settle(topic, "nack", node, seqs, delay_ms=delay_ms, lease_ids=lease_ids))

    def extend(
        self, topic: str, node: str, seqs: Sequence[int], lease_ms: int, *, lease_ids: Sequence[str] | None = None
    ) -> Acked:
        return self.run(calls.settle(topic, "extend", node, seqs, lease_ms=lease_ms, lease_ids=lease_ids))

    # Routers

    def create_router(self, source: str, dest: str, *, name: str | None = None, **options: Any) -> RouterInfo:
        return self.run(calls.put_router(name or f"{source}->{dest}", source, dest, options))

    def router(self, name: str) -> RouterInfo:
        return self.run(calls.get_router(name))

    def routers(self, prefix: str = "", *, source: str | None = None, dest: str | None = None) -> Iterator[RouterInfo]:
        cursor = None
        while True:
            page = self.run(calls.list_routers(prefix, source, dest, 1000, cursor))
            yield from page.routers
            cursor = page.next_cursor
            if cursor is None:
                return

    def drop_router(self, name: str) -> RouterDropped:
        return self.run(calls.drop_router(name))

    # Stages and commits

    def stage(self, topic: str, records: Sequence[Any], *, partition: int | None = None) -> Staged:
        return self.run(calls.stage(topic, records, partition))

    def stage_arrow(self, topic: str, stream: bytes, *, partition: int | None = None) -> Staged:
        return self.run(calls.stage_arrow(topic, stream, partition))

    def commit(
        self,
        stages: Sequence[str] = (),
        *,
        producer: str | None = None,
        batch: int | None = None,
        writes: Sequence[Mapping[str, Any]] = (),
    ) -> Committed:
        """Make everything named readable together; at most once for each batch of a producer."""
        return self.run(calls.commit(stages, producer, batch, writes))

    def producer(self, name: str) -> Producer | None:
        """What the producer committed last; None when it has committed nothing."""
        try:
            return self.run(calls.get_producer(name))
        except NotFound:
            return None

    def drop_stage(self, stage_id: str) -> StageDropped:
        return self.run(calls.drop_stage(stage_id))

    # Consumer groups and SQL

    def consume(
        self,
        topic: str,
        group: str,
        *,
        start: Any = None,
        limit: int | None = None,
        partition: int | None = None,
        timeout_seconds: int | None = None,
        consumer: str | None = None,
    ) -> Consumed:
        return self.run(calls.consume(topic, group, start, limit, partition, timeout_seconds, consumer))

    def ack_group(self, topic: str, group: str, upto_offset: int, *, partition: int = 0) -> GroupAcked:
        return self.run(calls.ack_group(topic, group, upto_offset, partition))

    def sql(self, statement: str, *params: Any) -> SqlResult:
        """Run one statement; parameters are bound, never pasted."""
        return self.run(calls.sql(statement, params))

    # Tables and their changes

    def send_changes(
        self, table: str, changes: Sequence[Any], *, source: str | None = None, key_columns: Sequence[str] = ()
    ) -> ChangesSent:
        """Send change events of a table; those that are wrong are told, the others are kept, each once by its position."""
        return self.run(calls.send_changes(table, changes, source, key_columns))

    def put_table(
        self,
        table: str,
        kind: str = "push",
        location: str | None = None,
        *,
        key_columns: Sequence[str] = (),
        columns: Mapping[str, str] | None = None,
    ) -> TableInfo:
        """Make a table known, or replace what is known about it."""
        return self.run(calls.put_table(table, kind, location, key_columns, columns or {}))

    def table(self, table: str) -> TableInfo:
        return self.run(calls.get_table(table))

    def tables(self, prefix: str = "") -> Iterator[TableInfo]:
        """All known tables with the prefix, page after page."""
        cursor = None
        while True:
            page = self.run(calls.list_tables(prefix, 1000, cursor))
            yield from page.tables
            cursor = page.next_cursor
            if cursor is None:
                return

    def drop_table(self, table: str) -> TableGone:
        """Forget the table; its change topic stays."""
        return self.run(calls.drop_table(table))

    def tables_version(self, known: int | None = None, wait_ms: int | None = None) -> int:
        """The version of all tables; with both, waits until it is another one than is known, or the time is over."""
        return self.run(calls.tables_version(known, wait_ms)).version

    def routes(self, version: int | None = None, wait_ms: int | None = None, *, table: str | None = None) -> RouteList:
        """All routes, or those of one table; with both, waits until their version is another one, or the time is over."""
        return self.run(calls.list_routes(version, wait_ms, table))

    # Archives

    def archive(self, topic: str) -> ArchiveInfo | None:
        """Where the topic's records are copied to and how far that has come; None when they are not."""
        try:
            return self.run(calls.get_archive(topic))
        except NotFound as error:
            if error.code != "not_found":
                raise
            return None

    def set_archive(self, topic: str, uri: str, **options: int | None) -> ArchiveInfo:
        """Copy the topic's records to this table; options not given get their defaults. See `calls.put_archive`."""
        return self.run(calls.put_archive(topic, uri, **options))

    def clear_archive(self, topic: str) -> ArchiveGone:
        """Copy the topic's records nowhere any more; the table stays."""
        return self.run(calls.drop_archive(topic))

    def archive_progress(
        self, topic: str, partitions: Sequence[ArchivedTo], *, table_version: int | None = None
    ) -> ArchiveInfo:
        """Tell how far the table has come; what is behind what the server knows counts for nothing."""
        return self.run(calls.archive_progress(topic, partitions, table_version))

    def archives(self, version: int | None = None, wait_ms: int | None = None) -> ArchiveList:
        """All archives; with both, waits until their version is another one, or the time is over."""
        return self.run(calls.list_archives(version, wait_ms))

    # Pipelines

    def report_pipeline(
        self,
        pipeline: str,
        state: str,
        jobs: Sequence[JobStatus] = (),
        *,
        master: str | None = None,
        started_ts: int | None = None,
    ) -> PipelineOrders:
        """Tell how the pipeline is doing, every two seconds; the answer says whether it is to stop."""
        return self.run(calls.report_pipeline(pipeline, state, master, started_ts, jobs))

    def pipelines(self) -> list[PipelineInfo]:
        """All pipelines that have reported since the server was started."""
        return self.run(calls.list_pipelines()).pipelines

    def pipeline(self, pipeline: str) -> PipelineInfo:
        return self.run(calls.get_pipeline(pipeline))

    def stop_pipeline(self, pipeline: str) -> PipelineOrders:
        """Ask the pipeline to stop, which it does when it has finished its batches; does not wait for that."""
        return self.run(calls.stop_pipeline(pipeline))

    def drop_pipeline(self, pipeline: str) -> PipelineGone:
        """Forget the pipeline; one that still runs is back with its next report."""
        return self.run(calls.drop_pipeline(pipeline))

    # The server itself

    def health(self) -> Health:
        return self.run(calls.health())

    def ready(self) -> Ready:
        return self.run(calls.ready())

    # Watching

    def watch(self, topics: Any, *, tail: bool = False, lenient: bool = False, **options: Any) -> Iterator[Watched]:
        """Everything new on these topics, for as long as it is asked for.

        `topics`: a name, names, or names with the seq to begin after. A broken stream is opened again where it was, a
        session that is gone is begun again there; nothing is skipped and nothing comes twice.
        """
        state = WatchState(starts(topics, tail=tail), options)
        attempt = 0
        session = None
        while state.topics:
            try:
                if session is None:
                    session = self.run(calls.watch(state.topics, state.options, lenient))
                    state.began(session.topics)
                    state.last_event_id = None
                for watched in self._stream(session.stream_url, state):
                    attempt = 0
                    yield watched
                    if not state.topics:
                        return
            except NotFound as error:
                if error.code != "not_found":
                    raise
                session = None
            except (Unavailable, ServerUnreachable, Throttled, OSError, http.client.HTTPException):
                pass
            attempt += 1
            time.sleep(self._retry.wait_s(min(attempt, 8), None))

    def _stream(self, path: str, state: WatchState) -> Iterator[Watched]:
        connection = self._connect()
        # Heartbeats come every `heartbeat_ms`; two that are missing mean that nobody is there any more.
        heartbeat_s = state.options.get("heartbeat_ms", 15_000) / 1000
        connection.timeout = 2 * heartbeat_s + 5
        try:
            headers = {"Accept": "text/event-stream"}
            if self._address.token:
                headers["Authorization"] = f"Bearer {self._address.token}"
            if state.last_event_id:
                headers["Last-Event-ID"] = state.last_event_id
            connection.request("GET", self._address.base + path, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                Call("GET", path, bytes).read(answer.status, _lower(answer), answer.read())
            parser = EventParser()
            while piece := answer.read1(65536):
                for event in parser.feed(piece):
                    yield from state.take(event)
        finally:
            connection.close()

    # Sending

    def run(self, call: Call[T]) -> T:
        """Send the call, again if need be. Raises the server's error, or ServerUnreachable naming the URL."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._once(call)
            except (Throttled, Unavailable) as error:
                # Refused before anything was done, so any call may be sent again.
                if attempt >= self._retry.attempts:
                    raise
                after_s = error.retry_after_ms / 1000 if isinstance(error, Throttled) else self._retry_after_s
                time.sleep(self._retry.wait_s(attempt, after_s))
            except ConnectionRefusedError as error:
                if attempt >= self._retry.attempts:
                    raise self._unreachable(error) from error
                time.sleep(self._retry.wait_s(attempt, None))
            except (OSError, http.client.HTTPException) as error:
                if attempt >= self._retry.attempts or not call.repeatable:
                    raise self._unreachable(error) from error
                time.sleep(self._retry.wait_s(attempt, None))

    _retry_after_s: float | None = None

    def _once(self, call: Call[T]) -> T:
        connection, fresh = self._take()
        timeout_s = self._timeout_s + call.wait_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.timeout = timeout_s
        path = self._address.base + call.path
        try:
            try:
                connection.request(call.method, path, call.body, call.headers(self._address.token))
                answer = connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if fresh or not call.repeatable:
                    raise
                # A connection kept open was most likely closed by the server while it was idle.
                connection.close()
                connection.request(call.method, path, call.body, call.headers(self._address.token))
                answer = connection.getresponse()
            body = answer.read()
        except BaseException:
            connection.close()
            raise
        headers = _lower(answer)
        if answer.will_close:
            connection.close()
        self._give_back(connection)
        if answer.status == 503:
            self._retry_after_s = retry_after_s(headers)
        return call.read(answer.status, headers, body)

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect(), True
            if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                return connection, False
            # Readable although nothing was asked: the server has closed it.
            connection.close()

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append(connection)

    def _connect(self) -> http.client.HTTPConnection:
        address = self._address
        if address.tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(address.host, address.port, timeout=self._timeout_s, context=context)
        return http.client.HTTPConnection(address.host, address.port, timeout=self._timeout_s)

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        return ServerUnreachable(f"{self._address.url} does not answer: {error}")


def _lower(answer: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.getheaders()}
