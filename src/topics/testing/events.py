"""Server-sent events as a browser reads them, for tests."""

import json
import struct
from collections import deque
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, NamedTuple

from topics.testing.http import Answer, Api


class Event(NamedTuple):
    """One event, or a comment (`name` is then empty and `text` the comment)."""

    name: str
    text: str
    id: str
    last_id: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


class EventParser:
    """Bytes in, events out: lines end with LF, CR or CRLF, wherever the pieces are cut."""

    def __init__(self) -> None:
        self.retries: list[int] = []
        self.last_id = ""
        self._rest = b""
        self._name = ""
        self._id = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[Event]:
        lines = self._rest + data
        held = b""
        if b"\r" in lines:
            lines = lines.replace(b"\r\n", b"\n")
            if lines.endswith(b"\r"):
                lines, held = lines[:-1], b"\r"
            lines = lines.replace(b"\r", b"\n")
        whole, end, rest = lines.rpartition(b"\n")
        self._rest = rest + held
        for line in whole.decode().split("\n") if end else ():
            event = self._line(line)
            if event is not None:
                yield event

    def _line(self, line: str) -> Event | None:
        if not line:
            event = Event(self._name or "message", "\n".join(self._data), self._id, self.last_id)
            found = bool(self._data)
            self._name, self._id, self._data = "", "", []
            return event if found else None
        if line.startswith(":"):
            return Event("", line[1:].lstrip(), "", self.last_id)
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = self.last_id = value
        elif field == "retry":
            self.retries.append(int(value))
        return None


class EventStream:
    """One open stream. Reading in vain ends with a TimeoutError, which only a failing test meets."""

    def __init__(self, api: Api, path: str, headers: dict[str, str] | None = None, timeout: float = 20.0) -> None:
        self._connection = HTTPConnection(api.host, api.port, timeout=timeout)
        self._connection.request("GET", path, headers={"Accept": "text/event-stream", **api.headers, **(headers or {})})
        self._socket = self._connection.sock
        self._response: HTTPResponse = self._connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}
        self.parser = EventParser()
        self.ended = False
        self._events: deque[Event] = deque()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def answer(self) -> Answer:
        """The whole answer, when it is a refusal and no stream."""
        return Answer(self.status, self.headers, self._response.read())

    def next(self, *, comments: bool = False) -> Event:
        """The next event. Raises EOFError at the end of the stream."""
        while True:
            while self._events:
                event = self._events.popleft()
                if event.name or comments:
                    return event
            data = self._response.read1(1 << 16)
            if not data:
                self.ended = True
                raise EOFError("the stream has ended")
            self._events.extend(self.parser.feed(data))

    def until(self, name: str) -> list[Event]:
        """Events up to and with the first of this name."""
        events = [self.next()]
        while events[-1].name != name:
            events.append(self.next())
        return events

    def records(self, count: int) -> list[dict[str, Any]]:
        """Return at least `count` records, skipping other events."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            event = self.next()
            if event.name == "record":
                found += event.data["records"]
        return found

    def reset(self) -> None:
        """The connection breaks: a reset instead of an end."""
        self._socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.close()
        self._socket.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()
