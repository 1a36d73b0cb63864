"""Server-sent events and WebSockets, read the way a client of another maker would read them."""

import http.client
import json
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri


@dataclass(frozen=True)
class Event:
    """One event. A comment has an empty name and its text as `text`."""

    name: str
    text: str
    id: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


class EventStream:
    """An open `text/event-stream`. Reading raises TimeoutError when nothing comes, EOFError at the end."""

    def __init__(self, connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
        self._connection = connection
        connection.request("GET", path, headers={"Accept": "text/event-stream", **headers})
        self._response = connection.getresponse()
        self.request = f"GET {path}"
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}
        self.retries: list[int] = []
        self._name, self._id = "", ""
        self._lines: list[str] = []

    def next(self, *, comments: bool = False) -> Event:
        while True:
            event = self._read_line()
            if event is not None and (event.name or comments):
                return event

    def until(self, name: str, accept: Callable[[Event], bool] = lambda _event: True) -> Event:
        """The next event of this name that is accepted, passing over others."""
        while True:
            event = self.next()
            if event.name == name and accept(event):
                return event

    def records(self, count: int) -> list[dict[str, Any]]:
        """At least this many records."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            found += self.until("record").data["records"]
        return found

    def body(self) -> bytes:
        """The whole body of a response that is no stream."""
        return self._response.read()

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def _read_line(self) -> Event | None:
        line = self._response.readline()
        if not line:
            raise EOFError("the stream has ended")
        text = line.decode("utf-8").rstrip("\r\n")
        if not text:
            event = Event(self._name or "message", "\n".join(self._lines), self._id)
            found = bool(self._lines)
            self._name, self._id, self._lines = "", "", []
            return event if found else None
        if text.startswith(":"):
            return Event("", text[1:].strip(), "")
        key, _, value = text.partition(":")
        value = value.removeprefix(" ")
        match key:
            case "event":
                self._name = value
            case "data":
                self._lines.append(value)
            case "id":
                self._id = value
            case "retry":
                self.retries.append(int(value))
        return None


class WebSocket:
    """A WebSocket on /v0/ws. Frames are JSON objects."""

    def __init__(self, host: str, port: int, secure: bool, headers: dict[str, str], timeout_seconds: float) -> None:
        scheme = "wss" if secure else "ws"
        self._protocol = ClientProtocol(parse_uri(f"{scheme}://{host}:{port}/v0/ws"))
        self._timeout_seconds = timeout_seconds
        self._frames: deque[dict[str, Any]] = deque()
        plain = socket.create_connection((host, port), timeout=timeout_seconds)
        self._socket = ssl.create_default_context().wrap_socket(plain, server_hostname=host) if secure else plain
        request = self._protocol.connect()
        for name, value in headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        self._flush()
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            self._receive()
        if self._protocol.handshake_exc is not None:
            self.close()
            raise ConnectionError(f"the server refused the WebSocket: {self._protocol.handshake_exc}")

    def send(self, **command: Any) -> None:
        self.send_text(json.dumps(command))

    def send_text(self, text: str) -> None:
        self._protocol.send_text(text.encode())
        self._flush()

    def next(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout_seconds
        while not self._frames:
            if time.monotonic() > deadline:
                raise TimeoutError("no frame came")
            self._receive()
        return self._frames.popleft()

    def until(self, op: str) -> dict[str, Any]:
        """The next frame of this kind, passing over others."""
        while True:
            frame = self.next()
            if frame.get("op") == op:
                return frame

    def call(self, **command: Any) -> dict[str, Any]:
        """Send a command with a request id and return the frame that answers it."""
        request_id = f"c{time.monotonic_ns()}"
        self.send(request_id=request_id, **command)
        while True:
            frame = self.next()
            if frame.get("request_id") == request_id:
                return frame

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> None:
        data = self._socket.recv(1 << 16)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                self._frames.append(json.loads(bytes(event.data)))
        self._flush()
        if not data and not self._frames:
            raise EOFError("the server closed the WebSocket")

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)
