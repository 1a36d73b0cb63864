"""The supervisor: keeps a set of jobs running, each by itself.

    starting ──▶ running ──▶ waiting ──▶ starting        a job that fails is tried again, later each time
                    │
                    └──▶ stopped                         dropped, replaced, or the pipeline ends

Which jobs there should be comes in from outside, as values: one that is missing is started, one that is not wanted any more is
stopped, one that differs takes the place of its namesake, on its checkpoint. A job is stopped between two batches, if it
can be had within the patience given; stopping it within one costs nothing but the work, as the batch is run again.
"""

import hashlib
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from topics.client.values import JobStatus
from topics.spark.job import Job, NotYet, Surroundings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
# How soon one looks again for what is not there yet.
NOT_YET_S = 1.0
# A job that has run so long without failing is taken for healthy.
HEALTHY_S = 60.0
RATE_OVER_S = 10.0
NAME_BYTES_MOST = 180


def directory_of(name: str) -> str:
    """A name for the job's directory: safe on every file system and object store, and of no other job."""
    kind, _, what = name.partition(" ")
    safe = f"{kind}-" + "".join(
        [
            chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte in b".-_") else f"={byte:02x}"
            for byte in what.encode()
        ]
    )
    if len(safe) > NAME_BYTES_MOST:
        safe = f"{safe[:NAME_BYTES_MOST]}={hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return safe


def backoff_s(failures: int, chance: float) -> float:
    """How long to wait after so many failures in a row: doubling, bounded, half of it left to chance."""
    return float(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(failures - 1, 10)) * (0.5 + 0.5 * chance))


class Running:
    """One job and everything known about it."""

    def __init__(self, job: Job, around: Callable[["Running"], Surroundings], clock: Callable[[], float]) -> None:
        self.job = job
        self.state = "waiting"
        self.error: str | None = None
        self.restarts = 0
        self.notes: dict[str, Any] = {}
        self._around = around
        self._clock = clock
        self._query: StreamingQuery | None = None
        self._starter: threading.Thread | None = None
        self._start_error: BaseException | None = None
        self._failures = 0
        self._next_s = clock()
        self._began_s = 0.0
        # Of earlier queries of this job, and of the present one.
        self._rows_before = 0
        self._rows = 0
        self._seen_batch = -1
        self._last: dict[str, Any] = {}
        self._history: list[tuple[float, int]] = []

    # What the supervisor does with it, at every look.

    def look(self) -> None:
        """Start it when it is time to, and notice how it is doing."""
        if self._starter is not None:
            if self._starter.is_alive():
                return
            self._starter = None
            if self._start_error is not None:
                self._failed(self._start_error)
                return
            self.state, self.error = "running", None
            self._began_s = self._clock()
        if self._query is None:
            if self.state in ("waiting", "starting") and self._clock() >= self._next_s:
                self._start()
            return
        self._progress()
        if not self._query.isActive:
            error = self._query.exception()
            self._query = None
            self._failed(error if error is not None else RuntimeError("the query ended by itself"))
        elif self._failures and self._clock() - self._began_s > HEALTHY_S:
            self._failures = 0

    def busy(self) -> bool:
        """Whether a batch is under way."""
        if self._query is None:
            return False
        status = self._query.status
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    @property
    def batch(self) -> int:
        """The last batch that was finished."""
        self._progress()
        return self._seen_batch

    def ask_to_stop(self) -> None:
        self.state = "stopping"

    def stop(self, patience_s: float) -> None:
        """Stop it when the batch that is running now is done, or when the patience ends."""
        if self._starter is not None:
            self._starter.join(patience_s)
            self._starter = None
        query = self._query
        if query is not None:
            until, batch = self._clock() + patience_s, self.batch
            while query.isActive and self.busy() and self.batch == batch and self._clock() < until:
                time.sleep(0.02)
            self._progress()
            query.stop()
            self._query = None
        self.state = "stopped"

    def status(self) -> JobStatus:
        state = "running" if self.state == "stopping" else self.state
        notes = dict(self.notes)
        rows = self._rows_before + int(notes.pop("rows", self._rows))
        progress = self._last
        return JobStatus(
            self.job.name,
            self.job.kind,
            state,
            rows,
            self._rate(rows),
            notes.pop("lag", None) if "lag" in notes else lag_of(progress),
            progress.get("batchId"),
            (progress.get("durationMs") or {}).get("triggerExecution"),
            self.restarts,
            self.error,
            notes,
        )

    def tell(self, fields: dict[str, Any]) -> None:
        self.notes = {**self.notes, **fields}

    def _start(self) -> None:
        self.state = "starting"
        self._start_error = None

        def starting() -> None:
            try:
                # What the last query counted stays counted.
                self._rows_before += int(self.notes.pop("rows", self._rows))
                self._rows, self._seen_batch = 0, -1
                self._query = self.job.start(self._around(self))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this job's trouble alone
                self._start_error = error

        self._starter = threading.Thread(target=starting, name=f"start {self.job.name}", daemon=True)
        self._starter.start()

    def _failed(self, error: BaseException) -> None:
        self.state, self.error = "waiting", reason(error)
        if isinstance(error, NotYet):
            self._next_s = self._clock() + NOT_YET_S
            return
        self._failures += 1
        self.restarts += 1
        self._next_s = self._clock() + backoff_s(self._failures, random.random())

    def _progress(self) -> None:
        query = self._query
        if query is None:
            return
        for each in query.recentProgress:
            progress = dict(each)
            if progress["batchId"] > self._seen_batch and progress.get("durationMs", {}).get("addBatch") is not None:
                self._seen_batch = progress["batchId"]
                self._rows += progress["numInputRows"]
                self._failures = 0
                self._last = progress
            elif progress["batchId"] >= self._last.get("batchId", -1):
                # Nothing new came: the last batch stays the last, how far behind it is may have changed.
                self._last = {**self._last, "sources": progress.get("sources")}

    def _rate(self, rows: int) -> float:
        now = self._clock()
        self._history = [each for each in self._history if now - each[0] <= RATE_OVER_S] + [(now, rows)]
        began, first = self._history[0]
        return round((rows - first) / (now - began), 1) if now > began else 0.0


class Supervisor:
    """All jobs of one pipeline."""

    def __init__(
        self,
        spark: "SparkSession",
        url: str,
        token: str | None,
        checkpoint: str,
        trigger_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._url = url
        self._token = token
        self._checkpoint = checkpoint.rstrip("/")
        self._trigger_ms = trigger_ms
        self._clock = clock
        self.jobs: dict[str, Running] = {}

    def want(self, jobs: Iterable[Job], patience_s: float) -> list[str]:
        """Make these the jobs there are; answers what changed, for people."""
        wanted = {job.name: job for job in jobs}
        told = []
        for name, running in list(self.jobs.items()):
            if wanted.get(name) != running.job:
                running.stop(patience_s)
                del self.jobs[name]
                told.append(f"{name}: {'replaced' if name in wanted else 'no longer wanted'}")
        for name, job in wanted.items():
            if name not in self.jobs:
                self.jobs[name] = Running(job, self._around, self._clock)
                told.append(f"{name}: new")
        return told

    def look(self) -> None:
        for running in self.jobs.values():
            running.look()

    def stop(self, patience_s: float) -> None:
        """Stop all of them, each when its batch is done."""
        threads = [threading.Thread(target=each.stop, args=[patience_s], daemon=True) for each in self.jobs.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience_s + 30)

    def give_up(self, why: str) -> None:
        """There is no Spark any more: show all of them as failed. Asks it nothing."""
        for running in self.jobs.values():
            running.state, running.error = "failed", why

    def statuses(self) -> list[JobStatus]:
        return [running.status() for running in self.jobs.values()]

    def _around(self, running: Running) -> Surroundings:
        return Surroundings(
            self._spark,
            self._url,
            self._token,
            f"{self._checkpoint}/{directory_of(running.job.name)}",
            self._trigger_ms,
            running.tell,
        )


def lag_of(progress: dict[str, Any]) -> int | None:
    """Records between where the query is and the head of its topics; None when its source does not say."""
    total, known = 0, False
    for source in progress.get("sources") or []:
        end, latest = source.get("endOffset"), source.get("latestOffset")
        try:
            end = json.loads(end) if isinstance(end, str) else end
            latest = json.loads(latest) if isinstance(latest, str) else latest
            for topic, partitions in latest.items():
                for number, seq in partitions.items():
                    if number != "epoch":
                        total += max(0, int(seq) - int(end.get(topic, {}).get(number, 1)))
            known = True
        except (AttributeError, TypeError, ValueError):
            continue
    return total if known else None


def reason(error: BaseException) -> str:
    """What went wrong in a sentence or two: the innermost error of ours, without stacks and plans."""
    # An error of Java itself comes as "An error occurred while calling ...", and on the next line ": the error".
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"^topics\.[\w.]+: ", line)]
    if told:
        return told[-1].partition(": ")[2][:1000]
    for line in lines:
        found = re.match(r"^(?:\S*(?:Error|Exception)|\[[A-Z_.]+\]):? (.+)$", line)
        if found and "Traceback" not in line:
            return line[:1000]
    return (lines[0] if lines else type(error).__name__)[:1000]
