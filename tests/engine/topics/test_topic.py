"""A topic sums up its partitions."""

import pytest

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Totals
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig
from topics.model.records.page import make_page


def topic(**config: object) -> Topic:
    return Topic(7, "t", TopicConfig(**config), 2, 1000, texts=Cache(0), totals=Totals())  # type: ignore[arg-type]


def test_counts_are_those_of_all_partitions() -> None:
    found = topic()
    pages = [make_page(1, 2, 5, b"1\x002"), make_page(1, 1, 5, b"3")]
    for partition, page in zip(found.partitions, pages, strict=True):
        partition.apply_append(page)
    assert (found.count, found.bytes) == (3, sum(page.size for page in pages))


@pytest.mark.parametrize(("kind", "leases"), [("log", False), ("queue", True)])
def test_only_partitions_of_a_queue_have_leases(kind: str, leases: bool) -> None:
    assert [partition.leases is not None for partition in topic(type=kind).partitions] == [leases] * 2


def test_the_epoch_of_a_later_instance_is_larger() -> None:
    later = Topic(8, "t", TopicConfig(), 1, 2000, texts=Cache(0), totals=Totals())
    assert later.epoch > topic().epoch
