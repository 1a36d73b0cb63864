"""A job: one streaming query that the pipeline keeps running.

Jobs are values made from what the server says there is to do (routes, tables, archives). Two that are equal need no
restart; one that differs from the running one of the same name takes its place, on the same checkpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


class NotYet(Exception):
    """There is nothing to run yet, and nothing wrong: ask again soon. Says what is waited for."""


@dataclass(frozen=True)
class Surroundings:
    """What a job finds when it is started."""

    spark: SparkSession
    url: str
    token: str | None
    # A directory or URI that belongs to this job alone, the same at every start.
    checkpoint: str
    trigger_ms: int
    # Shows these fields with the job's status; a field told again replaces the old value.
    tell: Callable[[dict[str, Any]], None]


class Job(Protocol):
    @property
    def name(self) -> str:
        """Unique in a pipeline, stable over restarts: `route chat.messages`, `archive app.events`, `delta lake.orders`."""

    @property
    def kind(self) -> str:
        """`route`, `archive` or `delta`."""

    def start(self, around: Surroundings) -> StreamingQuery:
        """Start it where its checkpoint says it stopped."""
