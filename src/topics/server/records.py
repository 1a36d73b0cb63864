"""POST /v0/topics/:topic — append. The hottest handler: what it does not need it does not do."""

from functools import partial
from itertools import repeat
from time import perf_counter

from msgspec import Struct

from topics.broker.append import MILLISECONDS, MILLISECONDS_MOST, Append, Runs
from topics.broker.broker import Broker
from topics.broker.committer import CROWD
from topics.broker.throttle import Throttle
from topics.model.batch import Batch, decode_batch
from topics.model.errors import InvalidRequest, Throttled, TopicsError
from topics.server.access import caller_of
from topics.server.admission import Admission
from topics.server.answers import send_error
from topics.server.bodies import Query, require_json
from topics.server.http import JSON_STARTS, LENGTHS, Door, Request, respond_together
from topics.server.inbox import Inboxes, renew_all
from topics.server.probes import not_serving
from topics.server.routing import Handler
from topics.server.service import Service
from topics.server.stages import is_arrow, read_arrow_aside


class Options(Struct, frozen=True):
    """What the head of a write says; the same for all writes with the same head."""

    return_seqs: bool
    # The Idempotency-Key header, which the body's own key beats.
    key: str | None
    # The body is an Arrow stream.
    arrow: bool
    partition: int
    # A single record may be answered together with others: the answer holds nothing but what all of them have.
    joins: bool
    # Where such requests wait for the end of their turn when there are many; None if each must be looked at when it comes.
    door: Door | None


def appending(service: Service) -> Handler:
    """The handler, behind the throttle."""
    throttle = service.throttle
    inboxes = Inboxes(service, answer_joined)

    def handle(request: Request, name: str) -> None:
        broker = service.broker
        if broker is None or service.stopping:
            raise not_serving(service)
        if throttle.closed and park_append(throttle, broker, inboxes, request, name):
            return
        append_records(broker, inboxes, request, name)

    return handle


def append_records(broker: Broker, inboxes: Inboxes, request: Request, name: str, waited_ms: float = 0.0) -> None:
    """`waited_ms` is how long the throttle has kept the write waiting."""
    limits = broker.limits
    admission: Admission = request.head.memo  # type: ignore[assignment]
    options = admission.note
    if not isinstance(options, Options):
        if not is_arrow(request):
            require_json(request)
        options = admission.note = read_options(request, limits.max_key_chars, admission, inboxes)
    if options.arrow:
        append_arrow(broker, request, name, options, waited_ms)
        return
    batch = decode_batch(request.body, limits)
    if (
        options.joins
        and batch.plain
        and batch.count == 1
        and not waited_ms
        and broker.join(name, batch, (request,), answer_joined)
    ):
        return
    if batch.config is not None and isinstance(batch.config.dead_letter, str):
        caller_of(request).check_topic(batch.config.dead_letter)
    if batch.key is None and options.key is not None:
        batch.key = options.key
        batch.plain = False
    broker.append(name, batch, partial(_answer, request, options.return_seqs, waited_ms))


def _answer(request: Request, return_seqs: bool, waited_ms: float, outcome: Append | TopicsError) -> None:
    if isinstance(outcome, Append):
        body = render_append(outcome, return_seqs, request.received_at)
        if waited_ms:
            body = with_wait(body, waited_ms)
        request.respond(201 if outcome.created else 200, body)
    else:
        send_error(request, outcome)


def answer_joined(name: bytes, head_seq: int, timing: bytes, runs: Runs, error: TopicsError | None) -> None:
    """What `_answer` does for one write, for runs of single records that were written together."""
    if error is not None:
        for _, requests in runs:
            renew_all(requests)
            for request in requests:
                send_error(request, error)
        return
    now = perf_counter()
    for first_seq, requests in runs:
        received_at = requests[0].received_at
        took = now - received_at
        if took >= SLOW_LEAST_SECONDS:
            renew_all(requests)
        respond_together(
            requests, render_singles(name, head_seq, timing, first_seq, len(requests), took), now, received_at
        )
    if len(runs) > 1 and sum([len(requests) for _, requests in runs]) >= CROWD:
        for _, requests in runs:
            if len(requests) == 1:
                # Handled for itself among so many: let the next one wait for the others.
                head = requests[0].head
                head.door = head.memo.note.door


def render_singles(name: bytes, head_seq: int, timing: bytes, first_seq: int, count: int, took: float) -> list[bytes]:
    """Whole messages: what writes of one record each are answered when they came and are answered together.

    They differ in their seqs only. (16 take 3 us.)
    """
    us = int(took * 1_000_000)
    total_ms = MILLISECONDS[us] if us < MILLISECONDS_MOST else b"%d.%03d" % divmod(us, 1000)
    behind = b'],"head_seq":%d%b%b,%b,"throttle_wait_ms":0.0}}' % (head_seq, _BEHIND_HEAD, total_ms, timing)
    length = len(name) + len(behind) + _SINGLE_BYTES
    messages: list[bytes] = []
    while count:
        # Those of one thousand differ in their last three digits only, and are equally long.
        thousand, rest = divmod(first_seq, 1000)
        some = min(count, 1000 - rest)
        if thousand:
            digits = b"%d" % thousand
            lasts = THREE_DIGITS[rest : rest + some]
            length_line = LENGTHS[length + 3 * len(digits) + 9]
        else:
            digits = b""
            some = min(some, 10 ** len(str(rest)) - rest)
            lasts = [b"%d" % seq for seq in range(rest, rest + some)]
            length_line = LENGTHS[length + 3 * len(lasts[0])]
        start = b"".join((_STARTS_200, length_line, _TOPIC, name, _FIRST_SEQ, digits))
        messages += map(bytes.join, lasts, repeat((start, _LAST_SEQ + digits, _SEQS + digits, behind)))
        first_seq += some
        count -= some
    return messages


def park_append(throttle: Throttle, broker: Broker, inboxes: Inboxes, request: Request, name: str) -> bool:
    """Whether the throttle keeps the write waiting, or has refused it. The body is not looked at before it goes in."""
    topic = broker.state.topics.get(name)
    priority = 0 if topic is None else topic.effective_priority(broker.runtime.now_ms())
    insists: bool | None = None if b'"disable_backpressure"' in request.body else False

    def must_go_in() -> bool:
        nonlocal insists
        if insists is None:
            try:
                insists = decode_batch(request.body, broker.limits).disable_backpressure
            except TopicsError:
                insists = False
        return insists

    def enter(waited_ms: float) -> None:
        if request.closed:
            return
        try:
            append_records(broker, inboxes, request, name, waited_ms)
        except TopicsError as error:
            send_error(request, error)

    def refuse(error: Throttled) -> None:
        send_error(request, error)

    return throttle.park(priority, len(request.body), enter, refuse, must_go_in)


def append_arrow(broker: Broker, request: Request, name: str, options: Options, waited_ms: float = 0.0) -> None:
    """The same append with its records as rows."""
    reply = partial(_answer, request, options.return_seqs, waited_ms)

    def take(batches: list[Batch]) -> None:
        (batch,) = batches
        batch.key = options.key
        broker.append(name, batch, reply)

    read_arrow_aside(broker, request, broker.limits.max_batch_records, take, partition=options.partition)


def with_wait(rendered: bytes, waited_ms: float) -> bytes:
    """The answer to a write that the throttle has kept waiting."""
    return rendered.removesuffix(NO_WAIT) + b"%.3f}}" % waited_ms


def render_append(outcome: Append, return_seqs: bool, started: float) -> bytes:
    first = outcome.first_seq
    count = outcome.count
    group = outcome.group
    # Whole microseconds: formatting a float takes 0.2 us.
    whole, rest = divmod(int((perf_counter() - started) * 1_000_000), 1000)
    seqs = b'"seqs":[%b],' % render_run(first, count) if return_seqs else b""
    return (
        b'{"topic":"%b","first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,"deduped":%b,'
        b'"performance":{"server_total_ms":%d.%03d,%b,"throttle_wait_ms":0.0}}'
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
        )
    )


def render_run(first: int, count: int) -> bytes:
    """So many numbers from `first` on, with commas between them.

    Those of one thousand differ in their last three digits only. (100 take 2 us, the repr of a list of them 10.)
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


THREE_DIGITS = [b"%03d" % number for number in range(1000)]
_STARTS_200 = JSON_STARTS[200]
_TOPIC, _FIRST_SEQ, _LAST_SEQ, _SEQS = b'\r\n{"topic":"', b'","first_seq":', b',"last_seq":', b',"seqs":['
_BEHIND_HEAD = b',"count":1,"created":false,"deduped":false,"performance":{"server_total_ms":'
# Without the empty line before it.
_SINGLE_BYTES = len(_TOPIC) - 2 + len(_FIRST_SEQ) + len(_LAST_SEQ) + len(_SEQS)
# What takes less than a millisecond is not slow, whatever the settings say.
SLOW_LEAST_SECONDS = 0.001
# What a rendered answer ends with when the write did not have to wait.
NO_WAIT = b"0.0}}"
_NO_TIMING = b'"wal_append_ms":0.0,"fsync_ms":0.0'


def read_options(request: Request, max_key_chars: int, admission: Admission, inboxes: Inboxes) -> Options:
    # An empty key says nothing; taken for one it would make strangers' writes the same.
    header = request.header(b"idempotency-key")
    key = _header_key(header, max_key_chars) if header else None
    query = Query(request.query)
    return_seqs, partition = query.flag("return_seqs", True), query.number("partition", 0)
    joins = return_seqs and key is None and request.head.plain
    door = None
    if joins and not admission.once:
        door = inboxes.door(admission.name, admission.caller if admission.counted else None)
    return Options(return_seqs, key, is_arrow(request), partition, joins, door)


def _header_key(header: bytes, most_chars: int) -> str:
    try:
        key = header.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("Idempotency-Key is not valid UTF-8") from None
    if len(key) > most_chars:
        raise InvalidRequest(f"Idempotency-Key is longer than {most_chars} characters")
    return key
