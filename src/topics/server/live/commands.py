"""The commands of a WebSocket: subscribe, unsubscribe, publish, ping; each is answered, in order.

A command is executed when the commands before it are done, so that a client may publish to a new topic and subscribe to it without
waiting in between. Publishes do not wait for each other: they are decided in order, committed together, and answered in order; a
publish that the throttle delays, or a large one that is decoded in steps, delays those behind it. Commands that cannot begin yet
wait here; while one waits, the socket is not read.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from topics.api.live import COMMANDS, PingMessage, Start, SubscribeMessage, UnsubscribeMessage
from topics.api.operation import MAX_CONTROL_BODY_BYTES
from topics.api.operations import BY_NAME
from topics.broker.topics.append import Append
from topics.broker.topics.feed import Feed
from topics.model.errors import InvalidRequest, TopicsError
from topics.model.limits import Limits
from topics.model.records.batch import Batch, check_text, decode_batch
from topics.model.records.large_batch import LARGE_BODY_BYTES, decode_large
from topics.model.steps import Steps
from topics.server.auth.permissions import Access, Permission
from topics.server.decoding import check_encoded_entries, check_entries, decode
from topics.server.live.subscriptions import find_topics, subscribe, subscription_of
from topics.server.responses import encode
from topics.server.topics.append import render_append
from topics.server.topics.throttle import write_priority

log = logging.getLogger("topics.server")
# Publishes of one socket that are committed but not answered.
MAX_PENDING_PUBLISHES = 1024
PERMISSIONS = {name: Permission(command.rule) for name, command in COMMANDS.items()}


class _Envelope(Struct):
    op: str
    request_id: Raw | UnsetType = UNSET


class _RequestId(Struct):
    request_id: Raw | UnsetType = UNSET


class _Publish(Struct):
    """The fields of a PublishMessage beside those of a batch, which has a decoder of its own."""

    topic: str
    return_seqs: bool = True


_envelopes = msgspec.json.Decoder(_Envelope)
_request_ids = msgspec.json.Decoder(_RequestId)
_publishes = msgspec.json.Decoder(_Publish)
# Of all commands but a publish: the decoder of the declared message, and the most entries of its fields.
_MESSAGES = {
    name: (
        msgspec.json.Decoder(command.request),
        () if command.operation is None else BY_NAME[command.operation].max_entries,
    )
    for name, command in COMMANDS.items()
    if command.request is not None and name != "publish"
}


class _Command:
    """A command until it is answered."""

    __slots__ = ("answer", "decoded", "fields", "message", "op", "reference", "refusal")

    def __init__(
        self, op: str, reference: bytes, message: bytes, refusal: TopicsError | None = None, *, decoded: bool = True
    ) -> None:
        # False for a large message: `_large_command` makes the command of it.
        self.decoded = decoded
        self.op = op
        # `"request_id":...,` as the client spelled it, or nothing.
        self.reference = reference
        self.message = message
        self.refusal = refusal
        # Of a large publish, which is decoded before it is carried out.
        self.fields: tuple[_Publish, Batch] | None = None
        self.answer: bytes | None = None


class Commands:
    """Executes the commands of one socket."""

    def __init__(
        self,
        access: Access,
        feed: Feed,
        send: Callable[[bytes], None],
        pump: Callable[[], None],
        on_idle: Callable[[], None],
    ) -> None:
        """`pump` is called after the feed got topics; `on_idle` when nothing is `waiting` any more."""
        self._access = access
        self._broker = access.broker
        self._throttle = access.service.throttle
        self._feed = feed
        self._send = send
        self._pump = pump
        self._on_idle = on_idle
        self._waiting: deque[_Command] = deque()
        self._publishing: deque[_Command] = deque()
        self._decoding = False
        self._parked = False
        self._again = False
        self._stopped = False
        self._operations: dict[str, Callable[[_Command, Any], None]] = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "ping": self._ping,
        }

    @property
    def waiting(self) -> bool:
        return self._decoding or bool(self._waiting)

    def add(self, message: bytes) -> None:
        """Execute the command, now or after those before it."""
        command = _command(message) if len(message) < LARGE_BODY_BYTES else _Command("", b"", message, decoded=False)
        self._waiting.append(command)
        self._run()

    def refuse(self, error: TopicsError) -> None:
        """Answer with the error, after the commands before it."""
        self._waiting.append(_Command("", b"", b"", error))
        self._run()

    def stop(self) -> None:
        """The socket is closed: drop the waiting commands. Commands that have begun complete without an answer."""
        self._stopped = True
        self._waiting.clear()

    def _run(self) -> None:
        while self._waiting and not self._parked and not self._decoding and not self._stopped:
            command = self._waiting[0]
            if not command.decoded:
                self._waiting.popleft()
                self._decode_large(command.message)
                continue
            if command.op == "publish":
                if len(self._publishing) >= MAX_PENDING_PUBLISHES:
                    return
                self._waiting.popleft()
                self._publishing.append(command)
                try:
                    topic, return_seqs, batch = self._admit_publish(command)
                except TopicsError as error:
                    command.answer = _error(command, error)
                    self._answer()
                else:
                    self._publish(command, topic, return_seqs, batch)
                continue
            if self._publishing:
                return
            self._waiting.popleft()
            try:
                message = self._admit(command)
                self._operations[command.op](command, message)
            except TopicsError as error:
                self._send(_error(command, error))

    def _admit(self, command: _Command) -> Any:
        """The decoded message of a command that the caller may send: with the declared scope, for names that it may touch."""
        if command.refusal is not None:
            raise command.refusal
        permission = PERMISSIONS.get(command.op)
        if permission is None:
            raise InvalidRequest(f"unknown op {command.op[:100]!r}")
        permission.check_scope(self._access.caller)
        decoder, max_entries = _MESSAGES[command.op]
        limits = self._broker.limits
        check_encoded_entries(command.message, max_entries, limits)
        message = decode(command.message, decoder)
        check_entries(message, max_entries, limits)
        permission.check_names(self._access, message)
        return message

    def _admit_publish(self, command: _Command) -> tuple[str, bool, Batch]:
        """The same for a publish: its topic, whether its seqs are answered, and its records."""
        permission = PERMISSIONS["publish"]
        permission.check_scope(self._access.caller)
        asked, batch = command.fields or decode_publish(command.message, self._broker.limits)
        permission.check_names(self._access, {"topic": asked.topic, "config": batch.config})
        permission.check_fields(self._access, batch, creates=True)
        return asked.topic, asked.return_seqs, batch

    def _decode_large(self, message: bytes) -> None:
        """Decode the message in steps. Its command precedes all that wait."""
        self._decoding = True

        def decoded(command: _Command | None, error: BaseException | None) -> None:
            self._decoding = False
            if command is None:
                log.error("unexpected exception while a large message was decoded", exc_info=error)
                command = _Command("", b"", b"", TopicsError("internal error"))
            if not self._stopped:
                self._waiting.appendleft(command)
                self._soon()

        self._broker.slices.run(_large_command(message, self._broker.limits), decoded)

    def _subscribe(self, command: _Command, message: SubscribeMessage) -> None:
        starts = dict(message.topics or {})
        if message.topic is not None:
            starts[message.topic] = Start(message.from_seq, message.tail)
        broker, feed = self._broker, self._feed
        topics = find_topics(broker, starts, lenient=message.lenient)
        max_topics = broker.limits.max_watch_topics
        if len(feed.places.keys() | topics.keys()) > max_topics:
            raise InvalidRequest(f"at most {max_topics} topics over one socket", detail={"max": max_topics})
        begun = subscribe(broker, feed, topics, starts, subscription_of(message, broker.limits))
        self._send(b'{"op":"subscribed",%b"topics":%b}' % (command.reference, encode(begun)))
        self._pump()

    def _unsubscribe(self, command: _Command, message: UnsubscribeMessage) -> None:
        self._feed.remove(message.topic)
        self._send(b'{"op":"unsubscribed",%b"topic":"%b"}' % (command.reference, message.topic.encode()))

    def _ping(self, command: _Command, _message: PingMessage) -> None:
        self._send(b'{"op":"pong",%b"ts":%d}' % (command.reference, self._broker.runtime.now_ms()))

    def _publish(self, command: _Command, topic: str, return_seqs: bool, batch: Batch) -> None:
        started = self._broker.runtime.perf()

        def reply(outcome: Append | TopicsError, waited_ms: float = 0.0) -> None:
            if isinstance(outcome, TopicsError):
                command.answer = _error(command, outcome)
            else:
                ack = render_append(outcome, return_seqs, started, waited_ms)
                command.answer = b'{"op":"ack",%b%b' % (command.reference, ack[1:])
            self._answer()

        try:
            if self._throttle.closed and self._park(topic, batch, len(command.message), reply):
                return
            self._broker.append(topic, batch, reply)
        except TopicsError as error:
            reply(error)

    def _park(self, name: str, batch: Batch, size: int, reply: Callable[..., None]) -> bool:
        """Whether the throttle delays the publish or has refused it."""

        def enter(waited_ms: float) -> None:
            self._parked = False
            try:
                self._broker.append(name, batch, partial(reply, waited_ms=waited_ms))
            except TopicsError as error:
                reply(error)
            self._soon()

        def refuse(error: TopicsError) -> None:
            self._parked = False
            reply(error)

        # Set first: `refuse` may be called at once.
        self._parked = True
        parked = self._throttle.park(
            write_priority(self._broker, name), size, enter, refuse, lambda: batch.disable_backpressure
        )
        self._parked = self._parked and parked
        return parked

    def _answer(self) -> None:
        """Send the answers that are next in order, then run the commands that waited for them."""
        publishing = self._publishing
        while publishing and (answer := publishing[0].answer) is not None:
            publishing.popleft()
            self._send(answer)
        self._soon()

    def _soon(self) -> None:
        """Run the waiting commands in the next turn, not inside a commit."""
        if self._waiting and not self._again and not self._stopped:
            self._again = True
            self._broker.runtime.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._again = False
        self._run()
        if not self._waiting and not self._stopped:
            self._on_idle()


def decode_publish(message: bytes, limits: Limits) -> tuple[_Publish, Batch]:
    return decode(message, _publishes), decode_batch(message, limits)


def _command(message: bytes) -> _Command:
    try:
        check_text(message)
        envelope = decode(message, _envelopes)
    except TopicsError as error:
        return _Command("", _reference_in(message), message, error)
    return _Command(envelope.op, _reference(envelope.request_id), message)


def _large_command(message: bytes, limits: Limits) -> Steps[_Command]:
    """The command of a large message, which is decoded in steps because it may be a publish of many records."""
    others: list[bytes] = []
    batch, refusal = None, None
    try:
        batch = yield from decode_large(message, limits, others)
    except TopicsError as error:
        refusal = error
    text = b"{%b}" % b",".join(others)
    reference = _reference_in(text)
    try:
        if decode(text, _envelopes).op == "publish":
            if batch is None:
                return _Command("", reference, b"", refusal)
            command = _Command("publish", reference, b"")
            command.fields = (decode(text, _publishes), batch)
            return command
        if len(message) <= MAX_CONTROL_BODY_BYTES:
            return _command(message)
    except TopicsError as error:
        return _Command("", reference, b"", refusal or error)
    too_large = InvalidRequest(
        f"a message of {len(message)} bytes; only a publish may have more than {MAX_CONTROL_BODY_BYTES}",
        detail={"max": MAX_CONTROL_BODY_BYTES},
    )
    return _Command("", reference, b"", too_large)


def _reference_in(message: bytes) -> bytes:
    """The request_id of a message that is not a valid command, if it has one: the client waits for its answer."""
    try:
        return _reference(_request_ids.decode(message).request_id)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return b""


def _reference(request_id: Raw | UnsetType) -> bytes:
    if request_id is UNSET or bytes(request_id) == b"null":
        return b""
    return b'"request_id":%b,' % bytes(request_id)


def _error(command: _Command, error: TopicsError) -> bytes:
    fields: dict[str, object] = {"code": error.code, "message": error.message}
    if error.detail:
        fields["detail"] = error.detail
    return b'{"op":"error",%b%b' % (command.reference, encode(fields)[1:])
