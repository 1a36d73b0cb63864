"""The archive job: a topic into its Delta table, exactly once.

Tasks read ranges of seqs and write them into Parquet files themselves; what goes through Spark is one row for each task,
saying which files it wrote. The driver collects those and commits them to the table (`topics.archive.piece`).

Where to go on is read from the table, never from Spark's checkpoint: the checkpoint is a schedule, and losing it costs
nothing. A batch that Spark runs again, because its driver died, finds that the table has it, or reads exactly what the
table lacks. A table that was removed is made again and filled with what the topic still has.

Small files are put together, and files nobody needs are removed, by a thread beside the query: commits to a Delta table
do not wait for it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from topics.archive.ledger import (
    NOWHERE,
    ArchiveError,
    Ledger,
    Position,
    open_archive,
    open_quarantine,
    quarantine_uri,
)
from topics.archive.piece import Piece, Work, commit_pieces, copy_piece
from topics.archive.place import Place
from topics.client import ArchivedTo, Client, RetryPolicy, TopicInfo
from topics.model.errors import TopicsError
from topics.spark.job import Job, Surroundings
from topics.spark.ranges import SeqRange, cut, share

log = logging.getLogger("topics.spark")

FORMAT = "topics-archive"
# A micro-batch is taken so large that a backlog is worked off as fast as the machine can: Spark starts one each
# `freshness_ms`, or when the last one is done.
SEQS_PER_MS = 500
# A task should have this many seqs, or it is not worth being one of several.
TASK_SEQS = 125_000
# Files that the table does not name are looked for once a day.
VACUUM_EVERY_S = 86_400.0
# Trouble on the way to the server: the supervisor starts the query again, with a growing pause.
RETRY_ATTEMPTS = 6


@dataclass(frozen=True)
class ArchiveJob:
    """Keeps the table of one topic up to date."""

    topic: str
    uri: str
    freshness_ms: int
    compact_interval_ms: int
    vacuum_hours: int

    @property
    def name(self) -> str:
        return f"archive {self.topic}"

    @property
    def kind(self) -> str:
        return "archive"

    def start(self, around: Surroundings) -> StreamingQuery:
        """Raises ArchiveError when the table can be neither opened nor made."""
        return self.start_with(around, processingTime=f"{self.freshness_ms} milliseconds")

    def start_with(self, around: Surroundings, **trigger: Any) -> StreamingQuery:
        """As `start`, with another trigger: `availableNow=True` ends when the topic as it is now is archived."""
        ledger = open_archive(self.uri, create=True)
        plan = ArchivePlan(
            url=around.url,
            token=around.token,
            topic=self.topic,
            uri=self.uri,
            most_seqs=SEQS_PER_MS * self.freshness_ms,
            tasks=2 * around.spark.sparkContext.defaultParallelism,
        )
        around.spark.dataSource.register(ArchiveSource)
        frame = around.spark.readStream.format(FORMAT).option("plan", msgspec.json.encode(plan).decode()).load()
        # A checkpoint for each table: offsets of one mean nothing in another, also not at the same place.
        checkpoint = f"{around.checkpoint.rstrip('/')}/{ledger.table_id}"
        batches = _Batches(self, plan, ledger, around.tell)
        # The driver before this one may have died between its last commit and its report.
        batches.report()
        writer = frame.writeStream.foreachBatch(batches.commit).option("checkpointLocation", checkpoint)
        query = writer.trigger(**trigger).start()
        Upkeep(self, ledger, around.tell, lambda: query.isActive).start()
        return query


def archive_jobs(client: Client) -> list[Job]:
    """One job for every archive that is set."""
    return [
        ArchiveJob(each.topic, each.uri, each.freshness_ms, each.compact_interval_ms, each.vacuum_hours)
        for each in client.archives().archives
    ]


class ArchivePlan(Struct, frozen=True):
    """What the source needs to know; plain values, so that it can be sent to executors."""

    url: str
    token: str | None
    topic: str
    uri: str
    most_seqs: int
    tasks: int

    def client(self) -> Client:
        return Client(self.url, self.token, timeout_s=60.0, retry=RetryPolicy(attempts=RETRY_ATTEMPTS))


class _Batches:
    """The driver's side of each micro-batch."""

    def __init__(
        self, job: ArchiveJob, plan: ArchivePlan, ledger: Ledger, tell: Callable[[dict[str, Any]], None]
    ) -> None:
        self._job = job
        self._plan = plan
        self._ledger = ledger
        self._tell = tell
        self._records = 0
        self._lost = 0
        self._quarantined = 0

    def commit(self, frame: DataFrame, batch_id: int) -> None:
        pieces = [msgspec.json.decode(row.piece, type=Piece) for row in frame.collect()]
        if not pieces:
            return
        done = commit_pieces(self._ledger, self._job.topic, pieces, {"topics.batch": str(batch_id)})
        self._records += done.records
        self._lost += done.lost
        self._quarantined += done.quarantined
        self.report()

    def report(self) -> None:
        """For those who look on: the truth is in the table, so trouble here is no trouble of the archive."""
        at, version = self._ledger.position(self._job.topic), self._ledger.version
        told: dict[str, Any] = {"table_version": version, "rows": self._records}
        if self._lost:
            told["lost"] = self._lost
        if self._quarantined:
            told["quarantined"] = self._quarantined
        places = [ArchivedTo(number, at.epoch, seq) for number, seq in enumerate(at.next_seqs)]
        try:
            with self._plan.client() as client:
                client.archive_progress(self._job.topic, places, table_version=version)
                told["lag"] = _lag(client.info(self._job.topic, touch=False), at)
        except TopicsError as error:
            log.warning("archive %s: progress not reported: %s", self._job.topic, error)
        self._tell(told)


class Upkeep(threading.Thread):
    """Compaction and vacuum of one table, on their schedule, until the query ends."""

    def __init__(
        self,
        job: ArchiveJob,
        ledger: Ledger,
        tell: Callable[[dict[str, Any]], None],
        wanted: Callable[[], bool],
        *,
        look_s: float = 0.5,
    ) -> None:
        super().__init__(name=f"upkeep of {job.name}", daemon=True)
        self._job = job
        self._ledger = ledger
        self._tell = tell
        self._wanted = wanted
        self._look_s = look_s

    def run(self) -> None:
        job = self._job
        pause_s = job.compact_interval_ms / 1000
        began = time.monotonic()
        compact_at = began + pause_s if job.compact_interval_ms else None
        # The first one soon, or a driver that is started anew every day would never come to it.
        vacuum_at = began + (pause_s or 600.0) if job.vacuum_hours else None
        while self._wanted():
            time.sleep(self._look_s)
            if compact_at is not None and time.monotonic() >= compact_at and self._wanted():
                self.compact()
                compact_at = time.monotonic() + pause_s
            if vacuum_at is not None and time.monotonic() >= vacuum_at and self._wanted():
                self.vacuum()
                vacuum_at = time.monotonic() + min(VACUUM_EVERY_S, job.vacuum_hours * 3600)

    def compact(self) -> None:
        self._do("compacted", lambda: self._ledger.compact(self._job.topic))

    def vacuum(self) -> None:
        self._do("vacuumed", lambda: self._ledger.vacuum(self._job.vacuum_hours))

    def _do(self, what: str, act: Callable[[], int]) -> None:
        """Trouble is shown and tried again at the next time: the rows are safe either way."""
        try:
            files = act()
            self._tell({what: {"files": files, "ts": int(time.time() * 1000)}, "upkeep_error": None})
        except Exception as error:  # noqa: BLE001 - whatever a store can raise must not end the upkeep
            log.warning("archive %s: not %s: %s", self._job.topic, what, error)
            self._tell({"upkeep_error": f"not {what}: {error}"})


# The source: ranges of seqs in, one row for each piece out.


class ArchiveSource(DataSource):
    """`format("topics-archive")`, for the job alone: reading from it writes files."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "piece STRING"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return ArchiveReader(msgspec.json.decode(self.options["plan"], type=ArchivePlan))


class WorkPartition(InputPartition):
    """One task's work; None for a task with nothing to do."""

    def __init__(self, work: Work | None) -> None:
        super().__init__(None if work is None else msgspec.json.encode(work))

    @property
    def work(self) -> Work | None:
        return None if self.value is None else msgspec.json.decode(self.value, type=Work)


# Spark calls the reader in a process of its own, again and again; the table is opened there once.
_tables: dict[str, Ledger] = {}


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, plan: ArchivePlan) -> None:
        self._plan = plan
        self._target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return _offset(self._position())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._plan.most_seqs)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with self._plan.client() as client:
            info = client.info(self._plan.topic, touch=False)
        self._target = {str(number): head + 1 for number, head in _heads(info).items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with self._plan.client() as client:
            info = client.info(self._plan.topic, touch=False)
        most = None if isinstance(limit, ReadAllAvailable) else self._plan.most_seqs
        return end_of_batch(info, self._position(), most, self._target)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._plan.client() as client:
            info = client.info(self._plan.topic, touch=False)
        quarantine = open_quarantine(self._plan.uri)
        broken = NOWHERE if quarantine is None else quarantine.position(self._plan.topic)
        works = plan_batch(info, self._position(), broken, end, self._plan.tasks)
        return [WorkPartition(work) for work in works] or [WorkPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        assert isinstance(partition, WorkPartition)
        if partition.work is None:
            return
        uri = self._plan.uri
        with self._plan.client() as client:
            piece = copy_piece(client, partition.work, Place(uri), Place(quarantine_uri(uri)))
        yield pa.RecordBatch.from_pydict({"piece": [msgspec.json.encode(piece).decode()]})

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def stop(self) -> None:
        pass

    def _position(self) -> Position:
        uri = self._plan.uri
        ledger = _tables.get(uri)
        if ledger is None:
            ledger = _tables[uri] = open_archive(uri)
        ledger.refresh()
        return ledger.position(self._plan.topic)


def end_of_batch(
    info: TopicInfo, at: Position, most_seqs: int | None, target: dict[str, int] | None = None
) -> dict[str, int]:
    """Up to where the next batch goes, as an offset: `{"epoch": e, "0": next_seq, ...}`. Raises ArchiveError."""
    heads = _heads(info)
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
                "Create the topic anew, or set another uri."
            )
        end = head + 1 if target is None else min(head + 1, target.get(str(number), 1))
        waiting[info.topic, number] = max(0, end - begin)
    taken = waiting if most_seqs is None else share(waiting, most_seqs)
    ends = {str(number): at.next_seq(info.epoch, number) + taken[info.topic, number] for number in heads}
    return {"epoch": info.epoch, **ends}


def plan_batch(info: TopicInfo, at: Position, broken: Position, end: dict[str, int], tasks: int) -> list[Work]:
    """What is to be done so that the table stands at `end`.

    From where the table stands, wherever Spark thinks that the batch began. Nothing when the topic has been created again
    since: the next batch tells so.
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
    for number, head in _heads(info).items():
        # A head that was there when the batch was planned may be gone, if the server has lost its newest records.
        last = min(end.get(str(number), 1) - 1, head)
        ranges.append(SeqRange(info.topic, number, info.epoch, at.next_seq(info.epoch, number), last))
    total = sum([each.seqs for each in ranges if each.seqs > 0])
    for each in cut(ranges, min(tasks, total // TASK_SEQS)):
        known = broken.next_seq(info.epoch, each.partition)
        works.append(Work(each.topic, each.partition, each.epoch, each.first, each.last, known))
    return works


def _offset(at: Position) -> dict[str, int]:
    return {"epoch": at.epoch, **{str(number): seq for number, seq in enumerate(at.next_seqs)}}


def _heads(info: TopicInfo) -> dict[int, int]:
    return {each.partition: each.head_seq for each in info.partitions} or {0: info.head_seq}


def _lag(info: TopicInfo, at: Position) -> int:
    return sum([max(0, head + 1 - at.next_seq(info.epoch, number)) for number, head in _heads(info).items()])
