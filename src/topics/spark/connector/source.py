"""The source: batch and streaming readers over ranges of seqs.

Every worker imports this file, some workers once for each batch. Imports that only archives need (pyarrow's datasets load
pandas, half a second of CPU) are therefore inside the functions that read archives.
"""

import time
from collections.abc import Iterator, MutableMapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import partial
from itertools import chain
from typing import Any

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
from topics.spark.connector.options import (
    EARLIEST,
    LATEST,
    BadOption,
    ServerOptions,
    SourceOptions,
    sink_options,
    source_options,
)
from topics.spark.connector.payloads import VARIANT_SCHEMA, Converter, converter
from topics.spark.connector.planning import (
    Offset,
    PartitionState,
    advanced,
    available,
    check_deleted,
    first_offset,
    last_offset,
    next_seqs,
    partition_states,
    ranges_between,
    topic_entry,
)
from topics.spark.connector.ranges import Part, SeqRange, cut, cut_to, pack, share
from topics.spark.connector.reading import SCHEMA, ArchiveLookup, merged_batches, read_range
from topics.spark.connector.sink import BatchWriter, StreamWriter, check_columns

# How long a query that has caught up waits at the server for the next record before Spark asks again.
WAIT_MS = 500
# The number of topics one request may wait for. Records of other topics are seen when the request ends.
MAX_WAIT_TOPICS = 10_000


class TopicsDataSource(DataSource):
    """`format("topics")`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> str:
        return VARIANT_SCHEMA if source_options(self.options).payload == "variant" else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options)
        return BatchReader(options, converter(schema, options.payload, on_data_loss=options.on_data_loss))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = source_options(self.options)
        if options.bounds_a_batch:
            raise BadOption("options that begin with ending are for batch queries: a stream has no end")
        return StreamReader(options, converter(schema, options.payload, on_data_loss=options.on_data_loss))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        options = sink_options(self.options)
        check_columns(options, schema, overwrite)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        options = sink_options(self.options)
        if not options.atomic:
            raise BadOption("atomic=false is for batch writes: a micro-batch of a stream is always written as a whole")
        check_columns(options, schema, overwrite)
        return StreamWriter(options)


class RangePartition(InputPartition):
    """What one task reads. Its values are sent to the executors."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__(list(parts))

    @property
    def parts(self) -> list[Part]:
        found: list[Part] = self.value
        return found


class _RangeReader:
    """The part that the batch and the streaming reader share."""

    def __init__(self, options: SourceOptions, convert: Converter | None = None) -> None:
        self._options = options
        self._convert = convert

    def _read(self, partition: InputPartition) -> Iterator[Any]:
        records = self._read_records(partition)
        if self._convert is None:
            return records
        return chain.from_iterable(map(self._convert, records))

    def _read_records(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        parts = partition.parts
        if not parts:
            return
        with self._options.clients() as clients:
            if len(parts) == 1:
                yield from self._read_part(clients, parts[0])
            else:
                yield from merged_batches(chain.from_iterable([self._read_part(clients, part) for part in parts]))

    def _read_part(self, clients: Sequence[Client], part: Part) -> Iterator[Any]:
        options = self._options
        if part.uri is not None:
            from topics.spark.connector.archive_reader import read_archived

            yield from read_archived(part, options.on_data_loss)
            return
        yield from read_range(
            clients[part.wanted.server],
            part.wanted,
            transport=options.servers[part.wanted.server].transport,
            on_data_loss=options.on_data_loss,
            archive=_archive_lookup(clients, options) if options.history else None,
        )

    def _planned(self, clients: Sequence[Client], ranges: list[SeqRange]) -> list[RangePartition]:
        min_tasks, max_seqs = self._options.min_partitions, self._options.max_task_seqs
        if self._options.history:
            from topics.spark.connector.archive_reader import Histories

            parts = Histories(clients).split(cut_to(ranges, max_seqs), min_tasks)
        else:
            parts = [Part(each) for each in cut_to(cut(ranges, min_tasks), max_seqs)]
        return [RangePartition(task) for task in pack(parts, min_tasks, max_seqs)]


def _archive_lookup(clients: Sequence[Client], options: SourceOptions) -> ArchiveLookup:
    from topics.spark.connector.archive_reader import recovered

    return partial(recovered, clients, on_data_loss=options.on_data_loss)


class BatchReader(_RangeReader, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        with self._options.clients() as clients:
            states = partition_states(clients, self._options)
            start = first_offset(clients, self._options, EARLIEST, states)
            end = last_offset(clients, self._options, states)
            # Spark refuses an empty list.
            return self._planned(clients, ranges_between(start, end)) or [RangePartition([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._read(partition)


class StreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, convert: Converter | None = None) -> None:
        super().__init__(options, convert)
        self._target: dict[tuple[str, int], int] | None = None
        # When it was first seen that there are fewer seqs than minOffsetsPerTrigger.
        self._short_since_s: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with self._options.clients() as clients:
            # A query with history=all starts at the earliest record unless an option says otherwise.
            default = EARLIEST if self._options.history else LATEST
            return first_offset(clients, self._options, default, partition_states(clients, self._options))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with self._options.clients() as clients:
            self._target = {
                (state.topic, state.partition): state.head for state in partition_states(clients, self._options, {})
            }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        options = self._options
        with options.clients() as clients:
            states = partition_states(clients, options, start)
            check_deleted(options, start, states)
            waiting = available(start, states)
            if self._target is not None:
                waiting = {
                    key: max(0, min(seqs, self._target.get(key, 0) + 1 - _next_seq(start, key)))
                    for key, seqs in waiting.items()
                }
            elif sum(waiting.values()) < max(1, options.min_offsets):
                _wait(clients, options, states)
                states = partition_states(clients, options, start)
                check_deleted(options, start, states)
                waiting = available(start, states)
                if self._is_too_short(sum(waiting.values())):
                    return start
            taken = waiting if isinstance(limit, ReadAllAvailable) else share(waiting, _max_seqs(limit, options))
            return advanced(start, states, taken)

    def _is_too_short(self, seqs: int) -> bool:
        """Whether a batch must wait for more seqs. It waits for `maxTriggerDelay` at most."""
        if seqs >= self._options.min_offsets or not seqs:
            self._short_since_s = None
            return False
        now_s = time.monotonic()
        if self._short_since_s is None:
            self._short_since_s = now_s
        if now_s - self._short_since_s < self._options.max_trigger_delay_ms / 1000:
            return True
        self._short_since_s = None
        return False

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        try:
            with self._options.clients() as clients:
                offset: Offset = {}
                for state in partition_states(clients, self._options, {}):
                    offset.setdefault(state.topic, topic_entry(state))[str(state.partition)] = state.head + 1
                return offset
        except TopicsError:
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._options.clients() as clients:
            return self._planned(clients, ranges_between(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        group = self._options.group
        if group is None:
            return
        with self._options.clients() as clients:
            for topic, partitions in end.items():
                for number, seq in next_seqs(partitions).items():
                    if seq > 1:
                        _show_progress(clients[partitions.get("server", 0)], topic, group, number, seq - 1)

    def stop(self) -> None:
        pass


def _wait(clients: Sequence[Client], options: SourceOptions, states: list[PartitionState]) -> None:
    """Wait until a partition has a new record, with one long-polling request to each server."""
    known: list[dict[str, dict[int, int]]] = [{} for _ in options.servers]
    for state in states:
        heads = known[state.server]
        if state.topic in heads or len(heads) < MAX_WAIT_TOPICS:
            heads.setdefault(state.topic, {})[state.partition] = state.head
    if len(known) == 1:
        clients[0].heads(known[0], wait_ms=WAIT_MS)
        return
    # Each request has its own connection. The requests that have not ended are left alone: they end after WAIT_MS.
    threads = ThreadPoolExecutor(len(known))
    requests = [threads.submit(_wait_at, *each) for each in zip(options.servers, known, strict=True)]
    threads.shutdown(wait=False)
    for request in wait(requests, return_when=FIRST_COMPLETED).done:
        request.result()


def _wait_at(server: ServerOptions, heads: dict[str, dict[int, int]]) -> None:
    with server.client() as client:
        client.heads(heads, wait_ms=WAIT_MS)


def _next_seq(start: dict[str, Any], key: tuple[str, int]) -> int:
    topic, partition = key
    return int(start.get(topic, {}).get(str(partition), 1))


def _max_seqs(limit: ReadLimit, options: SourceOptions) -> int:
    return limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets


def _show_progress(client: Any, topic: str, group: str, partition: int, offset: int) -> None:
    """Report the cursor for the lag display. Spark's checkpoint holds the position, so an error here does not fail the query."""
    try:
        client.ack_group(topic, group, offset, partition=partition)
    except TopicsError:
        pass
