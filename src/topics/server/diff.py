"""POST /v0/topics/:topic/diff — read from a cursor, at once or as soon as there is something.

A topic may be named by its alias.
"""

import logging
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from topics.broker.broker import Broker
from topics.broker.bulk import BYTES_MOST, MEDIA_TYPE, bulk_read
from topics.broker.bulk import LIMIT as BULK_LIMIT
from topics.broker.bulk import LIMIT_MOST as BULK_LIMIT_MOST
from topics.broker.reading import Answer, ReadRequest, View, read
from topics.broker.runtime import Timer
from topics.model.batch import node_text
from topics.model.config import U64, check_u64
from topics.model.errors import TopicsError
from topics.model.match import parse_match
from topics.server.aliases import reached
from topics.server.answers import elapsed_ms, encode, send_error
from topics.server.bodies import decode, require_json
from topics.server.http import Request

log = logging.getLogger("topics.server")


class DiffBody(Struct):
    from_seq: U64 = 0
    limit: U64 = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    wait_ms: U64 = 0
    max_batch_bytes: U64 = 0
    # Additive: begin at the first record at or after a time; tell instances of a name apart; another partition.
    from_ts: U64 | None = None
    epoch: U64 | None = None
    # The last seq to be read. A reader that knows where it ends reads in bulk, and gets more at a time.
    to_seq: U64 | None = None
    # Bulk reads only: records whose tag matches.
    filter: Any = None
    partition: Annotated[int, Meta(ge=0, le=2**31)] = 0


_decoder = msgspec.json.Decoder(DiffBody)
# Records in an answer to a reader that says where it ends.
BOUNDED_LIMIT_MOST = 10_000
_VIEWS = {(tags, metas): View(tags=tags, metas=metas) for tags in (False, True) for metas in (False, True)}


def diff_records(broker: Broker, request: Request, name: str) -> None:
    require_json(request)
    body = decode(request.body, _decoder)
    if name not in broker.state.topics:
        name = reached(broker, request, name)
    if wants_arrow(request):
        diff_in_bulk(broker, request, name, body)
        return
    limits = broker.limits
    wanted = ReadRequest(
        name,
        check_u64("from_seq", body.from_seq),
        min(body.limit or limits.default_limit, limits.max_limit if body.to_seq is None else BOUNDED_LIMIT_MOST),
        min(body.max_batch_bytes or limits.answer_bytes, limits.answer_bytes_max),
        _view(body),
        body.partition,
        body.from_ts,
        body.epoch,
        body.to_seq,
    )
    answer = read(broker, wanted)
    wait_ms = min(body.wait_ms, limits.max_wait_ms)
    if wait_ms and answer.nothing:
        LongPoll(broker, request, wanted, answer, wait_ms)
    else:
        send_diff(request, answer)


def wants_arrow(request: Request) -> bool:
    accept = request.header(b"accept")
    return accept is not None and MEDIA_TYPE in accept.lower()


def diff_in_bulk(broker: Broker, request: Request, name: str, body: DiffBody) -> None:
    """The same page as an Arrow stream, with room for many more records."""
    limit = min(body.limit or BULK_LIMIT, BULK_LIMIT_MOST)
    wanted = ReadRequest(
        name,
        check_u64("from_seq", body.from_seq),
        limit,
        BYTES_MOST,
        _view(body),
        body.partition,
        body.from_ts,
        body.epoch,
    )
    match = None if body.filter is None else parse_match(body.filter)

    def done(stream: bytes | None, error: BaseException | None) -> None:
        if isinstance(error, TopicsError):
            send_error(request, error)
        elif error is not None or stream is None:
            log.error("a bulk read failed", exc_info=error)
            send_error(request, TopicsError("internal error"))
        else:
            request.respond(200, stream, content_type=MEDIA_TYPE)

    bulk_read(broker, wanted, body.to_seq, match, done)


def send_diff(request: Request, answer: Answer) -> None:
    found = answer.read
    head = answer.head_seq
    next_from_seq = found.next_from_seq
    tombstone = b"null" if found.tombstone is None else encode(found.tombstone)
    whole, rest = divmod(int(elapsed_ms(request) * 1000), 1000)
    # Joined once around the records, which are most of it: they are not copied more often than needed.
    body = b"".join(
        (
            b'{"topic":"%b","records":[' % answer.topic.name_bytes,
            found.records,
            b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"tombstone":%b,"lag":%d,"epoch":%d,'
            b'"performance":{"server_total_ms":%d.%03d,"records_scanned":%d}}'
            % (
                next_from_seq,
                head,
                answer.earliest_seq,
                b"true" if next_from_seq >= head else b"false",
                tombstone,
                max(0, head - next_from_seq),
                answer.topic.epoch,
                whole,
                rest,
                found.scanned,
            ),
        )
    )
    request.respond(200, body)


class LongPoll:
    """A reader at the tail, waiting for something to read, for its time to run out, or for its client to go."""

    __slots__ = ("_answer", "_broker", "_over", "_request", "_timer", "_topic", "_wanted")

    def __init__(self, broker: Broker, request: Request, wanted: ReadRequest, answer: Answer, wait_ms: int) -> None:
        self._broker = broker
        self._request = request
        self._wanted = wanted
        self._answer = answer
        self._topic = answer.topic
        self._over = False
        broker.watch(self._topic, self._look)
        broker.polls.add(self)
        self._timer: Timer = broker.runtime.call_later(wait_ms, self._time_is_up)
        request.on_disconnect(self._end)

    def finish(self) -> None:
        """Answer with what there is now."""
        if not self._over:
            self._end()
            self._send()

    def _look(self) -> None:
        if self._over or not self._read():
            return
        if not self._answer.nothing or self._answer.topic is not self._topic:
            self.finish()
        else:
            # Nothing for this reader, but looked at: the next look begins behind it.
            self._wanted = msgspec.structs.replace(self._wanted, from_seq=self._answer.read.next_from_seq)

    def _time_is_up(self) -> None:
        if not self._over and self._read():
            self.finish()

    def _read(self) -> bool:
        """False when the topic is gone; the reader has been told so."""
        try:
            self._answer = read(self._broker, self._wanted)
        except TopicsError as error:
            self._end()
            send_error(self._request, error)
            return False
        return True

    def _send(self) -> None:
        send_diff(self._request, self._answer)

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        self._broker.unwatch(self._topic, self._look)
        self._broker.polls.discard(self)


def _view(body: DiffBody) -> View:
    node = body.node
    if node is None or node == []:
        return _VIEWS[body.include_tags, body.include_meta]
    nodes = [node] if isinstance(node, str) else node
    return View(
        tags=body.include_tags, metas=body.include_meta, without_nodes=frozenset([node_text(each) for each in nodes])
    )
