"""Options that the commands which run on Spark share: the server, the master, and settings of Spark.

Under spark-submit the master, the name and all settings are those of spark-submit, except for what these options set.
"""

import argparse
from typing import TYPE_CHECKING

from topics.spark.pipeline.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="the server; otherwise TOPICS_URL, otherwise http://127.0.0.1:4000")
    parser.add_argument("--token", help="the API key; otherwise TOPICS_TOKEN (which no process list shows)")


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="any Spark master; otherwise that of spark-submit, otherwise local[*]")
    parser.add_argument("--no-ui", action="store_true", help="turn Spark's web page off")
    parser.add_argument("--no-logs", action="store_true", help="turn Spark's log off")
    parser.add_argument(
        "--conf", action="append", default=[], type=setting, metavar="KEY=VALUE", help="a setting of Spark; repeatable"
    )


def session_of(arguments: argparse.Namespace, name: str) -> "SparkSession":
    """The session that the options describe. `name` is used unless spark-submit decides it. Raises NoSpark."""
    settings = dict(arguments.conf)
    if arguments.no_ui:
        settings["spark.ui.enabled"] = "false"
    return build_session(arguments.master, name, settings, logs=not arguments.no_logs)


def setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError("a setting of Spark is written key=value")
    return name, value
