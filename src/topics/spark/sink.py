"""The sink: tasks stage their rows, the driver makes them readable with one fenced commit.

A row needs `data`, and a topic by option or by column; `tag`, `node`, `meta`, `partition` and `partition_key` are taken
where a column has that name. `data` and `meta` are JSON texts when they are strings; anything else is encoded as JSON.

A micro-batch is committed under (query id, batch id). Spark may run it again, with other tasks and other partitions: the
server's fence knows the batch, and what was staged the second time is given up. `abort` is also called after a commit that
did succeed on the server, so it may drop stages but never undo.
"""

import base64
import datetime
import decimal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from topics.client import Client
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
        stages: list[str] = []
        with self._options.connecting.client() as client:
            for batch in batches:
                for topic, rows in self._by_topic(batch):
                    stages += _stage(client, topic, rows)
        return Written(0 if context is None else context.partitionId(), query_id, stages)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.Table.from_batches([batch])
        if "topic" not in table.column_names:
            assert self._options.topic is not None
            yield self._options.topic, table
            return
        names = table.column("topic")
        if self._options.topic is not None:
            names = pc.fill_null(names, self._options.topic)
        if names.null_count:
            raise BadOption("a row has no topic")
        rest = table.drop_columns(["topic"])
        for name in pc.unique(names).to_pylist():
            yield name, rest.filter(pc.equal(names, name))

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
        try:
            with self._options.connecting.client() as client:
                for each in messages:
                    for stage in each.stages if each is not None else ():
                        client.drop_stage(stage)
        except TopicsError:
            pass


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


def _stage(client: Client, topic: str, rows: Any) -> list[str]:
    import pyarrow as pa

    columns = {"data": _json_column(pa, rows.column("data"), "data")}
    if "meta" in rows.column_names:
        columns["meta"] = _json_column(pa, rows.column("meta"), "meta")
    for name in ("tag", "node", "partition_key"):
        if name in rows.column_names:
            columns[name] = rows.column(name).cast(pa.string())
    if "partition" in rows.column_names:
        columns["partition"] = rows.column("partition").cast(pa.int64())
    table = pa.table(columns)
    per_row = max(1, table.nbytes // max(1, table.num_rows))
    step = max(1, min(STAGE_ROWS, STAGE_BYTES // per_row))
    stages = []
    for start in range(0, table.num_rows, step):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(start, step).combine_chunks())
        stages.append(client.stage_arrow(topic, sink.getvalue().to_pybytes()).stage_id)
    return stages


def _json_column(pa: Any, column: Any, name: str) -> Any:
    """Texts as they are; anything else as the JSON it stands for."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    values = column.to_pylist()
    if name == "meta":
        return pa.array([None if value is None else _encode(value) for value in values], pa.string())
    return pa.array([_encode(value) for value in values], pa.string())


def _encode(value: Any) -> str:
    return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    """What JSON has no word for, as Spark's own to_json spells it."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        # Arrow gives maps as lists of pairs.
        if value and all([isinstance(each, tuple) and len(each) == 2 for each in value]):
            return {str(key): _plain(each) for key, each in value}
        return [_plain(each) for each in value]
    if isinstance(value, decimal.Decimal):
        return msgspec.Raw(str(value).encode()) if value.is_finite() else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, float) and value != value:
        return None
    return value
