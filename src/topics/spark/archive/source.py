"""The source of the archive: which ranges of seqs the table lacks, as work for the sink. Reading it writes nothing.

Offsets are the positions of the table. Planning reads them from the table, never from Spark's checkpoint.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from topics.archive.ledger import NOT_ARCHIVED, ArchiveError, Ledger, Position, open_archive, open_quarantine
from topics.archive.piece import Work
from topics.client import Client, RetryPolicy, TopicInfo
from topics.spark.connector.ranges import SeqRange, cut, share

SCHEMA = "work STRING, seqs BIGINT"
# Minimum seqs of a task when a range is divided among several.
TASK_SEQS = 125_000
# For an unreachable server: the supervisor starts the query again, with a growing pause.
RETRY_ATTEMPTS = 6


class ArchivePlan(Struct, frozen=True):
    """What source and sink need to know. Plain values, so that executors can receive it."""

    url: str
    token: str | None
    topic: str
    uri: str
    max_seqs: int
    tasks: int

    def client(self) -> Client:
        return Client(self.url, self.token, timeout_s=60.0, retry=RetryPolicy(attempts=RETRY_ATTEMPTS))


class WorkPartition(InputPartition):
    """One task's work; None for a task with nothing to do."""

    def __init__(self, work: Work | None) -> None:
        super().__init__(None if work is None else msgspec.json.encode(work))

    @property
    def work(self) -> Work | None:
        return None if self.value is None else msgspec.json.decode(self.value, type=Work)


# Spark calls the reader many times in one process; the table is opened there once.
open_tables: dict[str, Ledger] = {}


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, plan: ArchivePlan) -> None:
        self._plan = plan
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return _offset(self._position())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._plan.max_seqs)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with self._plan.client() as client:
            info = client.info(self._plan.topic, touch=False)
        self._target = {str(number): head + 1 for number, head in partition_heads(info).items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with self._plan.client() as client:
            info = client.info(self._plan.topic, touch=False)
        max_seqs = None if isinstance(limit, ReadAllAvailable) else self._plan.max_seqs
        return end_of_batch(info, self._position(), max_seqs, self._target)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._plan.client() as client:
            info = client.info(self._plan.topic, touch=False)
        quarantine = open_quarantine(self._plan.uri)
        quarantined = NOT_ARCHIVED if quarantine is None else quarantine.position(self._plan.topic)
        works = plan_batch(info, self._position(), quarantined, end, self._plan.tasks)
        return [WorkPartition(work) for work in works] or [WorkPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        assert isinstance(partition, WorkPartition)
        work = partition.work
        if work is not None:
            seqs = 0 if work.begins is not None else work.last - work.first + 1
            yield pa.RecordBatch.from_pydict({"work": [msgspec.json.encode(work).decode()], "seqs": [seqs]})

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def stop(self) -> None:
        pass

    def _position(self) -> Position:
        uri = self._plan.uri
        ledger = open_tables.get(uri)
        if ledger is None:
            ledger = open_tables[uri] = open_archive(uri)
        ledger.refresh()
        return ledger.position(self._plan.topic)


def end_of_batch(
    info: TopicInfo, at: Position, max_seqs: int | None, target: dict[str, int] | None = None
) -> dict[str, int]:
    """The end of the next batch as an offset: `{"epoch": e, "0": next_seq, ...}`. Raises ArchiveError."""
    heads = partition_heads(info)
    if at.epoch > info.epoch:
        raise ArchiveError(
            f'the archive of topic "{info.topic}" is of its epoch {at.epoch}, the topic itself of epoch {info.epoch}: '
            "the server has gone back to an older state, or the table belongs to another server. Set another uri."
        )
    waiting = {}
    for number, head in heads.items():
        begin = at.next_seq(info.epoch, number)
        if begin > head + 1:
            raise ArchiveError(
                f'topic "{info.topic}" partition {number} ends at {head}, but its archive at {begin - 1}: the server has '
                "lost its newest records and will give their seqs to others, which would be taken for archived. "
                "Delete and create the topic again, or set another uri."
            )
        end = head + 1 if target is None else min(head + 1, target.get(str(number), 1))
        waiting[info.topic, number] = max(0, end - begin)
    taken = waiting if max_seqs is None else share(waiting, max_seqs)
    ends = {str(number): at.next_seq(info.epoch, number) + taken[info.topic, number] for number in heads}
    return {"epoch": info.epoch, **ends}


def plan_batch(info: TopicInfo, at: Position, quarantined: Position, end: dict[str, int], tasks: int) -> list[Work]:
    """The work after which the table is at `end`.

    It begins at the table's position, not at Spark's offset for the batch. It is empty when the topic has been created
    again since: the next batch reports that.
    """
    if info.epoch != end["epoch"] or at.epoch > info.epoch:
        return []
    works: list[Work] = []
    if at.epoch < info.epoch:
        works += [
            Work(info.topic, number, at.epoch, next_seq, next_seq, begins=info.epoch)
            for number, next_seq in enumerate(at.next_seqs)
        ]
    ranges = []
    for number, head in partition_heads(info).items():
        # A head that was there when the batch was planned may be gone, if the server has lost its newest records.
        last = min(end.get(str(number), 1) - 1, head)
        ranges.append(SeqRange(info.topic, number, info.epoch, at.next_seq(info.epoch, number), last))
    total = sum([each.seqs for each in ranges if each.seqs > 0])
    for each in cut(ranges, min(tasks, total // TASK_SEQS)):
        known = quarantined.next_seq(info.epoch, each.partition)
        works.append(Work(each.topic, each.partition, each.epoch, each.first, each.last, known))
    return works


def _offset(at: Position) -> dict[str, int]:
    return {"epoch": at.epoch, **{str(number): seq for number, seq in enumerate(at.next_seqs)}}


def partition_heads(info: TopicInfo) -> dict[int, int]:
    return {each.partition: each.head_seq for each in info.partitions} or {0: info.head_seq}
