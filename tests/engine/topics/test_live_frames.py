"""Frames are shared by readers that would get the same one."""

from msgspec import structs

from topics.engine.cache import Cache
from topics.engine.partitions.partition import Totals
from topics.engine.topics.live_frames import Records, SharedFrames, Subscription
from topics.engine.topics.topic import Topic
from topics.model.config import TopicConfig

TOPIC = Topic(1, "t", TopicConfig(), 1, 0, texts=Cache(0), totals=Totals())
STATE = (9, 9, 5, 1, False, 0)


def frame() -> Records:
    return Records(TOPIC, 9, 0, 5, b"{}", 1)


def test_a_frame_is_found_by_readers_at_the_same_place_with_the_same_wishes() -> None:
    frames, kept, subscription = SharedFrames(1 << 20), frame(), Subscription()
    frames.keep(1, 0, STATE, subscription, kept)
    assert frames.find(1, 0, STATE, Subscription()) is kept
    assert frames.find(1, 1, STATE, subscription) is None
    assert frames.find(2, 0, STATE, subscription) is None
    assert frames.find(1, 0, (10, *STATE[1:]), subscription) is None
    assert frames.find(1, 0, STATE, structs.replace(subscription, limit=1)) is None


def test_an_earlier_frame_is_still_found_after_the_next_one() -> None:
    frames, first, subscription = SharedFrames(1 << 20), frame(), Subscription()
    frames.keep(1, 0, STATE, subscription, first)
    frames.keep(1, 0, (10, *STATE[1:]), subscription, frame())
    assert frames.find(1, 0, STATE, subscription) is first


def test_no_frame_of_a_topic_without_watchers_is_found() -> None:
    frames = SharedFrames(1 << 20)
    frames.keep(1, 0, STATE, Subscription(), frame())
    frames.forget(1)
    assert frames.find(1, 0, STATE, Subscription()) is None
