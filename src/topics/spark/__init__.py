"""Topics as a Spark source and sink: `spark.read / readStream / write / writeStream . format("topics")`.

Planning is done with values (frozen ranges of seqs); connections are opened on the worker that reads or writes, never
pickled. The same (start, end) always gives the same rows, except for deleted ones. Writing is staged by the
tasks and made readable by the driver with one fenced commit, so a retried batch is written once.

Spark imports this package in every worker, in some workers once per batch. Rarely needed modules are imported inside functions.
"""

from typing import Any

__all__ = ["package_zip", "register", "ship"]


def register(spark: Any) -> None:
    """Make the format known to this session explicitly, where Spark does not find `pyspark_topics` by itself."""
    from topics.spark.connector.source import TopicsDataSource

    spark.dataSource.register(TopicsDataSource)


def ship(spark: Any) -> None:
    """Send the package to the executors of this session, classic or Connect, where it is not installed."""
    from topics.spark.shipping import ship

    ship(spark)


def package_zip(directory: str | None = None) -> str:
    """Write the package into a zip file and return its path, for `spark.submit.pyFiles`."""
    from topics.spark.shipping import package_zip

    return package_zip(directory)
