"""A job runner: keeps one job running, and has everything that its status shows.

    starting ──▶ running ──▶ waiting ──▶ starting        a job that fails is started again, later each time
                    │
                    └──▶ stopped                         dropped, replaced, or the pipeline ends

A job is stopped between two batches if that is possible within the given time. Stopping it inside a batch costs only the work: the
batch is run again.
"""

import threading
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from topics.client.values import JobStatus
from topics.spark.pipeline.job import Job, JobContext, NotYet
from topics.spark.pipeline.progress import (
    lag_of,
    lag_s_of,
    lag_seconds,
    latency_ms_of,
    observed_bytes,
    position_of,
    reason,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

FIRST_WAIT_S = 1.0
MAX_WAIT_S = 60.0
# Its own generator: a program that seeds the `random` module is not affected.
_random = Random()
# How soon a job is started again whose data does not exist yet.
NOT_YET_S = 1.0
# A job that has run this long without a failure counts as healthy.
HEALTHY_S = 60.0
RATE_OVER_S = 10.0


def backoff_s(failures: int, jitter: float) -> float:
    """How long to wait after this many failures in a row: doubling, bounded, with 50 % jitter (`jitter` is from 0 to 1)."""
    return float(min(MAX_WAIT_S, FIRST_WAIT_S * 2 ** min(failures - 1, 10)) * (0.5 + 0.5 * jitter))


class JobRunner:
    """One job and its state."""

    def __init__(self, job: Job, context: Callable[["JobRunner"], JobContext], clock: Callable[[], float]) -> None:
        self.job = job
        self.state = "waiting"
        self.error: str | None = None
        self.restarts = 0
        self.notes: dict[str, Any] = {}
        # Why its last query failed, and the offset up to which that had come.
        self.failure: BaseException | None = None
        self.position: str | None = None
        self._status_source: Callable[[], dict[str, Any]] | None = None
        self._context = context
        self._clock = clock
        self._query: StreamingQuery | None = None
        self.starter: threading.Thread | None = None
        self._start_error: BaseException | None = None
        self._failures = 0
        self._next_s = clock()
        self._began_s = 0.0
        # Of earlier queries of this job, and of the present one.
        self._rows_before = 0
        self._rows = 0
        self._bytes = 0
        self._seen_batch = -1
        self._last: dict[str, Any] = {}
        self._history: list[tuple[float, int]] = []

    def look(self) -> None:
        """Start it when it is time to, read its progress, and notice when it has failed."""
        if self.starter is not None:
            if self.starter.is_alive():
                return
            self.starter = None
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
            self.position = position_of(self._last)
            self._query = None
            self._failed(error if error is not None else RuntimeError("the query ended without an error"))
        elif self._failures and self._clock() - self._began_s > HEALTHY_S:
            self._failures = 0

    def busy(self) -> bool:
        """Whether a batch is running."""
        if self._query is None:
            return False
        status = self._query.status
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    @property
    def batch(self) -> int:
        """The number of the last finished batch."""
        self._progress()
        return self._seen_batch

    def ask_to_stop(self) -> None:
        self.state = "stopping"

    def stop(self, max_wait_s: float) -> None:
        """Stop it when the running batch is done, or after `max_wait_s`."""
        if self.starter is not None:
            self.starter.join(max_wait_s)
            self.starter = None
        query = self._query
        if query is not None:
            until, batch = self._clock() + max_wait_s, self.batch
            while query.isActive and self.busy() and self.batch == batch and self._clock() < until:
                time.sleep(0.02)
            self._progress()
            query.stop()
            self._query = None
        self.state = "stopped"

    def status(self) -> JobStatus:
        state = "running" if self.state == "stopping" else self.state
        notes = {**self.notes, **(self._status_source() if self._status_source is not None else {})}
        rows = self._rows_before + int(notes.pop("rows", self._rows))
        progress = self._last
        lag, lag_s, latency_ms = lag_of(progress), lag_s_of(progress, time.time()), latency_ms_of(progress)
        newest_ts, own_latency_ms = notes.pop("newest_ts", None), notes.pop("latency_ms", None)
        if "lag" in notes:
            # The job counts by itself: Spark does not see its records.
            lag, latency_ms = notes.pop("lag"), own_latency_ms
            lag_s = lag_seconds(lag, None if newest_ts is None else newest_ts / 1000, time.time())
        bytes_read = self._bytes + int(notes.pop("bytes", 0))
        return JobStatus(
            self.job.name,
            self.job.kind,
            state,
            rows,
            self._rate(rows),
            lag,
            progress.get("batchId"),
            (progress.get("durationMs") or {}).get("triggerExecution"),
            self.restarts,
            self.error,
            notes,
            lag_s,
            bytes_read,
            latency_ms,
        )

    def set_status_fields(self, fields: dict[str, Any]) -> None:
        self.notes = {**self.notes, **fields}

    def set_status_source(self, notes: Callable[[], dict[str, Any]]) -> None:
        self._status_source = notes

    def _start(self) -> None:
        self.state = "starting"
        self._start_error = None

        def starting() -> None:
            try:
                # The rows of the last query stay counted.
                self._rows_before += int(self.notes.pop("rows", self._rows))
                self._bytes += int(self.notes.pop("bytes", 0))
                self._rows, self._seen_batch = 0, -1
                self._query = self.job.start(self._context(self))
            except Exception as error:  # noqa: BLE001 - any error fails this job only
                self._start_error = error

        self.starter = threading.Thread(target=starting, name=f"start {self.job.name}", daemon=True)
        self.starter.start()

    def _failed(self, error: BaseException) -> None:
        self.state, self.error = "waiting", reason(error)
        self.failure = None if isinstance(error, NotYet) else error
        if isinstance(error, NotYet):
            self._next_s = self._clock() + NOT_YET_S
            return
        self._failures += 1
        self.restarts += 1
        self._next_s = self._clock() + backoff_s(self._failures, _random.random())

    def _progress(self) -> None:
        query = self._query
        if query is None:
            return
        for each in query.recentProgress:
            progress = dict(each)
            if progress["batchId"] > self._seen_batch and progress.get("durationMs", {}).get("addBatch") is not None:
                self._seen_batch = progress["batchId"]
                self._rows += progress["numInputRows"]
                self._bytes += observed_bytes(progress)
                self._failures = 0
                self._last = progress
            elif progress["batchId"] >= self._last.get("batchId", -1):
                # No new rows: the last batch stays the last, but its lag may have changed.
                self._last = {**self._last, "sources": progress.get("sources")}

    def _rate(self, rows: int) -> float:
        now = self._clock()
        self._history = [each for each in self._history if now - each[0] <= RATE_OVER_S] + [(now, rows)]
        began, first = self._history[0]
        return round((rows - first) / (now - began), 1) if now > began else 0.0
