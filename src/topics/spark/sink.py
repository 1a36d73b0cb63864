"""The sink: tasks stage their rows, the driver makes them readable with one fenced commit.

A row needs `data`, and a topic by option or by column; `tag`, `node`, `meta`, `partition` and `partition_key` are taken
where a column has that name. `data` and `meta` are JSON texts when they are strings; anything else is encoded as JSON.

A micro-batch is committed under (query id, batch id). Spark may run it again, with other tasks and other partitions: the
server's fence knows the batch, and what was staged the second time is given up. `abort` is also called after a commit that
did succeed on the server, so it may drop stages but never undo.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import IntegralType, StringType, StructType

from topics.client import Client
from topics.client.calls import RecordIn
from topics.model.errors import NotFound, TopicsError
from topics.spark.options import BadOption, SinkOptions

COLUMNS = ("topic", "data", "tag", "node", "meta", "partition", "partition_key")
# What one stage holds at most: large enough to make requests rare, small enough not to hold up the server's loop.
STAGE_ROWS = 20_000
STAGE_BYTES = 8 << 20


def check_columns(options: SinkOptions, schema: StructType, overwrite: bool) -> None:
    """Before any write: everything that can be known to be wrong. Raises BadOption."""
    if overwrite:
        raise BadOption('a topic can only be appended to: use mode("append")')
    names = set(schema.fieldNames())
    if "data" not in names:
        raise BadOption('the rows have no column "data"; for a whole row as payload select struct(*) AS data')
    if options.topic is None and "topic" not in names:
        raise BadOption('no topic: set the option "topic" or give the rows a column "topic"')
    for name in ("topic", "tag", "node", "partition_key"):
        if name in names and not isinstance(schema[name].dataType, StringType):
            raise BadOption(f'column "{name}" must hold strings')
    if "partition" in names and not isinstance(schema["partition"].dataType, IntegralType):
        raise BadOption('column "partition" must hold whole numbers')
    if "partition_key" in names and options.connecting.transport == "json":
        raise BadOption('column "partition_key" needs transport=arrow')
    unknown = names - set(COLUMNS)
    if unknown:
        raise BadOption(
            f'column "{min(unknown)}" has no place in a record; known are {", ".join(COLUMNS)}. '
            "Put what belongs to the payload into data."
        )
    if options.topic is not None:
        with options.connecting.client() as client:
            try:
                client.info(options.topic, touch=False)
            except NotFound:
                raise BadOption(f'topic "{options.topic}" does not exist on {client.url}') from None


@dataclass
class Written(WriterCommitMessage):
    """What one task staged, in order."""

    partition: int
    query_id: str | None
    stages: list[str]


class _Writing:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _stage_all(self, batches: Iterator[Any]) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        with self._options.connecting.client() as client:
            stager = Stager(client, self._options)
            try:
                for batch in batches:
                    stager.add(batch)
                stager.flush()
            except BaseException:
                # A task that failed or was killed commits nothing: give the room back before the stages expire.
                _drop(client, stager.stages)
                raise
        return Written(0 if context is None else context.partitionId(), query_id, stager.stages)

    def _commit(self, messages: list[Any], producer: str | None, batch: int) -> None:
        written = sorted([each for each in messages if each is not None], key=lambda each: each.partition)
        stages = [stage for each in written for stage in each.stages]
        if not stages:
            return
        assert producer is not None
        with self._options.connecting.client() as client:
            client.commit(stages, producer=producer, batch=batch)

    def _abort(self, messages: list[Any]) -> None:
        """Stages expire by themselves; dropping them now only gives their room back sooner."""
        with self._options.connecting.client() as client:
            _drop(client, [stage for each in messages if each is not None for stage in each.stages])


class BatchWriter(_Writing, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        # One job, one producer: made here, so that every attempt of its tasks belongs to the same commit.
        self._producer = f"spark-batch-{options.query_id or uuid.uuid4().hex}"
        self._batch = options.batch_id or 0

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._stage_all(iterator)

    def commit(self, messages: list[Any]) -> None:
        self._commit(messages, self._producer, self._batch)

    def abort(self, messages: list[Any]) -> None:
        self._abort(messages)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._stage_all(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        query_ids = {each.query_id for each in messages if each is not None and each.stages}
        if len(query_ids) > 1 or None in query_ids:
            raise RuntimeError("the tasks of this batch do not know which query they belong to")
        self._commit(messages, f"spark-{query_ids.pop()}" if query_ids else None, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._abort(messages)


class Stager:
    """Collects rows by topic and stages them in pieces; `stages` lists what was staged, each topic's rows in order."""

    def __init__(self, client: Client, options: SinkOptions) -> None:
        self.stages: list[str] = []
        self._client = client
        self._topic = options.topic
        self._json = options.connecting.transport == "json"
        self._waiting: dict[str, list[Any]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, batch: Any) -> None:
        """Raises BadOption for a row without a topic."""
        for topic, rows in self._by_topic(batch):
            encoded = encoded_rows(rows)
            self._waiting.setdefault(topic, []).append(encoded)
            self._sizes[topic] = self._sizes.get(topic, 0) + encoded.nbytes + encoded.num_rows
            if self._sizes[topic] >= STAGE_BYTES:
                self._send(topic)
        # Rows spread over many topics must not pile up on the worker either.
        while sum(self._sizes.values()) >= 4 * STAGE_BYTES:
            self._send(max(self._sizes, key=lambda topic: self._sizes[topic]))

    def flush(self) -> None:
        for topic in list(self._waiting):
            self._send(topic)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.Table.from_batches([batch])
        if "topic" not in table.column_names:
            assert self._topic is not None
            yield self._topic, table
            return
        names = table.column("topic")
        if self._topic is not None:
            names = pc.fill_null(names, self._topic)
        if names.null_count:
            raise BadOption("a row has no topic: its column is NULL and there is no option topic to fall back on")
        # Sorted once, however many topics there are; stable, so that rows of one topic keep their order.
        coded = names.combine_chunks().dictionary_encode()
        order = pc.sort_indices(coded.indices)
        runs = pc.run_end_encode(coded.indices.take(order))
        rest = table.drop_columns(["topic"]).take(order)
        start = 0
        for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield coded.dictionary[code].as_py(), rest.slice(start, end - start)
            start = end

    def _send(self, topic: str) -> None:
        import pyarrow as pa

        table = pa.concat_tables(self._waiting.pop(topic))
        del self._sizes[topic]
        per_row = max(1, table.nbytes // max(1, table.num_rows))
        step = max(1, min(STAGE_ROWS, STAGE_BYTES // per_row))
        for start in range(0, table.num_rows, step):
            piece = table.slice(start, step).combine_chunks()
            if self._json:
                self._send_json(topic, piece)
            else:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, piece.schema) as writer:
                    writer.write_table(piece)
                self.stages.append(self._client.stage_arrow(topic, sink.getvalue().to_pybytes()).stage_id)

    def _send_json(self, topic: str, rows: Any) -> None:
        """A JSON stage is of one partition, so rows that choose theirs are sorted out first."""
        import pyarrow.compute as pc

        if "partition" not in rows.column_names:
            self.stages.append(self._client.stage(topic, _records(rows)).stage_id)
            return
        numbers = rows.column("partition")
        for number in pc.unique(numbers).to_pylist():
            chosen = rows.filter(pc.is_null(numbers) if number is None else pc.equal(numbers, number))
            self.stages.append(self._client.stage(topic, _records(chosen), partition=number).stage_id)


def encoded_rows(rows: Any) -> Any:
    """The columns a stage takes, `data` and `meta` as JSON texts."""
    import pyarrow as pa

    columns = {"data": json_column(rows.column("data")).fill_null("null")}
    if "meta" in rows.column_names:
        columns["meta"] = json_column(rows.column("meta"))
    for name in ("tag", "node", "partition_key"):
        if name in rows.column_names:
            columns[name] = rows.column(name).cast(pa.string())
    if "partition" in rows.column_names:
        columns["partition"] = rows.column("partition").cast(pa.int64())
    return pa.table(columns)


def json_column(column: Any) -> Any:
    """Texts as they are; anything else as the JSON it stands for: structs and maps as objects, times in ISO 8601,
    decimals as numbers, bytes in base64, what JSON has no number for as null."""
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    encode = _encoder.encode
    values = column.to_pylist(maps_as_pydicts="strict")
    texts = [None if value is None else encode(value).decode() for value in values]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _records(rows: Any) -> list[RecordIn]:
    names = rows.column_names
    nothing = [None] * rows.num_rows
    data = rows.column("data").to_pylist()
    meta = rows.column("meta").to_pylist() if "meta" in names else nothing
    tags = rows.column("tag").to_pylist() if "tag" in names else nothing
    nodes = rows.column("node").to_pylist() if "node" in names else nothing
    return [
        RecordIn(msgspec.Raw(text.encode()), tag, node, None if told is None else msgspec.json.decode(told))
        for text, tag, node, told in zip(data, tags, nodes, meta, strict=True)
    ]


def _drop(client: Client, stages: list[str]) -> None:
    try:
        for stage in stages:
            client.drop_stage(stage)
    except TopicsError:
        pass


_encoder = msgspec.json.Encoder(decimal_format="number")
