"""The supervisor: keeps a set of jobs running, each by itself.

Jobs are values: a job that is missing is started, one that is no longer listed is stopped, and one that differs from the running job
of the same name replaces it, on its checkpoint.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from topics.client.values import JobStatus
from topics.spark.pipeline.job import Job, JobContext
from topics.spark.pipeline.job_runner import JobRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_NAME_BYTES = 180


def directory_of(name: str) -> str:
    """A name for the job's directory: valid on every file system and object store, and different for each job."""
    kind, _, what = name.partition(" ")
    safe = f"{kind}-" + "".join(
        [
            chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or byte in b".-_") else f"={byte:02x}"
            for byte in what.encode()
        ]
    )
    if len(safe) > MAX_NAME_BYTES:
        safe = f"{safe[:MAX_NAME_BYTES]}={hashlib.sha256(name.encode()).hexdigest()[:16]}"
    return safe


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
        self.jobs: dict[str, JobRunner] = {}

    def set_jobs(self, jobs: Iterable[Job], max_wait_s: float) -> list[str]:
        """Start and stop jobs until exactly these run. Returns lines that say what changed."""
        wanted = {job.name: job for job in jobs}
        changes = []
        for name, runner in list(self.jobs.items()):
            if wanted.get(name) != runner.job:
                runner.stop(max_wait_s)
                del self.jobs[name]
                changes.append(f"{name}: {'replaced' if name in wanted else 'dropped'}")
        for name, job in wanted.items():
            if name not in self.jobs:
                self.jobs[name] = JobRunner(job, self._context, self._clock)
                changes.append(f"{name}: new")
        return changes

    def look(self) -> None:
        for runner in self.jobs.values():
            runner.look()

    def stop(self, max_wait_s: float) -> None:
        """Stop all jobs, each when its batch is done."""
        threads = [threading.Thread(target=each.stop, args=[max_wait_s], daemon=True) for each in self.jobs.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max_wait_s + 30)

    def give_up(self, why: str) -> None:
        """Show all jobs as failed, without asking Spark, which has ended."""
        for runner in self.jobs.values():
            runner.state, runner.error = "failed", why

    def statuses(self) -> list[JobStatus]:
        return [runner.status() for runner in self.jobs.values()]

    def _context(self, runner: JobRunner) -> JobContext:
        return JobContext(
            self._spark,
            self._url,
            self._token,
            f"{self._checkpoint}/{directory_of(runner.job.name)}",
            self._trigger_ms,
            runner.set_status_fields,
            runner.set_status_source,
            runner.failure,
            runner.position,
        )
