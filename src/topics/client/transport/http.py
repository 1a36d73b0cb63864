"""HTTP/1.1 without sockets: requests as bytes, and responses read from any pieces. Both clients use it.

httptools parses the responses. docs/decisions/0023-client-connection.md says why this is not an HTTP library.
"""

import httptools

from topics.client.transport.address import Address, Proxy

READ_BYTES = 1 << 18


class Answer:
    """A whole response. Header names are in lower case."""

    __slots__ = ("body", "headers", "keep_alive", "status")

    def __init__(self, status: int, headers: dict[str, str], body: bytes, keep_alive: bool) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive


class ResponseReader:
    """Reads one response from the bytes that are fed to it."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        # Set with the head.
        self.status = 0
        self.head_done = False
        self.done = False
        self._keep_alive = False
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)

    @property
    def answer(self) -> Answer:
        """The whole response, once it is done."""
        return Answer(self.status, self.headers, b"".join(self.pieces), self._keep_alive)

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises ConnectionError when they end too early or are not HTTP."""
        if not data:
            raise ConnectionResetError("the server closed the connection")
        assert self._parser is not None, "the response is done"
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"not an HTTP response: {error}") from None
        if self.done:
            # Break the cycle of reader and parser, so that both are freed without the garbage collector.
            self._parser = None

    def take(self) -> list[bytes]:
        """The pieces of the body that have arrived since the last call."""
        pieces, self.pieces = self.pieces, []
        return pieces

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self.status = self._parser.get_status_code()
        # Not known any more when the message is complete.
        self._keep_alive = self._parser.should_keep_alive()
        self.head_done = True

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.done = True


def request_bytes(address: Address, method: str, path: str, headers: dict[str, str], body: bytes | None) -> bytes:
    """A request. A proxy for plain HTTP gets the whole URL."""
    proxy = address.proxy
    target = address.base + path
    lines = [f"Host: {address.host_header}"]
    if proxy is not None and not address.tls:
        target = f"http://{address.host_header}{target}"
        if proxy.authorization is not None:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    elif method in ("POST", "PUT"):
        lines.append("Content-Length: 0")
    return (
        f"{method} {target} HTTP/1.1\r\n".encode() + "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")
    )


def connect_request(address: Address, proxy: Proxy) -> bytes:
    """The request that asks a proxy for a tunnel to the server."""
    credential = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization is not None else ""
    return f"CONNECT {address.authority} HTTP/1.1\r\nHost: {address.authority}\r\n{credential}\r\n".encode()


def check_tunnel(head: bytes) -> None:
    """Raise ConnectionError unless the proxy has opened the tunnel."""
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    if status.split(" ")[1:2] != ["200"]:
        raise ConnectionError(f"the proxy refused the connection: {status}")
