"""Make the messages of a batch readable with one commit, without those that their topics refuse.

A topic that refuses its messages (it was dropped, the key may not write to it, a record is too large) does not hold up the others:
its messages are left out and counted for their routes, with the server's reason. An error that passes with time (a server that
does not answer, a key without the scope to write) fails the task or the batch, which Spark then runs again.
"""

import time
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Raw, Struct

from topics.client import Client
from topics.client.calls import RecordIn
from topics.model.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Throttled,
    TopicFull,
    TopicsError,
)
from topics.spark.routing.report import Piece, Refused

# Maximum bytes of records that a commit carries in addition to its stages.
MAX_COMMIT_BYTES = 16 << 20
# How long a batch waits for a topic that is full, before its messages are left out.
MAX_FULL_WAIT_S = 10.0

_REFUSALS = (InvalidRequest, NotFound, Forbidden, Conflict)


class StagesFull(Exception):
    """The server has no space for the stages of this batch. The query then commits in portions, without stages."""


class _Record(Struct):
    data: Raw
    meta: Raw


_decode_records = msgspec.json.Decoder(list[_Record]).decode


def staged(
    rows: range, send: Callable[[range], str], routes: list[int], refused: dict[int, Refused]
) -> Iterable[tuple[range, str]]:
    """Stage these rows, in as many stages as it takes to leave out only the rows that are refused by themselves.

    Raises StagesFull.
    """
    try:
        yield rows, send(rows)
    except Throttled as error:
        if not is_stage_limit(error):
            raise
        raise StagesFull(error.message) from error
    except _REFUSALS as error:
        if _lacks_scope(error):
            raise
        if len(rows) > 1 and isinstance(error, InvalidRequest):
            middle = rows.start + len(rows) // 2
            yield from staged(range(rows.start, middle), send, routes, refused)
            yield from staged(range(middle, rows.stop), send, routes, refused)
        else:
            add_refused(refused, counted([routes[index] for index in rows]), _reason(error))


def is_stage_limit(error: TopicsError) -> bool:
    return isinstance(error, Throttled) and (error.detail or {}).get("limit") == "max_staged_bytes"


def drop_stages(client: Client, pieces: list[Piece]) -> None:
    try:
        for piece in pieces:
            if piece.stage is not None:
                client.drop_stage(piece.stage)
    except TopicsError:
        pass  # stages expire by themselves


class Outcome(Struct):
    """The result of a commit."""

    deduped: bool
    messages: int
    refused: dict[int, Refused]


def commit(
    client: Client,
    pieces: list[Piece],
    producer: str,
    batch: int,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Make the pieces readable together, in their order, once for the producer's batch, without what a topic refuses.

    Waits up to MAX_FULL_WAIT_S for a topic that is full and rejects, unless its messages can never fit.
    """
    refused: dict[int, Refused] = {}
    pieces = _ordered(client, pieces, refused)
    isolated = False
    wait_s = MAX_FULL_WAIT_S
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
            if wait_s > 0 and not _exceeds_cap(error):
                sleep(0.5)
                wait_s -= 0.5
                continue
            pieces = _without(client, pieces, topic, refused, error)
        except _REFUSALS as error:
            if (isinstance(error, NotFound) and error.code == "stage_not_found") or _lacks_scope(error):
                raise
            topic = _named(error, pieces)
            if topic is not None:
                pieces = _without(client, pieces, topic, refused, error)
            elif not isolated:
                # One of the records in the commit is refused: stage them by topic to find out which.
                pieces = [each for piece in pieces for each in _as_stages(client, piece, refused)]
                isolated = True
            else:
                raise
    return Outcome(False, 0, refused)


def _exceeds_cap(error: TopicFull) -> bool:
    """Whether the write alone is larger than the topic's cap: waiting does not help then."""
    detail = error.detail or {}
    return any([0 < detail.get(f"cap_{what}", 0) < detail.get(what, 0) for what in ("records", "bytes")])


def _ordered(client: Client, pieces: list[Piece], refused: dict[int, Refused]) -> list[Piece]:
    """Stage records that come before a stage of the same topic: a commit appends its stages before its records."""
    last_stage = {piece.topic: index for index, piece in enumerate(pieces) if piece.stage is not None}
    inline_bytes = sum([piece.size for piece in pieces if piece.stage is None])
    result: list[Piece] = []
    for index, piece in enumerate(pieces):
        too_much = inline_bytes > MAX_COMMIT_BYTES
        if piece.stage is None and (too_much or index < last_stage.get(piece.topic, -1)):
            result += _as_stages(client, piece, refused)
            if too_much and index >= last_stage.get(piece.topic, -1):
                # Later records of the topic must be staged as well, to keep their order.
                last_stage[piece.topic] = len(pieces)
        else:
            result.append(piece)
    return result


def _as_stages(client: Client, piece: Piece, refused: dict[int, Refused]) -> list[Piece]:
    if piece.stage is not None:
        return [piece]
    records = [
        RecordIn(record.data, meta=msgspec.json.decode(record.meta)) for record in _decode_records(piece.records)
    ]
    # Only the number of records of each route is known here, so a refused record counts for the first route of the piece.
    routes = [route for route, count in piece.routes.items() for _ in range(count)]

    def send(some: range) -> str:
        return client.stage(piece.topic, records[some.start : some.stop], partition=piece.partition).stage_id

    return [
        Piece(piece.topic, counted([routes[i] for i in some]), piece.size * len(some) // len(records), stage)
        for some, stage in staged(range(len(records)), send, routes, refused)
    ]


def _lacks_scope(error: TopicsError) -> bool:
    """Whether the key may write to no topic at all: the batch fails then, and another key may run it."""
    return isinstance(error, Forbidden) and "scope" in (error.detail or {})


def _named(error: TopicsError, pieces: list[Piece]) -> str | None:
    """The topic that the server refuses, if the error names one."""
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
        add_refused(refused, piece.routes, _reason(error))
    drop_stages(client, left_out)
    return [piece for piece in pieces if piece.topic != topic]


def _reason(error: TopicsError) -> str:
    return f"{error.message} ({error.code})"


def add_refused(refused: dict[int, Refused], routes: dict[int, int], message: str) -> None:
    for route, count in routes.items():
        known = refused.setdefault(route, Refused(0, message))
        known.count += count


def counted(routes: list[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for route in routes:
        counts[route] = counts.get(route, 0) + 1
    return counts
