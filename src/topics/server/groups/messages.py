"""Messages: records as consumers of a group see them.

    {"topic_id","partition_id","offset","message_id","source_table","op","ts","payload_mode","payload"}

`payload` is the base64 text of the JSON bytes of the record's `data`. A change event carries its table, operation, payload
mode and id in `meta`. Any other record counts as the insert of a full payload from no table, and its id is made from
values that never change: ids of one log sort by offset, ids of different logs by time.
"""

from base64 import b64encode
from typing import Any

import msgspec
from msgspec import Struct

from topics.broker.broker import Topic
from topics.broker.groups.groups import Fetched
from topics.model.records.surrogates import cover_halves
from topics.wire.group_messages import Message

COLUMNS = ["topic_id", "partition_id", "offset", "message_id", "source_table", "op", "ts", "payload_mode", "payload"]

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_OPS = {"insert": "Insert", "update": "Update", "delete": "Delete"}
_MODES = {"key": "Key", "full": "Full", "diff": "Diff"}


class _Meta(Struct):
    message_id: Any = None
    source_table: Any = None
    op: Any = None
    payload_mode: Any = None


_decode_meta = msgspec.json.Decoder(_Meta).decode
_NO_META = _Meta()


def message_rows(topic: Topic, fetched: Fetched) -> list[list[Any]]:
    """One row per message, in the order of COLUMNS."""
    return [_row(topic, fetched.partition, message) for message in fetched.messages]


def message_objects(topic: Topic, fetched: Fetched) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in message_rows(topic, fetched)]


def message_id(topic_id: int, partition: int, offset: int, ts: int) -> str:
    """26 characters that sort by time, then by topic, partition and offset; always the same for the same record."""
    number = (
        (ts & (1 << 48) - 1) << 80
        | (topic_id & (1 << 16) - 1) << 64
        | (partition & (1 << 16) - 1) << 48
        | offset & (1 << 48) - 1
    )
    return "".join([_DIGITS[number >> shift & 31] for shift in range(125, -1, -5)])


def _meta(text: bytes) -> _Meta:
    """The fields of the change in `meta`. Clients may write any meta: one that cannot be decoded has no fields."""
    if not text:
        return _NO_META
    try:
        return _decode_meta(text)
    except msgspec.MsgspecError:
        covered = cover_halves(text)
    if covered is not None:
        try:
            return _decode_meta(covered.body)
        except msgspec.MsgspecError:
            pass
    return _NO_META


def _row(topic: Topic, partition: int, message: Message) -> list[Any]:
    meta = _meta(bytes(message.meta))
    named_id = meta.message_id
    return [
        topic.name,
        partition,
        message.offset,
        named_id if isinstance(named_id, str) else message_id(topic.id, partition, message.offset, message.ts),
        meta.source_table if isinstance(meta.source_table, str) else None,
        _OPS.get(str(meta.op).lower(), "Insert"),
        message.ts,
        _MODES.get(str(meta.payload_mode).lower(), "Full"),
        b64encode(message.data).decode(),
    ]
