"""POST /v0/topics/:q/claim, ack, nack and extend — the life of a job between two appends.

Beyond the contract: `wait_ms` on a claim waits for jobs that are not there yet, and `partition` names another partition.
"""

from time import perf_counter
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from topics.broker.append import MILLISECONDS
from topics.broker.broker import Broker
from topics.broker.desk import Claimed
from topics.broker.settle import Settled
from topics.model.batch import DELAY_MS_MOST
from topics.model.config import LEASE_MS_LEAST, LEASE_MS_MOST, U64, U64_MAX, check_u64, clamp
from topics.model.errors import BatchTooLarge, InvalidRequest, TopicsError
from topics.model.limits import Limits
from topics.server.admission import Admission
from topics.server.answers import send, send_error
from topics.server.bodies import decode, require_json
from topics.server.http import JSON_STARTS, LENGTHS, Request, respond_together
from topics.server.probes import not_serving
from topics.server.routing import Handler
from topics.server.service import Service

PartitionNumber = Annotated[int, Meta(ge=0, le=2**31)]


class ClaimBody(Struct):
    node: str
    max: U64 = 1
    lease_ms: U64 | None = None
    wait_ms: U64 = 0
    partition: PartitionNumber = 0


class SettleBody(Struct):
    """What ack, nack and extend have in common."""

    node: str
    seqs: list[U64]
    lease_ids: list[str] | None = None
    partition: PartitionNumber = 0


class NackBody(SettleBody):
    delay_ms: U64 = 0


class ExtendBody(SettleBody, kw_only=True):
    lease_ms: U64


_claim_decoder = msgspec.json.Decoder(ClaimBody)
_ack_decoder = msgspec.json.Decoder(SettleBody)
_nack_decoder = msgspec.json.Decoder(NackBody)
_extend_decoder = msgspec.json.Decoder(ExtendBody)


class _Wish(NamedTuple):
    """A claim's body, checked and clamped."""

    partition: int
    node: str
    most: int
    lease_ms: int | None
    wait_ms: int


# The note of a head that declares its body as JSON.
_JSON = object()
# A worker sends the same few bytes again and again: so many of them, each so long at most, are kept with what they mean.
WISHES_KEPT = 1024
WISH_BYTES = 256
# Larger answers are not copied once more to go out in one piece.
TOGETHER_BYTES = 32 << 10


def _wish(body: bytes, limits: Limits) -> _Wish:
    fields = decode(body, _claim_decoder)
    check_node(fields.node, limits)
    return _Wish(
        fields.partition,
        fields.node,
        min(fields.max, limits.max_claim),
        None if fields.lease_ms is None else clamp(fields.lease_ms, LEASE_MS_LEAST, LEASE_MS_MOST),
        min(fields.wait_ms, limits.max_wait_ms),
    )


def claiming(service: Service) -> Handler:
    """The handler of claims."""
    kept_wishes: dict[bytes, _Wish] = {}

    def handle(request: Request, name: str) -> None:
        broker = service.broker
        if broker is None or service.stopping:
            raise not_serving(service)
        admission: Admission = request.head.memo  # type: ignore[assignment]
        if admission.note is not _JSON:
            require_json(request)
            admission.note = _JSON
        text = request.body
        wish = kept_wishes.get(text)
        if wish is None:
            wish = _wish(text, broker.limits)
            if len(text) <= WISH_BYTES:
                if len(kept_wishes) >= WISHES_KEPT:
                    kept_wishes.clear()
                kept_wishes[text] = wish
        claim = broker.queues.claim(name, *wish, request, answer_claims)
        if claim is not None and not request.answered:
            request.on_disconnect(claim.cancel)

    return handle


def answer_claims(claims: list[tuple[Request, Claimed | TopicsError]]) -> None:
    """Everybody who claimed jobs in one turn is answered."""
    now = perf_counter()
    start = JSON_STARTS[200]
    requests: list[Request] = []
    messages: list[bytes] = []
    oldest = now
    for request, outcome in claims:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            continue
        jobs = outcome.jobs[0] if outcome.jobs else b""
        if request.received_at < oldest:
            oldest = request.received_at
        us = int((now - request.received_at) * 1_000_000)
        rest = b'],"count":%d,"ready":%d,"performance":{"server_total_ms":%b,"throttle_wait_ms":0.0}}' % (
            0 if outcome.grant is None else len(outcome.grant.seqs),
            outcome.ready,
            MILLISECONDS[us] if us < len(MILLISECONDS) else b"%d.%03d" % divmod(us, 1000),
        )
        before = b'{"topic":"%b","claimed":[' % outcome.topic.name_bytes
        length = len(before) + len(jobs) + len(rest)
        head = request.head
        if length < len(LENGTHS) and head.plain:
            requests.append(request)
            messages.append(b"".join((start, LENGTHS[length], b"\r\n", before, jobs, rest)))
        elif head.accepts_gzip or length > TOGETHER_BYTES or not head.plain:
            request.respond(200, b"".join((before, jobs, rest)))
        else:
            requests.append(request)
            messages.append(b"".join((start, b"%d\r\n\r\n" % length, before, jobs, rest)))
    respond_together(requests, messages, now, oldest)


def acking(service: Service) -> Handler:
    """The handler of acks."""

    def handle(request: Request, name: str) -> None:
        broker = service.broker
        if broker is None or service.stopping:
            raise not_serving(service)
        admission: Admission = request.head.memo  # type: ignore[assignment]
        if admission.note is not _JSON:
            require_json(request)
            admission.note = _JSON
        body = decode(request.body, _ack_decoder)
        _check(body, broker.limits)
        broker.queues.ack(name, body.partition, body.node, body.seqs, body.lease_ids, request, answer_acks)

    return handle


def answer_acks(acks: list[tuple[Request, Settled | TopicsError]]) -> None:
    """Everybody who acked jobs in one turn is answered."""
    now = perf_counter()
    start = JSON_STARTS[200]
    requests: list[Request] = []
    messages: list[bytes] = []
    oldest = now
    for request, outcome in acks:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            continue
        after = outcome.after
        # What the answers of a group share is rendered once.
        text = after.text
        if not text:
            text = after.text = b',"ready":%d,"in_flight":%d,"performance":{"fsync_ms":%.3f,"server_total_ms":' % (
                after.ready,
                after.in_flight,
                after.sync_ms,
            )
        if request.received_at < oldest:
            oldest = request.received_at
        us = int((now - request.received_at) * 1_000_000)
        body = b'{"topic":"%b","acked":%d,"skipped":%b%b%b}}' % (
            after.topic.name_bytes,
            outcome.count,
            repr(outcome.skipped).encode() if outcome.skipped else b"[]",
            text,
            MILLISECONDS[us] if us < len(MILLISECONDS) else b"%d.%03d" % divmod(us, 1000),
        )
        if len(body) < len(LENGTHS) and request.head.plain:
            requests.append(request)
            messages.append(b"".join((start, LENGTHS[len(body)], b"\r\n", body)))
        else:
            request.respond(200, body)
    respond_together(requests, messages, now, oldest)


def nack_jobs(broker: Broker, request: Request, name: str) -> None:
    require_json(request)
    body = decode(request.body, _nack_decoder)
    _check(body, broker.limits)

    def reply(outcome: Settled | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {
            "topic": name,
            "nacked": outcome.count,
            "skipped": outcome.skipped,
            "ready": outcome.after.ready,
            "in_flight": outcome.after.in_flight,
        }
        send(request, 200, fields)

    delay_ms = min(body.delay_ms, DELAY_MS_MOST)
    broker.queues.nack(name, body.partition, body.node, body.seqs, body.lease_ids, delay_ms, reply)


def extend_jobs(broker: Broker, request: Request, name: str) -> None:
    require_json(request)
    body = decode(request.body, _extend_decoder)
    _check(body, broker.limits)

    def reply(outcome: Settled | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {
            "topic": name,
            "extended": outcome.count,
            "skipped": outcome.skipped,
            "deadlines": {str(seq): outcome.deadline for seq in outcome.seqs},
        }
        send(request, 200, fields)

    lease_ms = clamp(body.lease_ms, LEASE_MS_LEAST, LEASE_MS_MOST)
    broker.queues.extend(name, body.partition, body.node, body.seqs, body.lease_ids, lease_ms, reply)


def check_node(node: str, limits: Limits) -> None:
    """Raises InvalidRequest unless this can be a worker's name."""
    if not node:
        raise InvalidRequest("node must name the worker")
    if len(node) * 4 > limits.max_node_bytes and len(node.encode()) > limits.max_node_bytes:
        raise InvalidRequest(
            f"node is longer than {limits.max_node_bytes} bytes", detail={"max": limits.max_node_bytes}
        )


def _check(body: SettleBody, limits: Limits) -> None:
    node = body.node
    if not 0 < len(node) * 4 <= limits.max_node_bytes:
        check_node(node, limits)
    seqs = body.seqs
    if not seqs:
        raise InvalidRequest("seqs must name at least one job")
    if len(seqs) > limits.max_claim:
        raise BatchTooLarge(
            f"{len(seqs)} seqs in one request; at most {limits.max_claim}",
            detail={"max": limits.max_claim, "count": len(seqs)},
        )
    if max(seqs) > U64_MAX:
        check_u64("seqs", max(seqs))
    if body.lease_ids is not None and len(body.lease_ids) != len(seqs):
        raise InvalidRequest(f"{len(body.lease_ids)} lease_ids for {len(seqs)} seqs; there must be one for each")
