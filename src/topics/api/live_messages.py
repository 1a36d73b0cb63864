"""The events of live streams: their fields, for the reference and for the tests. The commands of WebSockets are in `topics.api.live`.

The server encodes them by hand (`topics.server.live.events`); `tests/server/live/test_declared_messages.py` compares.
"""

from __future__ import annotations  # keeps the import quick

from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from topics.api.common import about


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
