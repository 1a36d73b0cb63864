"""POST /v0/topics/:topic/delete — remove records for good, by seq, by tag, or both."""

from msgspec import UNSET

from topics.api.topics import DeleteBody
from topics.broker.broker import RecordsGone
from topics.model.config import check_u64
from topics.model.errors import InvalidRequest
from topics.model.records.match import parse_match
from topics.server.operations import Call, handles
from topics.server.responses import reply_to, send


@handles("delete_records")
def delete_records(call: Call[DeleteBody, None]) -> None:
    request, name, body = call.request, call.name, call.body
    match = None if body.match is UNSET or body.match is None else parse_match(body.match)
    if match is None and body.before_seq is None:
        raise InvalidRequest("a delete needs before_seq or match")
    before_seq = None if body.before_seq is None else check_u64("before_seq", body.before_seq)

    @reply_to(request)
    def reply(outcome: RecordsGone) -> None:
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

    call.broker.delete_records(name, before_seq, match, body.partition, reply, dry_run=body.dry_run)
