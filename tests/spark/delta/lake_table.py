"""Real Delta tables, made with delta-rs in a directory, and a reader that is driven without Spark."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from topics.spark.delta.source import DeltaFeedReader

FEED = {"delta.enableChangeDataFeed": "true"}


class LakeTable:
    """A Delta table with a change data feed."""

    def __init__(self, path: Path, rows: Any, **options: Any) -> None:
        self.uri = str(path)
        write_deltalake(self.uri, table(rows), configuration=FEED, **options)

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(self.uri)

    @property
    def version(self) -> int:
        return self.delta.version()

    def append(self, rows: Any, **options: Any) -> None:
        write_deltalake(self.uri, table(rows), mode="append", **options)

    def merge(self, rows: Any, on: str = "id") -> None:
        merging = self.delta.merge(table(rows), f"t.{on} = s.{on}", source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def rows(self, key: str = "id") -> dict[Any, dict[str, Any]]:
        return {row[key]: row for row in pa.table(self.delta.to_pyarrow_table()).to_pylist()}


def table(rows: Any) -> Any:
    return rows if isinstance(rows, pa.Table) else pa.table(rows)


class Feed:
    """The reader as Spark drives it: offset after offset, each range read when it is planned."""

    def __init__(
        self, uri: str, key: tuple[str, ...] = ("id",), truncate_partitions: int = 0, sizes: Any = (100_000, 400_000)
    ) -> None:
        self.reader = DeltaFeedReader(uri, "lake.orders", key, truncate_partitions, sizes)
        self.offset: dict[str, Any] | None = None
        self.batches: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.tasks = 0

    def step(self) -> list[dict[str, Any]] | None:
        """The events of the next batch; None when there is none."""
        if self.offset is None:
            self.offset = self.reader.initialOffset()
        end = self.reader.latestOffset(self.offset, None)  # type: ignore[arg-type]
        end = json.loads(json.dumps(end))
        if end == self.offset:
            return None
        start, self.offset = self.offset, end
        self.batches.append((start, end))
        return self.read(start, end)

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        events = []
        for partition in self.reader.partitions(start, end):
            self.tasks += 1
            for batch in self.reader.read(partition):
                events += [json.loads(text) for text in batch.column("data").to_pylist()]
        return events

    def all(self) -> Iterator[dict[str, Any]]:
        """Everything there is now."""
        while (events := self.step()) is not None:
            yield from events


def summary(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Operation, version, before and after of each."""
    return [(each["op"], each["source"]["version"], each["before"], each["after"]) for each in events]


def applied(events: Any, key: str = "id") -> dict[Any, Any]:
    """The table that the events make, applied in order."""
    rows: dict[Any, Any] = {}
    for event in events:
        if event["op"] == "truncate":
            rows.clear()
        elif event["op"] == "delete":
            assert rows.pop(event["key"][key]) == event["before"]
        else:
            assert (event["op"] == "insert") == (event["key"][key] not in rows), event
            assert event["op"] == "insert" or rows[event["key"][key]] == event["before"]
            rows[event["key"][key]] = event["after"]
    return rows
