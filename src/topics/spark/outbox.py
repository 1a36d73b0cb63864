"""Outbox: messages on their way from tasks to topics, made readable by one commit of the driver.

A task stages what is much and hands back what is little, so that a small batch costs one request in all. The driver's
commit names the stages and brings the rest along: all of it is readable together, once for each batch of a query.

A topic that refuses its messages (it was dropped, the key may not write to it, a record is too large) costs the others
nothing: its messages are left out, counted for their routes, and told with the server's reason. What is only a matter of time (a
server that is away, a key without the scope to write) is not decided here: it fails the task or the batch, which is then run again. When there is no room for
stages, the batch is routed in smaller portions.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from topics.client import Client
from topics.client.calls import RecordIn
from topics.model.errors import (
    BatchTooLarge,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Throttled,
    TopicFull,
    TopicsError,
)

STAGE_ROWS = 20_000
STAGE_BYTES = 8 << 20
# What a task hands back instead of staging it, and what a commit brings along at most.
INLINE_ROWS = 4000
INLINE_BYTES = 1 << 20
COMMIT_BYTES = 16 << 20
# How long a batch waits for a topic that is full, before its messages are given up.
FULL_WAIT_S = 10.0

# How many records and bytes a partition of a topic holds at most; 0 for any number.
Cap = tuple[int, int]
_REFUSALS = (InvalidRequest, NotFound, Forbidden, Conflict)


class OverCap(Exception):
    """A batch has more for a topic than the topic ever holds: of its messages only the newest can stay.

    Make the batch again with this cap.
    """

    def __init__(self, topic: str, cap: Cap) -> None:
        super().__init__(f'a batch has more for topic "{topic}" than it holds')
        self.topic = topic
        self.cap = cap


class NoRoom(Exception):
    """The server keeps no more in stages than it has of this batch already. Route less of it at a time."""


class Refused(Struct):
    """Messages of one route that its topic did not take."""

    count: int
    message: str


class Piece(Struct):
    """Messages for one topic: a stage, or the records themselves for one partition."""

    topic: str
    # How many messages of which route.
    routes: dict[int, int]
    size: int
    stage: str | None = None
    partition: int = 0
    records: bytes = b""


class _Waiting(Struct):
    data: list[bytes]
    metas: list[bytes]
    partitions: list[int]
    routes: list[int]
    size: int = 0
    # Half a surrogate pair is taken in a stage of JSON and nowhere else.
    halves: bool = False


class _Record(Struct):
    data: Raw
    meta: dict[str, Any]


_decode_records = msgspec.json.Decoder(list[_Record]).decode


class Outbox:
    """Collects the messages of one task. Each topic's stay in the order they were added."""

    def __init__(self, client: Client, caps: Mapping[str, Cap] | None = None) -> None:
        self.pieces: list[Piece] = []
        self.refused: dict[int, Refused] = {}
        self._client = client
        self._caps = caps or {}
        self._waiting: dict[str, _Waiting] = {}
        self._size = 0

    def add(self, route: int, topic: str, partition: int, data: bytes, meta: bytes) -> None:
        waiting = self._waiting.get(topic)
        if waiting is None:
            waiting = self._waiting[topic] = _Waiting([], [], [], [])
        waiting.data.append(data)
        waiting.metas.append(meta)
        waiting.partitions.append(partition)
        waiting.routes.append(route)
        if b"\\ud" in data or b"\\uD" in data:
            waiting.halves = True
        size = len(data) + len(meta)
        waiting.size += size
        self._size += size
        if topic in self._caps and len(waiting.data) >= STAGE_ROWS:
            # Trimmed rather than staged, as long as that makes it much shorter.
            trimmed = newest(waiting, self._caps[topic])
            if len(trimmed.data) <= len(waiting.data) * 3 // 4:
                self._size -= waiting.size - trimmed.size
                self._waiting[topic] = trimmed
                return
        if waiting.size >= STAGE_BYTES or len(waiting.data) >= STAGE_ROWS:
            self._stage(topic)
        elif self._size >= 4 * STAGE_BYTES:
            # Messages for many topics must not pile up on the worker either.
            self._stage(max(self._waiting, key=lambda name: self._waiting[name].size))

    def finish(self) -> None:
        """Stage what is much; what is left is little enough to be handed back."""
        for topic in [topic for topic, waiting in self._waiting.items() if waiting.halves or topic in self._caps]:
            self._stage(topic)
        while self._waiting and (
            self._size > INLINE_BYTES or sum([len(each.data) for each in self._waiting.values()]) > INLINE_ROWS
        ):
            self._stage(max(self._waiting, key=lambda name: self._waiting[name].size))
        for topic, waiting in self._waiting.items():
            self._hand_back(topic, waiting)
        self._waiting = {}

    def refuse(self, routes: dict[int, int], message: str) -> None:
        """Count messages that were never made."""
        _refuse(self.refused, routes, message)

    def drop(self) -> None:
        """Give back the room of what was staged, when it will not be committed."""
        drop_stages(self._client, self.pieces)

    def _hand_back(self, topic: str, waiting: _Waiting) -> None:
        for number in sorted(set(waiting.partitions)):
            chosen = [index for index, each in enumerate(waiting.partitions) if each == number]
            records = [b'{"data":%b,"meta":%b}' % (waiting.data[i], waiting.metas[i]) for i in chosen]
            counted = _counted([waiting.routes[index] for index in chosen])
            self.pieces.append(
                Piece(
                    topic, counted, sum(map(len, records)), partition=number, records=b"[" + b",".join(records) + b"]"
                )
            )

    def _stage(self, topic: str) -> None:
        waiting = self._waiting.pop(topic)
        self._size -= waiting.size
        if topic in self._caps:
            waiting = newest(waiting, self._caps[topic])
            # What was staged of it before is older still.
            self._leave_out(topic, waiting)
        for each in _by_partition(waiting) if waiting.halves else [waiting]:
            self._stage_all(topic, each)

    def _leave_out(self, topic: str, waiting: _Waiting) -> None:
        """Of a topic that never holds more than this, pieces that came before a whole cap are not for anybody."""
        records, size = self._caps[topic]
        if (records and len(waiting.data) >= records) or (size and waiting.size >= size):
            before = [piece for piece in self.pieces if piece.topic == topic]
            drop_stages(self._client, before)
            self.pieces = [piece for piece in self.pieces if piece.topic != topic]

    def _stage_all(self, topic: str, waiting: _Waiting) -> None:
        def send(some: range) -> str:
            if not waiting.halves:
                return self._client.stage_arrow(topic, _arrow(waiting, some)).stage_id
            records = [RecordIn(Raw(waiting.data[i]), meta=msgspec.json.decode(waiting.metas[i])) for i in some]
            return self._client.stage(topic, records, partition=waiting.partitions[0]).stage_id

        def size_of(some: range) -> int:
            return sum([len(waiting.data[i]) + len(waiting.metas[i]) for i in some])

        rows = range(len(waiting.data))
        for some, stage in staged(rows, send, waiting.routes, self.refused):
            self.pieces.append(Piece(topic, _counted([waiting.routes[i] for i in some]), size_of(some), stage))


def newest(waiting: _Waiting, cap: Cap) -> _Waiting:
    """The newest rows of each partition that the cap leaves there."""
    records, size = cap
    left: dict[int, list[int]] = {}
    chosen: list[int] = []
    for index in reversed(range(len(waiting.data))):
        room = left.setdefault(waiting.partitions[index], [records or len(waiting.data), size or waiting.size])
        row = len(waiting.data[index]) + len(waiting.metas[index])
        # Half of the bytes: the server counts what it adds to a record.
        if room[0] > 0 and room[1] > (0 if size == 0 else size // 2):
            chosen.append(index)
        room[0] -= 1
        room[1] -= row
    chosen.reverse()
    data, metas = [waiting.data[i] for i in chosen], [waiting.metas[i] for i in chosen]
    total = sum(map(len, data)) + sum(map(len, metas))
    places, routes = [waiting.partitions[i] for i in chosen], [waiting.routes[i] for i in chosen]
    return _Waiting(data, metas, places, routes, total, waiting.halves)


def _by_partition(waiting: _Waiting) -> Iterator[_Waiting]:
    for number in sorted(set(waiting.partitions)):
        chosen = [index for index, each in enumerate(waiting.partitions) if each == number]
        data, metas = [waiting.data[i] for i in chosen], [waiting.metas[i] for i in chosen]
        yield _Waiting(data, metas, [number] * len(chosen), [waiting.routes[i] for i in chosen], halves=True)


def staged(
    rows: range, send: Callable[[range], str], routes: list[int], refused: dict[int, Refused]
) -> Iterable[tuple[range, str]]:
    """Stage these rows, in as many stages as it takes to leave out only those that are refused by themselves.

    Raises NoRoom.
    """
    try:
        yield rows, send(rows)
    except Throttled as error:
        if (error.detail or {}).get("limit") != "max_staged_bytes":
            raise
        raise NoRoom(error.message) from error
    except _REFUSALS as error:
        if _lacks_scope(error):
            raise
        if len(rows) > 1 and isinstance(error, InvalidRequest):
            middle = rows.start + len(rows) // 2
            yield from staged(range(rows.start, middle), send, routes, refused)
            yield from staged(range(middle, rows.stop), send, routes, refused)
        else:
            _refuse(refused, _counted([routes[index] for index in rows]), _reason(error))


def drop_stages(client: Client, pieces: list[Piece]) -> None:
    try:
        for piece in pieces:
            if piece.stage is not None:
                client.drop_stage(piece.stage)
    except TopicsError:
        # They expire by themselves.
        pass


class Outcome(Struct):
    """What became of a commit."""

    deduped: bool
    messages: int
    refused: dict[int, Refused]


def commit(
    client: Client,
    pieces: list[Piece],
    producer: str,
    batch: int,
    sleep: Callable[[float], None] = time.sleep,
    caps: Mapping[str, Cap] | None = None,
) -> Outcome:
    """Make the pieces readable together, in their order, once for the producer's batch, less what its topic refuses.

    Raises OverCap for a topic that drops its oldest records and holds less than it is given, unless `caps` names it.
    """
    refused: dict[int, Refused] = {}
    pieces = _ordered(client, pieces, refused)
    isolated = False
    patience_s = FULL_WAIT_S
    while pieces:
        stages = [piece.stage for piece in pieces if piece.stage is not None]
        writes = [
            {"topic": piece.topic, "partition": piece.partition, "records": Raw(piece.records)}
            for piece in pieces
            if piece.stage is None
        ]
        try:
            done = client.commit(stages, writes=writes, producer=producer, batch=batch)
            return Outcome(done.deduped, sum([sum(piece.routes.values()) for piece in pieces]), refused)
        except TopicFull as error:
            topic = _named(error, pieces)
            if patience_s > 0:
                sleep(0.5)
                patience_s -= 0.5
                continue
            pieces = _without(client, pieces, topic, refused, error)
        except _REFUSALS as error:
            if (isinstance(error, NotFound) and error.code == "stage_not_found") or _lacks_scope(error):
                raise
            topic = _named(error, pieces)
            if topic is not None and isinstance(error, BatchTooLarge):
                if topic not in (caps or {}):
                    _check_cap(client, topic)
                first = next(piece for piece in pieces if piece.topic == topic)
                if topic in (caps or {}) and len([piece for piece in pieces if piece.topic == topic]) > 1:
                    # Of another task, and older than what the others bring.
                    drop_stages(client, [first])
                    pieces = [piece for piece in pieces if piece is not first]
                    continue
            if topic is not None:
                pieces = _without(client, pieces, topic, refused, error)
            elif not isolated:
                # Something in what came along: each by itself, so that what is wrong shows.
                pieces = [each for piece in pieces for each in _as_stages(client, piece, refused)]
                isolated = True
            else:
                raise
    return Outcome(False, 0, refused)


def _check_cap(client: Client, topic: str) -> None:
    """Raises OverCap when the topic makes room by dropping its oldest records."""
    try:
        config = client.info(topic, touch=False).config
    except NotFound:
        return
    if config.get("discard", "old") == "old":
        raise OverCap(topic, (config.get("cap_records", 0), config.get("cap_bytes", 0)))


def _ordered(client: Client, pieces: list[Piece], refused: dict[int, Refused]) -> list[Piece]:
    """A commit appends its stages before what it brings along: what stands before a stage of its topic is staged, too."""
    last_stage = {piece.topic: index for index, piece in enumerate(pieces) if piece.stage is not None}
    along = sum([piece.size for piece in pieces if piece.stage is None])
    result: list[Piece] = []
    for index, piece in enumerate(pieces):
        too_much = along > COMMIT_BYTES
        if piece.stage is None and (too_much or index < last_stage.get(piece.topic, -1)):
            result += _as_stages(client, piece, refused)
            if too_much and index >= last_stage.get(piece.topic, -1):
                # Staged now, so its followers must be as well; that only makes `along` smaller.
                last_stage[piece.topic] = len(pieces)
        else:
            result.append(piece)
    return result


def _as_stages(client: Client, piece: Piece, refused: dict[int, Refused]) -> list[Piece]:
    if piece.stage is not None:
        return [piece]
    records = [RecordIn(record.data, meta=record.meta) for record in _decode_records(piece.records)]
    # Which of them is of which route is not known any more; the first that has some left is as good.
    routes = [route for route, count in piece.routes.items() for _ in range(count)]

    def send(some: range) -> str:
        return client.stage(piece.topic, records[some.start : some.stop], partition=piece.partition).stage_id

    return [
        Piece(piece.topic, _counted([routes[i] for i in some]), piece.size * len(some) // len(records), stage)
        for some, stage in staged(range(len(records)), send, routes, refused)
    ]


def _lacks_scope(error: TopicsError) -> bool:
    """Whether the key may write to no topic at all: then nothing is given up, another key may do it."""
    return isinstance(error, Forbidden) and "scope" in (error.detail or {})


def _named(error: TopicsError, pieces: list[Piece]) -> str | None:
    """Which of the topics the server refuses."""
    detail = error.detail or {}
    by_stage = {piece.stage: piece.topic for piece in pieces if piece.stage is not None}
    name = detail.get("topic") or detail.get("name") or by_stage.get(str(detail.get("stage")))
    return name if name in {piece.topic for piece in pieces} else None


def _without(
    client: Client, pieces: list[Piece], topic: str | None, refused: dict[int, Refused], error: TopicsError
) -> list[Piece]:
    if topic is None:
        raise error
    left_out = [piece for piece in pieces if piece.topic == topic]
    for piece in left_out:
        _refuse(refused, piece.routes, _reason(error))
    drop_stages(client, left_out)
    return [piece for piece in pieces if piece.topic != topic]


def _reason(error: TopicsError) -> str:
    return f"{error.message} ({error.code})"


def _refuse(refused: dict[int, Refused], routes: dict[int, int], message: str) -> None:
    for route, count in routes.items():
        known = refused.setdefault(route, Refused(0, message))
        known.count += count


def _counted(routes: list[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for route in routes:
        counts[route] = counts.get(route, 0) + 1
    return counts


def _arrow(waiting: _Waiting, some: range) -> bytes:
    import pyarrow as pa

    part = slice(some.start, some.stop)
    table = pa.table(
        {
            "data": pa.array([text.decode() for text in waiting.data[part]], pa.string()),
            "meta": pa.array([text.decode() for text in waiting.metas[part]], pa.string()),
            "partition": pa.array(waiting.partitions[part], pa.int64()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
