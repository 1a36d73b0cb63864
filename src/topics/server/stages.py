"""/v0/stages, /v0/commits, /v0/producers — write ahead, then make it all readable together, at most once."""

import logging
import secrets
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from topics.broker.arrow_body import read_arrow_body
from topics.broker.broker import Broker
from topics.broker.bulk import MEDIA_TYPE
from topics.broker.stages import CommitRequest, Committed, Write, check_owner, commit, drop_stages, stage, stage_size
from topics.model.batch import AppendBody, Batch, batch_of, decode_batch
from topics.model.config import U64, check_u64
from topics.model.errors import InvalidRequest, NotFound, TopicsError
from topics.model.facts import Placed, Staged
from topics.model.names import check_topic_name
from topics.server.access import EVERYONE, caller_of
from topics.server.answers import send, send_error
from topics.server.bodies import Query, decode, require_json
from topics.server.http import Request

log = logging.getLogger("topics.server")
PRODUCER_CHARS = 256


class WriteBody(AppendBody):
    topic: str = ""


class CommitBody(Struct):
    stages: list[str] = []
    writes: list[WriteBody] = []
    producer: Annotated[str, Meta(min_length=1, max_length=PRODUCER_CHARS)] | None = None
    batch: U64 | None = None


_decoder = msgspec.json.Decoder(CommitBody)


def is_arrow(request: Request) -> bool:
    content_type = request.header(b"content-type")
    return content_type is not None and content_type.partition(b";")[0].strip().lower() == MEDIA_TYPE


def post_stage(broker: Broker, request: Request, _name: str) -> None:
    query = Query(request.query)
    topic_name = check_topic_name(query.text("topic"))
    caller_of(request).check_topic(topic_name)
    partition = query.number("partition", 0)
    limits = msgspec.structs.replace(broker.limits, max_batch_records=broker.limits.max_stage_records)
    stage_id = "stage_" + secrets.token_hex(16)

    def reply(outcome: Staged | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {
            "stage_id": stage_id,
            "topic": topic_name,
            "count": sum([each.page.count for each in outcome.parts]),
            "bytes": stage_size(outcome),
            "expires_at": outcome.ts + broker.limits.stage_ttl_ms,
        }
        send(request, 201, fields)

    if not is_arrow(request):
        require_json(request)
        batch = _without_delays(decode_batch(request.body, limits))
        if partition:
            batch.partition = partition
        stage(broker, stage_id, broker.topic(topic_name), [batch], reply)
        return
    stage_rows(
        broker,
        request,
        topic_name,
        partition,
        lambda found: stage(broker, stage_id, broker.topic(topic_name), found, reply),
    )


def stage_rows(
    broker: Broker, request: Request, name: str, partition: int, keep: Callable[[list[Batch]], None]
) -> None:
    """Take the Arrow body apart for the topic as it is now, and once more should it get partitions meanwhile."""
    partitions = len(broker.topic(name).partitions)

    def take(batches: list[Batch]) -> None:
        if len(broker.topic(name).partitions) == partitions:
            keep(batches)
        else:
            stage_rows(broker, request, name, partition, keep)

    read_arrow_aside(broker, request, broker.limits.max_stage_records, take, partition=partition, partitions=partitions)


def read_arrow_aside(
    broker: Broker,
    request: Request,
    most_records: int,
    take: Callable[[list[Batch]], None],
    *,
    partition: int = 0,
    partitions: int | None = None,
) -> None:
    """Take an Arrow body apart without holding up the loop; answers the request itself when it is refused."""
    limits, body = broker.limits, request.body

    def decoded(batches: list[Batch], error: BaseException | None) -> None:
        try:
            if error is not None:
                raise error
            take(batches)
        except TopicsError as refusal:
            send_error(request, refusal)
        except Exception as unexpected:
            log.error("an Arrow body could not be read", exc_info=unexpected)
            send_error(request, TopicsError("internal error"))

    def work() -> list[Batch]:
        return read_arrow_body(body, limits, most_records, partition=partition, partitions=partitions)

    broker.runtime.run_aside("bulk", work, decoded)


def delete_stage(broker: Broker, request: Request, name: str) -> None:
    staged = broker.state.stages.stages.get(name)
    if staged is not None:
        topic = broker.state.by_id.get(staged.topic_id)
        if topic is not None:
            caller_of(request).check_topic(topic.name)
    send(request, 200, {"stage_id": name, "deleted": drop_stages(broker, [name]) == 1})


def post_commit(broker: Broker, request: Request, _name: str) -> None:
    require_json(request)
    body = decode(request.body, _decoder)
    if not body.stages and not body.writes and body.producer is None:
        raise InvalidRequest("a commit names stages or brings writes")
    if (body.producer is None) != (body.batch is None):
        raise InvalidRequest("producer and batch come together")
    if len(set(body.stages)) != len(body.stages):
        raise InvalidRequest("a stage is named twice")
    caller = caller_of(request)
    for stage_id in body.stages:
        staged = broker.state.stages.stages.get(stage_id)
        topic = None if staged is None else broker.state.by_id.get(staged.topic_id)
        if topic is not None:
            caller.check_topic(topic.name)
    writes: list[Write] = []
    for write in body.writes:
        caller.check_topic(check_topic_name(write.topic))
        writes.append(Write(write.topic, _write_batch(broker, write)))
    prefixes = None if caller is EVERYONE else caller.prefixes
    wanted = CommitRequest(body.stages, writes, body.producer, check_u64("batch", body.batch or 0), prefixes)

    def reply(outcome: Committed | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        # Of a repeated batch this is what was placed then, perhaps by somebody else.
        placed = [each for each in outcome.placed if caller.may_touch(each.topic)]
        fields: dict[str, Any] = {
            "deduped": outcome.deduped,
            "count": sum([each.count for each in placed]),
            "results": [_place(each) for each in placed],
        }
        if body.producer is not None:
            fields |= {"producer": body.producer, "batch": body.batch, "fence": outcome.batch}
        wal_ms, sync_ms = round(outcome.wal_ms, 3), round(outcome.sync_ms, 3)
        send(request, 200, fields, wal_append_ms=wal_ms, fsync_ms=sync_ms)

    commit(broker, wanted, reply)


def get_producer(broker: Broker, request: Request, name: str) -> None:
    fence = broker.state.stages.fences.get(name)
    if fence is None:
        raise NotFound(f'producer "{name}" has committed nothing', code="producer_not_found", detail={"producer": name})
    caller = caller_of(request)
    check_owner(fence, caller.prefixes)
    results = [_place(each) for each in fence.placed if caller.may_touch(each.topic)]
    send(request, 200, {"producer": name, "batch": fence.batch, "ts": fence.ts, "results": results})


def _write_batch(broker: Broker, write: WriteBody) -> Batch:
    if write.idempotency_key is not None:
        raise InvalidRequest("a commit is made once by its producer and batch, not by idempotency keys")
    return _without_delays(batch_of(write, broker.limits))


def _without_delays(batch: Batch) -> Batch:
    if batch.delays is not None:
        raise InvalidRequest("records of a commit are there at once: delay_ms is for an append")
    return batch


def _place(placed: Placed) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topic": placed.topic,
        "partition": placed.partition,
        "first_seq": placed.first_seq,
        "last_seq": placed.first_seq + placed.count - 1,
        "count": placed.count,
    }
    return fields if placed.stage_id is None else {"stage_id": placed.stage_id, **fields}
