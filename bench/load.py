"""Load generators: wrk for HTTP, redis-benchmark for Redis, and closed loops over plain sockets for everything else.

A closed loop has a number of connections, each with one request in flight. The loops for HTTP, Redis and NATS are the
same code; only the bytes differ.
"""

import asyncio
import json
import re
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvloop

PAYLOAD_BYTES = 100


def payload(size: int) -> str:
    """Text whose JSON string has this many bytes."""
    return "x" * (size - 2)


def append_body(records: int, size: int = PAYLOAD_BYTES, fields: str = "", batch_fields: str = "") -> str:
    """An append of equal records. `fields` and `batch_fields` are JSON members with a leading comma."""
    record = f'{{"data":"{payload(size)}"{fields}}}'
    return '{"records":[' + ",".join([record] * records) + f"]{batch_fields}}}"


# wrk


def post_script(body: str) -> str:
    """A wrk script that posts the same body again and again."""
    return f'wrk.method = "POST"\nwrk.body = [==[{body}]==]\nwrk.headers["Content-Type"] = "application/json"\n'


def wrk(url: str, script: str, connections: int, seconds: float) -> float:
    """Requests per second. Fails when a response is not a success."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", file.name, url]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in output:
        raise AssertionError(f"the server refused requests of the benchmark: {output}")
    found = re.search(r"Requests/sec:\s+([\d.]+)", output)
    assert found is not None, output
    return float(found.group(1))


# redis-benchmark


def redis_benchmark(port: int, connections: int, requests: int, command: Sequence[str], pipeline: int = 1) -> float:
    """Commands per second."""
    options = ["-p", str(port), "-c", str(connections), "-n", str(requests), "-P", str(pipeline), "-q"]
    output = subprocess.run(["redis-benchmark", *options, *command], capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"([\d.]+) requests per second", output)[-1])


def redis_call(port: int, *parts: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(resp(*parts))
        reply = connection.recv(1000)
    assert not reply.startswith(b"-"), reply
    return reply


def resp(*parts: bytes) -> bytes:
    """A Redis command."""
    return b"*%d\r\n" % len(parts) + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


# Closed loops


class Loop(asyncio.Protocol):
    """One connection with one request in flight. Subclasses say what follows a response."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.operations = 0
        self.stopped = False
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of uvloop are not instances of asyncio.Transport.
        self.transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        if not self.is_complete(received):
            self._received = received
            return
        self._received = b""
        request = None if self.stopped else self.next_request(received)
        if request is not None:
            self.transport.write(request)
        elif not self.done.done():
            self.done.set_result(None)
            self.transport.close()

    def start(self) -> None:
        """Send the first request."""
        self.transport.write(self.first_request())

    def first_request(self) -> bytes:
        raise NotImplementedError

    def is_complete(self, received: bytes) -> bool:
        """Whether these bytes end with a whole response."""
        raise NotImplementedError

    def next_request(self, response: bytes) -> bytes | None:
        """The request that follows this response; None ends the loop."""
        raise NotImplementedError


def run_loops(port: int, connections: int, loop: Callable[[], Loop], seconds: float | None = None) -> tuple[int, float]:
    """Run loops until each ends by itself, or for this time. Returns operations and seconds."""

    async def run() -> tuple[int, float]:
        running = asyncio.get_running_loop()
        loops = [(await running.create_connection(loop, "127.0.0.1", port))[1] for _ in range(connections)]
        started = time.perf_counter()
        for each in loops:
            each.start()
        if seconds is not None:
            await asyncio.sleep(seconds)
            for each in loops:
                each.stopped = True
        await asyncio.gather(*[each.done for each in loops])
        return sum([each.operations for each in loops]), time.perf_counter() - started

    return uvloop.run(run())


def http_head(method: str, path: str) -> bytes:
    """The head of a request up to the digits of its length."""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ".encode()


def http_request(method: str, path: str, body: bytes = b"") -> bytes:
    return b"%b%d\r\n\r\n%b" % (http_head(method, path), len(body), body)


def http_complete(received: bytes) -> bool:
    """Whether a whole HTTP response with a Content-Length has come. Fails when it is no success."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return False
    assert received.startswith(b"HTTP/1.1 20"), received[:500]
    at = received.find(b"Content-Length: ", 0, end)
    if at < 0:
        at = received.lower().index(b"content-length: ", 0, end)
    at += 16
    return len(received) >= end + 4 + int(received[at : received.index(b"\r", at)])


class RepeatedRequest(Loop):
    """The same HTTP request again and again."""

    def __init__(self, request: bytes) -> None:
        super().__init__()
        self._request = request

    def first_request(self) -> bytes:
        return self._request

    def is_complete(self, received: bytes) -> bool:
        return http_complete(received)

    def next_request(self, response: bytes) -> bytes | None:
        self.operations += 1
        return self._request


# A message or, with headers, a status; `reply` is where it is acknowledged.
NATS_MESSAGE = re.compile(rb"H?MSG \S+ 1 +(?:(?P<reply>\$JS\.ACK\S+) +)?(?:\d+ +)?(?P<size>\d+)\r\n")


class NatsLoop(Loop):
    """A NATS connection with a reply subject of its own. Subclasses send requests that are answered there."""

    _numbers = iter(range(1 << 60))

    def __init__(self) -> None:
        super().__init__()
        self.inbox = f"_INBOX.b{next(self._numbers)}".encode()

    def start(self) -> None:
        hello = b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB %b 1\r\n' % self.inbox
        self.transport.write(hello + self.first_request())

    def is_complete(self, received: bytes) -> bool:
        """Whether a message with its payload has come. INFO and PING lines before it are passed over."""
        found = NATS_MESSAGE.search(received)
        return found is not None and len(received) >= found.end() + int(found["size"]) + 2


class NatsPublish(NatsLoop):
    """Publish to a stream and wait for the acknowledgement that it is stored."""

    def __init__(self, subject: str, size: int) -> None:
        super().__init__()
        body = b"x" * size
        self._request = b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), self.inbox, size, body)

    def first_request(self) -> bytes:
        return self._request

    def next_request(self, response: bytes) -> bytes | None:
        assert b'"error"' not in response, response
        self.operations += 1
        return self._request


class NatsWork(NatsLoop):
    """Fetch one message of a pull consumer, acknowledge it, again, until there is none."""

    def __init__(self, stream: str, consumer: str) -> None:
        super().__init__()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        body = b'{"batch":1,"no_wait":true}'
        self._fetch = b"PUB %b %b %d\r\n%b\r\n" % (subject, self.inbox, len(body), body)

    def first_request(self) -> bytes:
        return self._fetch

    def next_request(self, response: bytes) -> bytes | None:
        message = NATS_MESSAGE.search(response)
        assert message is not None
        if message["reply"] is None:
            # A status instead of a message: nothing is left.
            return None
        self.operations += 1
        return b"PUB %b 4\r\n+ACK\r\n" % message["reply"] + self._fetch


def nats_call(port: int, subject: str, body: object) -> None:
    """One request of the JetStream API."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        hello = b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB _INBOX.call 1\r\n'
        connection.sendall(hello + b"PUB %b _INBOX.call %d\r\n%b\r\n" % (subject.encode(), len(data), data))
        reply = b""
        while (found := NATS_MESSAGE.search(reply)) is None or len(reply) < found.end() + int(found["size"]):
            reply += connection.recv(65536)
    assert b'"error"' not in reply[found.end() :], reply


def nats_stream(port: int, name: str) -> None:
    nats_call(port, f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [name], "storage": "file"})


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p99 and p99.9 of many values."""
    cuts = statistics.quantiles(values, n=1000)
    return {"p50": cuts[499], "p99": cuts[989], "p99.9": cuts[998]}
