"""What requests say about a consumer group."""

import pytest

from topics.engine.cache import Cache
from topics.engine.groups.group import Group, Position
from topics.engine.groups.group_requests import EARLIEST, Offset, check_group, find_group, start_offset
from topics.engine.partitions.partition import Totals
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig
from topics.model.errors import InvalidRequest, NotFound

TOPIC = Topic(1, "t", TopicConfig(), 1, 0, texts=Cache(0), totals=Totals())


def test_only_the_length_of_a_group_name_is_limited() -> None:
    assert check_group("any text é") == "any text é"
    for name in ("", "x" * 256):
        with pytest.raises(InvalidRequest):
            check_group(name)


def test_a_group_without_positions_and_members_does_not_exist() -> None:
    TOPIC.groups["empty"] = Group("empty")
    for name in ("empty", "missing"):
        with pytest.raises(NotFound, match=name):
            find_group(TOPIC, name)


def test_an_explicit_offset_never_goes_behind_what_was_acked() -> None:
    position = Position(1, acked=7)
    assert start_offset(TOPIC.partitions[0], position, Offset(3)) == 8
    assert start_offset(TOPIC.partitions[0], position, Offset(20)) == 20
    assert start_offset(TOPIC.partitions[0], position, EARLIEST) == 8
