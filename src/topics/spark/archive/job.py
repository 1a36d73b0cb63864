"""The archive job: a topic into its Delta table, exactly once.

    source   which ranges of seqs the table lacks      (topics.spark.archive.source)
    sink     tasks copy ranges into Parquet files and name them in their commit messages, the driver commits them to the
             table                                     (topics.spark.archive.sink)

The position is read from the table, never from Spark's checkpoint: losing the checkpoint loses nothing. A batch that
Spark runs again because its driver died finds that the table has it, or reads exactly what the table lacks. A table that
was removed is made again and filled with what the topic still has.

A separate thread compacts small files and removes unneeded ones: commits to a Delta table do not wait for it.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's customary name
from pyspark.sql.streaming.query import StreamingQuery

from topics.archive.ledger import Ledger, Position, open_archive
from topics.client import ArchivedTo, Client, TopicInfo
from topics.model.errors import TopicsError
from topics.spark.archive.sink import FORMAT, ArchiveDataSource
from topics.spark.archive.source import ArchivePlan, partition_heads
from topics.spark.pipeline.job import Job, JobContext
from topics.spark.pipeline.session import parallelism

log = logging.getLogger("topics.spark")

# A micro-batch is large, so that a backlog is archived at full speed: Spark starts one each
# `freshness_ms`, or when the last one is done.
MAX_SEQS_PER_MS = 500
# Files that the table does not name are looked for once a day.
VACUUM_EVERY_S = 86_400.0


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

    def start(self, context: JobContext) -> StreamingQuery:
        """Raises ArchiveError when the table can be neither opened nor made."""
        return self.start_with(context, processingTime=f"{self.freshness_ms} milliseconds")

    def start_with(self, context: JobContext, **trigger: Any) -> StreamingQuery:
        """As `start`, with another trigger: `availableNow=True` ends when all present records are archived."""
        ledger = open_archive(self.uri, create=True)
        plan = ArchivePlan(
            url=context.url,
            token=context.token,
            topic=self.topic,
            uri=self.uri,
            max_seqs=MAX_SEQS_PER_MS * self.freshness_ms,
            tasks=2 * parallelism(context.spark),
        )
        context.spark.dataSource.register(ArchiveDataSource)
        frame = context.spark.readStream.format(FORMAT).option("plan", msgspec.json.encode(plan).decode()).load()
        # A checkpoint for each table: offsets of one mean nothing in another, even at the same location.
        checkpoint = f"{context.checkpoint.rstrip('/')}/{ledger.table_id}"
        batches = ArchiveBatches(self, plan, ledger, context.set_status_fields)
        # The driver before this one may have died between its last commit and its report.
        batches.report()
        # Spark counts tasks as input rows; the seqs that they copy are an observed metric of its progress.
        frame = frame.observe("archive", F.coalesce(F.sum("seqs"), F.lit(0)).alias("seqs"))
        writer = frame.writeStream.foreachBatch(batches.write).option("checkpointLocation", checkpoint)
        query = writer.queryName(self.name).trigger(**trigger).start()
        Upkeep(self, ledger, context.set_status_fields, lambda: query.isActive).start()
        return query


def archive_jobs(client: Client) -> list[Job]:
    """One job for every archive that is set."""
    return [
        ArchiveJob(each.topic, each.uri, each.freshness_ms, each.compact_interval_ms, each.vacuum_hours)
        for each in client.archives().archives
    ]


class ArchiveBatches:
    """Runs each micro-batch on the driver and reports the progress."""

    def __init__(
        self, job: ArchiveJob, plan: ArchivePlan, ledger: Ledger, set_status_fields: Callable[[dict[str, Any]], None]
    ) -> None:
        self._job = job
        self._plan = plan
        self._ledger = ledger
        self._set_status_fields = set_status_fields
        self._records = 0
        self._lost = 0
        self._quarantined = 0
        self._bytes = 0
        self._newest_ts: int | None = None
        self._latency_ms: float | None = None

    def write(self, frame: DataFrame, batch_id: int) -> None:
        before = self._ledger.version
        plan = msgspec.json.encode(self._plan).decode()
        frame.write.format(FORMAT).option("plan", plan).option("batch", batch_id).mode("append").save()
        self._ledger.refresh()
        for note in self._ledger.commit_notes(before):
            # Other commits are those of compaction.
            if note.get("topics.batch") == str(batch_id):
                self._records += int(note["topics.records"])
                self._lost += int(note["topics.lost"])
                self._quarantined += int(note["topics.quarantined"])
                self._bytes += int(note.get("topics.bytes", 0))
                newest_ts = int(note.get("topics.newest_ts", 0))
                if newest_ts:
                    self._newest_ts = newest_ts
                    self._latency_ms = round(max(0.0, time.time() * 1000 - newest_ts), 1)
        self.report()

    def report(self) -> None:
        """Report the progress. The table has the position, so an error here does not fail the archive."""
        at, version = self._ledger.position(self._job.topic), self._ledger.version
        fields: dict[str, Any] = {
            "table_version": version,
            "rows": self._records,
            "bytes": self._bytes,
            "newest_ts": self._newest_ts,
            "latency_ms": self._latency_ms,
        }
        if self._lost:
            fields["lost"] = self._lost
        if self._quarantined:
            fields["quarantined"] = self._quarantined
        places = [ArchivedTo(number, at.epoch, seq) for number, seq in enumerate(at.next_seqs)]
        try:
            with self._plan.client() as client:
                client.archive_progress(self._job.topic, places, table_version=version)
                fields["lag"] = archive_lag(client.info(self._job.topic, touch=False), at)
        except TopicsError as error:
            log.warning("archive %s: progress not reported: %s", self._job.topic, error)
        self._set_status_fields(fields)


class Upkeep(threading.Thread):
    """Compaction and vacuum of one table, on their schedule, until the query ends."""

    def __init__(
        self,
        job: ArchiveJob,
        ledger: Ledger,
        set_status_fields: Callable[[dict[str, Any]], None],
        is_running: Callable[[], bool],
        *,
        check_interval_s: float = 0.5,
    ) -> None:
        super().__init__(name=f"upkeep of {job.name}", daemon=True)
        self._job = job
        self._ledger = ledger
        self._set_status_fields = set_status_fields
        self._is_running = is_running
        self._check_interval_s = check_interval_s

    def run(self) -> None:
        job = self._job
        pause_s = job.compact_interval_ms / 1000
        began = time.monotonic()
        compact_at = began + pause_s if job.compact_interval_ms else None
        # The first one runs soon: a driver that is restarted every day would otherwise never run it.
        vacuum_at = began + (pause_s or 600.0) if job.vacuum_hours else None
        while self._is_running():
            time.sleep(self._check_interval_s)
            if compact_at is not None and time.monotonic() >= compact_at and self._is_running():
                self.compact()
                compact_at = time.monotonic() + pause_s
            if vacuum_at is not None and time.monotonic() >= vacuum_at and self._is_running():
                self.vacuum()
                vacuum_at = time.monotonic() + min(VACUUM_EVERY_S, job.vacuum_hours * 3600)

    def compact(self) -> None:
        self._run_task("compacted", lambda: self._ledger.compact(self._job.topic))

    def vacuum(self) -> None:
        self._run_task("vacuumed", lambda: self._ledger.vacuum(self._job.vacuum_hours))

    def _run_task(self, done: str, task: Callable[[], int]) -> None:
        """Run a task. An error is reported and the task is retried at its next time: no rows are at risk."""
        try:
            files = task()
            self._set_status_fields({done: {"files": files, "ts": int(time.time() * 1000)}, "upkeep_error": None})
        except Exception as error:  # noqa: BLE001 - no error of a store may end the upkeep
            log.warning("archive %s: not %s: %s", self._job.topic, done, error)
            self._set_status_fields({"upkeep_error": f"not {done}: {error}"})


def archive_lag(info: TopicInfo, at: Position) -> int:
    return sum([max(0, head + 1 - at.next_seq(info.epoch, number)) for number, head in partition_heads(info).items()])
