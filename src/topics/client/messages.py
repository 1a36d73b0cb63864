"""Consumer groups without I/O: messages, where a group begins, and where it seeks to."""

from binascii import a2b_base64
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Raw

from topics.client.decoding import LoneSurrogates, decode_payload
from topics.client.items import LostMessages, Message
from topics.client.options import Started
from topics.client.times import parse_time_ms
from topics.client.values import GroupMessage, OffsetStart, SeekTarget


def message_from(
    topic: str, message: GroupMessage, decoder: Callable[[bytes | Raw], Any], lone_surrogates: LoneSurrogates
) -> Message[Any]:
    """The message with its payload decoded. Raises PayloadMismatch, and UndecodablePayload as asked."""
    where = f'topic "{topic}", partition {message.partition_id}'
    return Message(
        topic,
        message.partition_id,
        message.offset,
        message.ts,
        decode_payload(decoder, a2b_base64(message.payload), where, message.offset, lone_surrogates),
        message.message_id,
        message.source_table,
        message.op,
        message.payload_mode,
    )


def partition_of(item: GroupMessage | LostMessages) -> int:
    """The partition that an item comes from."""
    return item.partition if isinstance(item, LostMessages) else item.partition_id


def group_start(start: Started) -> Literal["earliest", "latest"] | OffsetStart:
    """Where a new group begins, as the API has it."""
    return OffsetStart(start) if isinstance(start, int) else start


def seek_target(to: str | int) -> Literal["earliest", "latest"] | SeekTarget:
    """Where a group continues, as the API has it. Raises InvalidRequest for a text that is not a time."""
    if isinstance(to, int):
        return SeekTarget(Offset=to)
    if to == "earliest":
        return "earliest"
    if to == "latest":
        return "latest"
    return SeekTarget(Timestamp=parse_time_ms(to))
