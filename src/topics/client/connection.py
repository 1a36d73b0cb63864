"""One HTTP/1.1 connection on asyncio, parsed by httptools: requests one after the other, answers whole or streamed."""

import asyncio
import ssl
from collections.abc import AsyncIterator

import httptools

from topics.client.address import Address


class Answer:
    __slots__ = ("body", "headers", "keep_alive", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes, keep_alive: bool) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive


class _Reading:
    """What httptools calls while it parses one answer."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.head_done = False
        self.done = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.head_done = True

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.done = True


class Connection:
    """An open connection. Not shared: one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: Address) -> "Connection":
        context = ssl.create_default_context() if address.tls else None
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context, limit=1 << 20)
        return cls(reader, writer)

    async def request(self, method: str, path: str, host: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Send and read the whole answer. Raises OSError when the connection ends before that."""
        reading, parser = await self._begin(method, path, host, headers, body)
        while not reading.done:
            await self._more(parser)
        return Answer(parser.get_status_code(), reading.headers, b"".join(reading.pieces), parser.should_keep_alive())

    async def stream(
        self, method: str, path: str, host: str, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Send and read the head; the body follows in pieces, as they come."""
        reading, parser = await self._begin(method, path, host, headers, None)
        while not reading.head_done:
            await self._more(parser)

        async def pieces() -> AsyncIterator[bytes]:
            while True:
                for piece in reading.pieces:
                    yield piece
                reading.pieces.clear()
                if reading.done:
                    return
                await self._more(parser)

        return parser.get_status_code(), reading.headers, pieces()

    @property
    def ended(self) -> bool:
        """The server has closed it."""
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def _begin(
        self, method: str, path: str, host: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[_Reading, httptools.HttpResponseParser]:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self._writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
        await self._writer.drain()
        reading = _Reading()
        return reading, httptools.HttpResponseParser(reading)

    async def _more(self, parser: httptools.HttpResponseParser) -> None:
        data = await self._reader.read(1 << 18)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        try:
            parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"not an HTTP answer: {error}") from None
