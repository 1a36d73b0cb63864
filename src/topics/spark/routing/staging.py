"""Collect the messages of one task by topic, as Arrow columns, and stage what is large.

Small messages are handed back with the report of the task, so that a small batch costs one request in all. Messages of each topic
stay in the order in which they were added.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from topics.client import Client, RetryPolicy
from topics.client.calls import RecordIn
from topics.client.errors import ServerUnreachable
from topics.client.values import Staged
from topics.model.errors import Throttled, Unavailable
from topics.spark.routing.commit import add_refused, counted, drop_stages, is_stage_limit, staged
from topics.spark.routing.report import Piece, Refused

MAX_STAGE_ROWS = 20_000
MAX_STAGE_BYTES = 8 << 20
# Maximum rows and bytes that a task hands back instead of staging them.
MAX_INLINE_ROWS = 4000
MAX_INLINE_BYTES = 1 << 20
# Other writers may free stage space within this time; without it the batch is committed in portions.
STAGE_SPACE_RETRY = RetryPolicy(attempts=4)


class Staging:
    """Collects tables of (data, meta, partition, route)."""

    def __init__(self, client: Client) -> None:
        self.pieces: list[Piece] = []
        self.refused: dict[int, Refused] = {}
        self._client = client
        self._waiting: dict[str, list[Any]] = {}
        self._bytes: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    def add(self, topic: str, rows: Any) -> None:
        """Raises StagesFull."""
        self._waiting.setdefault(topic, []).append(rows)
        self._bytes[topic] = self._bytes.get(topic, 0) + rows.nbytes
        self._rows[topic] = self._rows.get(topic, 0) + rows.num_rows
        if self._bytes[topic] >= MAX_STAGE_BYTES or self._rows[topic] >= MAX_STAGE_ROWS:
            self._stage(topic)
        elif sum(self._bytes.values()) >= 4 * MAX_STAGE_BYTES:
            # Bounds the memory of the worker when messages go to many topics.
            self._stage(max(self._bytes, key=lambda name: self._bytes[name]))

    def finish(self) -> None:
        """Stage what is large and keep the rest in `pieces`. Raises StagesFull."""
        while self._waiting and (
            sum(self._bytes.values()) > MAX_INLINE_BYTES or sum(self._rows.values()) > MAX_INLINE_ROWS
        ):
            self._stage(max(self._bytes, key=lambda name: self._bytes[name]))
        self.keep_all()

    def keep_all(self) -> None:
        """Keep everything that is not staged in `pieces`, for a commit that carries the records themselves."""
        for topic in list(self._waiting):
            self._keep(topic, self._taken(topic))

    def drop(self) -> None:
        """Free the space of stages that will not be committed."""
        drop_stages(self._client, self.pieces)

    def _taken(self, topic: str) -> Any:
        import pyarrow as pa

        del self._bytes[topic], self._rows[topic]
        return pa.concat_tables(self._waiting.pop(topic)).combine_chunks()

    def _keep(self, topic: str, rows: Any) -> None:
        plain, with_surrogates = _divided(rows)
        for each in with_surrogates:
            self._stage_json(topic, each)
        for number, chosen in _by_partition(plain):
            pairs = zip(chosen.column("data").to_pylist(), chosen.column("meta").to_pylist(), strict=True)
            records = ("[" + ",".join([f'{{"data":{data},"meta":{meta}}}' for data, meta in pairs]) + "]").encode()
            routes = counted(chosen.column("route").to_pylist())
            self.pieces.append(Piece(topic, routes, len(records), partition=number, records=records))

    def _stage(self, topic: str) -> None:
        rows = self._taken(topic)
        plain, with_surrogates = _divided(rows)
        per_row = max(1, plain.nbytes // max(1, plain.num_rows))
        step = max(1, min(MAX_STAGE_ROWS, MAX_STAGE_BYTES // per_row))
        for start in range(0, plain.num_rows, step):
            self._stage_arrow(topic, plain.slice(start, step))
        for each in with_surrogates:
            self._stage_json(topic, each)

    def _stage_arrow(self, topic: str, rows: Any) -> None:
        def send(some: range) -> str:
            body = _stream(rows.slice(some.start, len(some)))
            return self._stage_id(lambda client: client.stage_arrow(topic, body))

        self._stage_with(topic, rows, send)

    def _stage_json(self, topic: str, rows: Any) -> None:
        for number, chosen in _by_partition(rows):
            records = [
                RecordIn(Raw(data.encode()), meta=msgspec.json.decode(meta))
                for data, meta in zip(chosen.column("data").to_pylist(), chosen.column("meta").to_pylist(), strict=True)
            ]

            def send(some: range, records: list[RecordIn] = records, number: int = number) -> str:
                return self._stage_id(
                    lambda client: client.stage(topic, records[some.start : some.stop], partition=number)
                )

            self._stage_with(topic, chosen, send)

    def _stage_id(self, stage: Callable[[Client], Staged]) -> str:
        """Wait for a server that does not answer as long as the client does, and for stage space only shortly."""
        try:
            return stage(self._client.with_options(retry=STAGE_SPACE_RETRY)).stage_id
        except (Throttled, Unavailable, ServerUnreachable) as error:
            if is_stage_limit(error):
                raise
            return stage(self._client).stage_id

    def _stage_with(self, topic: str, rows: Any, send: Any) -> None:
        routes = rows.column("route").to_pylist()
        for some, stage in staged(range(rows.num_rows), send, routes, self.refused):
            size = rows.slice(some.start, len(some)).nbytes
            self.pieces.append(Piece(topic, counted([routes[i] for i in some]), size, stage))

    def refuse(self, route: int, message: str) -> None:
        """Count a message that could not be made."""
        add_refused(self.refused, {route: 1}, message)


def _divided(rows: Any) -> tuple[Any, list[Any]]:
    """Rows for Arrow, and rows for JSON: only a stage of JSON takes a payload with a lone surrogate.

    All rows of the topic go by JSON if one of them has one, to keep their order.
    """
    import pyarrow.compute as pc

    data = rows.column("data")
    if pc.any(pc.match_substring(data, "\\ud", ignore_case=True)).as_py():
        return rows.slice(0, 0), [rows]
    return rows, []


def _by_partition(rows: Any) -> list[tuple[int, Any]]:
    import pyarrow.compute as pc

    numbers = rows.column("partition")
    found = sorted(pc.unique(numbers).to_pylist())
    if len(found) == 1:
        return [(found[0], rows)]
    return [(number, rows.filter(pc.equal(numbers, number))) for number in found]


def _stream(rows: Any) -> bytes:
    import pyarrow as pa

    table = rows.select(["data", "meta", "partition"]).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
