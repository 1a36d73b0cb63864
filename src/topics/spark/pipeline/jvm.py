"""Spark's Java process: whether it runs, and the messages that Python prints when it has ended."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def jvm_is_gone(error: BaseException) -> bool:
    """Whether an error means that Spark's Java process has ended."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return isinstance(error, Py4JNetworkError | ConnectionError)


def silence_py4j() -> None:
    """Keep the stacks that py4j and Spark print when the JVM has ended out of the output: the pipeline reports it in one line."""
    from pyspark import accumulators

    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # Some of its messages go through the root logger.
    logging.getLogger().addFilter(is_not_of_py4j)
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(accumulators, name, None)
        if server is not None:
            server.handle_error = lambda *_: None


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def jvm_runs(spark: "SparkSession") -> bool:
    """Whether Spark's Java process answers."""
    try:
        spark.conf.get("spark.app.id", None)
    except Exception as error:
        if jvm_is_gone(error):
            return False
        raise
    return True
