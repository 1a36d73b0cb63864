"""Topics as a Spark source and sink: `spark.read / readStream / write / writeStream . format("topics")`.

Planning is done with values (frozen ranges of seqs); connections are opened on the worker that reads or writes, never
pickled. The same (start, end) always gives the same rows, less what was deleted on purpose. Writing is staged by the
tasks and made readable by the driver with one fenced commit, so a batch is there once however often it is tried.
"""

from typing import Any

from topics.spark.shipping import package_zip, ship

__all__ = ["package_zip", "register", "ship"]


def register(spark: Any) -> None:
    """Make the format known to this session explicitly, where Spark does not find `pyspark_topics` by itself."""
    from topics.spark.source import TopicsDataSource

    spark.dataSource.register(TopicsDataSource)
