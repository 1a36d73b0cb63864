"""Partitions are chosen by their hot bytes."""

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Totals
from topics.engine.topics.hot_sizes import HotSizes
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig
from topics.model.records.page import make_page


def topics(*sizes: int, durability: str = "disk") -> dict[int, Topic]:
    found = {}
    for number, size in enumerate(sizes, 1):
        config = TopicConfig(durability=durability)  # type: ignore[arg-type]
        topic = Topic(number, f"t{number}", config, 1, 0, texts=Cache(0), totals=Totals())
        topic.partitions[0].apply_append(make_page(1, 1, 5, b"x" * size))
        found[number] = topic
    return found


def measured(by_id: dict[int, Topic]) -> HotSizes:
    sizes = HotSizes(by_id)
    assert sizes.run(lambda: 0.0, 1.0)
    return sizes


def test_the_largest_partitions_come_first() -> None:
    sizes = measured(topics(10, 100_000, 1000))
    assert [partition.topic_id for partition in sizes.largest(1)] == [2]
    assert [partition.topic_id for partition in sizes.largest(100_500)] == [2, 3]
    assert [partition.topic_id for partition in sizes.at_least(50_000)] == [2]


def test_measuring_stops_when_its_time_is_over_and_continues() -> None:
    sizes = HotSizes(topics(10, 10, 10))
    times = iter([0.0, 0.0, 2.0])
    assert not sizes.run(lambda: next(times), 1.0)
    assert sizes.run(lambda: 0.0, 1.0)
    assert len(sizes.at_least(1)) == 3


def test_records_of_ephemeral_topics_are_not_counted() -> None:
    assert measured(topics(1000, durability="ephemeral")).bytes == 0
