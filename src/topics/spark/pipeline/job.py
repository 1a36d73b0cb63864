"""A job: one streaming query that the pipeline keeps running.

Jobs are values made from what the server lists (routes, tables, archives). Two equal jobs need no restart; a job that
differs from the running one of the same name replaces it, on the same checkpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


class NotYet(Exception):
    """There is nothing to run yet, and nothing wrong: try again soon. The message names what is missing."""


def _ignore(_: Any) -> None:
    pass


@dataclass(frozen=True)
class JobContext:
    """What a job gets when it is started."""

    spark: SparkSession
    url: str
    token: str | None
    # A directory or URI that belongs to this job alone, the same at every start.
    checkpoint: str
    trigger_ms: int
    # Adds these fields to the job's status; a field that is given again replaces the old value.
    set_status_fields: Callable[[dict[str, Any]], None] = _ignore
    # Sets a function that returns fields for the job's status; it is called whenever the status is read.
    set_status_source: Callable[[Callable[[], dict[str, Any]]], None] = _ignore
    # Why the last query of this job failed, and the offset (JSON) up to which it had come.
    failure: BaseException | None = None
    position: str | None = None


class Job(Protocol):
    @property
    def name(self) -> str:
        """Unique in a pipeline, stable over restarts: `route chat.messages`, `archive app.events`, `delta lake.orders`."""

    @property
    def kind(self) -> str:
        """`route`, `archive`, `delta` or `materialize`."""

    def start(self, context: JobContext) -> StreamingQuery:
        """Start it from its checkpoint."""
