"""POST /v0/topics/:topic: append. The hottest handler; what depends on the head alone is derived once for each head.

    handle -> [throttle] -> decode -> [permission for `config`] -> join an open batch, or append -> answer

A single record joins the group of its topic and is answered together with the others of the turn. Further requests with the same head
are decoded together too: see `pending_appends`.
"""

import logging
import re
from functools import partial
from itertools import repeat
from time import perf_counter

from msgspec import Struct

from topics.api.operation import WRITE, Rule
from topics.api.operations import BY_NAME
from topics.api.topics import AppendQuery
from topics.broker.broker import Broker
from topics.broker.topics.append import Append, Runs
from topics.model.errors import InvalidRequest, Throttled, TopicsError
from topics.model.records.batch import Batch, decode_batch
from topics.model.records.large_batch import LARGE_BODY_BYTES, decode_large
from topics.server.admission import Admission
from topics.server.auth.authorization import Caller
from topics.server.auth.permissions import Access, Permission
from topics.server.decoding import decode_in_slices, is_arrow, query_decoder, require_json
from topics.server.http import JSON_STARTS, LENGTHS, PendingRequests, Request, drop_together, respond_together
from topics.server.operations import serves
from topics.server.responses import refuse_together, send_error
from topics.server.routing import Handler
from topics.server.service import Service, not_serving
from topics.server.topics.pending_appends import PendingAppendsByTopic, renew_all
from topics.server.topics.stages import read_arrow_aside
from topics.server.topics.throttle import Throttle, write_priority
from topics.wire.timing import milliseconds

log = logging.getLogger("topics.server")

# Of an append with `config`; the scope and the name in the path are checked with the head.
APPEND = BY_NAME["append"]
CONFIG_PERMISSION = Permission(
    Rule(WRITE, tuple([name for name in APPEND.names if name.place == "body"]), APPEND.field_scopes)
)
_decode_query = query_decoder(AppendQuery)


class Options(Struct, frozen=True):
    """What the head of an append determines; equal for all appends with the same head."""

    return_seqs: bool
    # The Idempotency-Key header; a key in the body overrides it.
    key: str | None
    # The body is an Arrow stream.
    arrow: bool
    partition: int
    # A single record may join a group: its response has the same head as those of all others.
    joins: bool
    # The batch for requests with this head when there are many in a turn; None if each is handled when it arrives.
    pending_requests: PendingRequests | None


@serves("append")
def appending(service: Service) -> Handler:
    """The handler of appends, behind the throttle."""
    throttle = service.throttle
    pending_appends = PendingAppendsByTopic(service, answer_joined)

    def handle(request: Request, name: str) -> None:
        broker = service.broker
        if broker is None or service.stopping:
            raise not_serving(service)
        if throttle.closed and park_append(throttle, broker, pending_appends, request, name):
            return
        append_records(broker, pending_appends, request, name)

    return handle


def append_records(
    broker: Broker, pending_appends: PendingAppendsByTopic, request: Request, name: str, waited_ms: float = 0.0
) -> None:
    """Decode and append. `waited_ms` is the delay by the throttle."""
    limits = broker.limits
    admission: Admission = request.head.memo  # type: ignore[assignment]
    options = admission.note
    if not isinstance(options, Options):
        if not is_arrow(request):
            require_json(request)
        options = admission.note = read_options(request, limits.max_key_chars, admission, pending_appends)
    if options.arrow:
        append_arrow(broker, request, name, options, waited_ms)
        return
    if len(request.body) >= LARGE_BODY_BYTES:
        steps = decode_large(request.body, limits)
        take = partial(append_batch, pending_appends, broker, request, admission.caller, name, options, waited_ms)
        decode_in_slices(broker, request, steps, take)
        return
    batch = decode_batch(request.body, limits)
    append_batch(pending_appends, broker, request, admission.caller, name, options, waited_ms, batch)


def append_batch(
    pending_appends: PendingAppendsByTopic,
    broker: Broker,
    request: Request,
    caller: Caller,
    name: str,
    options: Options,
    waited_ms: float,
    batch: Batch,
) -> None:
    """Append the decoded batch."""
    if batch.config is not None:
        access = Access(pending_appends.service, broker, caller, name)
        CONFIG_PERMISSION.check_names(access, batch)
        creates = name not in broker.state.topics and batch.create is not False
        CONFIG_PERMISSION.check_fields(access, batch, creates=creates)
    if options.joins and batch.joins and batch.count == 1 and not waited_ms:
        if batch.key is not None:
            batch.keys = [batch.key]
        if broker.join(name, batch, (request,), answer_joined):
            return
    if batch.key is None:
        batch.key = options.key
    broker.append(name, batch, partial(_answer, request, options.return_seqs, waited_ms))


def _answer(request: Request, return_seqs: bool, waited_ms: float, outcome: Append | TopicsError) -> None:
    if isinstance(outcome, Append):
        body = render_append(outcome, return_seqs, request.received_at, waited_ms)
        request.respond(201 if outcome.created else 200, body)
    else:
        send_error(request, outcome)


def answer_joined(name: bytes, head_seq: int, timing: bytes, runs: Runs, error: TopicsError | None) -> None:
    """Answer runs of single records that were written together, as `_answer` does for one append."""
    now = perf_counter()
    for first_seq, requests in runs:
        try:
            if error is not None:
                renew_all(requests)
                refuse_together(requests, error)
                continue
            received_at = requests[0].received_at
            took = now - received_at
            if took >= MIN_SLOW_SECONDS:
                renew_all(requests)
            return_seqs = requests[0].head.memo.note.return_seqs
            messages = render_singles(name, head_seq, timing, first_seq, len(requests), took, return_seqs=return_seqs)
        except Exception:
            log.exception("exception while rendering responses; the connections of these requests are closed")
            drop_together(requests)
            continue
        respond_together(requests, messages, now, received_at)
    if error is not None:
        return
    for _, requests in runs:
        if len(requests) == 1:
            # Further requests with this head are decoded when the log is about to be written.
            head = requests[0].head
            head.pending_requests = head.memo.note.pending_requests


def render_singles(
    name: bytes, head_seq: int, timing: bytes, first_seq: int, count: int, took: float, *, return_seqs: bool = True
) -> list[bytes]:
    """The complete responses to appends of one record each that are answered together; they differ in their seqs only.

    (16 take 3 us.)
    """
    total_ms = milliseconds(took)
    # Behind the three places of the seq: `first_seq`, `last_seq` and `seqs`.
    before_seqs = _SEQS if return_seqs else b""
    behind = b'%b,"head_seq":%d%b%b,%b,"throttle_wait_ms":0.0}}' % (
        b"]" if return_seqs else b"",
        head_seq,
        _BEHIND_HEAD,
        total_ms,
        timing,
    )
    places = 3 if return_seqs else 2
    length = len(name) + len(_TOPIC) - 2 + len(_FIRST_SEQ) + len(_LAST_SEQ) + len(before_seqs) + len(behind)
    messages: list[bytes] = []
    while count:
        # Seqs of one thousand differ in their last three digits and have equal lengths.
        thousand, rest = divmod(first_seq, 1000)
        some = min(count, 1000 - rest)
        if thousand:
            digits = b"%d" % thousand
            lasts = THREE_DIGITS[rest : rest + some]
        else:
            digits = b""
            some = min(some, 10 ** len(str(rest)) - rest)
            lasts = [b"%d" % seq for seq in range(rest, rest + some)]
        length_line = LENGTHS[length + places * (len(digits) + len(lasts[0]))]
        start = b"".join((_STARTS_200, length_line, _TOPIC, name, _FIRST_SEQ, digits))
        parts = (
            [start, _LAST_SEQ + digits, before_seqs + digits, behind]
            if return_seqs
            else [start, _LAST_SEQ + digits, behind]
        )
        messages += map(bytes.join, lasts, repeat(parts))
        first_seq += some
        count -= some
    return messages


def park_append(
    throttle: Throttle, broker: Broker, pending_appends: PendingAppendsByTopic, request: Request, name: str
) -> bool:
    """Whether the throttle delays the append or has refused it. The body is decoded after the delay."""
    insists: bool | None = None if _mentions_backpressure(request.body) else False

    def must_go_in() -> bool:
        nonlocal insists
        if insists is None and len(request.body) >= LARGE_BODY_BYTES:
            # A large body is not decoded twice only for this.
            insists = True
        elif insists is None:
            try:
                insists = decode_batch(request.body, broker.limits).disable_backpressure
            except TopicsError:
                insists = False
        return insists

    def enter(waited_ms: float) -> None:
        if request.closed:
            return
        try:
            append_records(broker, pending_appends, request, name, waited_ms)
        except TopicsError as error:
            send_error(request, error)

    def refuse(error: Throttled) -> None:
        send_error(request, error)

    return throttle.park(write_priority(broker, name), len(request.body), enter, refuse, must_go_in)


def _mentions_backpressure(body: bytes) -> bool:
    """Whether the body may set `disable_backpressure`. A large body has this field before or after its records."""
    if len(body) >= LARGE_BODY_BYTES:
        return any([_INSISTS.search(end) is not None for end in (body[:SEARCHED_BYTES], body[-SEARCHED_BYTES:])])
    return b'"disable_backpressure"' in body


def append_arrow(broker: Broker, request: Request, name: str, options: Options, waited_ms: float = 0.0) -> None:
    """Append the rows of an Arrow body."""
    reply = partial(_answer, request, options.return_seqs, waited_ms)

    def take(batches: list[Batch]) -> None:
        (batch,) = batches
        batch.key = options.key
        broker.append(name, batch, reply)

    read_arrow_aside(broker, request, broker.limits.max_batch_records, take, partition=options.partition)


def render_append(outcome: Append, return_seqs: bool, started: float, waited_ms: float = 0.0) -> bytes:
    """The response to an append. `waited_ms`, the delay by the throttle, is part of the time since `started`."""
    first = outcome.first_seq
    count = outcome.count
    group = outcome.group
    # Integer microseconds, because formatting a float takes 0.2 us.
    whole, rest = divmod(int((perf_counter() - started) * 1_000_000), 1000)
    seqs = b'"seqs":[%b],' % render_run(first, count) if return_seqs else b""
    return (
        b'{"topic":"%b","first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,"deduped":%b,'
        b'"performance":{"server_total_ms":%d.%03d,%b,"throttle_wait_ms":%b}}'
        % (
            outcome.topic.name_bytes,
            first,
            first + count - 1,
            seqs,
            outcome.partition.head_seq,
            count,
            b"true" if outcome.created else b"false",
            b"true" if outcome.deduped else b"false",
            whole,
            rest,
            _NO_TIMING if group is None else group.timing,
            b"%.3f" % waited_ms if waited_ms else b"0.0",
        )
    )


def render_run(first: int, count: int) -> bytes:
    """`count` numbers from `first` on, separated by commas.

    Numbers of one thousand differ in their last three digits only. (100 take 2 us, the repr of a list of them 10.)
    """
    if count == 1:
        return b"%d" % first
    runs = []
    while count:
        thousand, start = divmod(first, 1000)
        some = min(count, 1000 - start)
        if thousand:
            before = b"%d" % thousand
            runs.append(before + (b"," + before).join(THREE_DIGITS[start : start + some]))
        else:
            runs.append(b",".join([b"%d" % number for number in range(start, start + some)]))
        first += some
        count -= some
    return runs[0] if len(runs) == 1 else b",".join(runs)


# Bytes at each end of a large body that are searched.
SEARCHED_BYTES = 64 << 10
_INSISTS = re.compile(rb'"disable_backpressure"\s*:\s*true')
THREE_DIGITS = [b"%03d" % number for number in range(1000)]
_STARTS_200 = JSON_STARTS[200]
_TOPIC, _FIRST_SEQ, _LAST_SEQ, _SEQS = b'\r\n{"topic":"', b'","first_seq":', b',"last_seq":', b',"seqs":['
_BEHIND_HEAD = b',"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":'
# A shorter request is never slow, whatever the settings.
MIN_SLOW_SECONDS = 0.001
_NO_TIMING = b'"wal_append_ms":0.0,"fsync_ms":0.0'


def read_options(
    request: Request, max_key_chars: int, admission: Admission, pending_appends: PendingAppendsByTopic
) -> Options:
    # An empty header is no key: it would make the appends of different clients equal.
    header = request.header(b"idempotency-key")
    key = _header_key(header, max_key_chars) if header else None
    query = _decode_query(request.query)
    return_seqs, partition = query.return_seqs, query.partition
    joins = key is None and request.head.plain
    pending_requests = None
    if joins and not admission.once:
        pending_requests = pending_appends.pending_requests(
            admission.name, admission.caller if admission.counted else None, return_seqs=return_seqs
        )
    return Options(return_seqs, key, is_arrow(request), partition, joins, pending_requests)


def _header_key(header: bytes, max_chars: int) -> str:
    try:
        key = header.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("Idempotency-Key is not valid UTF-8") from None
    if len(key) > max_chars:
        raise InvalidRequest(f"Idempotency-Key is longer than {max_chars} characters")
    return key
