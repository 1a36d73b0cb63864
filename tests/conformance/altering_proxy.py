"""A proxy that alters responses of a real server: a server that breaks the contract in one known way."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Exchange:
    """One request with the response of the real server, which an alteration may replace."""

    method: str
    path: str
    status: int
    media_type: str
    body: bytes

    def with_json(self, change: Callable[[Any], Any]) -> "Exchange":
        """The same with another JSON body; unchanged if the body is not JSON."""
        if self.media_type != "application/json":
            return self
        return replace(self, body=json.dumps(change(json.loads(self.body))).encode())


Alteration = Callable[[Exchange], Exchange]


@contextmanager
def altering_proxy(url: str, alter: Alteration) -> Iterator[str]:
    """The address of a proxy of the server at `url`. Streams and WebSockets are not passed on."""
    target = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else None
            connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=30)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            media_type = (response.getheader("Content-Type") or "").partition(";")[0]
            exchange = alter(Exchange(self.command, self.path, response.status, media_type, response.read()))
            connection.close()
            self.send_response(exchange.status)
            self.send_header("Content-Type", exchange.media_type)
            self.send_header("Content-Length", str(len(exchange.body)))
            self.end_headers()
            self.wfile.write(exchange.body)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = forward  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
