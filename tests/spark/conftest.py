"""One server and one Spark session for all tests of this package: a session takes far longer to start than a test to run."""

import itertools
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.served import client as client
from tests.served import url as url

_numbers = itertools.count(1)
# For every JVM that a test starts, itself or through a driver: none lives long enough to repay the second compiler.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test again when a Python worker did not start within Spark's ten seconds: the machine was overloaded."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun="Python worker failed to connect back"))


@pytest.fixture
def topic() -> str:
    return f"spark-{next(_numbers)}"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Classic Spark in this process. Tasks are tried four times, which plain local[2] does not do."""
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": python_path()}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    with warnings.catch_warnings():
        # The start of Spark emits warnings that do not concern the tests.
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master("local[2,4]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.streaming.checkpoint.fileChecksum.enabled", "false")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def python_path() -> str:
    """Workers find the package where this process found it."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    return os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
