"""A listener on a real socket, and clients that send raw bytes to it."""

import asyncio
import functools
import inspect
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, cast

import uvloop

from topics.server.http import HttpLimits, Listener, Request
from topics.server.http.connection.connection import Connection

# Reached only by a test that fails: nothing here waits for time to pass.
PATIENCE_SECONDS = 20


class ManualTime:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Recorder:
    """Answers with what it was asked, unless the path says otherwise; keeps every request."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.arrived = asyncio.Event()

    def handle(self, request: Request) -> None:
        self.requests.append(request)
        self.arrived.set()
        if request.path.startswith(b"/later"):
            return
        if request.path == b"/fail":
            raise ValueError("secret of the application")
        request.respond(200, describe(request))

    async def next(self) -> Request:
        """The next request that has not been looked at."""
        while not self.requests:
            self.arrived.clear()
            await self.arrived.wait()
        return self.requests.pop(0)


def describe(request: Request) -> bytes:
    return json.dumps(
        {
            "method": request.method.decode(),
            "path": request.path.decode(),
            "query": request.query.decode(),
            "body": request.body.decode("latin-1"),
        }
    ).encode()


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    raw_head: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error code, after checking that the error has its one shape."""
        error = self.json["error"]
        assert set(self.json) == {"error"}
        assert set(error) == {"code", "message"}
        assert error["message"]
        assert self.headers["content-type"] == "application/json"
        return error["code"]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str], bytes]:
        raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers: dict[str, str] = {}
        for line in lines:
            name, value = line.split(": ", 1)
            assert name.lower() not in headers
            headers[name.lower()] = value
        return int(status), headers, raw

    async def answer(self, method: str = "GET") -> Answer:
        status, headers, raw = await self.head()
        if method == "HEAD" or status in (204, 304, 100):
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = await self.answer_body()
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
        return Answer(status, headers, body, raw)

    async def chunk(self) -> bytes:
        """The next piece of a stream; empty at its end."""
        size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
        data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def answer_body(self) -> bytes:
        """The rest of a stream, to its end."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> Any:
        while chunk := await self.chunk():
            yield chunk

    async def ask(self, data: bytes) -> Answer:
        await self.send(data)
        return await self.answer(data.split(b" ", 1)[0].decode("latin-1"))

    async def is_closed(self) -> bool:
        """Whether the server has closed its side with nothing left to read. Waits for that; tests have a deadline."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    async def is_usable(self) -> bool:
        return (await self.ask(get("/still/there"))).json["path"] == "/still/there"

    def end(self) -> None:
        """Send no more, but go on reading."""
        self.writer.write_eof()

    def abort(self) -> None:
        """Be gone, as a killed process is: the other side sees the end of what was sent."""
        self.writer.transport.abort()

    def reset(self) -> None:
        """Be gone, and let the other side know that nothing will be read any more."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class Server:
    """A started listener."""

    def __init__(self, app: Any, limits: HttpLimits, host: str = "127.0.0.1") -> None:
        self.app = app
        self.limits = limits
        self.listener = Listener(app, limits)
        self.host = host
        self.address: tuple[str, int] = ("", 0)
        self._clients: list[Client] = []

    async def start(self) -> None:
        self.address = await self.listener.start(self.host, 0)

    async def connect(self, receive_buffer: int | None = None) -> Client:
        family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
        sock = socket.socket(family)
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self.address)
        except OSError:
            sock.close()
            raise
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 20)
        client = Client(reader, writer)
        self._clients.append(client)
        return client

    async def ask(self, data: bytes) -> Answer:
        return await (await self.connect()).ask(data)

    def connection(self) -> Connection:
        """The server's end of the only connection."""
        (connection,) = self.listener.connections
        return connection

    def pass_time(self, seconds: float) -> None:
        """Time passes and the sweep notices, the way it does once a second."""
        clock = self.limits.clock
        assert isinstance(clock, ManualTime)
        clock.now += seconds
        self.listener.sweep()

    async def stop(self) -> None:
        await self.listener.stop(grace=0)
        for client in self._clients:
            client.abort()
        # Clients learn that they are gone in the next turn.
        await asyncio.sleep(0)


def parsed(written: bytes) -> Answer:
    """The one answer that was written, as long as it says."""
    head, _, body = written.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    assert int(headers["content-length"]) == len(body), "exactly one answer"
    return Answer(int(status.split()[1]), headers, body, head)


class Sink:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""
        self.ended = False
        self.buffered_bytes = 0
        self._on_close: Callable[[], object] = lambda: None

    @classmethod
    def plugged_into(cls, connection: Connection) -> "Sink":
        """The other end of the connection, which is lost when this is closed."""
        sink = cls()
        loop = asyncio.get_running_loop()
        sink._on_close = lambda: connection.closed or loop.call_soon(connection.connection_lost, None)
        connection.connection_made(cast(asyncio.Transport, sink))
        return sink

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.written += b"".join(parts)

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        if not self.ended:
            self.ended = True
            self._on_close()

    abort = close

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.buffered_bytes

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


def serving(
    app: Callable[[], Any] = Recorder, **settings: Any
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Run an async test against a fresh server on uvloop. `settings` are limits; time does not move unless passed."""

    def decorate(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(scenario)
        def test(**arguments: Any) -> None:
            uvloop.run(in_server(lambda server: scenario(server, **arguments), app, **settings))

        # What is left for pytest to fill in.
        signature = inspect.signature(scenario)
        _server, *rest = signature.parameters.values()
        test.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return test

    return decorate


async def in_server(scenario: Callable[[Server], Awaitable[None]], app: Callable[[], Any], **settings: Any) -> None:
    host = settings.pop("host", "127.0.0.1")
    settings.setdefault("clock", ManualTime())
    settings.setdefault("sweep_interval", 3600.0)
    server = Server(app(), HttpLimits(**settings), host)
    await server.start()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await scenario(server)
    finally:
        await server.stop()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what must happen; a test that waits in vain meets its deadline."""
    while not condition():  # noqa: ASYNC110 - the conditions are the server's inner state, which has no events
        await asyncio.sleep(0.001)


def get(path: str = "/", *lines: str) -> bytes:
    return request_bytes("GET", path, *lines)


def post(path: str, body: bytes, *lines: str) -> bytes:
    return request_bytes("POST", path, f"Content-Length: {len(body)}", *lines) + body


def chunked(path: str, *parts: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    return request_bytes("POST", path, "Transfer-Encoding: chunked") + body


def request_bytes(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: test", *lines, "", ""]).encode("latin-1")
