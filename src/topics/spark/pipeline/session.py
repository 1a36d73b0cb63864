"""The Spark session of a pipeline: any master, our package on its executors, and settings that routing depends on."""

import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from topics.spark.shipping import PACKAGE_FILE, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Settings of a query, used where the user has not set them.
SQL_SETTINGS = {
    # Java code that is too large for the JIT is slower than interpreted expressions.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "30",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
# Settings of a session that is not made by spark-submit.
CORE_SETTINGS = {
    # Tables share the cores: a long batch of one does not hold up the others.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
DEFAULT_MASTER = "local[*]"
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class NoSpark(Exception):
    """Spark cannot be started here. Says what is missing."""


def require_spark() -> None:
    """Raises NoSpark unless Spark is installed, and a Java runtime is where it looks for one."""
    try:
        import pyspark.sql  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise NoSpark(f"a pipeline needs Spark: pip install '.[spark]' in a checkout ({error})") from None
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        # Spark would not look on the path then.
        raise NoSpark(
            f"JAVA_HOME is {home}, where there is no bin/java: set it to a Java runtime (17 or newer), or unset it"
        )
    if not home and shutil.which("java") is None:
        raise NoSpark("Spark needs a Java runtime (17 or newer): install one, or set JAVA_HOME")


def is_submitted() -> bool:
    """Whether spark-submit has started this process: then it decides master, name and settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def build_session(
    master: str | None, name: str, settings: Mapping[str, str] | None = None, *, logs: bool = True
) -> "SparkSession":
    """A session with our package on its executors. Raises NoSpark.

    Under spark-submit its name is used, and its master unless `master` is given. Otherwise the master is local[*] by default. A
    setting that the user gave, here or to spark-submit, is left as it is.
    """
    require_spark()
    from pyspark.sql import SparkSession

    given = dict(settings or {})
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    if not is_submitted():
        master = master or DEFAULT_MASTER
        builder = builder.appName(name)
        given = {**CORE_SETTINGS, **(LOCAL_SETTINGS if _is_local(master) else {}), **given}
        if _is_local(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if master is not None:
        builder = builder.master(master)
    for key, value in given.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # Spark warns at its start about settings of its own.
        warnings.simplefilter("ignore")
        try:
            spark: SparkSession = builder.getOrCreate()
        except Exception as error:
            reason = str(error).strip().splitlines()[0][:500]
            raise NoSpark(f"Spark did not start on {master or 'the master of spark-submit'}: {reason}") from error
    context = spark.sparkContext
    configured = context.getConf()
    for key, value in SQL_SETTINGS.items():
        if not configured.contains(key):
            spark.conf.set(key, value)
    if not logs:
        context.setLogLevel("OFF")
    # Spark refuses a second file of the same name from another directory.
    given_files = [configured.get(key, "") or "" for key in ("spark.submit.pyFiles", "spark.yarn.dist.pyFiles")]
    is_given = any([PACKAGE_FILE in files for files in given_files])
    if not _is_local(str(context.master)) and not is_given:
        ship(spark)
    return spark


def set_checkpoint_files(spark: "SparkSession", checkpoint: str) -> None:
    """Set the file manager for the checkpoints of queries that are started from now on, unless the user has set one.

    On a local disk the one that Spark uses by default takes 70 ms longer for each micro-batch.
    """
    context = spark.sparkContext
    # A path without a scheme may be on another file system where the master is not local.
    is_local = checkpoint.startswith("file:") or ("://" not in checkpoint and _is_local(str(context.master)))
    if is_local and not context.getConf().contains(CHECKPOINT_FILES):
        spark.conf.set(CHECKPOINT_FILES, LOCAL_CHECKPOINT_FILES)


def activate(spark: "SparkSession") -> None:
    """Make the session the active one of this thread, where Spark looks for the format of a sink. A new thread has none."""
    spark.createDataFrame([], "id INT")


def parallelism(spark: "SparkSession") -> int:
    """The number of tasks that run at the same time, where Spark says so."""
    from pyspark.errors import PySparkException

    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except PySparkException:
        # A Spark Connect session has no context.
        return 2


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")
