"""The source of a routing query: `format("topics")` over one change topic, bound to one set of routes.

A query has one plan for one set of routes. A change that was sent after a route was created must be routed by it, so the
source plans no further batch when the routes on the server are not those of the plan: the pipeline then starts the query
again with the new routes, on the same checkpoint. Routes are compared after the heads of the topic were read, so a planned
batch holds no change that is newer than an unknown route.

Rows have one column more than those of `format("topics")`: `tasks`, the number of tasks of the batch.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from topics.spark.connector.options import SourceOptions, source_options
from topics.spark.connector.planning import ranges_between
from topics.spark.connector.ranges import Part, SeqRange, cut
from topics.spark.connector.reading import SCHEMA
from topics.spark.connector.source import RangePartition, StreamReader
from topics.spark.routing.routes import declared_columns, own_routes, signature

NAME = "topics_changes"
# Fewer changes than this are not worth a second task.
MIN_TASK_SEQS = 2000
OWN_OPTIONS = ("table", "route", "routes", "tasks")


class ChangeSource(DataSource):
    """`table`: whose changes. `route`: the version of the only route, if there is one. `routes`: their signature.

    `tasks`: the number of tasks among which a large batch is divided. All other options are those of `format("topics")`.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return f"{SCHEMA}, tasks INT"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        given = {name: value for name, value in self.options.items() if name.lower() not in OWN_OPTIONS}
        own = {name.lower(): value for name, value in self.options.items() if name.lower() in OWN_OPTIONS}
        route = int(own["route"]) if own.get("route") else None
        return ChangeReader(source_options(given), own["table"], route, own["routes"], int(own["tasks"]))


class TaskRanges(RangePartition):
    """The ranges of one task, and the number of tasks of its batch."""

    def __init__(self, parts: Sequence[Part], tasks: int) -> None:
        super().__init__(parts)
        self.tasks = tasks


class ChangeReader(StreamReader):
    def __init__(self, options: SourceOptions, table: str, route: int | None, routes: str, tasks: int) -> None:
        super().__init__(options)
        self._table = table
        self._route = route
        self._routes = routes
        self._tasks = tasks

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        end = super().latestOffset(start, limit)
        if end == start or self._routes_are_current():
            return end
        return start

    def _routes_are_current(self) -> bool:
        with self._options.clients() as (client, *_):
            routes = own_routes(client.routes(table=self._table).routes, self._route)
            return signature(routes, declared_columns(client, self._table)) == self._routes

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        tasks = share_among_tasks(ranges_between(start, end), self._tasks)
        return [TaskRanges([Part(each) for each in task], len(tasks)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        assert isinstance(partition, TaskRanges)
        count = pa.scalar(partition.tasks, pa.int32())
        for batch in super().read(partition):
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.repeat(count, batch.num_rows)], names=[*batch.schema.names, "tasks"]
            )


def share_among_tasks(ranges: list[SeqRange], most: int) -> list[list[SeqRange]]:
    """The ranges of each task. One task after the other they are all seqs of each partition, in order."""
    ranges = sorted(ranges, key=lambda each: (each.topic, each.partition, each.first))
    tasks = max(1, min(most, sum([each.seqs for each in ranges]) // MIN_TASK_SEQS))
    pieces = cut(ranges, tasks)
    shared: list[list[SeqRange]] = [[] for _ in range(tasks)]
    for index, each in enumerate(pieces):
        shared[index * tasks // len(pieces)].append(each)
    return [each for each in shared if each]
