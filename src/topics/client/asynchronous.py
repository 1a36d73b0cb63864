"""The same client for asyncio programs, with the same names: each call is awaited, each iteration is `async for`."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from topics.client import calls
from topics.client.address import find_address
from topics.client.calls import Call, Node, retry_after_s
from topics.client.connection import Connection
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


class AsyncClient:
    """One server, for one event loop. Connections are kept open and used again; close it, or use it as a context."""

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
        self._idle: list[Connection] = []

    @property
    def url(self) -> str:
        return self._address.url

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # Topics

    async def create(self, topic: str, **config: Any) -> Configured:
        """Create the topic, or change the named fields of its configuration."""
        return await self.run(calls.create(topic, config))

    async def info(self, topic: str, *, touch: bool = True) -> TopicInfo:
        return await self.run(calls.info(topic, touch))

    async def heads(self, known: Mapping[str, Mapping[int, int]], *, wait_ms: int | None = None) -> Heads:
        """How far these partitions of these topics have come; waits until one is not at the seq given for it any more."""
        return await self.run(calls.heads(known, wait_ms))

    async def topics(self, prefix: str = "") -> AsyncIterator[TopicSummary]:
        """All topics with the prefix, page after page."""
        cursor = None
        while True:
            page = await self.run(calls.list_topics(prefix, 1000, cursor))
            for each in page.topics:
                yield each
            cursor = page.next_cursor
            if cursor is None:
                return

    async def drop(self, topic: str, *, if_empty: bool = False) -> Dropped:
        """Delete the topic and all it holds."""
        return await self.run(calls.drop(topic, if_empty))

    # Records

    async def append(self, topic: str, records: Sequence[Any], **options: Any) -> Appended:
        """Append payloads (or `calls.RecordIn`s), all or none. See `calls.append` for the options."""
        return await self.run(calls.append(topic, records, **options))

    async def diff(self, topic: str, from_seq: int = 0, **options: Any) -> Page:
        """One page after the cursor. See `calls.diff` for the options."""
        return await self.run(calls.diff(topic, from_seq, **options))

    async def diff_arrow(self, topic: str, from_seq: int = 0, **options: Any) -> bytes:
        """One page as an Arrow IPC stream, cursor fields in its schema's metadata."""
        return await self.run(calls.diff_arrow(topic, from_seq, **options))

    async def read(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        follow: bool = False,
        limit: int = 1000,
        node: Node = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> AsyncIterator[Record | Tombstone]:
        """Records after the cursor, and a Tombstone where some are lost; ends at the tail unless it is to follow."""
        epoch: int | None = None
        while True:
            page = await self.diff(
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
            for each in page.records:
                yield each
            from_seq, epoch, from_ts = page.next_from_seq, page.epoch or None, None
            if page.caught_up and not follow:
                return

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: Any = None, partition: int | None = None
    ) -> Deleted:
        """Delete records for good, by seq, by tag, or both."""
        return await self.run(calls.delete(topic, before_seq, match, partition))

    # Queues

    async def claim(
        self,
        topic: str,
        node: str,
        max: int = 1,
        *,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        partition: int | None = None,
    ) -> Claimed:
        return await self.run(calls.claim(topic, node, max, lease_ms, wait_ms, partition))

    async def ack(self, topic: str, node: str, seqs: Sequence[int], *, lease_ids: Sequence[str] | None = None) -> Acked:
        return await self.run(calls.settle(topic, "ack", node, seqs, lease_ids=lease_ids))

    async def nack(
        self,
        topic: str,
        node: str,
        seqs: Sequence[int],
        *,
        delay_ms: int = 0,
        lease_ids: Sequence[str] | None = None,
    ) -> Acked:
        return await self.run(calls.settle(topic, "nack", node, seqs, delay_ms=delay_ms, lease_ids=lease_ids))

    async def extend(
        self, topic: str, node: str, seqs: Sequence[int], lease_ms: int, *, lease_ids: Sequence[str] | None = None
    ) -> Acked:
        return await self.run(calls.settle(topic, "extend", node, seqs, lease_ms=lease_ms, lease_ids=lease_ids))

    # Routers

    async def create_router(self, source: str, dest: str, *, name: str | None = None, **options: Any) -> RouterInfo:
        return await self.run(calls.put_router(name or f"{source}->{dest}", source, dest, options))

    async def router(self, name: str) -> RouterInfo:
        return await self.run(calls.get_router(name))

    async def routers(
        self, prefix: str = "", *, source: str | None = None, dest: str | None = None
    ) -> AsyncIterator[RouterInfo]:
        cursor = None
        while True:
            page = await self.run(calls.list_routers(prefix, source, dest, 1000, cursor))
            for each in page.routers:
                yield each
            cursor = page.next_cursor
            if cursor is None:
                return

    async def drop_router(self, name: str) -> RouterDropped:
        return await self.run(calls.drop_router(name))

    # Stages and commits

    async def stage(self, topic: str, records: Sequence[Any], *, partition: int | None = None) -> Staged:
        return await self.run(calls.stage(topic, records, partition))

    async def stage_arrow(self, topic: str, stream: bytes, *, partition: int | None = None) -> Staged:
        return await self.run(calls.stage_arrow(topic, stream, partition))

    async def commit(
        self,
        stages: Sequence[str] = (),
        *,
        producer: str | None = None,
        batch: int | None = None,
        writes: Sequence[Mapping[str, Any]] = (),
    ) -> Committed:
        """Make everything named readable together; at most once for each batch of a producer."""
        return await self.run(calls.commit(stages, producer, batch, writes))

    async def producer(self, name: str) -> Producer | None:
        """What the producer committed last; None when it has committed nothing."""
        try:
            return await self.run(calls.get_producer(name))
        except NotFound:
            return None

    async def drop_stage(self, stage_id: str) -> StageDropped:
        return await self.run(calls.drop_stage(stage_id))

    # Consumer groups and SQL

    async def consume(
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
        return await self.run(calls.consume(topic, group, start, limit, partition, timeout_seconds, consumer))

    async def ack_group(self, topic: str, group: str, upto_offset: int, *, partition: int = 0) -> GroupAcked:
        return await self.run(calls.ack_group(topic, group, upto_offset, partition))

    async def sql(self, statement: str, *params: Any) -> SqlResult:
        """Run one statement; parameters are bound, never pasted."""
        return await self.run(calls.sql(statement, params))

    # Tables and their changes

    async def send_changes(
        self, table: str, changes: Sequence[Any], *, source: str | None = None, key_columns: Sequence[str] = ()
    ) -> ChangesSent:
        """Send change events of a table; those that are wrong are told, the others are kept, each once by its position."""
        return await self.run(calls.send_changes(table, changes, source, key_columns))

    async def put_table(
        self,
        table: str,
        kind: str = "push",
        location: str | None = None,
        *,
        key_columns: Sequence[str] = (),
        columns: Mapping[str, str] | None = None,
    ) -> TableInfo:
        """Make a table known, or replace what is known about it."""
        return await self.run(calls.put_table(table, kind, location, key_columns, columns or {}))

    async def table(self, table: str) -> TableInfo:
        return await self.run(calls.get_table(table))

    async def tables(self, prefix: str = "") -> AsyncIterator[TableInfo]:
        """All known tables with the prefix, page after page."""
        cursor = None
        while True:
            page = await self.run(calls.list_tables(prefix, 1000, cursor))
            for table in page.tables:
                yield table
            cursor = page.next_cursor
            if cursor is None:
                return

    async def drop_table(self, table: str) -> TableGone:
        """Forget the table; its change topic stays."""
        return await self.run(calls.drop_table(table))

    async def tables_version(self, known: int | None = None, wait_ms: int | None = None) -> int:
        """The version of all tables; with both, waits until it is another one than is known, or the time is over."""
        return (await self.run(calls.tables_version(known, wait_ms))).version

    async def routes(
        self, version: int | None = None, wait_ms: int | None = None, *, table: str | None = None
    ) -> RouteList:
        """All routes, or those of one table; with both, waits until their version is another one, or the time is over."""
        return await self.run(calls.list_routes(version, wait_ms, table))

    # Archives

    async def archive(self, topic: str) -> ArchiveInfo | None:
        """Where the topic's records are copied to and how far that has come; None when they are not."""
        try:
            return await self.run(calls.get_archive(topic))
        except NotFound as error:
            if error.code != "not_found":
                raise
            return None

    async def set_archive(self, topic: str, uri: str, **options: int | None) -> ArchiveInfo:
        """Copy the topic's records to this table; options not given get their defaults. See `calls.put_archive`."""
        return await self.run(calls.put_archive(topic, uri, **options))

    async def clear_archive(self, topic: str) -> ArchiveGone:
        """Copy the topic's records nowhere any more; the table stays."""
        return await self.run(calls.drop_archive(topic))

    async def archive_progress(
        self, topic: str, partitions: Sequence[ArchivedTo], *, table_version: int | None = None
    ) -> ArchiveInfo:
        """Tell how far the table has come; what is behind what the server knows counts for nothing."""
        return await self.run(calls.archive_progress(topic, partitions, table_version))

    async def archives(self, version: int | None = None, wait_ms: int | None = None) -> ArchiveList:
        """All archives; with both, waits until their version is another one, or the time is over."""
        return await self.run(calls.list_archives(version, wait_ms))

    # Pipelines

    async def report_pipeline(
        self,
        pipeline: str,
        state: str,
        jobs: Sequence[JobStatus] = (),
        *,
        master: str | None = None,
        started_ts: int | None = None,
    ) -> PipelineOrders:
        """Tell how the pipeline is doing, every two seconds; the answer says whether it is to stop."""
        return await self.run(calls.report_pipeline(pipeline, state, master, started_ts, jobs))

    async def pipelines(self) -> list[PipelineInfo]:
        """All pipelines that have reported since the server was started."""
        return (await self.run(calls.list_pipelines())).pipelines

    async def pipeline(self, pipeline: str) -> PipelineInfo:
        return await self.run(calls.get_pipeline(pipeline))

    async def stop_pipeline(self, pipeline: str) -> PipelineOrders:
        """Ask the pipeline to stop, which it does when it has finished its batches; does not wait for that."""
        return await self.run(calls.stop_pipeline(pipeline))

    async def drop_pipeline(self, pipeline: str) -> PipelineGone:
        """Forget the pipeline; one that still runs is back with its next report."""
        return await self.run(calls.drop_pipeline(pipeline))

    # The server itself

    async def health(self) -> Health:
        return await self.run(calls.health())

    async def ready(self) -> Ready:
        return await self.run(calls.ready())

    # Watching

    async def watch(
        self, topics: Any, *, tail: bool = False, lenient: bool = False, **options: Any
    ) -> AsyncIterator[Watched]:
        """Everything new on these topics, for as long as it is asked for. See `Client.watch`."""
        state = WatchState(starts(topics, tail=tail), options)
        attempt = 0
        session = None
        while state.topics:
            try:
                if session is None:
                    session = await self.run(calls.watch(state.topics, state.options, lenient))
                    state.began(session.topics)
                    state.last_event_id = None
                async for watched in self._stream(session.stream_url, state):
                    attempt = 0
                    yield watched
                    if not state.topics:
                        return
            except NotFound as error:
                if error.code != "not_found":
                    raise
                session = None
            except (Unavailable, ServerUnreachable, Throttled, OSError, TimeoutError):
                pass
            attempt += 1
            await asyncio.sleep(self._retry.wait_s(min(attempt, 8), None))

    async def _stream(self, path: str, state: WatchState) -> AsyncIterator[Watched]:
        heartbeat_s = state.options.get("heartbeat_ms", 15_000) / 1000
        silence_s = 2 * heartbeat_s + 5
        connection = await asyncio.wait_for(Connection.open(self._address), self._timeout_s)
        try:
            headers = {"Accept": "text/event-stream"}
            if self._address.token:
                headers["Authorization"] = f"Bearer {self._address.token}"
            if state.last_event_id:
                headers["Last-Event-ID"] = state.last_event_id
            status, answer_headers, pieces = await asyncio.wait_for(
                connection.stream("GET", self._address.base + path, self._host, headers), silence_s
            )
            if status != 200:
                body = b"".join([piece async for piece in pieces])
                Call("GET", path, bytes).read(status, answer_headers, body)
            parser = EventParser()
            while True:
                try:
                    piece = await asyncio.wait_for(anext(pieces), silence_s)
                except StopAsyncIteration:
                    return
                for event in parser.feed(piece):
                    for watched in state.take(event):
                        yield watched
        finally:
            connection.close()

    # Sending

    async def run(self, call: Call[T]) -> T:
        """Send the call, again if need be. Raises the server's error, or ServerUnreachable naming the URL."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._once(call)
            except (Throttled, Unavailable) as error:
                # Refused before anything was done, so any call may be sent again.
                if attempt >= self._retry.attempts:
                    raise
                after_s = error.retry_after_ms / 1000 if isinstance(error, Throttled) else self._retry_after_s
                await asyncio.sleep(self._retry.wait_s(attempt, after_s))
            except ConnectionRefusedError as error:
                if attempt >= self._retry.attempts:
                    raise self._unreachable(error) from error
                await asyncio.sleep(self._retry.wait_s(attempt, None))
            except (OSError, TimeoutError) as error:
                if attempt >= self._retry.attempts or not call.repeatable:
                    raise self._unreachable(error) from error
                await asyncio.sleep(self._retry.wait_s(attempt, None))

    _retry_after_s: float | None = None

    @property
    def _host(self) -> str:
        return f"{self._address.host}:{self._address.port}"

    async def _once(self, call: Call[T]) -> T:
        path = self._address.base + call.path
        headers = call.headers(self._address.token)
        while self._idle and self._idle[-1].ended:
            self._idle.pop().close()
        fresh = not self._idle
        connection = self._idle.pop() if self._idle else await self._open()
        try:
            async with asyncio.timeout(self._timeout_s + call.wait_s):
                try:
                    answer = await connection.request(call.method, path, self._host, headers, call.body)
                except (ConnectionResetError, BrokenPipeError):
                    if fresh or not call.repeatable:
                        raise
                    # A connection kept open was most likely closed by the server while it was idle.
                    connection.close()
                    connection = await self._open()
                    answer = await connection.request(call.method, path, self._host, headers, call.body)
        except BaseException:
            connection.close()
            raise
        if answer.keep_alive:
            self._idle.append(connection)
        else:
            connection.close()
        if answer.status == 503:
            self._retry_after_s = retry_after_s(answer.headers)
        return call.read(answer.status, answer.headers, answer.body)

    async def _open(self) -> Connection:
        return await asyncio.wait_for(Connection.open(self._address), self._timeout_s)

    def _unreachable(self, error: BaseException) -> ServerUnreachable:
        return ServerUnreachable(f"{self._address.url} does not answer: {str(error) or type(error).__name__}")
