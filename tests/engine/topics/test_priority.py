"""The effective priority of a topic."""

from topics.engine.topics.priority import HALF_LIFE_MS, RECENT, effective_priority
from topics.model.config import TopicConfig


def test_a_manual_priority_beats_everything() -> None:
    assert effective_priority(TopicConfig(priority=-7), 1000, 1000) == -7


def test_an_automatic_priority_halves_with_time() -> None:
    config = TopicConfig()
    assert effective_priority(config, None, 1000) == 0
    assert effective_priority(config, 1000, 1000) == RECENT
    assert effective_priority(config, 1000, 1000 + HALF_LIFE_MS) == RECENT // 2
    assert effective_priority(config, 1000, 0) == RECENT, "a clock that jumped back is no reason to overflow"
    assert effective_priority(TopicConfig(auto_priority=False), 1000, 1000) == 0
