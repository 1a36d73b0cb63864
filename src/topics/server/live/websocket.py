"""GET /v0/ws: one connection to write and to read live, with JSON text messages.

Handshake and frames are those of the `websockets` library, without its I/O: input is fed to its protocol, its output is sent, and
complete text messages go to `commands`. What is sent to many sockets is framed once.

    message in: text          a command, answered by a message
                binary        an `error` message; the socket stays open
                too large     close 1009
                broken frame  close 1002
    silence                   a ping; close 1011 when that is not answered either
    client does not read      commands wait too; after the time-out an `error` message and close 1013
    incomplete messages       of all clients over the limit: close 1013
    server stops              close 1001
"""

import logging

from websockets.datastructures import Headers
from websockets.frames import Frame as WireFrame
from websockets.frames import Opcode
from websockets.http11 import Request as HandshakeRequest
from websockets.protocol import OPEN, Protocol, Side
from websockets.server import ServerProtocol

from topics.broker.topics.feed import Feed
from topics.engine.topics.live_frames import Broken, Gone, LiveFrame
from topics.model.errors import InvalidRequest
from topics.model.limits import Limits
from topics.server.auth.permissions import Access
from topics.server.http import Duplex, Request
from topics.server.live.commands import Commands
from topics.server.live.delivery import Delivery
from topics.server.live.events import FRAME_NAMES, frame_fields
from topics.server.live.open_channels import feed_places
from topics.server.operations import Call
from topics.server.responses import encode

GOING_AWAY = 1001
NO_ANSWER = 1011
TRY_AGAIN_LATER = 1013
# A larger message closes the socket (1009); larger writes go over HTTP.
MAX_MESSAGE_BYTES = 8 << 20

# The library logs the end of every connection; the metrics count them.
_log = logging.getLogger("topics.server.live.websocket")
_log.setLevel(logging.WARNING)


def open_socket(call: Call[None, None]) -> None:
    """Answer the handshake and serve the commands of the socket."""
    slots = call.service.live.slots
    slots.check(call.caller)
    answer = handshake(call.request)
    Socket(call, slots.upgrade(call.request)).start(answer)


def handshake(request: Request) -> bytes:
    """The 101 that opens the socket. Raises InvalidRequest for what is not a proper request for one."""
    headers = Headers()
    for name, value in request.head.headers.items():
        headers[name.decode("latin-1")] = value.decode("latin-1")
    if not request.head.offers_websocket:
        raise InvalidRequest("this path is a WebSocket: send an upgrade request")
    protocol = ServerProtocol(logger=_log)
    answer = protocol.accept(HandshakeRequest(request.path.decode("latin-1"), headers))
    if answer.status_code != 101:
        raise InvalidRequest(f"not a valid WebSocket handshake: {protocol.handshake_exc}")
    return answer.serialize()


class Socket:
    """One open socket: bytes to messages and back, and what ends it."""

    __slots__ = (
        "_broker",
        "_commands",
        "_delivery",
        "_duplex",
        "_feed",
        "_live",
        "_opcode",
        "_over",
        "_pinged",
        "_protocol",
        "parts",
    )  # fmt: skip

    def __init__(self, access: Access, duplex: Duplex) -> None:
        live, broker = access.service.live, access.broker
        self._live = live
        self._broker = broker
        self._duplex = duplex
        self._protocol = Protocol(Side.SERVER, state=OPEN, max_size=max_message_bytes(broker.limits), logger=_log)
        self._feed = Feed(broker)
        # A fragmented message: its kind, and the fragments so far. Fragments may be empty; their number is not limited.
        self._opcode: Opcode | None = None
        self.parts = bytearray()
        # A ping was sent and nothing was received since. A client that only reads sends nothing while it gets records.
        self._pinged = False
        self._over = False
        self._delivery = Delivery(
            broker.runtime,
            duplex,
            self._feed,
            self._encode,
            live.pace,
            on_stuck=self._stuck,
            quiet_ms=live.ping_ms,
            on_quiet=self._quiet,
            on_room=self._read_on,
        )
        self._commands = Commands(access, self._feed, self._send, self._delivery.pump, self._read_on)

    def start(self, answer: bytes) -> None:
        duplex = self._duplex
        duplex.write(answer)
        places = self._feed.places
        self._live.slots.channels.describe(duplex, "socket", lambda: feed_places(places.values()))
        self._delivery.start()
        duplex.on_shutdown(self._shut_down)
        duplex.on_close(self._end)
        duplex.on_data(self._received)

    # In

    def _received(self, data: bytes) -> None:
        self._pinged = False
        protocol = self._protocol
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, WireFrame):
                self._take(event)
        if not self._duplex.hold(len(protocol.reader.buffer) + len(self.parts)):
            protocol.fail(TRY_AGAIN_LATER, "the server holds as much as it may; try again later")
        self._flush()
        if self._must_wait() and not self._over:
            self._duplex.pause()

    def _take(self, frame: WireFrame) -> None:
        if frame.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
            return
        opcode: Opcode = frame.opcode
        data = bytes(frame.data)
        if not frame.fin or self._opcode is not None:
            opcode = self._opcode = opcode if self._opcode is None else self._opcode
            self.parts += data
            if not frame.fin:
                return
            data = bytes(self.parts)
            self._opcode = None
            self.parts = bytearray()
        if opcode is Opcode.TEXT:
            self._commands.add(data)
        else:
            self._commands.refuse(InvalidRequest("commands are JSON in text messages, not binary ones"))

    def _must_wait(self) -> bool:
        return self._commands.waiting or self._delivery.blocked

    def _read_on(self) -> None:
        if not self._over and not self._must_wait():
            self._duplex.resume()

    # Out

    def _encode(self, frame: LiveFrame) -> bytes:
        if isinstance(frame, Gone | Broken):
            # A topic that is created again with this name needs a new subscription.
            self._feed.remove(frame.topic.name)
            self._feed.trust()
            if isinstance(frame, Broken):
                error = frame.error
                fields = {"op": "error", "topic": frame.topic.name, "code": error.code, "message": error.message}
                return wire(encode({**fields, "detail": error.detail}))
        text = frame.texts.get("ws")
        if text is None:
            text = frame.texts["ws"] = wire(b'{"op":"%b",%b}' % (FRAME_NAMES[type(frame)], frame_fields(frame)))
        return text

    def _send(self, message: bytes) -> None:
        if not self._over:
            self._delivery.send(wire(message))

    def _flush(self) -> None:
        """Send the output of the protocol, and close the socket when it has ended."""
        for data in self._protocol.data_to_send():
            if data:
                self._delivery.send(data)
            else:
                self._end()
                self._duplex.close()

    # The end

    def _quiet(self) -> None:
        if self._pinged:
            self._fail(NO_ANSWER, "no answer to a ping")
        else:
            self._pinged = True
            self._protocol.send_ping(b"")
            self._flush()

    def _stuck(self) -> None:
        message = f"slow consumer: nothing was read for {self._live.pace.slow_consumer_timeout_ms} ms"
        self._duplex.write(wire(b'{"op":"error","code":"slow_consumer","message":"%b"}' % message.encode()))
        self._fail(TRY_AGAIN_LATER, "slow consumer")

    def _shut_down(self) -> None:
        self._fail(GOING_AWAY, "the server is shutting down")

    def _fail(self, code: int, reason: str) -> None:
        self._protocol.fail(code, reason)
        self._flush()

    def _end(self) -> None:
        if not self._over:
            self._over = True
            self._delivery.stop()
            self._commands.stop()


def max_message_bytes(limits: Limits) -> int:
    """The maximum size of a message. It is unmasked and checked in one step of the loop."""
    return min(limits.max_body_bytes, MAX_MESSAGE_BYTES)


def wire(message: bytes) -> bytes:
    """A text message as one frame from the server."""
    return WireFrame(Opcode.TEXT, message).serialize(mask=False)
