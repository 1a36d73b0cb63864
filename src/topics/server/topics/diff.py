"""POST /v0/topics/:topic/diff: read from a cursor, at once or as soon as there are records.

A topic may be named by its alias.
"""

import logging
from functools import partial

import msgspec

from topics.api.operations import BY_NAME
from topics.api.topics import DiffBody
from topics.broker.broker import Broker
from topics.broker.long_poll import LongPoll
from topics.broker.topics.bulk_read import (
    DEFAULT_PAGE_RECORDS,
    MAX_PAGE_BYTES,
    MAX_PAGE_RECORDS,
    BulkPage,
    bulk_read,
)
from topics.broker.topics.read import Answer, ReadRequest, View, continued, joined, read
from topics.broker.topics.tagged_read import read_tagged
from topics.model.config import check_u64
from topics.model.errors import TopicsError
from topics.model.records.match import TagMatch, parse_match
from topics.server.auth.authorization import caller_of
from topics.server.auth.permissions import Access, check_aliased_topic
from topics.server.decoding import (
    MIN_COUNTED_BYTES,
    check_encoded_entries,
    check_entries,
    decode,
    excluded_nodes,
    optional_json,
)
from topics.server.http import Request
from topics.server.http.media_types import ARROW, JSON, preferred
from topics.server.limits import at_most, read_bytes, read_records, wait_ms
from topics.server.operations import serves
from topics.server.responses import elapsed_ms, encode, send_error
from topics.server.routing import Handler
from topics.server.service import Service, not_serving

log = logging.getLogger("topics.server")


_decoder = msgspec.json.Decoder(DiffBody)
# Most records in a page of a read with `to_seq`.
MAX_BOUNDED_LIMIT = 10_000
_VIEWS = {(tags, metas): View(tags=tags, metas=metas) for tags in (False, True) for metas in (False, True)}


@serves("diff")
def diffing(service: Service) -> Handler:
    """The handler of diffs."""
    max_entries = BY_NAME["diff"].max_entries

    def handle(request: Request, name: str) -> None:
        broker = service.broker
        if broker is None or service.stopping:
            raise not_serving(service)
        text = optional_json(request)
        if len(text) >= MIN_COUNTED_BYTES:
            check_encoded_entries(text, max_entries, broker.limits)
        body = decode(text, _decoder)
        if type(body.node) is list:
            check_entries(body, max_entries, broker.limits)
        if name not in broker.state.topics:
            access = Access(service, broker, caller_of(request))
            check_aliased_topic(access, name)
            name = access.name
        diff_records(broker, request, name, body)

    return handle


def diff_records(broker: Broker, request: Request, name: str, body: DiffBody) -> None:
    if preferred(request.header(b"accept"), JSON, ARROW) == ARROW:
        diff_in_bulk(broker, request, name, body)
        return
    limits = broker.limits
    wanted = ReadRequest(
        name,
        check_u64("from_seq", body.from_seq),
        read_records(body.limit, limits)
        if body.to_seq is None
        else at_most(body.limit, MAX_BOUNDED_LIMIT, limits.default_limit),
        read_bytes(body.max_batch_bytes, limits),
        _view(body),
        body.partition,
        body.from_ts,
        body.epoch,
        body.to_seq,
    )
    if body.filter is not None:
        diff_tagged(broker, request, wanted, parse_match(body.filter))
        return
    answer = read(broker, wanted)
    waits_ms = wait_ms(body.wait_ms, limits)
    if answer.read.unfinished or (waits_ms and answer.nothing):
        PendingRead(broker, request, wanted, answer, waits_ms)
    else:
        send_diff(broker, request, answer)


def diff_tagged(broker: Broker, request: Request, wanted: ReadRequest, match: TagMatch) -> None:
    """Answer at once with the records whose tag matches, found by the tag index in steps."""

    def done(answer: Answer | None, error: BaseException | None) -> None:
        if answer is not None:
            send_diff(broker, request, answer)
        elif isinstance(error, TopicsError):
            send_error(request, error)
        else:
            log.error("a read by tag failed", exc_info=error)
            send_error(request, TopicsError("internal error"))

    broker.slices.run(read_tagged(broker, wanted, match), done)


def diff_in_bulk(broker: Broker, request: Request, name: str, body: DiffBody) -> None:
    """Answer with a page as an Arrow stream, which may hold many more records."""
    wanted = ReadRequest(
        name,
        check_u64("from_seq", body.from_seq),
        at_most(body.limit, MAX_PAGE_RECORDS, DEFAULT_PAGE_RECORDS),
        at_most(body.max_batch_bytes, MAX_PAGE_BYTES, MAX_PAGE_BYTES),
        _view(body),
        body.partition,
        body.from_ts,
        body.epoch,
    )
    match = None if body.filter is None else parse_match(body.filter)

    def done(page: BulkPage | None, error: BaseException | None) -> None:
        if isinstance(error, TopicsError):
            send_error(request, error)
        elif error is not None or page is None:
            log.error("a bulk read failed", exc_info=error)
            send_error(request, TopicsError("internal error"))
        else:
            broker.counts.count_read(page.records, page.lost)
            request.respond(200, page.stream, content_type=ARROW)

    bulk_read(broker, wanted, body.to_seq, match, done)


def send_diff(broker: Broker, request: Request, answer: Answer) -> None:
    found = answer.read
    broker.counts.count_read(found.count, found.tombstone is not None)
    head = answer.head_seq
    next_from_seq = found.next_from_seq
    tombstone = b"null" if found.tombstone is None else encode(found.tombstone)
    whole, rest = divmod(int(elapsed_ms(request) * 1000), 1000)
    # Joined once, so that the records, the largest part, are copied once.
    body = b"".join(
        (
            b'{"topic":"%b","records":[' % answer.topic.name_bytes,
            found.records,
            b'],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,"tombstone":%b,"lag":%d,"epoch":%d,%b'
            b'"performance":{"server_total_ms":%d.%03d,"records_scanned":%d}}'
            % (
                next_from_seq,
                head,
                answer.earliest_seq,
                b"true" if next_from_seq >= head else b"false",
                tombstone,
                max(0, head - next_from_seq),
                answer.topic.epoch,
                b"" if answer.coverage is None else b'"from_seq":%d,"records_live":%d,' % answer.coverage,
                whole,
                rest,
                found.scanned,
            ),
        )
    )
    request.respond(200, body)


class PendingRead:
    """A read that is not answered at once.

        scanning  it passes records that its view leaves out, one step in each loop turn
        waiting   it is at the tail and waits for records (only with `wait_ms`)
        over      it is answered, or its client has disconnected

    scanning -> waiting at the tail; -> over when it has found records or does not wait
    waiting -> over when records were appended; -> scanning when the view leaves out many of them
    either -> over when the time is over or the server stops: answered with how far it has come
    """

    __slots__ = ("_answer", "_broker", "_poll", "_scanning", "_topic", "_waits", "_wanted")

    def __init__(self, broker: Broker, request: Request, wanted: ReadRequest, answer: Answer, wait_ms: int) -> None:
        self._broker = broker
        self._wanted = wanted
        self._answer = answer
        self._topic = answer.topic
        self._scanning = False
        self._waits = wait_ms > 0
        self._poll = LongPoll(broker, lambda: send_diff(broker, request, self._answer), partial(send_error, request))
        if self._waits:
            self._poll.watch(self._topic, self._look)
            self._poll.wait(wait_ms, self._timed_out)
        else:
            self._poll.wait()
        self._scan_on()
        request.on_disconnect(self._poll.end)

    def _look(self) -> None:
        """Records were appended. A scan reads up to the tail anyway."""
        if not self._poll.over and not self._scanning:
            self._step()

    def _timed_out(self) -> None:
        # Records that have expired meanwhile are found by a last read.
        if not self._poll.over and (self._scanning or self._read()):
            self._poll.finish()

    def _step(self) -> None:
        self._scanning = False
        if not self._poll.over and self._read():
            if self._waits and self._answer.nothing and self._answer.topic is self._topic:
                # All examined records are left out: the next read begins behind them.
                self._wanted = msgspec.structs.replace(self._wanted, from_seq=self._answer.read.next_from_seq)
            elif self._answer.read.unfinished:
                self._scan_on()
            else:
                self._poll.finish()

    def _scan_on(self) -> None:
        """Take the next step in a later turn, if the scan is not finished."""
        if self._answer.read.unfinished:
            self._scanning = True
            self._broker.slices.add(self._step)

    def _read(self) -> bool:
        """One step. Returns False after an error, which is answered here: the topic may have been deleted."""
        before = self._answer
        try:
            if before.read.unfinished:
                self._answer = joined(before, read(self._broker, continued(self._wanted, before)))
            else:
                self._answer = read(self._broker, self._wanted)
        except TopicsError as error:
            self._poll.refuse(error)
            return False
        return True


def _view(body: DiffBody) -> View:
    if not body.node:
        return _VIEWS[body.include_tags, body.include_meta]
    return View(tags=body.include_tags, metas=body.include_meta, without_nodes=excluded_nodes(body.node))
