"""The events of live streams and the messages of WebSockets: their fields, for the reference and for the tests.

The server encodes them by hand (`topics.server.live.events`); `tests/server/live/test_declared_messages.py` compares.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from topics.api.common import about
from topics.api.live import Start, Subscription, WatchStart


class RecordEvent(Struct, forbid_unknown_fields=True):
    """New records of a topic."""

    topic: str
    records: Annotated[list[dict[str, Any]], about("Records, as in the response of `diff`.")]
    from_seq: Annotated[int, about("The cursor before these records.")]
    to_seq: Annotated[int, about("The cursor after these records. Seqs in between that have no record were deleted.")]
    head_seq: Annotated[int, about("Highest seq of the partition.")]


class TombstoneEvent(Struct, forbid_unknown_fields=True):
    """Records that the reader has not seen are lost."""

    topic: str
    reason: Annotated[str, about("`cap`, `ttl`, `mixed`, `recreated` or another cause of the loss.")]
    gap_from: Annotated[int, about("First lost seq.")]
    gap_to: Annotated[int, about("Last lost seq.")]
    earliest_seq: Annotated[int, about("Lowest seq that can still be read.")]
    head_seq: Annotated[int, about("Highest seq of the partition.")]
    cause: Annotated[str | UnsetType, about("`restart` or `damage`, if neither a cap nor a ttl caused the loss.")] = (
        UNSET
    )


class CaughtUpEvent(Struct, forbid_unknown_fields=True):
    """The reader has received all records up to the head."""

    topic: str
    head_seq: Annotated[int, about("Highest seq of the partition.")]


class TopicDeletedEvent(Struct, forbid_unknown_fields=True):
    """The topic was deleted. No further event names it."""

    topic: str
    head_seq: Annotated[int, about("Highest seq that the topic had.")]
    reason: Literal["deleted"]


class ErrorEvent(Struct, forbid_unknown_fields=True):
    """SSE: reading a topic failed, or the server ends the stream."""

    code: Annotated[int, about("HTTP status of the error.")]
    error: Annotated[str, about("Message.")]
    topic: Annotated[str | UnsetType, about("Topic that cannot be read; the other topics continue.")] = UNSET
    detail: Annotated[
        dict[str, Any] | UnsetType | None, about("For damaged records: topic, partition, range, file.")
    ] = UNSET


# Server-sent events by `event:`. A WebSocket has the same fields with `op`, and underscores in the names.
EVENTS: dict[str, type[Struct]] = {
    "record": RecordEvent,
    "tombstone": TombstoneEvent,
    "caught-up": CaughtUpEvent,
    "topic-deleted": TopicDeletedEvent,
    "error": ErrorEvent,
}


class Subscribe(Subscription, kw_only=True):
    """Read topics live. Fields of `Subscription` are for all topics of the command."""

    op: Literal["subscribe"]
    topic: Annotated[str | None, about("One topic.")] = None
    from_seq: Annotated[int, about("Records of `topic` after this seq.", ge=0)] = 0
    tail: Annotated[bool, about("Only records of `topic` appended from now on.")] = False
    topics: Annotated[dict[str, Start] | None, about("Several topics with where to begin.")] = None
    lenient: Annotated[bool, about("Leave out topics that do not exist, instead of an error.")] = False
    request_id: Annotated[Any, about("Any JSON value; the answer repeats it.")] = None


class Unsubscribe(Struct):
    """Stop reading a topic."""

    op: Literal["unsubscribe"]
    topic: str
    request_id: Annotated[Any, about("Any JSON value; the answer repeats it.")] = None


class Publish(Struct):
    """Append records. The other fields are those of the body of `append`."""

    op: Literal["publish"]
    topic: str
    records: Annotated[list[dict[str, Any]], about("Records, as in the body of `append`.")]
    return_seqs: Annotated[bool, about("Answer the seq of each record.")] = True
    request_id: Annotated[Any, about("Any JSON value; the answer repeats it.")] = None


class Ping(Struct):
    """Ask for a `pong`."""

    op: Literal["ping"]
    request_id: Annotated[Any, about("Any JSON value; the answer repeats it.")] = None


class Subscribed(Struct, forbid_unknown_fields=True):
    op: Literal["subscribed"]
    topics: Annotated[dict[str, WatchStart], about("Where each topic begins.")]
    request_id: Any = None


class Unsubscribed(Struct, forbid_unknown_fields=True):
    op: Literal["unsubscribed"]
    topic: str
    request_id: Any = None


class PublishAck(Struct):
    """Sent when the records are as durable as the topic's class says. The other fields are those of the response of `append`."""

    op: Literal["ack"]
    first_seq: int
    last_seq: int
    request_id: Any = None


class Pong(Struct, forbid_unknown_fields=True):
    op: Literal["pong"]
    ts: Annotated[int, about("Time of the server in milliseconds.")]
    request_id: Any = None


class SocketError(Struct, forbid_unknown_fields=True):
    """A command failed, or a topic cannot be read. The socket stays open unless the code is `slow_consumer`."""

    op: Literal["error"]
    code: Annotated[str, about("Code as in HTTP; `slow_consumer` before the server closes the socket with 1013.")]
    message: str
    detail: Annotated[Any, about("As in HTTP.")] = None
    topic: Annotated[str | UnsetType, about("Topic that cannot be read.")] = UNSET
    request_id: Any = None


# Commands of a WebSocket with their answers. A command that fails is answered with SocketError.
MESSAGES: dict[type[Struct], type[Struct]] = {
    Subscribe: Subscribed,
    Unsubscribe: Unsubscribed,
    Publish: PublishAck,
    Ping: Pong,
}
