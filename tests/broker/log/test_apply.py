"""Applying a fact twice, or one about a topic that is gone, has no further effect.

`tests/simulation/test_live_and_recovered_state.py` compares the live and the replayed state for every kind of fact.
"""

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.log.apply import apply
from topics.model.config import TopicConfig
from topics.model.facts import (
    AliasSet,
    Appended,
    DeletedBelow,
    Evicted,
    Fact,
    GroupMoved,
    Lost,
    TopicConfigured,
    TopicDeleted,
)
from topics.model.records.page import make_page


def facts(topic_id: int) -> list[Fact]:
    return [
        Appended(topic_id, 0, make_page(1, 3, 5, b"1\x002\x003"), "key"),
        DeletedBelow(topic_id, 0, 2),
        Evicted(topic_id, 0, 3, 1),
        Lost(topic_id, 0, 4, 5, 4),
        GroupMoved(topic_id, 0, "group", 1, 3, 7),
        AliasSet(topic_id, "alias"),
        TopicConfigured(topic_id, TopicConfig(cap_records=9)),
    ]


def described(under_test: BrokerUnderTest) -> tuple[object, ...]:
    topic = under_test.broker.topic("t")
    partition = topic.partitions[0]
    return (
        partition.count, partition.bytes, partition.head_seq, partition.evict_floor, partition.delete_below,
        [(hole.first, hole.last) for hole in partition.holes], dict(topic.groups["group"].positions), topic.alias,
        topic.config, topic.dedupe.all(),
    )  # fmt: skip


def test_every_fact_may_be_applied_twice() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t")
    state = under_test.broker.state
    all_facts = facts(under_test.broker.topic("t").id)
    for fact in all_facts:
        apply(state, fact)
    once = described(under_test)
    for fact in all_facts:
        apply(state, fact)
    assert described(under_test) == once


def test_a_fact_about_a_topic_that_does_not_exist_has_no_effect() -> None:
    under_test = BrokerUnderTest()
    state = under_test.broker.state
    for fact in [*facts(99), TopicDeleted(99)]:
        apply(state, fact)
    assert state.by_id == {}
