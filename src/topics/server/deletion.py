"""POST /v0/topics/:topic/delete — remove records for good, by seq, by tag, or both."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from topics.broker.broker import Broker, RecordsGone
from topics.model.config import U64, check_u64
from topics.model.errors import InvalidRequest, TopicsError
from topics.model.match import parse_match
from topics.model.names import check_topic_name
from topics.server.answers import send, send_error
from topics.server.bodies import decode, require_json
from topics.server.http import Request


class DeleteBody(Struct):
    before_seq: U64 | None = None
    match: Any | UnsetType = UNSET
    partition: Annotated[int, Meta(ge=0, le=2**31)] = 0


_decoder = msgspec.json.Decoder(DeleteBody)


def delete_records(broker: Broker, request: Request, name: str) -> None:
    require_json(request)
    check_topic_name(name)
    body = decode(request.body, _decoder)
    match = None if body.match is UNSET or body.match is None else parse_match(body.match)
    if match is None and body.before_seq is None:
        raise InvalidRequest("a delete needs before_seq or match")
    before_seq = None if body.before_seq is None else check_u64("before_seq", body.before_seq)

    def reply(outcome: RecordsGone | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        partition = outcome.partition
        fields = {
            "topic": name,
            "deleted": outcome.deleted,
            "earliest_seq": partition.earliest_seq,
            "head_seq": partition.head_seq,
            "count": outcome.topic.count,
            "bytes": outcome.topic.bytes,
        }
        send(request, 200, fields, fsync_ms=round(outcome.sync_ms, 3))

    broker.delete_records(name, before_seq, match, body.partition, reply)
