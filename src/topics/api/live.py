"""Live reading: watch sessions with server-sent events, and WebSockets."""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from topics.api.common import MAX_NODES, Response, TopicName, about
from topics.api.operation import (
    ADMIN,
    ANY_KEY,
    EVENT_STREAM,
    READ,
    Command,
    Example,
    FieldScope,
    Header,
    MaxEntries,
    Name,
    Operation,
    Rule,
    command_of,
)
from topics.api.topics import OPERATIONS as APPEND_OPERATIONS
from topics.api.topics import Appended
from topics.model.config import U64
from topics.model.records.batch import AppendBody

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

    from_seq: Annotated[int, about("Records after this seq follow.")]
    head_seq: Annotated[int, about("Highest seq that was assigned.")]
    earliest_seq: Annotated[int, about("Lowest seq that can be read.")]
    epoch: Annotated[int, about("Distinguishes the topic from earlier ones of the same name.")]


class WatchSession(Response):
    """A session. Open `stream_url` to read; again after a lost connection."""

    wid: Annotated[str, about("Id of the session.")]
    stream_url: Annotated[str, about("Path of the stream.")]
    session_ttl_ms: Annotated[int, about("How long the session lives without a stream.")]
    topics: Annotated[dict[str, WatchStart], about("By topic, where it begins.")]


class ConnectionTopic(Struct):
    """One topic of a live connection."""

    topic: Annotated[str, about("Name of the topic.")]
    partition: Annotated[int, about("Number of the partition.")]
    cursor: Annotated[int | None, about("Seq up to which records were sent; null for a work stream.")]
    lag: Annotated[int, about("Seqs behind the cursor.")]


class LiveConnection(Struct):
    """A connection that stays open, or a watch session without one."""

    id: Annotated[str, about("Id of the connection.")]
    kind: Annotated[str, about("watch, socket, work, or session for a watch session without a stream.")]
    caller: Annotated[str, about("Name of the key or the user.")]
    since_ts: Annotated[int, about("When it was opened, in Unix milliseconds.")]
    topics: Annotated[list[ConnectionTopic], about("At most 100.")]
    lag: Annotated[int, about("Of all topics together.")]
    jobs: Annotated[int, about("Work stream: jobs that it holds.")] = 0
    node: Annotated[str | None, about("Work stream: name of the worker.")] = None
    peer: Annotated[str | None, about("Address of the client.")] = None
    buffered_bytes: Annotated[int, about("Bytes that the client has not accepted yet.")] = 0
    sent_bytes: Annotated[int, about("Bytes that were sent.")] = 0


class ConnectionList(Response):
    """Live connections."""

    total: Annotated[int, about("Number of all entries.")]
    connections: Annotated[list[LiveConnection], about("The first 500.")]


class Disconnected(Response):
    """Whether a connection was ended."""

    id: Annotated[str, about("Id of the connection.")]
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
        headers=(Header("Last-Event-ID", "Id of the last event that was received: the stream continues after it."),),
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


# Not decoded: the answer repeats the bytes.
RequestId = Annotated[Raw, about("Any JSON; the answer repeats it.")] | UnsetType


class SubscribeMessage(Subscription, kw_only=True, tag_field="op", tag="subscribe"):
    """Read topics live. A topic that is subscribed already begins again."""

    topic: Annotated[TopicName | None, about("One topic, from `from_seq` or `tail` of this message.")] = None
    from_seq: Annotated[U64, about("`topic`: records after this seq.")] = 0
    tail: Annotated[bool, about("`topic`: only records appended from now on.")] = False
    topics: Annotated[dict[TopicName, Start] | None, about("Topics with where to begin; at most 256 in all.")] = None
    lenient: Annotated[bool, about("Leave out topics that do not exist, instead of an error.")] = False
    request_id: RequestId = UNSET


class SubscribedMessage(Struct, kw_only=True, tag_field="op", tag="subscribed"):
    """The subscription has begun."""

    topics: Annotated[dict[str, WatchStart], about("Where each topic begins.")]
    request_id: RequestId = UNSET


class UnsubscribeMessage(Struct, kw_only=True, tag_field="op", tag="unsubscribe"):
    """Stop reading a topic."""

    topic: Annotated[TopicName, about("The topic.")]
    request_id: RequestId = UNSET


class UnsubscribedMessage(Struct, kw_only=True, tag_field="op", tag="unsubscribed"):
    """No more records of the topic follow."""

    topic: Annotated[str, about("The topic.")]
    request_id: RequestId = UNSET


class PublishMessage(AppendBody, kw_only=True, tag_field="op", tag="publish"):
    """Append records: the fields of an append, and its topic."""

    topic: Annotated[TopicName, about("The topic.")]
    return_seqs: Annotated[bool, about("Answer with the seq of every record.")] = True
    request_id: RequestId = UNSET


class AckMessage(Appended, kw_only=True, tag_field="op", tag="ack"):
    """Sent when the records are as durable as the class of the topic says. Has the fields of the response of `append`."""

    request_id: RequestId = UNSET


class PingMessage(Struct, kw_only=True, tag_field="op", tag="ping"):
    """Ask for a `pong`: the connection works."""

    request_id: RequestId = UNSET


class PongMessage(Struct, kw_only=True, tag_field="op", tag="pong"):
    """The answer to a ping."""

    ts: Annotated[int, about("Time of the server, in Unix milliseconds.")]
    request_id: RequestId = UNSET


class ErrorMessage(Struct, kw_only=True, tag_field="op", tag="error"):
    """A command failed, or a topic cannot be read. The socket stays open unless the code is `slow_consumer`."""

    code: Annotated[str, about("Code as in HTTP; `slow_consumer` before the server closes the socket with 1013.")]
    message: Annotated[str, about("What is wrong, for people.")]
    detail: Annotated[dict[str, Any], about("Structured context; its fields depend on the code.")] | UnsetType = UNSET
    topic: Annotated[str, about("The topic that cannot be read; absent in the answer to a command.")] | UnsetType = (
        UNSET
    )
    request_id: RequestId = UNSET


_BY_NAME = {operation.name: operation for operation in (*OPERATIONS, *APPEND_OPERATIONS)}
_TOPIC = Name("body", "topic", "topic", "topic")
# The commands of a WebSocket, by `op`. Every command can be answered with an ErrorMessage.
COMMANDS = {
    command.name: command
    for command in (
        command_of(
            "subscribe", _BY_NAME["post_watch"], more=(_TOPIC,), request=SubscribeMessage, response=SubscribedMessage
        ),
        Command("unsubscribe", Rule(ANY_KEY, (_TOPIC,)), None, UnsubscribeMessage, UnsubscribedMessage),
        command_of(
            "publish",
            _BY_NAME["append"],
            # Unlike in an append over HTTP, also for a topic that exists.
            field_scopes=(FieldScope("config", ADMIN),),
            request=PublishMessage,
            response=AckMessage,
        ),
        Command("ping", Rule(ANY_KEY), None, PingMessage, PongMessage),
    )
}
