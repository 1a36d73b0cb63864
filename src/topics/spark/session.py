"""The Spark session of a pipeline: any master, our package on its executors, and settings that routing depends on."""

import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from topics.spark.shipping import ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    # A cast that fails or a division by zero is NULL, so that one row of one route cannot stop the others.
    "spark.sql.ansi.enabled": "false",
    # Java code that is too large for the JIT is slower than none.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Tables share the cores: a long batch of one does not hold up the others.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "30",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
LOCAL_SETTINGS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class NoSpark(Exception):
    """Spark cannot be started here. Says what is missing."""


def require_spark() -> None:
    """Raises NoSpark unless Spark is installed, and a Java runtime is where it looks for one."""
    try:
        import pyspark.sql  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise NoSpark(f"a pipeline needs Spark: pip install 'topics[spark]' ({error})") from None
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        # Spark would not look on the path then.
        raise NoSpark(
            f"JAVA_HOME is {home}, where there is no bin/java: set it to a Java runtime (17 or newer), or unset it"
        )
    if not home and shutil.which("java") is None:
        raise NoSpark("Spark needs a Java runtime (17 or newer): install one, or set JAVA_HOME")


def build_session(master: str, name: str, settings: Mapping[str, str] | None = None) -> "SparkSession":
    """A session on the master, with the package sent to its executors when they are elsewhere. Raises NoSpark."""
    require_spark()
    from pyspark.sql import SparkSession

    local = master == "local" or master.startswith("local[")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName(name)
    for key, value in {**SETTINGS, **(LOCAL_SETTINGS if local else {}), **(settings or {})}.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # Spark's own start-up warns about its own business.
        warnings.simplefilter("ignore")
        try:
            spark: SparkSession = builder.getOrCreate()
        except Exception as error:
            raise NoSpark(f"Spark did not start on {master}: {str(error).strip().splitlines()[0][:500]}") from error
    spark.sparkContext.setLogLevel("OFF")
    if not local:
        ship(spark)
    return spark
