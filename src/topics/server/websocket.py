"""GET /v0/ws — one connection for writing and for reading live, in JSON text messages.

The handshake and the frames are those of the `websockets` library, without its I/O: bytes that come in are fed to its
protocol, what that wants to send goes out, and whole text messages go to `commands`. What is pushed to many sockets is
framed once for all of them.

    message in: text          a command, answered by a message
                binary        an `error` message; the socket stays open
                too large     close 1009
                broken frame  close 1002
    silence                   a ping; close 1011 when that is not answered either
    client does not read      commands wait too; after the time-out an `error` message and close 1013
    too much of it half sent  by all clients together: close 1013
    server stops              close 1001
"""

import logging
from ipaddress import ip_address
from urllib.parse import urlsplit

from websockets.datastructures import Headers
from websockets.frames import Frame as WireFrame
from websockets.frames import Opcode
from websockets.http11 import Request as HandshakeRequest
from websockets.protocol import OPEN, Protocol, Side
from websockets.server import ServerProtocol

from topics.broker.broker import Broker
from topics.broker.feed import Broken, CaughtUp, Feed, Frame, Gone, Lost, Records
from topics.model.errors import Forbidden, InvalidRequest
from topics.server.access import Caller, caller_of
from topics.server.answers import encode
from topics.server.commands import Commands
from topics.server.delivery import Delivery
from topics.server.frames import frame_fields
from topics.server.http import Duplex, Request
from topics.server.live import Live

GOING_AWAY = 1001
NO_ANSWER = 1011
TRY_AGAIN_LATER = 1013

# The library tells every connection's end; who wants to know has the metrics.
_log = logging.getLogger("topics.server.websocket")
_log.setLevel(logging.WARNING)


def get_socket(live: Live, broker: Broker, request: Request, _name: str) -> None:
    caller = caller_of(request)
    if not caller.limited:
        refuse_foreign_page(request)
    live.slots.check(caller)
    answer = handshake(request)
    Socket(live, broker, caller, live.slots.upgrade(request)).start(answer)


def handshake(request: Request) -> bytes:
    """The 101 that opens the socket. Raises InvalidRequest for what is not a proper request for one."""
    headers = Headers()
    for name, value in request.head.headers.items():
        headers[name.decode("latin-1")] = value.decode("latin-1")
    if not request.head.offers_websocket:
        raise InvalidRequest("this path speaks WebSocket: send an upgrade request")
    protocol = ServerProtocol(logger=_log)
    answer = protocol.accept(HandshakeRequest(request.path.decode("latin-1"), headers))
    if answer.status_code != 101:
        raise InvalidRequest(f"not a valid WebSocket handshake: {protocol.handshake_exc}")
    return answer.serialize()


def refuse_foreign_page(request: Request) -> None:
    """Raises Forbidden for a page from elsewhere when nobody has to show a key.

    A browser asks nobody before it opens a WebSocket, so any page its user happens to look at could otherwise write to a
    server on the same machine. Pages of this server and of this machine, and everything that is no browser, may.
    """
    origin = request.header(b"origin")
    if origin is None:
        return
    found = urlsplit(origin.decode("latin-1"))
    host = request.header(b"host") or b""
    if found.netloc and (found.netloc.lower() == host.decode("latin-1").lower() or _is_local(found.hostname or "")):
        return
    raise Forbidden("pages from another origin may not open a socket on a server without keys")


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Socket:
    """One open socket: bytes to messages and back, and what ends it."""

    __slots__ = (
        "_broker", "_commands", "_delivery", "_duplex", "_feed", "_live", "_opcode", "_over", "_parts", "_pinged",
        "_protocol",
    )  # fmt: skip

    def __init__(self, live: Live, broker: Broker, caller: Caller, duplex: Duplex) -> None:
        self._live = live
        self._broker = broker
        self._duplex = duplex
        self._protocol = Protocol(Side.SERVER, state=OPEN, max_size=broker.limits.max_body_bytes, logger=_log)
        self._feed = Feed(broker)
        # A message that comes in pieces: what it is, and what has come of it. Pieces may be empty, and as many as one likes.
        self._opcode: Opcode | None = None
        self._parts = bytearray()
        # It was pinged and has sent nothing since. Who only listens sends nothing for as long as there are records for it.
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
        self._commands = Commands(
            broker, live.throttle, caller, self._feed, self._send, self._delivery.pump, self._read_on
        )

    def start(self, answer: bytes) -> None:
        duplex = self._duplex
        duplex.write(answer)
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
        if not self._duplex.hold(len(protocol.reader.buffer) + len(self._parts)):
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
            self._parts += data
            if not frame.fin:
                return
            data = bytes(self._parts)
            self._opcode = None
            self._parts = bytearray()
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

    def _encode(self, frame: Frame) -> bytes:
        if isinstance(frame, Gone | Broken):
            # Over for this socket; who wants a namesake made later subscribes again.
            self._feed.remove(frame.topic.name)
            self._feed.trust()
            if isinstance(frame, Broken):
                error = frame.error
                fields = {"op": "error", "topic": frame.topic.name, "code": error.code, "message": error.message}
                return wire(encode(fields))
        text = frame.texts.get("ws")
        if text is None:
            text = frame.texts["ws"] = wire(b'{"op":"%b",%b}' % (_OPS[type(frame)], frame_fields(frame)))
        return text

    def _send(self, message: bytes) -> None:
        if not self._over:
            self._delivery.send(wire(message))

    def _flush(self) -> None:
        """Send what the protocol wants to send, and close when that is the end."""
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


_OPS: dict[type[Frame], bytes] = {
    Records: b"record",
    Lost: b"tombstone",
    CaughtUp: b"caught_up",
    Gone: b"topic_deleted",
}


def wire(message: bytes) -> bytes:
    """A text message as one frame from the server."""
    return WireFrame(Opcode.TEXT, message).serialize(mask=False)
