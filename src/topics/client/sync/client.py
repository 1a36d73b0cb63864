"""The client for ordinary programs. Generated from topics.client.asynchronous by `make generate`; do not edit."""

from __future__ import annotations  # keeps the import quick

import copy
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from topics.client import calls
from topics.client.call import Call, retry_after_s
from topics.client.decoding import CHOICES, LoneSurrogates, check_decoded
from topics.client.errors import ServerUnreachable
from topics.client.events import Event, EventParser, WatchState, starts
from topics.client.items import Descriptions, TopicDescription, Watched
from topics.client.options import Ack, Backoff, Started
from topics.client.sync.concurrency import sleep
from topics.client.sync.operations import Operations
from topics.client.sync.topic import Topic
from topics.client.transport.address import Certificates, find_address, find_credential
from topics.client.transport.retry import RetryPolicy
from topics.client.transport.settings import ClientSettings
from topics.client.typed import RawPage, payload_decoder, typed_record
from topics.client.values import (
    ArchiveInfo,
    LastCommit,
    LoggedIn,
    PipelineInfo,
    Record,
    RouterInfo,
    SqlResult,
    Start,
    TableInfo,
    Tombstone,
    TopicSummary,
)
from topics.model.errors import Forbidden, InvalidRequest, NotFound, Throttled, Unavailable

# Imported when they are first used: the import of the client stays quick.
if TYPE_CHECKING:
    from topics.client.sync.connection import Connection
    from topics.client.sync.consumer import Consumer
    from topics.client.sync.producer import Producer
    from topics.client.sync.worker import Worker

T = TypeVar("T")
# How long one request of a reader at the tail waits on the server.
FOLLOW_MS = 20_000
# Topics in one request to describe them.
MAX_DESCRIBED_TOPICS = 500
PAGE_SIZE = 1000
log = logging.getLogger("topics.client")


class Client(Operations):
    """A server. Connections are kept open and used again; close the client, or use it as a context.

    One client serves many threads.

    Example:

        with Client("http://127.0.0.1:4000") as client:
            client.append("orders", [{"sku": "AEROPRESS"}])
            for item in client.read("orders"):
                print(item)
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
        proxy: str | None = None,
        ca: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        lone_surrogates: LoneSurrogates = "replace",
    ) -> None:
        """Nothing is sent yet.

        url: Of the server; default TOPICS_URL, or http://127.0.0.1:4000.
        token: API key or token of a login; default TOPICS_TOKEN.
        username, password: User of the server, sent with every request (Basic). `login` sends them once.
        timeout_s: For one request, besides what it waits on purpose. `with_options` changes it for some calls.
        retry: How often and when a request is sent again.
        proxy: URL of an HTTP proxy, "" for none; default HTTP_PROXY, HTTPS_PROXY and NO_PROXY.
        ca: File with the certificates of the authorities to trust; default those of the system.
        client_certificate, client_key: Files with our own certificate and its key.
        lone_surrogates: What becomes of a payload that no text can hold; see `topics.client.decoding`.
        """
        if lone_surrogates not in CHOICES:
            raise InvalidRequest(f"lone_surrogates must be one of {', '.join(CHOICES)}, not {lone_surrogates!r}")
        address = find_address(url, proxy=proxy, certificates=Certificates(ca, client_certificate, client_key))
        credential = find_credential(url, token, username, password)
        self._set_up(ClientSettings(address, credential, timeout_s, retry or RetryPolicy(), lone_surrogates))

    def _set_up(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._idle: list[Connection] = []
        self._partitions: dict[str, int] = {}

    @classmethod
    def from_settings(cls, settings: ClientSettings) -> Client:
        """A client with the settings of another one, sync or async: `client.settings`. They share credentials.

        Example:

            other = Client.from_settings(client.settings)
            other.close()
        """
        client = cls.__new__(cls)
        client._set_up(settings)
        return client

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

    @property
    def settings(self) -> ClientSettings:
        """Where the server is and how it is reached. Its `repr` shows no credentials."""
        return self._settings

    @property
    def url(self) -> str:
        """The URL of the server, without credentials."""
        return self._settings.address.url

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use.

        Example:

            other = Client("http://127.0.0.1:4000")
            other.close()
        """
        while self._idle:
            self._idle.pop().close()

    def with_options(self, *, timeout_s: float | None = None, retry: RetryPolicy | None = None) -> Client:
        """The same client with another time-out or other retries; both share connections and credentials.

        Example:

            quick = client.with_options(timeout_s=2, retry=RetryPolicy(attempts=1))
            quick.health()
        """
        settings = self._settings
        other = copy.copy(self)
        other._settings = msgspec.structs.replace(
            settings, timeout_s=settings.timeout_s if timeout_s is None else timeout_s, retry=retry or settings.retry
        )
        return other

    def login(self, username: str, password: str) -> LoggedIn:
        """Exchange a user's name and password for a token, which all later requests send.

        Raises Unauthorized when one of them is wrong. The token expires after `expires_in` seconds: requests raise
        Unauthorized then, until the next login.

        Example:

            client.login("ada", "correct horse")
        """
        answer = self.with_options(retry=RetryPolicy(attempts=1)).request_token(password, username=username)
        self._settings.credential.authorization = f"{answer.token_type} {answer.access_token}"
        return answer

    # Topics, consumers, producers, workers

    def topic(self, name: str) -> Topic:
        """A handle for one topic. Nothing is sent.

        Example:

            orders = client.topic("orders")
            orders.append({"sku": "AEROPRESS"}, tag="customer-7")
        """
        return Topic(self, name)

    @overload
    def consumer(
        self,
        topic: str,
        group: str,
        *,
        ack: Ack = "explicit",
        ack_interval_s: float = 5.0,
        start: Started = "earliest",
        follow: bool = True,
        limit: int = 100,
        poll_s: float = 20.0,
        heartbeat_s: float = 5.0,
        name: str | None = None,
        handle_signals: bool = True,
    ) -> Consumer[Any]: ...

    @overload
    def consumer(
        self,
        topic: str,
        group: str,
        *,
        type: type[T],
        ack: Ack = "explicit",
        ack_interval_s: float = 5.0,
        start: Started = "earliest",
        follow: bool = True,
        limit: int = 100,
        poll_s: float = 20.0,
        heartbeat_s: float = 5.0,
        name: str | None = None,
        handle_signals: bool = True,
    ) -> Consumer[T]: ...

    def consumer(
        self,
        topic: str,
        group: str,
        *,
        type: Any = None,
        ack: Ack = "explicit",
        ack_interval_s: float = 5.0,
        start: Started = "earliest",
        follow: bool = True,
        limit: int = 100,
        poll_s: float = 20.0,
        heartbeat_s: float = 5.0,
        name: str | None = None,
        handle_signals: bool = True,
    ) -> Consumer[Any]:
        """A member of a consumer group. Iterate it for messages; see `Consumer`.

        type: Decode payloads into this type: a msgspec Struct, a dataclass, a pydantic model or a builtin.
        ack: "explicit" calls `ack` yourself, "each" acknowledges a message when the next one is taken, "timed"
            acknowledges what was taken every `ack_interval_s` seconds, before waiting and at the end.
        start: Where a new group begins: "earliest", "latest" or an offset.
        follow: False ends the iteration when there are no more messages.
        limit: Most messages in one request.
        poll_s: How long a request waits for messages.
        heartbeat_s: How often the session is renewed while messages are being handled.
        name: Name of this member; made up if it is not given.
        handle_signals: Whether SIGTERM and SIGINT end the iteration, so that the consumer leaves its group.

        Example:

            with client.consumer("orders", group="billing", follow=False) as consumer:
                for message in consumer:
                    print(message.data)
                    consumer.ack(message)
        """
        from topics.client.sync.consumer import Consumer

        return Consumer(
            self,
            topic,
            group,
            decoder=None if type is None else payload_decoder(type),
            ack=ack,
            ack_interval_s=ack_interval_s,
            start=start,
            follow=follow,
            limit=limit,
            poll_s=poll_s,
            heartbeat_s=heartbeat_s,
            name=name,
            handle_signals=handle_signals,
        )

    def producer(
        self,
        *,
        max_batch_records: int = 1000,
        max_batch_bytes: int = 1 << 20,
        linger_ms: float = 5.0,
        max_buffered_bytes: int = 32 << 20,
        node: str | None = None,
    ) -> Producer:
        """A writer that sends records in batches, in order for each topic. See `Producer`.

        max_batch_records, max_batch_bytes: A batch is sent when it has this much,
        linger_ms: or when its first record has waited this long.
        max_buffered_bytes: `send` waits while this much is not acknowledged yet.
        node: Written with every record that names no other.

        Example:

            with client.producer() as producer:
                sent = producer.send("orders", {"sku": "FILTERS"})
            print(sent.result())
        """
        from topics.client.sync.producer import Producer

        return Producer(
            self,
            max_batch_records=max_batch_records,
            max_batch_bytes=max_batch_bytes,
            linger_s=linger_ms / 1000,
            max_buffered_bytes=max_buffered_bytes,
            node=node,
        )

    def worker(
        self,
        queue: str,
        *,
        concurrency: int = 1,
        retries: int | None = 5,
        backoff: Backoff | Callable[[int], float] = "exponential",
        first_delay_s: float = 1.0,
        max_delay_s: float = 300.0,
        dead_letter: str | None = None,
        lease_s: float = 30.0,
        drain_s: float = 30.0,
        push: bool = False,
        type: Any = None,
        name: str | None = None,
        handle_signals: bool = True,
    ) -> Worker:
        """A worker for the jobs of a queue. See `Worker`.

        concurrency: Maximum number of jobs that run at the same time.
        retries: How often a failed job is tried again before it goes to `dead_letter`; None leaves the queue's own
            settings alone. Setting it requires the scope admin, unless the queue is already configured so.
        backoff: Delay before a job is tried again: "exponential" (doubles from `first_delay_s` to `max_delay_s`),
            "constant" (`first_delay_s`), or a function of the number of deliveries that returns seconds.
        dead_letter: Topic for jobs that failed too often; default `<queue>.dead`.
        lease_s: How long a job stays with a worker that has died. Renewed while the job runs.
        drain_s: How long jobs may run after SIGTERM or `stop`.
        push: Receive jobs over one open connection instead of polling.
        type: Decode payloads into this type: a msgspec Struct, a dataclass, a pydantic model or a builtin.
        name: Name of the worker; made up if it is not given.
        handle_signals: Whether SIGTERM and SIGINT stop the worker.

        Example:

            worker = client.worker("jobs", concurrency=8, retries=5)

            @worker.handler
            def resize(job):
                print(job.data)
        """
        from topics.client.sync.worker import Worker

        return Worker(
            self,
            queue,
            concurrency=concurrency,
            retries=retries,
            backoff=backoff,
            first_delay_s=first_delay_s,
            max_delay_s=max_delay_s,
            dead_letter=dead_letter,
            lease_s=lease_s,
            drain_s=drain_s,
            push=push,
            decoder=None if type is None else payload_decoder(type),
            name=name,
            handle_signals=handle_signals,
        )

    # Lists, page after page

    def topics(self, prefix: str = "") -> Iterator[TopicSummary]:
        """All topics with the prefix, by name.

        Example:

            for topic in client.topics("chat."):
                print(topic.topic, topic.count)
        """
        cursor: str | None = ""
        while cursor is not None:
            page = self.list_topics(prefix=prefix, page_size=PAGE_SIZE, cursor=cursor)
            yield from page.topics
            cursor = page.next_cursor

    def routers(self, prefix: str = "", *, source: str = "", dest: str = "") -> Iterator[RouterInfo]:
        """All routers with the prefix, by name; only those from `source` or to `dest`, if given.

        Example:

            for router in client.routers(source="orders"):
                print(router.dest)
        """
        cursor: str | None = ""
        while cursor is not None:
            page = self.list_routers(prefix=prefix, source=source, dest=dest, page_size=PAGE_SIZE, cursor=cursor)
            yield from page.routers
            cursor = page.next_cursor

    def tables(self, prefix: str = "") -> Iterator[TableInfo]:
        """All known tables with the prefix, by name.

        Example:

            for table in client.tables("shop."):
                print(table.table)
        """
        cursor: str | None = ""
        while cursor is not None:
            page = self.list_tables(prefix=prefix, page_size=PAGE_SIZE, cursor=cursor)
            yield from page.tables
            cursor = page.next_cursor

    def pipelines(self) -> list[PipelineInfo]:
        """All pipelines that have reported since the server was started.

        Example:

            print(client.pipelines())
        """
        return (self.list_pipelines()).pipelines

    # Single requests in a more convenient form

    def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription | None]:
        """Where each partition of these topics begins and ends; None for a topic that does not exist.

        Example:

            print((client.describe(["orders"]))["orders"].heads)
        """
        found: dict[str, TopicDescription | None] = {}
        for start in range(0, len(topics), MAX_DESCRIBED_TOPICS):
            some = topics[start : start + MAX_DESCRIBED_TOPICS]
            body = {"topics": {topic: {} for topic in some}, "describe": True}
            found |= (self.run(Call("POST", "/v0/heads", Descriptions, body))).topics
        return found

    def sql(self, statement: str, *params: str | int | float | bool | None) -> SqlResult:
        """Run one SQL statement; parameters are bound, never pasted.

        Example:

            print((client.sql("SELECT bytes FROM system.topics WHERE topic_id = ?", "orders")).rows)
        """
        return self.run_sql(statement, params=params or None)

    def create_router(
        self,
        source: str,
        dest: str,
        *,
        name: str | None = None,
        preserve_node: bool | None = None,
        preserve_tag: bool | None = None,
        create_dest: bool = True,
        filter: Any | UnsetType = UNSET,
        allow_cycle: bool | None = None,
        guarantee: Literal["at_least_once", "exactly_once"] | None = None,
        from_: Literal["latest", "earliest"] = "latest",
    ) -> RouterInfo:
        """Forward the records of `source` to `dest`; `put_router` with a name made from both.

        Example:

            client.create_router("orders", "audit")
        """
        return self.put_router(
            name or f"{source}->{dest}",
            source,
            dest,
            preserve_node=preserve_node,
            preserve_tag=preserve_tag,
            create_dest=create_dest,
            filter=filter,
            allow_cycle=allow_cycle,
            guarantee=guarantee,
            from_=from_,
        )

    def last_commit(self, producer: str) -> LastCommit | None:
        """What a producer of commits has committed last; None when it has committed nothing.

        Example:

            print(client.last_commit("loader"))
        """
        try:
            return self.get_producer(producer)
        except NotFound:
            return None

    def archive(self, topic: str) -> ArchiveInfo | None:
        """The table that a topic is copied to, and how far that is; None when it is not copied.

        Example:

            print(client.archive("orders"))
        """
        try:
            return self.get_archive(topic)
        except NotFound as error:
            if error.code != "not_found":
                raise
            return None

    def tables_version(self, known: int | None = None, wait_ms: int = 0) -> int:
        """The version of all tables. With both arguments, waits until it is not the known one any more.

        Example:

            print(client.tables_version())
        """
        return (self.list_tables(version=known, wait_ms=wait_ms, page_size=1)).version

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic; 1 for a topic that does not exist or that the key may not read.

        Example:

            print(client.partition_count("orders"))
        """
        known = self._partitions.get(topic)
        if known is not None:
            return known
        try:
            info = self.info(topic, touch=False)
        except (NotFound, Forbidden):
            return 1
        count = len(info.partitions) or 1
        self._partitions[topic] = count
        return count

    # Reading

    @overload
    def read(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        follow: bool = False,
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[Any] | Tombstone]: ...

    @overload
    def read(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        type: type[T],
        follow: bool = False,
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[T] | Tombstone]: ...

    def read(
        self,
        topic: str,
        from_seq: int = 0,
        *,
        type: Any = None,
        follow: bool = False,
        limit: int = 1000,
        node: str | Sequence[str] | None = None,
        from_ts: int | None = None,
        partition: int | None = None,
    ) -> Iterator[Record[Any] | Tombstone]:
        """Records after `from_seq`, and a Tombstone where some are lost.

        Ends with the last record, unless `follow` says to wait for more.

        type: Decode payloads into this type: a msgspec Struct, a dataclass, a pydantic model or a builtin. Raises
            PayloadMismatch, which names the record, for one that does not fit.
        limit: Most records in one request.
        node: Leave out records of these nodes.
        from_ts: Begin at the first record at or after this Unix time in milliseconds.
        partition: Partition to read; default 0.

        Example:

            for item in client.read("orders"):
                match item:
                    case Record():
                        print(item.seq, item.data)
                    case Tombstone():
                        print("lost", item.gap_from, item.gap_to)
        """
        if type is None:
            return self._read(topic, from_seq, follow, limit, node, from_ts, partition or 0)
        decoder = payload_decoder(type)
        return self._read_typed(decoder, topic, from_seq, follow, limit, node, from_ts, partition or 0)

    def _read(
        self,
        topic: str,
        from_seq: int,
        follow: bool,
        limit: int,
        node: str | Sequence[str] | None,
        from_ts: int | None,
        partition: int,
    ) -> Iterator[Record[Any] | Tombstone]:
        epoch: int | None = None
        check = self._settings.lone_surrogates == "error"
        while True:
            call = _page_call(topic, from_seq, follow, limit, node, from_ts, partition, epoch)
            if check:
                # The records before the one that cannot be decoded are delivered first.
                call.lone_surrogates = "raw"
            page = self.run(call)
            if page.tombstone is not None:
                yield page.tombstone
            for record in page.records:
                if check:
                    check_decoded(record)
                yield record
            from_seq, epoch, from_ts = page.next_from_seq, page.epoch or None, None
            if page.caught_up and not follow:
                return

    def _read_typed(
        self,
        decoder: Callable[[bytes | Raw], T],
        topic: str,
        from_seq: int,
        follow: bool,
        limit: int,
        node: str | Sequence[str] | None,
        from_ts: int | None,
        partition: int,
    ) -> Iterator[Record[T] | Tombstone]:
        epoch: int | None = None
        while True:
            plain = _page_call(topic, from_seq, follow, limit, node, from_ts, partition, epoch)
            call = Call("POST", plain.path, RawPage, plain.body, wait_s=plain.wait_s)
            # Each payload is decoded when it is delivered.
            call.lone_surrogates = "raw"
            page = self.run(call)
            if page.tombstone is not None:
                yield page.tombstone
            for record in page.records:
                yield typed_record(decoder, topic, record, self._settings.lone_surrogates)
            from_seq, epoch, from_ts = page.next_from_seq, page.epoch or None, None
            if page.caught_up and not follow:
                return

    # Streams

    def watch(
        self,
        topics: str | Sequence[str] | Mapping[str, int | Start | Mapping[str, Any]],
        *,
        tail: bool = False,
        lenient: bool = False,
        node: str | Sequence[str] | None = None,
        limit: int = 0,
        max_batch_bytes: int = 256 << 10,
        include_meta: bool = True,
        include_tags: bool = False,
        include_data: bool = True,
        consistency: Literal["eventual", "strong"] = "eventual",
        heartbeat_ms: int = 15_000,
    ) -> Iterator[Watched]:
        """Everything new on these topics, until the iteration is ended or all of them are deleted.

        `topics`: a name, names, or names with the seq to begin after or a `Start`. After a lost connection the watch goes
        on where it was: nothing is skipped and nothing comes twice. Raises WatchFailed when the server cannot continue a
        topic.

        tail: Begin with what is appended from now on.
        lenient: Leave out topics that do not exist.

        Example:

            for item in client.watch(["orders", "audit"]):
                if isinstance(item, CaughtUp):
                    break
        """
        state = WatchState(starts(topics, tail=tail), self._settings.lone_surrogates)
        attempt = 0
        session = None
        while state.topics:
            try:
                if session is None:
                    session = self.create_watch(
                        state.topics,
                        lenient=lenient,
                        node=node,
                        limit=limit,
                        max_batch_bytes=max_batch_bytes,
                        include_meta=include_meta,
                        include_tags=include_tags,
                        include_data=include_data,
                        consistency=consistency,
                        heartbeat_ms=heartbeat_ms,
                    )
                    state.began(session.topics)
                    state.last_event_id = None
                for event in self.events(session.stream_url, state.last_event_id, heartbeat_ms):
                    attempt = 0
                    yield from state.take(event)
                    if not state.topics:
                        return
            except NotFound as error:
                if error.code != "not_found":
                    raise
                session = None
            except (Unavailable, ServerUnreachable, Throttled, OSError) as error:
                log.info("watch interrupted: %s", error)
            attempt += 1
            sleep(self._settings.retry.wait_s(min(attempt, 8), None))

    def events(
        self, path: str, last_event_id: str | None = None, heartbeat_ms: int = 15_000
    ) -> Generator[Event, None, None]:
        """The server-sent events of a path. Raises OSError when the connection is lost or silent for two heartbeats.

        Example:

            for event in client.events("/v0/topics/jobs/work?node=worker-1&max=1"):
                break
        """
        headers = {"Accept": "text/event-stream"}
        if self._settings.credential.authorization is not None:
            headers["Authorization"] = self._settings.credential.authorization
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        connection = self._open()
        try:
            status, response_headers, pieces = connection.stream(path, headers, 2 * heartbeat_ms / 1000 + 5)
            log.debug("GET %s %d, streaming", path, status)
            if status != 200:
                body = b""
                for piece in pieces:
                    body += piece
                Call("GET", path, bytes).read(status, response_headers, body)
            parser = EventParser()
            for piece in pieces:
                yield from parser.feed(piece)
        finally:
            connection.close()

    # Sending

    def run(self, call: Call[T]) -> T:
        """Send a call, again if that is safe and useful. Raises the server's error, or ServerUnreachable with the URL.

        Example:

            print(client.run(Call("GET", "/v0/health", Health)))
        """
        attempt = 0
        while True:
            attempt += 1
            after_s: float | None = None
            problem: Exception
            try:
                answer = self._send(call)
                after_s = retry_after_s(answer.headers)
                return call.read(answer.status, answer.headers, answer.body, self._settings.lone_surrogates)
            except (Throttled, Unavailable) as error:
                # Refused before anything was done, so any call may be sent again.
                if attempt >= self._settings.retry.attempts:
                    raise
                problem = error
            except OSError as error:
                # A refused connection carried no request.
                safe = call.repeatable or isinstance(error, ConnectionRefusedError)
                if attempt >= self._settings.retry.attempts or not safe:
                    reason = str(error) or type(error).__name__
                    proxy = self._settings.address.proxy
                    via = "" if proxy is None else f" through the proxy {proxy.host}:{proxy.port}"
                    raise ServerUnreachable(f"{self.url} does not answer{via}: {reason}") from error
                problem = error
            wait_s = self._settings.retry.wait_s(attempt, after_s)
            log.info(
                "%s %s failed (%s); attempt %d of %d in %.1f s",
                call.method, call.path, problem, attempt + 1, self._settings.retry.attempts, wait_s,
            )  # fmt: skip
            sleep(wait_s)

    def _send(self, call: Call[Any]) -> Any:
        """One attempt. A connection that the server has closed while it was idle is replaced."""
        headers = call.headers(self._settings.credential.authorization)
        timeout_s = self._settings.timeout_s + call.wait_s
        started = time.perf_counter()
        connection = self._take_idle()
        fresh = connection is None
        if connection is None:
            connection = self._open()
        try:
            try:
                answer = connection.request(call.method, call.path, headers, call.body, timeout_s)
            except (ConnectionResetError, BrokenPipeError):
                if fresh or not call.repeatable:
                    raise
                connection.close()
                connection = self._open()
                answer = connection.request(call.method, call.path, headers, call.body, timeout_s)
        except BaseException:
            connection.close()
            raise
        if answer.keep_alive:
            self._idle.append(connection)
        else:
            connection.close()
        if log.isEnabledFor(logging.DEBUG):
            took_ms = (time.perf_counter() - started) * 1000
            log.debug("%s %s %d %.1f ms", call.method, call.path, answer.status, took_ms)
        return answer

    def _open(self) -> Connection:
        from topics.client.sync.connection import Connection

        return Connection.open(self._settings.address, self._settings.timeout_s)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                # Another thread took the last one.
                return None
            if not connection.ended:
                return connection
            connection.close()
        return None


def _page_call(
    topic: str,
    from_seq: int,
    follow: bool,
    limit: int,
    node: str | Sequence[str] | None,
    from_ts: int | None,
    partition: int,
    epoch: int | None,
) -> Call[Any]:
    return calls.diff(
        topic,
        from_seq,
        limit=limit,
        node=node,
        from_ts=from_ts,
        epoch=epoch,
        partition=partition,
        wait_ms=FOLLOW_MS if follow else 0,
    )
