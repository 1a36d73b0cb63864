"""The source: batch and streaming readers over ranges of seqs.

Every worker imports this file, some of them anew for each batch: what only archives need (pyarrow's datasets bring pandas,
half a second of CPU) is imported where an archive is read.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from topics.client import Client
from topics.model.errors import TopicsError
from topics.spark.options import EARLIEST, LATEST, BadOption, SourceOptions, sink_options, source_options
from topics.spark.planning import (
    Offset,
    PartitionState,
    available,
    first_offset,
    last_offset,
    look,
    moved,
    ranges_between,
)
from topics.spark.ranges import SeqRange, cut, share
from topics.spark.reading import SCHEMA, Elsewhere, read_range
from topics.spark.sink import BatchWriter, StreamWriter, check_columns

if TYPE_CHECKING:
    from topics.archive.ledger import StoredFile
    from topics.spark.histories import Part

# How long a query that has caught up waits on the server for the next record before Spark asks again.
WAIT_MS = 500
# As many topics as one request may wait for; what happens in others is seen when it is over.
WAIT_TOPICS = 10_000


class TopicsDataSource(DataSource):
    """`format("topics")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        return BatchReader(source_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        check_schema(schema)
        options = source_options(self.options)
        if options.ending is not None:
            raise BadOption("endingOffsets is for batch queries: a stream has no end")
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        options = sink_options(self.options)
        check_columns(options, schema, overwrite)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        options = sink_options(self.options)
        check_columns(options, schema, overwrite)
        return StreamWriter(options)


def check_schema(schema: StructType) -> None:
    """Raises BadOption for a schema of the user's own: the columns of a record are what they are."""
    if [field.name for field in schema.fields] != [column.split()[0] for column in SCHEMA.split(", ")]:
        raise BadOption(f"the columns are {SCHEMA}: leave out schema() and select from them")


class RangePartition(InputPartition):
    """One task's range, and the files to read it from when it lies in an archive."""

    def __init__(self, wanted: SeqRange, uri: str | None = None, files: "tuple[StoredFile, ...]" = ()) -> None:
        super().__init__((msgspec.structs.astuple(wanted), uri, [msgspec.structs.astuple(file) for file in files]))

    @property
    def wanted(self) -> SeqRange:
        return SeqRange(*self.value[0])

    @property
    def is_archived(self) -> bool:
        return self.value[1] is not None

    @property
    def part(self) -> "Part":
        from topics.archive.ledger import StoredFile
        from topics.spark.histories import Part

        _, uri, files = self.value
        return Part(self.wanted, uri, tuple([StoredFile(*file) for file in files]))


class _Reading:
    """What both readers do on a worker."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def _read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        options = self._options
        if partition.is_archived:
            from topics.spark.histories import read_archived

            yield from read_archived(partition.part, options.on_data_loss)
            return
        with options.connecting.client() as client:
            yield from read_range(
                client,
                partition.wanted,
                transport=options.connecting.transport,
                on_data_loss=options.on_data_loss,
                elsewhere=_archives(client, options) if options.history else None,
            )

    def _planned(self, client: Client, ranges: list[SeqRange]) -> list[RangePartition]:
        least = self._options.min_partitions
        if not self._options.history:
            return [RangePartition(each) for each in cut(ranges, least)]
        from topics.spark.histories import Histories

        return [RangePartition(each.wanted, each.uri, each.files) for each in Histories(client).split(ranges, least)]


def _archives(client: Client, options: SourceOptions) -> Elsewhere:
    from topics.spark.histories import recovered

    return partial(recovered, client, on_data_loss=options.on_data_loss)


class BatchReader(_Reading, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        with self._options.connecting.client() as client:
            start = first_offset(client, self._options, EARLIEST)
            end = last_offset(client, self._options)
            # Spark reads nothing from an empty list, but asks for one partition: a range of no seqs.
            return self._planned(client, ranges_between(start, end)) or [RangePartition(SeqRange("", 0, 0, 1, 0))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._read(partition)


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._target: dict[tuple[str, int], int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with self._options.connecting.client() as client:
            # Who asks for history does not mean to begin at its end.
            return first_offset(client, self._options, EARLIEST if self._options.history else LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with self._options.connecting.client() as client:
            self._target = {(state.topic, state.partition): state.head for state in look(client, self._options)}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        with options.connecting.client() as client:
            states = look(client, options)
            waiting = available(start, states)
            if self._target is not None:
                waiting = {
                    key: max(0, min(seqs, self._target.get(key, 0) + 1 - _at(start, key)))
                    for key, seqs in waiting.items()
                }
            elif sum(waiting.values()) < max(1, options.min_offsets):
                _wait(client, states)
                states = look(client, options)
                waiting = available(start, states)
                if sum(waiting.values()) < options.min_offsets:
                    return start
            taken = waiting if isinstance(limit, ReadAllAvailable) else share(waiting, _most(limit, options))
            return moved(start, states, taken)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        try:
            with self._options.connecting.client() as client:
                offset: Offset = {}
                for state in look(client, self._options):
                    offset.setdefault(state.topic, {"epoch": state.epoch})[str(state.partition)] = state.head + 1
                return offset
        except TopicsError:
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._options.connecting.client() as client:
            return self._planned(client, ranges_between(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        group = self._options.group
        if group is None:
            return
        with self._options.connecting.client() as client:
            for topic, partitions in end.items():
                for number, seq in partitions.items():
                    if number != "epoch" and seq > 1:
                        _show_progress(client, topic, group, int(number), seq - 1)

    def stop(self) -> None:
        pass


def _wait(client: Any, states: list[PartitionState]) -> None:
    """Until one of the partitions has something new: one request, which costs neither CPU nor latency."""
    known: dict[str, dict[int, int]] = {}
    for state in states:
        if state.topic in known or len(known) < WAIT_TOPICS:
            known.setdefault(state.topic, {})[state.partition] = state.head
    client.heads(known, wait_ms=WAIT_MS)


def _at(start: dict[str, Any], key: tuple[str, int]) -> int:
    topic, partition = key
    return int(start.get(topic, {}).get(str(partition), 1))


def _most(limit: ReadLimit, options: SourceOptions) -> int:
    return limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets


def _show_progress(client: Any, topic: str, group: str, partition: int, offset: int) -> None:
    """For the lag display only: Spark's checkpoint is what counts, so trouble here is no trouble of the query."""
    try:
        client.ack_group(topic, group, offset, partition=partition)
    except TopicsError:
        pass
