"""The streaming source over a Delta table: first a snapshot of the table, then the changes of each version in order.

An offset is the position of the next event, in one of four forms; `table` is the id that Delta gave the table:

    {"table": id, "snapshot": 7, "ts": ms, "file": 3, "row": 100000, "truncate": 1}   in the snapshot of version 7
    {"table": id, "version": 8}                                                        at the beginning of version 8
    {"table": id, "version": 8, "file": 0, "row": 100000}                              in a large version that only added rows
    {"table": id, "version": 8, "slice": 3, "slices": 20}                              in another large version

Files are numbered in the order of their paths, and rows in the order of their file. A slice is a share of the keys, so that
both rows of an update are in the same slice. Versions never change, so two offsets always mean the same events. A batch is a
part of a snapshot, a part of one large version, or several small versions. It has at most about BATCH_ROWS rows, and a task
holds one slice in memory.

The order of the rows of a feed differs between reads. Therefore the events carry no positions: the fence of the sink makes
them appear once, and it requires the same batch but not the same order.
"""

import json
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from topics.spark.connector.options import BadOption
from topics.spark.delta.events import COMMIT_VERSION, Event, EventEncoder
from topics.spark.delta.log import FeedError, FeedLost, TableFile, TableLog, Version, open_table

NAME = "topics_delta_feed"
SCHEMA = "data STRING, partition_key STRING"
# Rows of one task, and the maximum of one batch: the server holds a batch in memory until it is committed.
SLICE_ROWS = 100_000
BATCH_ROWS = 400_000
MAX_RUN_VERSIONS = 1000
ARROW_BATCH_ROWS = 10_000
# Pause between two checks for a new version of the table.
POLL_INTERVAL_S = 0.25

Offset = dict[str, Any]


class DeltaFeedSource(DataSource):
    """`format("topics_delta_feed")`.

    Options: `uri`, `table`, `key` (JSON: a list of columns), `truncatePartitions` (on a first start, the number of
    partitions of the change topic that get a truncate before the rows), `sliceRows` and `batchRows` (rows of a task and of
    a batch).
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = self.options
        if not options.get("uri") or not options.get("table") or not options.get("key"):
            raise BadOption("a Delta feed needs uri, table and key")
        sizes = int(options.get("sliceRows", SLICE_ROWS)), int(options.get("batchRows", BATCH_ROWS))
        key = tuple(json.loads(options["key"]))
        return DeltaFeedReader(options["uri"], options["table"], key, int(options.get("truncatePartitions", 0)), sizes)


class FilesPartition(InputPartition):
    """Rows of whole files, sent as inserts: `pieces` are (path, first row, rows)."""

    def __init__(
        self, version: int, ts: int, pieces: list[tuple[str, int, int]], *, snapshot: bool, truncate: int
    ) -> None:
        super().__init__((version, ts, pieces, snapshot, truncate))


class FeedPartition(InputPartition):
    """The feed of a range of versions, limited to one slice of the keys."""

    def __init__(self, first: int, last: int, which: int, slices: int) -> None:
        super().__init__((first, last, which, slices))


class DeltaFeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self, uri: str, table: str, key_columns: tuple[str, ...], truncate_partitions: int, sizes: tuple[int, int]
    ) -> None:
        self._uri = uri
        self._table = table
        self._key_columns = key_columns
        self._truncate_partitions = truncate_partitions
        self._slice_rows, self._batch_rows = sizes
        self._log: TableLog | None = None
        self._target: int | None = None
        self._snapshot: tuple[int, tuple[TableFile, ...]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers open the table themselves.
        return {**self.__dict__, "_log": None, "_snapshot": None}

    # On the driver

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        log = self._opened()
        log.check_feed(self._table)
        version = log.refresh()
        # The time of the version, not the clock: a batch that is run again gives the same events.
        ts = log.version(version).ts
        return {
            "table": log.table_id,
            "snapshot": version,
            "ts": ts,
            "file": 0,
            "row": 0,
            "truncate": self._truncate_partitions,
        }

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._opened().refresh()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        log = self._opened()
        latest = log.refresh()
        self._check_same(start, log)
        if self._target is not None:
            latest = min(latest, self._target)
        if "snapshot" in start:
            return self._advanced_in_files(start, self._snapshot_files(start["snapshot"]), start["snapshot"])
        number = start["version"]
        if number > latest:
            if self._target is None:
                time.sleep(POLL_INTERVAL_S)
            return start
        version = self._followed(number)
        if "file" in start or (version.only_adds and self._is_large(version)):
            return self._advanced_in_files(start, version.added, number)
        if "slice" in start or self._is_large(version):
            return self._advanced_in_slices(start, version)
        return self._end_of_small_versions(start, latest)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        log = self._opened()
        return {"table": log.table_id, "version": log.latest + 1}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        log = self._opened()
        if "snapshot" in start:
            files = self._snapshot_files(start["snapshot"])
            return self._file_partitions(start, end, files, start["snapshot"], start["ts"])
        number = start["version"]
        if number == end["version"] or "file" in start or "slice" in start:
            version = log.version(number)
            if "slices" in start or "slices" in end:
                slices = end.get("slices") or start["slices"]
                last = end["slice"] if end["version"] == number else slices
                return [FeedPartition(number, number, which, slices) for which in range(start.get("slice", 0), last)]
            return self._file_partitions(start, end, version.added, number, version.ts)
        version = log.version(number)
        if end["version"] == number + 1 and version.only_adds and self._is_large(version):
            return self._file_partitions(start, end, version.added, number, version.ts)
        return self._run_partitions(number, end["version"])

    def commit(self, end: Offset) -> None:
        pass

    def stop(self) -> None:
        pass

    def _opened(self) -> TableLog:
        if self._log is None:
            self._log = TableLog(self._uri)
        return self._log

    def _check_same(self, start: Offset, log: TableLog) -> None:
        if start["table"] != log.table_id:
            raise FeedError(
                f"{self._table}: the Delta table at {self._uri} is not the one that was read before: it was deleted and created again. "
                "To send the new one, stop the pipeline, delete the checkpoint of this job and start again."
            )
        if "version" in start and start["version"] > log.latest + 1:
            raise FeedError(
                f"{self._table}: the Delta table at {self._uri} is at version {log.latest}, but version "
                f"{start['version'] - 1} was read before: an older copy was restored. To send it as it is now, stop the "
                "pipeline, delete the checkpoint of this job and start again."
            )

    def _followed(self, number: int) -> Version:
        """Return a version to read. Raises FeedError when it turned the feed off, so that later changes are unknown."""
        version = self._opened().version(number)
        if version.feed_on is False:
            raise FeedError(
                f"{self._table}: the change data feed at {self._uri} was turned off with version {number}: later changes "
                "are not recorded. Turn it on, stop the pipeline, delete the checkpoint of this job and start again: the whole "
                "table is then sent."
            )
        return version

    def _snapshot_files(self, version: int) -> tuple[TableFile, ...]:
        if self._snapshot is None or self._snapshot[0] != version:
            self._snapshot = version, self._opened().snapshot(version)
        return self._snapshot[1]

    def _is_large(self, version: Version) -> bool:
        return self._opened().weight(version) > self._slice_rows

    def _advanced_in_files(self, start: Offset, files: tuple[TableFile, ...], version: int) -> Offset:
        """Return the offset about BATCH_ROWS further in the files, or after the last file."""
        log = self._opened()
        at, row = start.get("file", 0), start.get("row", 0)
        rows_left = self._batch_rows
        try:
            while at < len(files):
                rows = log.file_rows(files[at])
                # How many of its rows fit into the batch, at the average weight of the file's rows.
                fitting = rows if not rows else max(1, rows_left * rows // max(1, log.file_weight(files[at])))
                if row + fitting < rows:
                    return {**start, "file": at, "row": row + fitting}
                rows_left -= log.file_weight(files[at]) * (rows - row) // max(1, rows)
                at, row = at + 1, 0
                if rows_left <= 0 and at < len(files):
                    return {**start, "file": at, "row": 0}
        except FileNotFoundError:
            raise FeedLost(log.lost_message(version)) from None
        return {"table": start["table"], "version": version + 1}

    def _advanced_in_slices(self, start: Offset, version: Version) -> Offset:
        slices = start.get("slices") or -(-self._opened().weight(version) // self._slice_rows)
        reached = start.get("slice", 0) + max(1, self._batch_rows // self._slice_rows)
        if reached >= slices and "slices" in start:
            return {"table": start["table"], "version": version.version + 1}
        return {"table": start["table"], "version": version.version, "slice": min(reached, slices), "slices": slices}

    def _end_of_small_versions(self, start: Offset, latest: int) -> Offset:
        log = self._opened()
        first = start["version"]
        weight = 0
        for number in range(first, min(latest + 1, first + MAX_RUN_VERSIONS)):
            version = self._followed(number)
            version_weight = log.weight(version)
            if number > first and (version_weight > self._slice_rows or weight + version_weight > self._batch_rows):
                return {"table": start["table"], "version": number}
            weight += version_weight
        return {"table": start["table"], "version": min(latest + 1, first + MAX_RUN_VERSIONS)}

    def _run_partitions(self, first: int, end: int) -> list[InputPartition]:
        """Group versions with the same columns into tasks of about one slice. Versions without changes are left out."""
        log = self._opened()
        runs: list[list[int]] = []
        weight = 0
        for number in range(first, end):
            version = log.version(number)
            if not version.files:
                continue
            version_weight = log.weight(version)
            joins = bool(runs) and weight + version_weight <= self._slice_rows
            if joins and not any([log.version(between).new_metadata for between in range(runs[-1][1] + 1, number + 1)]):
                runs[-1][1] = number
                weight += version_weight
            else:
                runs.append([number, number])
                weight = version_weight
        return [FeedPartition(run[0], run[1], 0, 1) for run in runs]

    def _file_partitions(
        self, start: Offset, end: Offset, files: tuple[TableFile, ...], version: int, ts: int
    ) -> list[InputPartition]:
        """Divide the rows between two offsets in the files into tasks."""
        log = self._opened()
        at, row = start.get("file", 0), start.get("row", 0)
        last = (end["file"], end["row"]) if "file" in end else (len(files), 0)
        snapshot = "snapshot" in start
        tasks: list[list[tuple[str, int, int]]] = []
        rows_left = 0
        while (at, row) < last:
            rows = log.file_rows(files[at])
            stop = last[1] if at == last[0] else rows
            while row < stop:
                if rows_left <= 0:
                    tasks.append([])
                    rows_left = self._slice_rows
                weight = max(1, log.file_weight(files[at]))
                count = min(stop - row, max(1, rows_left * rows // weight))
                tasks[-1].append((files[at].path, row, count))
                rows_left -= max(1, count * weight // rows)
                row += count
            at, row = (at, row) if at == last[0] else (at + 1, 0)
        truncate = start["truncate"] if snapshot and start["file"] == start["row"] == 0 else 0
        if truncate and not tasks:
            tasks.append([])
        return [
            FilesPartition(version, ts, pieces, snapshot=snapshot, truncate=truncate if number == 0 else 0)
            for number, pieces in enumerate(tasks)
        ]

    # On a worker

    def read(self, partition: InputPartition) -> Iterator[Any]:
        events = self._file_events if isinstance(partition, FilesPartition) else self._feed_events
        yield from _batches(self._with_lost_versions(events, partition))

    def _with_lost_versions(
        self, events: Callable[[InputPartition], Iterator[Event]], partition: InputPartition
    ) -> Iterator[Event]:
        """Yield the events. A missing file becomes FeedLost, which names the lost versions."""
        from deltalake.exceptions import DeltaError
        from pyarrow import ArrowException

        try:
            yield from events(partition)
        except (DeltaError, ArrowException, OSError) as error:
            first = partition.value[0]
            text = str(error)
            if "not found" in text.lower() or isinstance(error, FileNotFoundError) or "No such file" in text:
                raise FeedLost(f"{self._table}: {TableLog(self._uri).lost_message(first)}") from error
            raise

    def _encoder(self, table: Any) -> EventEncoder:
        return EventEncoder(self._table, f"delta:{table.metadata().id}", self._key_columns)

    def _file_events(self, partition: InputPartition) -> Iterator[Event]:
        version, ts, pieces, snapshot, truncate = partition.value
        table = open_table(self._uri, version)
        encoder = self._encoder(table)
        yield from encoder.truncates(version, ts, truncate)
        dataset = table.to_pyarrow_dataset()
        wanted = {path for path, _, _ in pieces}
        fragments = {each.path: each for each in dataset.get_fragments() if each.path in wanted}
        for path, first, count in pieces:
            for batch in _rows_of(fragments[path], dataset.schema, first, count):
                yield from encoder.inserts(batch, version, ts, snapshot=snapshot)

    def _feed_events(self, partition: InputPartition) -> Iterator[Event]:
        import pyarrow as pa

        first, last, which, slices = partition.value
        table = open_table(self._uri, last)
        encoder = self._encoder(table)
        feed = pa.RecordBatchReader.from_stream(table.load_cdf(starting_version=first, ending_version=last))
        assert COMMIT_VERSION in feed.schema.names
        return encoder.events(encoder.in_slice(batch, which, slices) for batch in feed)


def _rows_of(fragment: Any, schema: Any, first: int, count: int) -> Iterator[Any]:
    """Yield rows `first` to `first + count` of a file in order; other row groups are not read."""
    from pyarrow.dataset import Scanner

    fragment.ensure_complete_metadata()
    wanted: list[int] = []
    begin = before = 0
    for group in fragment.row_groups:
        if begin + group.num_rows > first and begin < first + count:
            if not wanted:
                before = begin
            wanted.append(group.id)
        begin += group.num_rows
    if not wanted:
        return
    part = fragment.subset(row_group_ids=wanted)
    at = before
    for batch in Scanner.from_fragment(
        part, schema=schema, batch_size=ARROW_BATCH_ROWS, use_threads=False
    ).to_batches():
        low, high = max(first - at, 0), min(first + count - at, batch.num_rows)
        if low < high:
            yield batch.slice(low, high - low)
        at += batch.num_rows
        if at >= first + count:
            return


def _batches(events: Iterator[Event]) -> Iterator[Any]:
    """Yield Arrow batches in the source's schema."""
    import pyarrow as pa

    data: list[str] = []
    keys: list[str] = []
    for event in events:
        data.append(event.data.decode())
        keys.append(event.partition_key)
        if len(data) >= ARROW_BATCH_ROWS:
            yield pa.RecordBatch.from_pydict({"data": data, "partition_key": keys})
            data, keys = [], []
    if data:
        yield pa.RecordBatch.from_pydict({"data": data, "partition_key": keys})
