"""The sink: tasks stage their rows, the driver makes them readable with one fenced commit.

A row needs `data`, and a topic by option or by column; `tag`, `node`, `meta`, `partition` and `partition_key` are used if
a column has that name. `data` and `meta` are JSON texts when they are strings; any other type is encoded as JSON.

A micro-batch is committed under (query id, batch id). Spark may run it again, with other tasks and other partitions: the
server's fence knows the batch, and the second set of stages is dropped. `abort` is also called after a commit that
succeeded on the server, so it may drop stages but never undo.

A row that cannot become a record (invalid JSON, no topic, an unknown topic or partition, too large) fails the write with
`BadRow`, or goes to the dead-letter topic in the same commit as the other rows.
"""

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import IntegralType, StringType, StructType

from topics.client import Client
from topics.client.calls import RecordIn
from topics.client.values import Staged
from topics.model.errors import Conflict, InvalidRequest, NotFound, RecordTooLarge, Throttled, TopicsError
from topics.model.names import check_topic_name
from topics.model.records.surrogates import decodable_json
from topics.spark.connector.json_encoding import json_column
from topics.spark.connector.options import BadOption, SinkOptions
from topics.spark.connector.stage_renewal import StageRenewal

COLUMNS = ("topic", "data", "tag", "node", "meta", "partition", "partition_key")
# Maximum of one stage: large enough to make requests rare, small enough not to block the server's loop.
STAGE_ROWS = 20_000
STAGE_BYTES = 8 << 20
# Maximum characters of a row in an error message.
MAX_SHOWN_CHARS = 300
# Maximum length of each text of a row in a dead letter.
MAX_LETTER_CHARS = 50_000


def check_columns(options: SinkOptions, schema: StructType, overwrite: bool) -> None:
    """Check the columns and options before any write. Raises BadOption."""
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
    if "partition_key" in names and options.server.transport == "json":
        raise BadOption('column "partition_key" needs transport=arrow')
    unknown = names - set(COLUMNS)
    if unknown:
        raise BadOption(
            f'column "{min(unknown)}" is not a column of a record; known are {", ".join(COLUMNS)}. '
            "Put what belongs to the payload into data."
        )
    with options.server.client() as client:
        for name, topic in (("topic", options.topic), ("deadLetterTopic", options.dead_letter_topic)):
            if topic is not None:
                _check_exists(client, name, topic)


def _check_exists(client: Client, option: str, topic: str) -> None:
    try:
        client.info(topic, touch=False)
    except NotFound:
        prefix = "" if option == "topic" else f"{option}: "
        raise BadOption(f'{prefix}topic "{topic}" does not exist on {client.url}') from None


class BadRow(Exception):
    """A row that cannot become a record. Names the topic, the row and the reason. Nothing of the batch was written."""


class RepeatedBatch(Exception):
    """The `queryId` and `batchId` of this write were used before for other rows. Nothing was written."""


@dataclass
class Written(WriterCommitMessage):
    """The stages of one task, in order, and the digest of its rows if repeats are checked."""

    partition: int
    query_id: str | None
    stages: list[str]
    rows: int = 0
    digest: int = 0


class StageLimitReached(Exception):
    """The server has no space for more stages. Says which setting and which option help."""


class _StagedWriter:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _stage_all(self, batches: Iterator[Any], producer: str | None) -> Written:
        """Stage the rows of one task. The producer of a stream is found here, where Spark names its query."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        producer = producer or _stream_producer(query_id)
        server = self._options.server
        partition = 0 if context is None else context.partitionId()
        with server.client() as client, StageRenewal(server, producer):
            stager = Stager(client, self._options, producer, partition)
            try:
                for batch in batches:
                    stager.add(batch)
                stager.flush()
            except BaseException as error:
                # A task that failed or was killed commits nothing: free the space before the stages expire.
                _drop(client, stager.stages)
                if isinstance(error, Throttled) and (error.detail or {}).get("limit") == "max_staged_bytes":
                    raise _stage_limit_reached(error) from None
                raise
        return Written(partition, query_id, stager.stages, stager.digest.rows, stager.digest.sum)

    def _commit(self, messages: list[Any], producer: str | None, batch: int, digest: str | None = None) -> None:
        written = sorted([each for each in messages if each is not None], key=lambda each: each.partition)
        stages = [stage for each in written for stage in each.stages]
        if not stages:
            return
        assert producer is not None
        with self._options.server.client() as client:
            client.commit(stages, producer=producer, batch=batch, digest=digest)

    def _abort(self, messages: list[Any]) -> None:
        """Drop the stages of the tasks that finished. They would expire without it; this frees their space sooner."""
        with self._options.server.client() as client:
            _drop(client, [stage for each in messages if each is not None for stage in each.stages])


def _stream_producer(query_id: str | None) -> str:
    return f"spark-{query_id}"


def _stage_limit_reached(error: Throttled) -> StageLimitReached:
    max_bytes = (error.detail or {}).get("max")
    return StageLimitReached(
        f"the server has no space for more rows that wait for their commit: all stages together take at most {max_bytes} bytes "
        "(TOPICS_MAX_STAGED_BYTES). Raise that setting, write less at once, wait for other writers, or set atomic=false "
        "in a batch write: then rows are readable as they arrive, and a task that is tried again writes its rows again."
    )


class BatchWriter(_StagedWriter, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        # One job, one producer: made here, so that every attempt of its tasks belongs to the same commit.
        self._producer = f"spark-batch-{options.query_id or uuid.uuid4().hex}"
        self._batch = options.batch_id or 0

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._stage_all(iterator, self._producer)

    def commit(self, messages: list[Any]) -> None:
        """Raises RepeatedBatch."""
        options = self._options
        digest = _digest_of(messages) if options.query_id is not None and options.check_repeats else None
        try:
            self._commit(messages, self._producer, self._batch, digest)
        except Conflict as error:
            if error.code != "batch_differs":
                raise
            raise RepeatedBatch(
                f'queryId "{options.query_id}" with batchId {self._batch} was written before with other rows '
                f"({error.message}). A query with a new checkpoint starts again at batch 0: give it a new queryId, or "
                "keep the checkpoint. Nothing of this batch was written."
            ) from None

    def abort(self, messages: list[Any]) -> None:
        self._abort(messages)


class StreamWriter(_StagedWriter, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._stage_all(iterator, None)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        query_ids = {each.query_id for each in messages if each is not None and each.stages}
        if len(query_ids) > 1 or None in query_ids:
            raise RuntimeError("the tasks of this batch do not know which query they belong to")
        self._commit(messages, _stream_producer(query_ids.pop()) if query_ids else None, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._abort(messages)


class RowsDigest:
    """A digest of rows that does not depend on their order, nor on how they are divided among tasks.

    The sum of the digests of the rows: a batch that Spark runs again with other partitions has the same sum.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.sum = 0

    def add(self, topic: str, rows: Any) -> None:
        names = sorted(rows.column_names)
        for row in zip(*[rows.column(name).to_pylist() for name in names], strict=True):
            text = repr((topic, names, row)).encode("utf-8", "surrogatepass")
            self.sum += int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())
        self.rows += rows.num_rows
        self.sum %= 1 << 128


def _digest_of(messages: list[Any]) -> str:
    written = [each for each in messages if each is not None]
    rows, total = sum([each.rows for each in written]), sum([each.digest for each in written])
    return f"{rows}-{total % (1 << 128):032x}"


class Stager:
    """Collects rows by topic and stages them in pieces; `stages` lists the stages, each topic's rows in order.

    With `atomic=false` each piece is committed at once, and `stages` stays empty.
    """

    def __init__(self, client: Client, options: SinkOptions, producer: str | None = None, task: int = 0) -> None:
        self.stages: list[str] = []
        self.digest = RowsDigest()
        self._digests = options.query_id is not None and options.check_repeats
        self._client = client
        self._producer = producer
        self._task = task
        self._atomic = options.atomic
        self._topic = options.topic
        self._dead_letter_topic = options.dead_letter_topic
        self._json = options.server.transport == "json"
        self._waiting: dict[str, list[Any]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, batch: Any) -> None:
        """Raises BadRow for a row that cannot become a record, unless there is a dead-letter topic."""
        for topic, rows in self._by_topic(batch):
            encoded = encoded_rows(rows)
            if self._digests:
                self.digest.add(topic or "", encoded)
            if topic is None:
                self._reject(None, encoded, "the column topic is NULL and there is no option topic")
            else:
                self._collect(topic, encoded)
        # Limits the buffered rows of all topics together, too.
        while sum(self._sizes.values()) >= 4 * STAGE_BYTES:
            self._send(max(self._sizes, key=lambda topic: self._sizes[topic]))

    def flush(self) -> None:
        # Dead letters last: sending other topics may add some.
        while self._waiting:
            others = [topic for topic in self._waiting if topic != self._dead_letter_topic]
            self._send(others[0] if others else next(iter(self._waiting)))

    def _collect(self, topic: str, encoded: Any) -> None:
        self._waiting.setdefault(topic, []).append(encoded)
        self._sizes[topic] = self._sizes.get(topic, 0) + encoded.nbytes + encoded.num_rows
        if self._sizes[topic] >= STAGE_BYTES:
            self._send(topic)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str | None, Any]]:
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
        # Sorted once for any number of topics; stable, so that rows of one topic keep their order.
        coded = names.combine_chunks().dictionary_encode(null_encoding="encode")
        order = pc.sort_indices(coded.indices)
        runs = pc.run_end_encode(coded.indices.take(order))
        rest = table.drop_columns(["topic"]).take(order)
        start = 0
        for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield coded.dictionary[code].as_py(), rest.slice(start, end - start)
            start = end

    def _send(self, topic: str) -> None:
        import pyarrow as pa

        # Batches may differ in their columns: only dead letters do, which have them all.
        table = pa.concat_tables(self._waiting.pop(topic))
        del self._sizes[topic]
        per_row = max(1, table.nbytes // max(1, table.num_rows))
        step = max(1, min(STAGE_ROWS, STAGE_BYTES // per_row))
        for start in range(0, table.num_rows, step):
            self._stage(topic, table.slice(start, step).combine_chunks())

    def _stage(self, topic: str, rows: Any) -> None:
        """Stage the rows. Those that the server refuses are rejected, the others are staged without them."""
        try:
            self._stage_piece(topic, rows)
        except (InvalidRequest, RecordTooLarge, msgspec.DecodeError) as error:
            self._stage_valid(topic, rows, error)
        except NotFound as error:
            if error.code != "topic_not_found":
                raise
            self._reject(topic, rows, str(error))

    def _stage_valid(self, topic: str, rows: Any, error: Exception) -> None:
        """Find the bad rows among rows of which at least one was refused. The other rows keep their order."""
        try:
            check_topic_name(topic)
        except TopicsError as invalid:
            self._reject(topic, rows, str(invalid))
            return
        if rows.num_rows == 1:
            self._reject(topic, rows, str(error))
            return
        invalid_json = _invalid_json(rows)
        if invalid_json and len(invalid_json) < rows.num_rows:
            # Found without asking the server, so that many of them cost no requests.
            for index, reason in invalid_json.items():
                self._reject(topic, rows.slice(index, 1), reason)
            self._stage(topic, rows.take([index for index in range(rows.num_rows) if index not in invalid_json]))
            return
        half = rows.num_rows // 2
        self._stage(topic, rows.slice(0, half).combine_chunks())
        self._stage(topic, rows.slice(half).combine_chunks())

    def _stage_piece(self, topic: str, piece: Any) -> None:
        import pyarrow as pa

        if self._json:
            self._stage_json(topic, piece)
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, piece.schema) as writer:
            writer.write_table(piece)
        stream = sink.getvalue().to_pybytes()
        self._add_stage(self._client.stage_arrow(topic, stream, producer=self._producer))

    def _reject(self, topic: str | None, rows: Any, reason: str) -> None:
        if self._dead_letter_topic is None or topic == self._dead_letter_topic:
            where = "no topic" if topic is None else f'topic "{topic}"'
            row = rows.slice(0, 1).to_pylist()[0]
            raise BadRow(
                f"{where}: a row of task {self._task} cannot become a record: {reason}. The row is "
                f"{repr(row)[:MAX_SHOWN_CHARS]}. Set onBadRecord=deadLetter and deadLetterTopic to write the others."
            )
        import pyarrow as pa

        letters = [
            msgspec.json.encode({"topic": topic, "reason": reason, "row": _shortened(row)}).decode()
            for row in rows.to_pylist()
        ]
        self._collect(self._dead_letter_topic, pa.table({"data": pa.array(letters, pa.string())}))

    def _add_stage(self, stage: Staged) -> None:
        if self._atomic:
            self.stages.append(stage.stage_id)
        else:
            self._client.commit([stage.stage_id])

    def _stage_json(self, topic: str, rows: Any) -> None:
        """A JSON stage is of one partition, so rows are grouped by theirs first."""
        import pyarrow.compute as pc

        if "partition" not in rows.column_names:
            self._add_stage(self._client.stage(topic, _records(rows), producer=self._producer))
            return
        numbers = rows.column("partition")
        staged = []
        try:
            for number in pc.unique(numbers).to_pylist():
                chosen = rows.filter(pc.is_null(numbers) if number is None else pc.equal(numbers, number))
                staged.append(self._client.stage(topic, _records(chosen), partition=number, producer=self._producer))
        except TopicsError:
            # Staged as a whole or not at all: the caller may stage parts of these rows again.
            _drop(self._client, [stage.stage_id for stage in staged])
            raise
        for stage in staged:
            self._add_stage(stage)


def _shortened(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a dead letter. Long texts are cut: the letter of a row that is too large must not be too large itself."""
    return {
        name: f"{value[:MAX_LETTER_CHARS]}... ({len(value)} characters)"
        if isinstance(value, str) and len(value) > MAX_LETTER_CHARS
        else value
        for name, value in row.items()
    }


def _invalid_json(rows: Any) -> dict[int, str]:
    """The rows whose `data` or `meta` is not JSON, with the reason."""
    found: dict[int, str] = {}
    for name in ("data", "meta"):
        if name in rows.column_names:
            for index, text in enumerate(rows.column(name).to_pylist()):
                try:
                    if text is not None:
                        decodable_json(text.encode())
                except msgspec.DecodeError as error:
                    found.setdefault(index, f"{name} is not JSON: {error}")
    return found


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


def _records(rows: Any) -> list[RecordIn]:
    names = rows.column_names
    nothing = [None] * rows.num_rows
    data = rows.column("data").to_pylist()
    meta = rows.column("meta").to_pylist() if "meta" in names else nothing
    tags = rows.column("tag").to_pylist() if "tag" in names else nothing
    nodes = rows.column("node").to_pylist() if "node" in names else nothing
    return [
        RecordIn(_raw(text), tag, node, None if meta_text is None else _raw(meta_text))
        for text, tag, node, meta_text in zip(data, tags, nodes, meta, strict=True)
    ]


def _raw(text: str) -> Any:
    return msgspec.Raw(text.encode())


def _drop(client: Client, stages: list[str]) -> None:
    try:
        for stage in stages:
            client.drop_stage(stage)
    except TopicsError:
        pass
