"""The broker: what is acknowledged is there after a restart, and a stopped broker takes no more writes."""

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.errors import NotFound


def test_an_append_creates_the_topic_and_is_there_after_a_kill() -> None:
    under_test = BrokerUnderTest()
    outcome = under_test.append("t", 1, 2)
    assert (outcome.first_seq, outcome.count) == (1, 2)
    assert under_test.after_kill().datas("t") == [1, 2]


def test_a_stop_makes_everything_durable() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", durability="memory")
    under_test.append("t", 1)
    stopped: list[bool] = []
    under_test.broker.stop(stopped.append)
    under_test.runtime.run()
    assert stopped == [True]
    again = under_test.after_power_cut()
    assert again.datas("t") == [1]
    assert again.recovered.ending == "clean"


def test_an_unknown_topic_is_reported_by_name() -> None:
    with pytest.raises(NotFound, match="missing"):
        BrokerUnderTest().broker.topic("missing")
