"""Found by Spark itself: makes `spark.read.format("topics")` work with no registration."""

from topics.spark.connector.source import TopicsDataSource


class DefaultSource(TopicsDataSource):
    """What Spark looks for in a package named `pyspark_*`."""
