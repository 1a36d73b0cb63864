"""One HTTP/1.1 connection on a blocking socket: requests one after the other, responses whole or streamed."""

import select
import socket
import time
from collections.abc import Iterator

from topics.client.transport.address import Address
from topics.client.transport.http import (
    READ_BYTES,
    Answer,
    ResponseReader,
    check_tunnel,
    connect_request,
    request_bytes,
)

MAX_TUNNEL_HEAD_BYTES = 16 << 10


class Connection:
    """An open connection. Not shared: one request at a time."""

    def __init__(self, address: Address, sock: socket.socket) -> None:
        self._address = address
        self._socket = sock

    @classmethod
    def open(cls, address: Address, timeout_s: float) -> "Connection":
        """Connect, through the proxy if there is one. Raises OSError."""
        proxy = address.proxy
        context = address.certificates.context() if address.tls else None
        target = (address.host, address.port) if proxy is None else (proxy.host, proxy.port)
        sock = socket.create_connection(target, timeout_s)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                if proxy is not None:
                    sock.sendall(connect_request(address, proxy))
                    check_tunnel(_head(sock))
                sock = context.wrap_socket(sock, server_hostname=address.host)
        except BaseException:
            sock.close()
            raise
        return cls(address, sock)

    def request(self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout_s: float) -> Answer:
        """Send and read the whole response. Raises OSError when that fails or takes too long."""
        ends_at = time.monotonic() + timeout_s
        self._socket.settimeout(timeout_s)
        response = self._begin(method, path, headers, body)
        response.feed(self._socket.recv(READ_BYTES))
        while not response.done:
            # The time-out of a socket counts for each call.
            self._socket.settimeout(max(0.001, ends_at - time.monotonic()))
            response.feed(self._socket.recv(READ_BYTES))
        return response.answer

    def stream(
        self, path: str, headers: dict[str, str], silence_s: float
    ) -> tuple[int, dict[str, str], Iterator[bytes]]:
        """Send a GET and read the head; the body follows in pieces. TimeoutError after `silence_s` without a byte."""
        self._socket.settimeout(silence_s)
        response = self._begin("GET", path, headers, None)
        while not response.head_done:
            response.feed(self._socket.recv(READ_BYTES))

        def pieces() -> Iterator[bytes]:
            while True:
                yield from response.take()
                if response.done:
                    return
                response.feed(self._socket.recv(READ_BYTES))

        return response.status, response.headers, pieces()

    @property
    def ended(self) -> bool:
        """Whether the server has closed it: it is readable although nothing was requested."""
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def _begin(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> ResponseReader:
        self._socket.sendall(request_bytes(self._address, method, path, headers, body))
        return ResponseReader()


def _head(sock: socket.socket) -> bytes:
    """The response of a proxy to CONNECT; nothing follows it before we send."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = sock.recv(4096)
        if not piece or len(head) > MAX_TUNNEL_HEAD_BYTES:
            raise ConnectionResetError("the proxy closed the connection")
        head += piece
    return head
