"""Recovery finds the records of a source although they were deleted later."""

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Totals
from topics.engine.routers.copy_sources import CopySources
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig
from topics.model.records.page import make_page


def test_pages_of_a_source_are_found_after_their_records_are_deleted() -> None:
    topic = Topic(1, "t", TopicConfig(), 1, 0, texts=Cache(0), totals=Totals())
    partition = topic.partitions[0]
    sources = CopySources()
    first, second = make_page(1, 2, 5, b"1\x002"), make_page(3, 1, 6, b"3")
    partition.apply_append(first)
    sources.keep(topic)
    partition.apply_append(second)
    sources.add(partition, second)
    partition.drop_all()
    assert sources.find(partition, 2) is first
    assert sources.find(partition, 3) is second
    assert sources.find(partition, 4) is None
    sources.clear()
    assert sources.find(partition, 2) is None


def test_pages_of_a_topic_that_is_no_source_are_not_kept() -> None:
    topic = Topic(1, "t", TopicConfig(), 1, 0, texts=Cache(0), totals=Totals())
    sources = CopySources()
    page = make_page(1, 1, 5, b"1")
    sources.add(topic.partitions[0], page)
    assert sources.find(topic.partitions[0], 1) is None
