"""A watch from the reader's side: the bytes of an event stream become events, and events move the cursors.

No sockets here. `EventParser` takes bytes in any pieces. `WatchState` knows where each topic stands, so that a watch
whose session is gone can be begun again exactly there; whatever a stream repeats after a reconnect is dropped.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from topics.client.values import CaughtUp, Record, Tombstone, TopicDeleted, Watched, WatchedRecord, WatchedTombstone
from topics.model.errors import Unavailable


class Event(msgspec.Struct):
    name: str
    data: str
    id: str | None


class EventParser:
    """Server-sent events as the standard reads them: lines end with LF, CR or both; comments say nothing."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> Iterator[Event]:
        self._rest += piece
        # A CR at the end may be half of a CRLF.
        lines = self._rest.replace(b"\r\n", b"\n").split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            event = self._line(line.rstrip(b"\r").decode())
            if event is not None:
                yield event

    def _line(self, line: str) -> Event | None:
        if not line:
            data, name = "\n".join(self._data), self._name or "message"
            self._data, self._name = [], ""
            return Event(name, data, self._id) if data else None
        if line.startswith(":"):
            return None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        return None


class _RecordFrame(msgspec.Struct):
    topic: str
    records: list[Record]
    from_seq: int
    to_seq: int


class _TombstoneFrame(Tombstone, kw_only=True):
    topic: str


class _TopicFrame(msgspec.Struct):
    topic: str
    head_seq: int


class WatchState:
    """Which topics are watched, from where on, and what the last event was."""

    def __init__(self, topics: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]) -> None:
        self.topics: dict[str, dict[str, Any]] = {name: dict(start) for name, start in topics.items()}
        self.options = dict(options)
        self.last_event_id: str | None = None

    def began(self, session: Mapping[str, Mapping[str, int]]) -> None:
        """The server said where each topic starts; `tail` means that point from here on, not a later one."""
        for name, start in session.items():
            self.topics[name] = {"from_seq": start["from_seq"]}

    def take(self, event: Event) -> list[Watched]:
        """What the event means for the reader. Raises Unavailable when the server ends the stream."""
        if event.id is not None:
            self.last_event_id = event.id
        if event.name == "record":
            frame = msgspec.json.decode(event.data, type=_RecordFrame)
            seen = self._seq(frame.topic)
            self._move(frame.topic, frame.to_seq)
            return [WatchedRecord(frame.topic, record) for record in frame.records if record.seq > seen]
        if event.name == "tombstone":
            lost = msgspec.json.decode(event.data, type=_TombstoneFrame)
            if lost.reason == "recreated":
                self.topics[lost.topic] = {"from_seq": lost.gap_to}
            else:
                self._move(lost.topic, lost.gap_to)
            fields = {name: getattr(lost, name) for name in Tombstone.__struct_fields__}
            return [WatchedTombstone(lost.topic, Tombstone(**fields))]
        if event.name in ("caught-up", "topic-deleted"):
            told = msgspec.json.decode(event.data, type=_TopicFrame)
            if event.name == "caught-up":
                return [CaughtUp(told.topic, told.head_seq)]
            self.topics.pop(told.topic, None)
            return [TopicDeleted(told.topic, told.head_seq)]
        if event.name == "error":
            problem = msgspec.json.decode(event.data)
            if problem.get("code") != 429:
                raise Unavailable(str(problem.get("error", "the server ended the stream")), code="stream_ended")
        return []

    def _seq(self, topic: str) -> int:
        return int(self.topics.get(topic, {}).get("from_seq", 0))

    def _move(self, topic: str, seq: int) -> None:
        if topic in self.topics and seq > self._seq(topic):
            self.topics[topic] = {"from_seq": seq}


def starts(topics: Any, *, tail: bool) -> dict[str, dict[str, Any]]:
    """The `topics` argument of a watch: a name, names, or names with a seq or a full start each."""
    if isinstance(topics, str):
        topics = [topics]
    if isinstance(topics, Mapping):
        return {name: {"from_seq": start} if isinstance(start, int) else dict(start) for name, start in topics.items()}
    return {name: {"tail": True} if tail else {} for name in topics}
