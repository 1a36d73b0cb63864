"""Live reading: watch sessions with server-sent events, and WebSockets."""

from typing import Annotated, Literal

from msgspec import Struct

from topics.api.common import MAX_NODES, Response, TopicName, about
from topics.api.operation import (
    ADMIN,
    ANY_KEY,
    EVENT_STREAM,
    READ,
    WRITE,
    Command,
    Example,
    FieldScope,
    Header,
    MaxEntries,
    Name,
    Operation,
    Rule,
)

SUBSCRIPTION_ENTRIES = (MaxEntries("node", MAX_NODES), MaxEntries("topics", "max_watch_topics"))
EventNames = Literal["sse", "websocket"]


class Start(Struct):
    """Where to begin in one topic."""

    from_seq: Annotated[int, about("Records after this seq.", ge=0)] = 0
    tail: Annotated[bool, about("Only records appended from now on.")] = False
    partition: Annotated[int, about("Partition to read.", ge=0, le=2**31)] = 0
    epoch: Annotated[int, about("`epoch` of the topic that `from_seq` belongs to.", ge=0)] | None = None


class Subscription(Struct):
    """What a reader wants of every topic it names."""

    node: Annotated[str | list[str] | None, about("Leave out records of these nodes; at most 1000.")] = None
    limit: Annotated[int, about("Most records in an event; 0 for the default of 256, at most 1000.", ge=0)] = 0
    max_batch_bytes: Annotated[int, about("Bytes of an event; at most 8 MiB.", ge=0)] = 256 << 10
    include_meta: Annotated[bool, about("Include `meta`.")] = True
    include_tags: Annotated[bool, about("Include `$tag`.")] = False
    include_data: Annotated[bool, about("Include `data`.")] = True
    consistency: Annotated[
        Literal["eventual", "strong"], about("strong: events only after the records are synced.")
    ] = "eventual"


class WatchBody(Subscription, kw_only=True):
    """A watch session."""

    topics: Annotated[dict[TopicName, Start], about("Topics with where to begin; 1 to 256.")]
    cursor: Annotated[str | None, about("Id of an event of an earlier session: the topics it names begin there.")] = (
        None
    )
    heartbeat_ms: Annotated[int, about("Interval of heartbeats, clamped to 1000..60000.", ge=0)] = 15_000
    event_names: Annotated[EventNames, about("Names of the events: `caught-up` (sse) or `caught_up` (websocket).")] = (
        "sse"
    )


class WatchQuery(Struct):
    lenient: Annotated[bool, about("Leave out topics that do not exist, instead of 404.")] = False


class WatchStart(Struct):
    """Where a topic begins, and what it holds now."""

    from_seq: int
    head_seq: int
    earliest_seq: int
    epoch: int


class WatchSession(Response):
    """A session. Open `stream_url` to read; again after a lost connection."""

    wid: str
    stream_url: str
    session_ttl_ms: Annotated[int, about("How long the session lives without a stream.")]
    topics: dict[str, WatchStart]


class ConnectionTopic(Struct):
    """One topic of a live connection."""

    topic: str
    partition: int
    cursor: Annotated[int | None, about("Seq up to which records were sent; null for a work stream.")]
    lag: Annotated[int, about("Seqs behind the cursor.")]


class LiveConnection(Struct):
    """A connection that stays open, or a watch session without one."""

    id: str
    kind: Annotated[str, about("watch, socket, work, or session for a watch session without a stream.")]
    caller: Annotated[str, about("Name of the key or the user.")]
    since_ts: int
    topics: Annotated[list[ConnectionTopic], about("At most 100.")]
    lag: Annotated[int, about("Of all topics together.")]
    jobs: Annotated[int, about("Work stream: jobs that it holds.")] = 0
    node: Annotated[str | None, about("Work stream: name of the worker.")] = None
    peer: Annotated[str | None, about("Address of the client.")] = None
    buffered_bytes: Annotated[int, about("Bytes that the client has not accepted yet.")] = 0
    sent_bytes: int = 0


class ConnectionList(Response):
    total: int
    connections: Annotated[list[LiveConnection], about("The first 500.")]


class Disconnected(Response):
    id: str
    disconnected: Annotated[bool, about("False when there was no such connection.")]


OPERATIONS = (
    Operation(
        name="post_watch", noun="live", method="POST", path="/v0/watch",
        summary="Make a watch session for up to 256 topics.",
        scope=READ, names=(Name("body", "topics{}", "topic", "topic"),), query=WatchQuery, body=WatchBody,
        max_entries=SUBSCRIPTION_ENTRIES, response=WatchSession,
        errors=("topic_not_found", "corrupt_storage"),
        retry_note="A repeat makes another session.",
        example=Example("/v0/watch", {"topics": {"chat.messages": {"tail": True}}}, {
            "wid": "wid_9f", "stream_url": "/v0/watch/wid_9f", "session_ttl_ms": 60000,
            "topics": {"chat.messages": {"from_seq": 13, "head_seq": 13, "earliest_seq": 1, "epoch": 7}},
            "performance": {"server_total_ms": 0.2}}),
    ),
    Operation(
        name="get_watch", noun="live", method="GET", path="/v0/watch/{wid}",
        summary="Open the stream of a watch session: server-sent events.",
        description="Events: `record`, `tombstone`, `caught-up`, `topic-deleted`, `error`, and heartbeats as comments. A session "
        "belongs to the key that made it (401 for others).",
        scope=ANY_KEY, names=(Name("path", "wid", "watch_session"),), media=(EVENT_STREAM,), stream=True, query_token=True,
        headers=(Header("Last-Event-ID", "Id of the last event that was received: the stream goes on there."),),
        errors=("not_found", "not_acceptable"),
        example=Example("/v0/watch/wid_9f"),
    ),
    Operation(
        name="get_socket", noun="live", method="GET", path="/v0/ws",
        summary="Open a WebSocket to write and to read live, with JSON text messages.",
        description="Commands: `subscribe`, `unsubscribe`, `publish`, `ping`; each is answered in order, with its `request_id`. "
        "A command requires what the HTTP operation of the same kind requires.",
        scope=ANY_KEY, media=(), statuses=(101,), stream=True,
        example=Example("/v0/ws"),
    ),
    Operation(
        name="list_connections", noun="live", method="GET", path="/v0/connections",
        summary="List watch streams, WebSockets, work streams and idle watch sessions.",
        description="A key with prefixes sees the connections all of whose topics it may touch.",
        scope=READ | ADMIN, response=ConnectionList,
        example=Example("/v0/connections", response={
            "total": 1, "connections": [{
                "id": "c7", "kind": "watch", "caller": "key 1", "since_ts": 1767225600000, "peer": "127.0.0.1:40412",
                "topics": [{"topic": "chat.messages", "partition": 0, "cursor": 12, "lag": 1}], "lag": 1, "jobs": 0,
                "node": None, "buffered_bytes": 0, "sent_bytes": 1440}],
            "performance": {"server_total_ms": 0.1}}),
    ),
    Operation(
        name="delete_connection", noun="live", method="DELETE", path="/v0/connections/{connection}",
        summary="End a live connection or an idle watch session.",
        description="A client that still runs connects again. Jobs of a work stream return to their queue.",
        scope=ADMIN, names=(Name("path", "connection", "connection"),), response=Disconnected,
        example=Example("/v0/connections/c7", response={
            "id": "c7", "disconnected": True, "performance": {"server_total_ms": 0.1}}),
    ),
)  # fmt: skip

# The commands of a WebSocket, by `op`.
COMMANDS = {
    command.name: command
    for command in (
        Command(
            "subscribe",
            Rule(READ, (Name("body", "topic", "topic", "topic"), Name("body", "topics{}", "topic", "topic"))),
            "post_watch",
        ),
        Command("unsubscribe", Rule(ANY_KEY, (Name("body", "topic", "topic", "topic"),))),
        Command(
            "publish",
            Rule(
                WRITE,
                (Name("body", "topic", "topic", "topic"), Name("body", "config.dead_letter")),
                # Unlike in an append over HTTP, also for a topic that exists.
                (FieldScope("config", ADMIN),),
            ),
            "append",
        ),
        Command("ping", Rule(ANY_KEY)),
    )
}
