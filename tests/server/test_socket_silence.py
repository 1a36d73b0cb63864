"""When a socket without messages is closed, and when not."""

from typing import Any, cast

from websockets.frames import Frame, Opcode

from topics.server.auth.authorization import EVERYONE
from topics.server.auth.permissions import Access
from topics.server.http import Duplex
from topics.server.live.shared import LiveSettings
from topics.server.live.websocket import Socket
from topics.server.ops.settings import Settings
from topics.server.service import Service
from topics.testing.broker import BrokerBench

PING_MS = 20_000
PING = Frame(Opcode.PING, b"").serialize(mask=False)


class Wire:
    """The other end of a socket that takes everything at once."""

    def __init__(self) -> None:
        self.written = b""
        self.written_bytes = 0
        self.buffered = 0
        self.writable = True
        self.closed = False
        self.send: Any = None

    def write(self, data: bytes) -> None:
        self.written += data
        self.written_bytes += len(data)

    def close(self) -> None:
        self.closed = True

    def on_data(self, callback: Any) -> None:
        self.send = callback

    def on_drain(self, callback: Any) -> None:
        pass

    on_close = on_shutdown = on_drain

    def hold(self, size: int) -> bool:
        return True

    def taken(self) -> bytes:
        written, self.written = self.written, b""
        return written


class Scene:
    def __init__(self) -> None:
        self.bench = BrokerBench()
        self.bench.configure("t")
        service = Service(Settings(live=LiveSettings(ping_ms=PING_MS)))
        self.wire = Wire()
        Socket(Access(service, self.bench.broker, EVERYONE), cast(Duplex, self.wire)).start(b"101")
        self.say(Opcode.TEXT, b'{"op":"subscribe","topic":"t"}')
        assert b"subscribed" in self.wire.taken()

    def say(self, opcode: Opcode, data: bytes) -> None:
        self.wire.send(Frame(opcode, data).serialize(mask=True))
        self.bench.runtime.run()

    def wait(self, ms: int) -> bytes:
        """What is sent meanwhile."""
        self.bench.clock.advance(ms)
        self.bench.runtime.run()
        return self.wire.taken()


def test_who_only_listens_is_pinged_when_it_becomes_quiet_and_not_closed() -> None:
    scene = Scene()
    for _ in range(20):
        scene.bench.append("t", b"1")
        assert b'"records"' in scene.wait(PING_MS // 4)
    assert scene.wait(PING_MS) == PING
    scene.say(Opcode.PONG, b"")
    for _ in range(5):
        assert scene.wait(PING_MS) == PING
        scene.say(Opcode.PONG, b"")
    assert not scene.wire.closed


def test_who_does_not_answer_a_ping_is_closed() -> None:
    scene = Scene()
    assert scene.wait(PING_MS) == PING
    assert b"\x03\xf3" in scene.wait(PING_MS)  # close code 1011
    assert scene.wire.closed


def test_words_that_come_instead_of_a_pong_will_do() -> None:
    scene = Scene()
    for _ in range(5):
        assert scene.wait(PING_MS) == PING
        scene.say(Opcode.TEXT, b'{"op":"ping"}')
        assert b"pong" in scene.wire.taken()
    assert not scene.wire.closed
