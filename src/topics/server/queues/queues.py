"""POST /v0/topics/:q/claim, ack, nack and extend: lease jobs, finish them, return them, and extend their leases."""

from time import perf_counter
from typing import NamedTuple

import msgspec

from topics.api.operations import BY_NAME
from topics.api.queues import MAX_REASON_CHARS, AckBody, ClaimBody, ExtendBody, NackBody
from topics.broker.queues.claims import ClaimResult
from topics.engine.queues.lease_facts import AckResult
from topics.model.config import U64_MAX, check_u64
from topics.model.errors import BatchTooLarge, InvalidRequest, TopicsError
from topics.model.limits import Limits
from topics.server.admission import Admission
from topics.server.decoding import EMPTY_OBJECT, MIN_COUNTED_BYTES, check_encoded_entries, decode, require_json
from topics.server.http import JSON_STARTS, LENGTHS, Request, respond_together
from topics.server.limits import claimed_jobs, delay_ms, lease_ms, wait_ms
from topics.server.operations import Call, handles, serves
from topics.server.responses import answer_failed, refuse_together, send, send_error
from topics.server.routing import Handler
from topics.server.service import Service, not_serving
from topics.wire.timing import milliseconds

_claim_decoder = msgspec.json.Decoder(ClaimBody)
_ack_decoder = msgspec.json.Decoder(AckBody)


class _ClaimRequest(NamedTuple):
    """The body of a claim, checked and clamped."""

    partition: int
    node: str
    max_jobs: int
    lease_ms: int | None
    wait_ms: int


# The note of a head that declares its body as JSON.
_JSON = object()
# A worker sends equal bodies: decoded bodies are cached.
MAX_CACHED_CLAIMS = 1024
MAX_CACHED_CLAIM_BYTES = 256
# Larger responses are written in parts, so that the jobs are not copied once more.
MAX_JOINED_BYTES = 32 << 10


def _decode_claim(body: bytes, limits: Limits) -> _ClaimRequest:
    fields = decode(body, _claim_decoder)
    check_node(fields.node, limits)
    return _ClaimRequest(
        fields.partition,
        fields.node,
        claimed_jobs(fields.max, limits),
        None if fields.lease_ms is None else lease_ms(fields.lease_ms),
        wait_ms(fields.wait_ms, limits),
    )


@serves("claim")
def claiming(service: Service) -> Handler:
    """The handler of claims."""
    cached_claims: dict[bytes, _ClaimRequest] = {}

    def handle(request: Request, name: str) -> None:
        broker = service.broker
        if broker is None or service.stopping:
            raise not_serving(service)
        admission: Admission = request.head.memo  # type: ignore[assignment]
        text = request.body
        if not text:
            text = EMPTY_OBJECT
        elif admission.note is not _JSON:
            require_json(request)
            admission.note = _JSON
        wanted = cached_claims.get(text)
        if wanted is None:
            wanted = _decode_claim(text, broker.limits)
            if len(text) <= MAX_CACHED_CLAIM_BYTES:
                if len(cached_claims) >= MAX_CACHED_CLAIMS:
                    cached_claims.clear()
                cached_claims[text] = wanted
        claim = broker.queues.claim(name, *wanted, request, answer_claims)
        if claim is not None and not request.answered:
            request.on_disconnect(claim.cancel)

    return handle


def answer_claims(claims: list[tuple[Request, ClaimResult | TopicsError]]) -> None:
    """Answer all claims of one loop turn."""
    now = perf_counter()
    start = JSON_STARTS[200]
    requests: list[Request] = []
    messages: list[bytes] = []
    oldest = now
    for request, outcome in claims:
        try:
            if isinstance(outcome, TopicsError):
                refuse_together([request], outcome)
                continue
            jobs = outcome.jobs[0] if outcome.jobs else b""
            if request.received_at < oldest:
                oldest = request.received_at
            rest = b'],"count":%d,"ready":%d,"performance":{"server_total_ms":%b,"throttle_wait_ms":0.0}}' % (
                0 if outcome.delivery is None else len(outcome.delivery.seqs),
                outcome.ready,
                milliseconds(now - request.received_at),
            )
            before = b'{"topic":"%b","claimed":[' % outcome.topic.name_bytes
            length = len(before) + len(jobs) + len(rest)
            head = request.head
            if length < len(LENGTHS) and head.plain:
                messages.append(b"".join((start, LENGTHS[length], b"\r\n", before, jobs, rest)))
                requests.append(request)
            elif head.accepts_gzip or length > MAX_JOINED_BYTES or not head.plain:
                request.respond(200, b"".join((before, jobs, rest)))
            else:
                messages.append(b"".join((start, b"%d\r\n\r\n" % length, before, jobs, rest)))
                requests.append(request)
        except Exception:  # noqa: BLE001 - logged there
            answer_failed(request)
    respond_together(requests, messages, now, oldest)


@serves("ack")
def acking(service: Service) -> Handler:
    """The handler of acks."""
    max_entries = BY_NAME["ack"].max_entries

    def handle(request: Request, name: str) -> None:
        broker = service.broker
        if broker is None or service.stopping:
            raise not_serving(service)
        admission: Admission = request.head.memo  # type: ignore[assignment]
        if admission.note is not _JSON:
            require_json(request)
            admission.note = _JSON
        if len(request.body) >= MIN_COUNTED_BYTES:
            check_encoded_entries(request.body, max_entries, broker.limits)
        body = decode(request.body, _ack_decoder)
        _check(body, broker.limits)
        broker.queues.ack(name, body.partition, body.node, body.seqs, body.lease_ids, request, answer_acks)

    return handle


def answer_acks(acks: list[tuple[Request, AckResult | TopicsError]]) -> None:
    """Answer all acks of one loop turn."""
    now = perf_counter()
    start = JSON_STARTS[200]
    requests: list[Request] = []
    messages: list[bytes] = []
    oldest = now
    for request, outcome in acks:
        try:
            if isinstance(outcome, TopicsError):
                refuse_together([request], outcome)
                continue
            counts = outcome.counts
            # The part that is equal for all acks of a commit is rendered once.
            text = counts.text
            if not text:
                text = counts.text = b',"ready":%d,"in_flight":%d,"performance":{"fsync_ms":%.3f,"server_total_ms":' % (
                    counts.ready,
                    counts.in_flight,
                    counts.sync_ms,
                )
            if request.received_at < oldest:
                oldest = request.received_at
            body = b'{"topic":"%b","acked":%d,"skipped":%b%b%b}}' % (
                counts.topic.name_bytes,
                outcome.count,
                repr(outcome.skipped).encode() if outcome.skipped else b"[]",
                text,
                milliseconds(now - request.received_at),
            )
            if len(body) < len(LENGTHS) and request.head.plain:
                messages.append(b"".join((start, LENGTHS[len(body)], b"\r\n", body)))
                requests.append(request)
            else:
                request.respond(200, body)
        except Exception:  # noqa: BLE001 - logged there
            answer_failed(request)
    respond_together(requests, messages, now, oldest)


@handles("nack")
def nack_jobs(call: Call[NackBody, None]) -> None:
    broker, request, name, body = call.broker, call.request, call.name, call.body
    _check(body, broker.limits)

    def reply(outcome: AckResult | TopicsError) -> None:
        if isinstance(outcome, TopicsError):
            send_error(request, outcome)
            return
        fields = {
            "topic": name,
            "nacked": outcome.count,
            "skipped": outcome.skipped,
            "ready": outcome.counts.ready,
            "in_flight": outcome.counts.in_flight,
        }
        send(request, 200, fields)

    reason = body.reason[:MAX_REASON_CHARS] if body.reason else None
    delayed_ms = delay_ms(body.delay_ms)
    broker.queues.nack(name, body.partition, body.node, body.seqs, body.lease_ids, delayed_ms, reply, reason)


@handles("extend")
def extend_jobs(call: Call[ExtendBody, None]) -> None:
    broker, request, name, body = call.broker, call.request, call.name, call.body
    _check(body, broker.limits)

    def reply(outcome: AckResult | TopicsError) -> None:
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

    leased_ms = lease_ms(body.lease_ms)
    broker.queues.extend(name, body.partition, body.node, body.seqs, body.lease_ids, leased_ms, reply)


def check_node(node: str, limits: Limits) -> None:
    """Raises InvalidRequest unless this is a valid name of a worker."""
    if not node:
        raise InvalidRequest("node must name the worker")
    if len(node) * 4 > limits.max_node_bytes and len(node.encode()) > limits.max_node_bytes:
        raise InvalidRequest(
            f"node is longer than {limits.max_node_bytes} bytes", detail={"max": limits.max_node_bytes}
        )


def _check(body: AckBody, limits: Limits) -> None:
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
