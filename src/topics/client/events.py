"""The client's side of a watch, without I/O: parse an event stream, and keep the cursor of each topic.

`EventParser` takes bytes in any pieces. `WatchState` holds where each topic was read up to, so that a watch whose session
has expired continues exactly there; what a stream repeats after a reconnect is dropped.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from topics.client.decoding import LoneSurrogates, check_decoded, decode
from topics.client.errors import WatchFailed
from topics.client.items import CaughtUp, TopicDeleted, Watched, WatchedRecord, WatchedTombstone
from topics.client.values import Record, Start, Tombstone, WatchStart
from topics.model.errors import Unavailable


class Event(msgspec.Struct):
    """A server-sent event."""

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


class _ErrorFrame(msgspec.Struct):
    code: int = 500
    error: str = "the server ended the stream"
    topic: str | None = None


# Statuses of an `error` event after which opening the stream again can succeed: slow reader, overload, stopping server.
_TEMPORARY = frozenset([408, 429, 502, 503, 504])


class WatchState:
    """The watched topics, the start of each for the next session, and the id of the last event."""

    def __init__(
        self,
        topics: Mapping[str, Mapping[str, Any]],
        lone_surrogates: LoneSurrogates = "replace",
    ) -> None:
        self.topics: dict[str, dict[str, Any]] = {name: dict(start) for name, start in topics.items()}
        self.last_event_id: str | None = None
        self._lone_surrogates = lone_surrogates

    def began(self, session: Mapping[str, WatchStart]) -> None:
        """Keep where the server begins each topic, so that `tail` means this point also in a later session."""
        for name, start in session.items():
            self._set(name, start.from_seq)
            self.topics[name]["epoch"] = start.epoch

    def take(self, event: Event) -> Iterator[Watched]:
        """The items of an event, for the reader.

        Raises Unavailable when the stream must be opened again, WatchFailed when a topic cannot be read,
        UndecodablePayload as `lone_surrogates` says.
        """
        if event.id is not None:
            self.last_event_id = event.id
        if event.name == "record":
            choice = "raw" if self._lone_surrogates == "error" else self._lone_surrogates
            frame = decode(event.data.encode(), _RecordFrame, choice)
            seen = self._seq(frame.topic)
            for record in frame.records:
                if record.seq > seen:
                    if self._lone_surrogates == "error":
                        check_decoded(record)
                    self._move(frame.topic, record.seq)
                    yield WatchedRecord(frame.topic, record)
            self._move(frame.topic, frame.to_seq)
        elif event.name == "tombstone":
            lost = msgspec.json.decode(event.data, type=_TombstoneFrame)
            if lost.reason == "recreated":
                self._set(lost.topic, lost.gap_to)
            else:
                self._move(lost.topic, lost.gap_to)
            fields = {name: getattr(lost, name) for name in Tombstone.__struct_fields__}
            yield WatchedTombstone(lost.topic, Tombstone(**fields))
        elif event.name in ("caught-up", "topic-deleted"):
            state = msgspec.json.decode(event.data, type=_TopicFrame)
            if event.name == "caught-up":
                yield CaughtUp(state.topic, state.head_seq)
            else:
                self.topics.pop(state.topic, None)
                yield TopicDeleted(state.topic, state.head_seq)
        elif event.name == "error":
            self._fail(msgspec.json.decode(event.data, type=_ErrorFrame))

    def _fail(self, problem: "_ErrorFrame") -> None:
        if problem.code == 429:
            # The server asks for patience and keeps the stream open.
            return
        if problem.code in _TEMPORARY:
            raise Unavailable(problem.error, code="stream_ended")
        where = f"topic {problem.topic!r}: " if problem.topic else ""
        raise WatchFailed(f"{where}{problem.error}", detail={"topic": problem.topic, "status": problem.code})

    def _seq(self, topic: str) -> int:
        return int(self.topics.get(topic, {}).get("from_seq", 0))

    def _move(self, topic: str, seq: int) -> None:
        if topic in self.topics and seq > self._seq(topic):
            self._set(topic, seq)

    def _set(self, topic: str, seq: int) -> None:
        """Begin there the next time; partition and epoch stay as they are."""
        start = self.topics.setdefault(topic, {})
        start.pop("tail", None)
        start["from_seq"] = seq


def starts(
    topics: str | Sequence[str] | Mapping[str, int | Start | Mapping[str, Any]], *, tail: bool
) -> dict[str, dict[str, Any]]:
    """The `topics` argument of a watch: a name, names, or names with a seq or a full start each."""
    if isinstance(topics, str):
        topics = [topics]
    if isinstance(topics, Mapping):
        return {name: _start(start) for name, start in topics.items()}
    return {name: {"tail": True} if tail else {} for name in topics}


def _start(start: int | Start | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(start, int):
        return {"from_seq": start}
    if isinstance(start, Start):
        return {name: value for name, value in msgspec.structs.asdict(start).items() if value is not None}
    return dict(start)
