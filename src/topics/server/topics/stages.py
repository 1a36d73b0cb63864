"""/v0/stages, /v0/commits, /v0/producers — write ahead, then make it all readable together, at most once."""

import logging
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from topics.api.stages import CommitBody, CommitWrite, StageQuery
from topics.broker.broker import Broker
from topics.broker.transactions.stages import commit, drop_stages, stage
from topics.engine.transactions.commit_request import CommitRequest, Committed, Write
from topics.model.config import check_u64
from topics.model.errors import BatchTooLarge, InvalidRequest, NotFound
from topics.model.facts import Placed, Staged
from topics.model.limits import Limits
from topics.model.records.batch import Batch, batch_of, decode_batch
from topics.model.records.json_walk import JsonWalk
from topics.model.records.large_batch import LARGE_BODY_BYTES, MAX_FIELD_BYTES, decode_large, read_write
from topics.model.steps import Steps
from topics.server.auth.authorization import EVERYONE
from topics.server.decoding import decode, decode_in_slices, is_arrow, take_decoded
from topics.server.http import Request
from topics.server.operations import Call, decodes, handles
from topics.server.responses import reply_to, send
from topics.wire.arrow_body import read_arrow_body

log = logging.getLogger("topics.server")
MAX_PRODUCER_CHARS = 256
# Stages and writes of one commit.
MAX_COMMIT_STAGES = 10_000
MAX_COMMIT_WRITES = 1000


_decoder = msgspec.json.Decoder(CommitBody)
_write_decoder = msgspec.json.Decoder(CommitWrite)


@decodes("post_stage")
def decode_stage(call: Call[Any, StageQuery], take: Callable[[list[Batch]], None]) -> None:
    """The batches of a stage: one from JSON, one for each partition from Arrow."""
    broker, request, query = call.broker, call.request, call.query
    if len(query.producer) > MAX_PRODUCER_CHARS:
        raise InvalidRequest(f"producer has at most {MAX_PRODUCER_CHARS} characters")

    def take_batch(batch: Batch) -> None:
        _check_no_delays(batch)
        if query.partition:
            batch.partition = query.partition
        take([batch])

    if is_arrow(request):
        _decode_rows(broker, request, query, take)
        return
    limits = msgspec.structs.replace(broker.limits, max_batch_records=broker.limits.max_stage_records)
    if len(request.body) >= LARGE_BODY_BYTES:
        decode_in_slices(broker, request, decode_large(request.body, limits), take_batch)
    else:
        take_batch(decode_batch(request.body, limits))


@handles("post_stage")
def post_stage(call: Call[list[Batch], StageQuery]) -> None:
    broker, request, query = call.broker, call.request, call.query
    stage_id = "stage_" + secrets.token_hex(16)

    @reply_to(request)
    def reply(outcome: Staged) -> None:
        fields = {
            "stage_id": stage_id,
            "topic": query.topic,
            "count": sum([each.page.count for each in outcome.parts]),
            "bytes": outcome.size,
            "expires_at": outcome.ts + broker.limits.stage_ttl_ms,
            "ttl_ms": broker.limits.stage_ttl_ms,
        }
        send(request, 201, fields)

    stage(broker, stage_id, broker.topic(query.topic), call.body, reply, query.producer or None)


def _decode_rows(broker: Broker, request: Request, query: StageQuery, take: Callable[[list[Batch]], None]) -> None:
    """Decode the Arrow body for the partitions that the topic has now; again if their number has changed meanwhile."""
    partitions = len(broker.topic(query.topic).partitions)

    def take_rows(batches: list[Batch]) -> None:
        if len(broker.topic(query.topic).partitions) == partitions:
            take(batches)
        else:
            _decode_rows(broker, request, query, take)

    max_records = broker.limits.max_stage_records
    read_arrow_aside(broker, request, max_records, take_rows, partition=query.partition, partitions=partitions)


def read_arrow_aside(
    broker: Broker,
    request: Request,
    most_records: int,
    take: Callable[[list[Batch]], None],
    *,
    partition: int = 0,
    partitions: int | None = None,
) -> None:
    """Decode an Arrow body in a thread, then call `take`; a refusal is answered here."""
    limits, body = broker.limits, request.body

    def decoded(batches: list[Batch], error: BaseException | None) -> None:
        take_decoded(request, batches, error, take)

    def work() -> list[Batch]:
        return read_arrow_body(body, limits, most_records, partition=partition, partitions=partitions)

    broker.runtime.run_in_thread("bulk", work, decoded)


@handles("delete_stage")
def delete_stage(call: Call[None, None]) -> None:
    send(call.request, 200, {"stage_id": call.name, "deleted": drop_stages(call.broker, [call.name]) == 1})


@handles("post_renewal")
def post_renewal(call: Call[None, None]) -> None:
    """Renew the stages that were made for this producer and whose topics the caller may touch."""
    broker, caller, name = call.broker, call.caller, call.name
    book, now_ms = broker.state.stages, broker.runtime.now_ms()
    chosen = []
    for stage_id in book.by_producer.get(name, ()):
        topic = broker.state.by_id.get(book.stages[stage_id].topic_id)
        if topic is not None and caller.may_touch(topic.name):
            chosen.append(stage_id)
    ttl_ms = broker.limits.stage_ttl_ms
    fields = {"producer": name, "renewed": book.renew(chosen, now_ms), "expires_at": now_ms + ttl_ms, "ttl_ms": ttl_ms}
    send(call.request, 200, fields)


class DecodedCommit(msgspec.Struct):
    """A commit whose writes are batches. The writes themselves have no records any more."""

    fields: CommitBody
    writes: list[CommitWrite]
    batches: list[Batch]

    @property
    def stages(self) -> list[str]:
        return self.fields.stages

    @property
    def producer(self) -> str | None:
        return self.fields.producer


@decodes("post_commit")
def decode_commit(call: Call[Any, None], take: Callable[[DecodedCommit], None]) -> None:
    request, limits = call.request, call.broker.limits
    if len(request.body) >= LARGE_BODY_BYTES:
        decode_in_slices(call.broker, request, _decode_large_commit(request.body, limits), take)
        return
    body = decode(request.body, _decoder)
    _check_lengths(len(body.stages), len(body.writes), limits)
    take(DecodedCommit(body, body.writes, [batch_of(write, limits) for write in body.writes]))


def _decode_large_commit(body: bytes, limits: Limits) -> Steps[DecodedCommit]:
    """The fields of a commit and its writes, decoded in steps."""
    walk = JsonWalk(body)
    others: list[bytes] = []
    writes: list[tuple[CommitWrite, Batch]] = []
    walk.enter(b"{")
    more = not walk.is_empty(b"}")
    while more:
        walk.peek()
        start = walk.position
        if walk.key() == "writes" and walk.peek() == b"[":
            writes = []
            walk.enter(b"[")
            more = not walk.is_empty(b"]")
            while more:
                writes.append((yield from read_write(walk, _write_decoder, limits, [])))
                _check_lengths(0, len(writes), limits)
                more = walk.next_item(b"]")
        else:
            _, end = walk.skip(MAX_FIELD_BYTES)
            others.append(body[start:end])
        yield
        more = walk.next_item(b"}")
    walk.finish()
    fields = decode(b"{%b}" % b",".join(others), _decoder)
    _check_lengths(len(fields.stages), 0, limits)
    return DecodedCommit(fields, [write for write, _ in writes], [batch for _, batch in writes])


def _check_lengths(stages: int, writes: int, limits: Limits) -> None:
    for count, what, limit in ((stages, "stages", MAX_COMMIT_STAGES), (writes, "writes", MAX_COMMIT_WRITES)):
        if count > limit:
            raise BatchTooLarge(f"more than {limit} {what} in one commit", detail={"max": limit})


@handles("post_commit")
def post_commit(call: Call[DecodedCommit, None]) -> None:
    request, caller, body = call.request, call.caller, call.body.fields
    if not body.stages and not call.body.writes and body.producer is None:
        raise InvalidRequest("a commit needs stages or writes")
    if (body.producer is None) != (body.batch is None):
        raise InvalidRequest("producer and batch come together")
    if body.digest is not None and body.producer is None:
        raise InvalidRequest("digest needs a producer and a batch: it is compared when the batch is committed again")
    if len(set(body.stages)) != len(body.stages):
        raise InvalidRequest("a stage is named twice")
    writes = [
        Write(write.topic, _write_batch(write, batch))
        for write, batch in zip(call.body.writes, call.body.batches, strict=True)
    ]
    prefixes = None if caller is EVERYONE else caller.prefixes
    number = check_u64("batch", body.batch or 0)
    wanted = CommitRequest(body.stages, writes, body.producer, number, prefixes, body.digest)

    @reply_to(request)
    def reply(outcome: Committed) -> None:
        # For a repeated batch this is what was placed the first time, perhaps by another key.
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

    commit(call.broker, wanted, reply)


@handles("get_producer")
def get_producer(call: Call[None, None]) -> None:
    name, caller = call.name, call.caller
    fence = call.broker.state.stages.fences.get(name)
    if fence is None:
        raise NotFound(f'producer "{name}" has committed nothing', code="producer_not_found", detail={"producer": name})
    results = [_place(each) for each in fence.placed if caller.may_touch(each.topic)]
    send(call.request, 200, {"producer": name, "batch": fence.batch, "ts": fence.ts, "results": results})


def _write_batch(write: CommitWrite, batch: Batch) -> Batch:
    if write.idempotency_key is not None:
        raise InvalidRequest("a commit is made once by its producer and batch, not by idempotency keys")
    _check_no_delays(batch)
    batch.partition = write.partition or 0
    batch.partition_key = write.partition_key
    return batch


def _check_no_delays(batch: Batch) -> None:
    if batch.delays is not None:
        raise InvalidRequest("records of a commit are there at once: delay_ms is for an append")


def _place(placed: Placed) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "topic": placed.topic,
        "partition": placed.partition,
        "first_seq": placed.first_seq,
        "last_seq": placed.first_seq + placed.count - 1,
        "count": placed.count,
    }
    return fields if placed.stage_id is None else {"stage_id": placed.stage_id, **fields}
