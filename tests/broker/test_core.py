"""What every operation uses: names, watchers, and requests that wait for a name."""

from functools import partial

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.core import MAX_WAKES_PER_TURN
from topics.model.errors import InvalidRequest, NotFound, Throttled
from topics.model.limits import Limits


def test_a_topic_is_found_by_its_name_and_by_its_alias() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t")
    under_test.ask(under_test.broker.set_alias, "t", "other")
    core = under_test.broker
    assert core.name_of("other") == core.name_of("t") == "t"
    with pytest.raises(NotFound):
        core.topic("other")


def test_a_partition_that_does_not_exist_is_refused() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", partitions=2)
    topic = under_test.broker.topic("t")
    assert under_test.broker.partition(topic, 1) is topic.partitions[1]
    with pytest.raises((InvalidRequest, NotFound)):
        under_test.broker.partition(topic, 2)


def test_no_more_topics_than_the_limit_are_created() -> None:
    under_test = BrokerUnderTest(limits=Limits(max_topics=1))
    under_test.configure("t")
    with pytest.raises(Throttled, match="1"):
        under_test.configure("another")


def test_a_watcher_is_called_once_per_turn_until_it_is_removed() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    topic, calls = under_test.broker.topic("t"), []
    watcher = lambda: calls.append(topic.count)  # noqa: E731
    under_test.broker.watch(topic, watcher)
    under_test.append("t", 1, 2, 3)
    assert calls == [4]
    under_test.broker.unwatch(topic, watcher)
    under_test.append("t", 4)
    assert calls == [4]


def test_other_work_runs_between_the_calls_of_many_watchers() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    core, topic = under_test.broker, under_test.broker.topic("t")
    calls: list[str] = []

    def first() -> None:
        calls.append("watcher")
        under_test.runtime.call_soon(lambda: calls.append("other"))

    core.watch(topic, first)
    for _ in range(3 * MAX_WAKES_PER_TURN):
        core.watch(topic, partial(calls.append, "watcher"))
    under_test.append("t", 1)
    assert calls.count("watcher") == 3 * MAX_WAKES_PER_TURN + 1
    assert calls.index("other") == MAX_WAKES_PER_TURN


def test_change_while_many_watchers_are_called_calls_all_of_them_again() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 0)
    core, topic = under_test.broker, under_test.broker.topic("t")
    calls = [0] * (2 * MAX_WAKES_PER_TURN)

    def call(number: int) -> None:
        calls[number] += 1
        if sum(calls) == MAX_WAKES_PER_TURN + 1:
            core.wake(topic)

    for number in range(len(calls)):
        core.watch(topic, partial(call, number))
    under_test.append("t", 1)
    under_test.runtime.run()
    assert calls == [2] * len(calls)
