"""The sink of a routing query: stage messages in the tasks, make all of a batch readable with one fenced commit.

    route INT, partition INT, data STRING, meta STRING, event STRING, src_partition INT, src_seq BIGINT, epoch BIGINT, tasks INT

A row with a positive `route` is a message; a negative one is a code of `codes.py`: a condition that could not be evaluated, or
an event that no route is for. `event` is set where SQL could not make the payload or the partition: then Python does.

The commit has the fence (query id, batch id): a batch that is run again finds its commit made, or makes it. A batch of one task
is committed by that task, which has a connection already; a larger one by the driver.

Spark imports this module in a new process twice per batch: all that is slow to import is imported where it is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

NAME = "topics_routed"
COLUMNS = ("route", "partition", "data", "meta", "event", "src_partition", "src_seq", "epoch", "tasks")


class MessageSink(DataSource):
    """Options: `url`, `token`, `targets` (JSON, see `targets.py`), `report` (a file on the driver), `portions`.

    A batch write is one step of a replay and needs `queryId`, `srcPartition` and `lastSeq` (the partition of the change topic and
    its last change in the step), and `step` (numbers the steps of the report).
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> "MessageWriter":  # noqa: N802 - Spark's name
        options = {name.lower(): value for name, value in self.options.items()}
        return MessageWriter(
            options["url"],
            options.get("token"),
            options["targets"],
            options.get("report"),
            options.get("portions") == "true",
        )

    def writer(self, schema: StructType, overwrite: bool) -> "ReplayWriter":
        options = {name.lower(): value for name, value in self.options.items()}
        return ReplayWriter(
            options["url"],
            options.get("token"),
            options["targets"],
            options["report"],
            options.get("portions") == "true",
            options["queryid"],
            int(options["srcpartition"]),
            int(options["lastseq"]),
            int(options["step"]),
        )


@dataclass
class TaskResult(WriterCommitMessage):
    """What one task did: its report, encoded, and whether it has committed its messages itself.

    `stages_full`: why it did nothing, when the server had no space for its stages. Spark would try a task that fails
    again; the commit fails the whole batch at once.
    """

    query_id: str
    report: bytes
    committed: bool
    stages_full: str | None = None


class MessageWriter(DataSourceStreamArrowWriter):
    def __init__(self, url: str, token: str | None, targets: str, report: str | None, portions: bool) -> None:
        self._url = url
        self._token = token
        self._targets = targets
        self._report = report
        self._portions = portions

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from topics.spark.routing.task import run_task

        return run_task(self._url, self._token, self._targets, iterator, portions=self._portions)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        results: list[TaskResult] = [each for each in messages if each is not None]
        if not results:
            return
        if len(results) == 1 and results[0].committed:
            reports = [results[0].report]
        else:
            from topics.spark.routing.task import check_stages, commit_batch, producer_of

            check_stages(results)
            reports = commit_batch(self._url, self._token, results, producer_of(results[0].query_id), batchId)
        if self._report is not None:
            from topics.spark.routing.report import add_to_file

            add_to_file(self._report, batchId, reports)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        from topics.spark.routing.task import drop_batch

        drop_batch(self._url, self._token, [each.report for each in messages if each is not None and each.report])


class ReplayWriter(DataSourceArrowWriter):
    """Writes one step of a replay: changes of one partition, up to `last_seq`.

    The producer of the commit is the partition and its batch is `last_seq`, as for a portion: a replay that is started again
    continues behind the last seq that was committed.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        targets: str,
        report: str,
        portions: bool,
        query_id: str,
        partition: int,
        last_seq: int,
        step: int,
    ) -> None:
        self._url = url
        self._token = token
        self._targets = targets
        self._report = report
        self._portions = portions
        self._query_id = query_id
        self._partition = partition
        self._last_seq = last_seq
        self._step = step

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from topics.spark.routing.task import run_task

        ids = (self._query_id, self._last_seq)
        return run_task(self._url, self._token, self._targets, iterator, portions=self._portions, ids=ids)

    def commit(self, messages: list[Any]) -> None:
        from topics.spark.routing.report import add_to_file
        from topics.spark.routing.task import check_stages, commit_batch, portion_producer

        results = [each for each in messages if each is not None]
        check_stages(results)
        if results:
            producer = portion_producer(self._query_id, self._partition)
            reports = commit_batch(self._url, self._token, results, producer, self._last_seq)
            add_to_file(self._report, self._step, reports)

    def abort(self, messages: list[Any]) -> None:
        from topics.spark.routing.task import drop_batch

        drop_batch(self._url, self._token, [each.report for each in messages if each is not None and each.report])
