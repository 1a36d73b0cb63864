"""The server under test: requests over plain sockets, event streams, WebSockets, and topics that are removed afterwards.

Every request opens its own connection unless a check asks otherwise, so that no check depends on another one.
"""

import http.client
import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from topics.conformance.streams import EventStream, WebSocket

JSON_TYPE = "application/json"
TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Response:
    """A response as it came."""

    request: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise AssertionError(f"{self.request}: the body is not JSON: {self.text(300)}") from None

    def text(self, limit: int = 1 << 20) -> str:
        return self.body[:limit].decode("utf-8", "replace")


@dataclass
class Server:
    """One server as one check sees it. Close it at the end of the check: it removes what the check created."""

    url: str
    token: str | None = None
    # Keys with one scope each, and one limited to a prefix: name -> key.
    keys: dict[str, str] = field(default_factory=dict)
    prefix: str = "conformance"
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _topics: list[str] = field(default_factory=list)
    _routers: list[str] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"{self.url!r} is not an http or https address")
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.secure = parts.scheme == "https"

    # Requests

    def get(self, path: str, headers: dict[str, str] | None = None) -> Response:
        return self.send("GET", path, None, headers)

    def delete(self, path: str, headers: dict[str, str] | None = None) -> Response:
        return self.send("DELETE", path, None, headers)

    def put(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Response:
        return self.send("PUT", path, body, {"Content-Type": JSON_TYPE, **(headers or {})})

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Response:
        return self.send("POST", path, body, {"Content-Type": JSON_TYPE, **(headers or {})})

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Response:
        """Send exactly these headers, the body's length and the token; bytes are sent as they are, others as JSON."""
        connection = self.connect()
        try:
            return self.send_on(connection, method, path, body, headers)
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        return kind(self.host, self.port, timeout=TIMEOUT_SECONDS)

    def send_on(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Response:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in {**self.authorization(), **(headers or {})}.items():
            connection.putheader(name, value)
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        response = connection.getresponse()
        received = {name.lower(): value for name, value in response.getheaders()}
        return Response(f"{method} {path[:200]}", response.status, received, response.read())

    def send_head(self, head: str) -> Response:
        """Send a request head as it is, without a body, and read the response."""
        connection = self.connect()
        try:
            connection.connect()
            lines = [*head.split("\n"), f"Host: {self.host}"]
            lines += [f"{name}: {value}" for name, value in self.authorization().items()]
            connection.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
            response = http.client.HTTPResponse(connection.sock, method=head.partition(" ")[0])
            response.begin()
            received = {name.lower(): value for name, value in response.getheaders()}
            return Response(head.partition("\n")[0], response.status, received, response.read())
        finally:
            connection.close()

    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def with_token(self, token: str | None) -> "Server":
        """The same server with another key, or none. What it creates is not removed by itself."""
        return Server(self.url, token, self.keys, self.prefix, self._numbers, self._topics, self._routers, self._open)

    # Names that no other check uses

    def new_name(self) -> str:
        """A topic name that does not exist. If a check creates the topic, it is removed at the end."""
        name = f"{self.prefix}:{next(self._numbers)}"
        self._topics.append(name)
        return name

    def new_router_name(self) -> str:
        name = f"{self.prefix}:r{next(self._numbers)}"
        self._routers.append(name)
        return name

    def topic_path(self, name: str | None = None, action: str = "") -> str:
        """The path of a topic; without a name, of one that does not exist."""
        return f"/v0/topics/{quote(name or self.new_name(), safe=':')}{action}"

    # Operations that most checks begin with; each must succeed

    def create(self, **config: Any) -> str:
        """Create a topic and return its name."""
        name = self.new_name()
        self._must(self.put(self.topic_path(name), config), 201)
        return name

    def append(self, topic: str, *records: Any, **fields: Any) -> dict[str, Any]:
        """Append records: dicts with `data`, or anything else as the data itself."""
        made = [each if isinstance(each, dict) and "data" in each else {"data": each} for each in records]
        return self._must(self.post(self.topic_path(topic), {"records": made, **fields}), 200, 201)

    def diff(self, topic: str, from_seq: int = 0, **fields: Any) -> dict[str, Any]:
        return self._must(self.post(self.topic_path(topic, "/diff"), {"from_seq": from_seq, **fields}), 200)

    def state(self, topic: str) -> dict[str, Any]:
        return self._must(self.get(self.topic_path(topic)), 200)

    def remove(self, topic: str, **fields: Any) -> dict[str, Any]:
        """Delete records of a topic."""
        return self._must(self.post(self.topic_path(topic, "/delete"), fields), 200)

    def claim(self, topic: str, node: str = "w1", **fields: Any) -> dict[str, Any]:
        return self._must(self.post(self.topic_path(topic, "/claim"), {"node": node, **fields}), 200)

    def queue_call(self, topic: str, action: str, **fields: Any) -> dict[str, Any]:
        return self._must(self.post(self.topic_path(topic, f"/{action}"), fields), 200)

    def route(self, source: str, dest: str, **fields: Any) -> str:
        """Create a router and return its name."""
        name = self.new_router_name()
        self._must(self.put(f"/v0/routers/{name}", {"source": source, "dest": dest, **fields}), 201)
        return name

    def watch(self, topics: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Create a watch session."""
        return self._must(self.post("/v0/watch", {"topics": topics, **fields}), 200)

    def stream(self, path: str, headers: dict[str, str] | None = None) -> EventStream:
        """Open an event stream; it is closed at the end of the check."""
        opened = EventStream(self.connect(), path, {**self.authorization(), **(headers or {})})
        self._open.callback(opened.close)
        return opened

    def watched(self, topics: dict[str, Any], **fields: Any) -> EventStream:
        """Create a watch session and open its stream."""
        return self.stream(self.watch(topics, **fields)["stream_url"])

    def websocket(self) -> WebSocket:
        opened = WebSocket(self.host, self.port, self.secure, self.authorization(), TIMEOUT_SECONDS)
        self._open.callback(opened.close)
        return opened

    def seqs(self, topic: str, from_seq: int = 0, **fields: Any) -> list[int]:
        return [record["$seq"] for record in self.diff(topic, from_seq, **fields)["records"]]

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = 10.0) -> None:
        """Poll until the condition holds, for what the server does by itself."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"after {seconds:g} s: {what}")
            time.sleep(POLL_SECONDS)

    @contextmanager
    def cleaned(self) -> Iterator["Server"]:
        """Remove at the end what was created with names of this server."""
        try:
            yield self
        finally:
            self._open.close()
            for router in self._routers:
                self.delete(f"/v0/routers/{router}")
            for topic in self._topics:
                self.delete(self.topic_path(topic))

    def _must(self, response: Response, *statuses: int) -> dict[str, Any]:
        if response.status not in statuses:
            raise AssertionError(
                f"{response.request}: expected {statuses[0]}, got {response.status} {response.text(300)}"
            )
        body = response.json()
        assert isinstance(body, dict), f"{response.request}: not an object"
        return body
