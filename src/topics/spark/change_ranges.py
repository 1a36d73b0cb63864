"""A stream of ranges: which seqs of a change topic a micro-batch is about, a row for each partition of the topic.

What is in them is read by the tasks that need it, once, and goes through Spark only as far as it must. Offsets, limits and
waiting are those of the source of topics.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from topics.spark.options import source_options
from topics.spark.ranges import SeqRange, cut
from topics.spark.source import RangePartition, StreamReader

NAME = "topics_change_ranges"
SCHEMA = "topic STRING, partition INT, epoch BIGINT, first BIGINT, last BIGINT"
# Fewer events than this are not worth a second task.
TASK_SEQS = 2000


class ChangeRanges(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return RangeReader(source_options(self.options))


class RangeReader(StreamReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        wanted = partition.wanted
        yield (wanted.topic, wanted.partition, wanted.epoch, wanted.first, wanted.last)


def shared_out(ranges: list[SeqRange], tasks: int) -> list[list[SeqRange]]:
    """The ranges for each of so many tasks: one after the other they are all seqs of each partition, in order."""
    ranges = sorted(ranges, key=lambda each: (each.topic, each.partition, each.first))
    total = sum([each.seqs for each in ranges])
    pieces = cut(ranges, min(tasks, total // TASK_SEQS))
    result: list[list[SeqRange]] = [[] for _ in range(tasks)]
    for index, each in enumerate(pieces):
        result[index * tasks // len(pieces)].append(each)
    return result
