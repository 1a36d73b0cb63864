"""One HTTP/1.1 connection on asyncio: requests one after the other, responses whole or streamed."""

import asyncio
from collections.abc import AsyncIterator

from topics.client.transport.address import Address
from topics.client.transport.http import (
    READ_BYTES,
    Answer,
    ResponseReader,
    check_tunnel,
    connect_request,
    request_bytes,
)


class Connection:
    """An open connection. Not shared: one request at a time."""

    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: Address, timeout_s: float) -> "Connection":
        """Connect, through the proxy if there is one. Raises OSError."""
        async with asyncio.timeout(timeout_s):
            proxy = address.proxy
            context = address.certificates.context() if address.tls else None
            if proxy is None:
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context, limit=1 << 20)
                return cls(address, reader, writer)
            reader, writer = await asyncio.open_connection(proxy.host, proxy.port, limit=1 << 20)
            if context is not None:
                try:
                    writer.write(connect_request(address, proxy))
                    check_tunnel(await reader.readuntil(b"\r\n\r\n"))
                    await writer.start_tls(context, server_hostname=address.host)
                except BaseException:
                    writer.close()
                    raise
            return cls(address, reader, writer)

    async def request(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout_s: float
    ) -> Answer:
        """Send and read the whole response. Raises OSError when that fails or takes too long."""
        async with asyncio.timeout(timeout_s):
            response = await self._begin(method, path, headers, body)
            while not response.done:
                response.feed(await self._reader.read(READ_BYTES))
        return response.answer

    async def stream(
        self, path: str, headers: dict[str, str], silence_s: float
    ) -> tuple[int, dict[str, str], AsyncIterator[bytes]]:
        """Send a GET and read the head; the body follows in pieces. TimeoutError after `silence_s` without a byte."""
        async with asyncio.timeout(silence_s):
            response = await self._begin("GET", path, headers, None)
            while not response.head_done:
                response.feed(await self._reader.read(READ_BYTES))

        async def pieces() -> AsyncIterator[bytes]:
            while True:
                for piece in response.take():
                    yield piece
                if response.done:
                    return
                async with asyncio.timeout(silence_s):
                    data = await self._reader.read(READ_BYTES)
                response.feed(data)

        return response.status, response.headers, pieces()

    @property
    def ended(self) -> bool:
        """Whether the server has closed it."""
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        """Close it; requests that are open fail. At once: the end of TLS is not negotiated, responses have a length."""
        self._writer.transport.abort()

    async def _begin(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> ResponseReader:
        self._writer.write(request_bytes(self._address, method, path, headers, body))
        await self._writer.drain()
        return ResponseReader()
