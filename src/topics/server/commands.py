"""The commands of a socket: subscribe, unsubscribe, publish, ping; each answered, in order.

A command is carried out when those before it are done, so that a client may publish to a new topic and subscribe to it
without waiting in between. Publishes alone do not wait for each other: they are decided in order, committed together, and
answered in order; one that the throttle parks holds up those behind it. What cannot begin yet waits here, and while
something waits nothing more is read from the socket.
"""

from collections import deque
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from topics.broker.append import Append, Reply
from topics.broker.broker import Broker
from topics.broker.feed import Feed
from topics.broker.throttle import Throttle
from topics.model.batch import Batch, check_text, decode_batch
from topics.model.config import U64
from topics.model.errors import InvalidRequest, TopicsError
from topics.model.names import check_topic_name
from topics.server.access import ADMIN, READ, WRITE, Caller
from topics.server.answers import encode
from topics.server.bodies import decode
from topics.server.records import render_append
from topics.server.subscriptions import Start, Wishes, find_topics, subscribe, subscription_of

PUBLISHES_MOST = 1024


class _Envelope(Struct):
    op: str
    request_id: Raw | UnsetType = UNSET


class _RequestId(Struct):
    request_id: Raw | UnsetType = UNSET


class _Subscribe(Wishes, kw_only=True):
    topic: str | None = None
    from_seq: U64 = 0
    tail: bool = False
    topics: dict[str, Start] | None = None
    lenient: bool = False


class _Unsubscribe(Struct):
    topic: str


class _Publish(Struct):
    topic: str
    return_seqs: bool = True


_envelopes = msgspec.json.Decoder(_Envelope)
_request_ids = msgspec.json.Decoder(_RequestId)
_subscribes = msgspec.json.Decoder(_Subscribe)
_unsubscribes = msgspec.json.Decoder(_Unsubscribe)
_publishes = msgspec.json.Decoder(_Publish)


class _Command:
    """A command from when it came until it is answered."""

    __slots__ = ("answer", "message", "op", "reference", "refusal")

    def __init__(self, op: str, reference: bytes, message: bytes, refusal: TopicsError | None = None) -> None:
        self.op = op
        # `"request_id":...,` as the client spelled it, or nothing.
        self.reference = reference
        self.message = message
        self.refusal = refusal
        self.answer: bytes | None = None


class Commands:
    """Carries out what one socket asks for."""

    def __init__(
        self,
        broker: Broker,
        throttle: Throttle,
        caller: Caller,
        feed: Feed,
        send: Callable[[bytes], None],
        pump: Callable[[], None],
        on_idle: Callable[[], None],
    ) -> None:
        """`pump` after the feed got more to tell; `on_idle` when nothing is `waiting` any more."""
        self._broker = broker
        self._throttle = throttle
        self._caller = caller
        self._feed = feed
        self._send = send
        self._pump = pump
        self._on_idle = on_idle
        self._waiting: deque[_Command] = deque()
        self._publishing: deque[_Command] = deque()
        self._parked = False
        self._again = False
        self._stopped = False
        self._operations: dict[str, Callable[[_Command], None]] = {
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "ping": self._ping,
        }

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def add(self, message: bytes) -> None:
        """Carry out the command, now or when its turn comes."""
        self._waiting.append(_command(message))
        self._run()

    def refuse(self, error: TopicsError) -> None:
        """Answer in turn that this was no command."""
        self._waiting.append(_Command("", b"", b"", error))
        self._run()

    def stop(self) -> None:
        """The socket is gone. What was begun goes on; nobody is told."""
        self._stopped = True
        self._waiting.clear()

    def _run(self) -> None:
        while self._waiting and not self._parked and not self._stopped:
            command = self._waiting[0]
            if command.op == "publish":
                if len(self._publishing) >= PUBLISHES_MOST:
                    return
                self._waiting.popleft()
                self._publish(command)
                continue
            if self._publishing:
                return
            self._waiting.popleft()
            try:
                if command.refusal is not None:
                    raise command.refusal
                operation = self._operations.get(command.op)
                if operation is None:
                    raise InvalidRequest(f"unknown op {command.op[:100]!r}")
                operation(command)
            except TopicsError as error:
                self._send(_error(command, error))

    def _subscribe(self, command: _Command) -> None:
        self._caller.check_scope(READ)
        asked = decode(command.message, _subscribes)
        starts = dict(asked.topics or {})
        if asked.topic is not None:
            starts[asked.topic] = Start(asked.from_seq, asked.tail)
        broker, feed = self._broker, self._feed
        topics = find_topics(broker, self._caller, starts, lenient=asked.lenient)
        most = broker.limits.max_watch_topics
        if len(feed.places.keys() | topics.keys()) > most:
            raise InvalidRequest(f"at most {most} topics over one socket", detail={"max": most})
        begun = subscribe(broker, feed, topics, starts, subscription_of(asked, broker.limits))
        self._send(b'{"op":"subscribed",%b"topics":%b}' % (command.reference, encode(begun)))
        self._pump()

    def _unsubscribe(self, command: _Command) -> None:
        name = check_topic_name(decode(command.message, _unsubscribes).topic)
        self._feed.remove(name)
        self._send(b'{"op":"unsubscribed",%b"topic":"%b"}' % (command.reference, name.encode()))

    def _ping(self, command: _Command) -> None:
        self._send(b'{"op":"pong",%b"ts":%d}' % (command.reference, self._broker.runtime.now_ms()))

    def _publish(self, command: _Command) -> None:
        self._publishing.append(command)
        started = self._broker.runtime.perf()

        def reply(outcome: Append | TopicsError) -> None:
            if isinstance(outcome, TopicsError):
                command.answer = _error(command, outcome)
            else:
                ack = render_append(outcome, asked.return_seqs, started)
                command.answer = b'{"op":"ack",%b%b' % (command.reference, ack[1:])
            self._answer()

        try:
            self._caller.check_scope(WRITE)
            asked = decode(command.message, _publishes)
            batch = decode_batch(command.message, self._broker.limits)
            self._caller.check_topic(check_topic_name(asked.topic))
            if batch.config is not None:
                self._caller.check_scope(ADMIN)
                if isinstance(batch.config.dead_letter, str):
                    self._caller.check_topic(batch.config.dead_letter)
            if self._throttle.closed and self._park(asked.topic, batch, len(command.message), reply):
                return
            self._broker.append(asked.topic, batch, reply)
        except TopicsError as error:
            reply(error)

    def _park(self, name: str, batch: Batch, size: int, reply: Reply) -> bool:
        """Whether the throttle keeps the publish waiting, or has refused it."""
        topic = self._broker.state.topics.get(name)
        priority = 0 if topic is None else topic.effective_priority(self._broker.runtime.now_ms())

        def enter(_waited_ms: float) -> None:
            self._parked = False
            try:
                self._broker.append(name, batch, reply)
            except TopicsError as error:
                reply(error)
            self._soon()

        def refuse(error: TopicsError) -> None:
            self._parked = False
            reply(error)

        # Set first: a refusal may come at once.
        self._parked = True
        parked = self._throttle.park(priority, size, enter, refuse, lambda: batch.disable_backpressure)
        self._parked = self._parked and parked
        return parked

    def _answer(self) -> None:
        """Send the answers whose turn has come, and go on with what waited for them."""
        publishing = self._publishing
        while publishing and (answer := publishing[0].answer) is not None:
            publishing.popleft()
            self._send(answer)
        self._soon()

    def _soon(self) -> None:
        """Go on with what waits, but not from within a commit."""
        if self._waiting and not self._again and not self._stopped:
            self._again = True
            self._broker.runtime.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._again = False
        self._run()
        if not self._waiting and not self._stopped:
            self._on_idle()


def _command(message: bytes) -> _Command:
    try:
        check_text(message)
        envelope = decode(message, _envelopes)
    except TopicsError as error:
        return _Command("", _reference_in(message), message, error)
    return _Command(envelope.op, _reference(envelope.request_id), message)


def _reference_in(message: bytes) -> bytes:
    """The request_id of a message that is no command, if it has one: its sender waits for an answer all the same."""
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
