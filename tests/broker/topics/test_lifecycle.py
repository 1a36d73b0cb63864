"""Topics are created, configured, renamed and deleted durably."""

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.errors import Conflict


def test_a_configuration_survives_a_power_cut() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("t", cap_records=5)
    under_test.configure("t", ttl_ms=1000)
    config = under_test.after_power_cut().broker.topic("t").config
    assert (config.cap_records, config.ttl_ms) == (5, 1000)


def test_a_topic_with_records_is_deleted_only_when_that_is_asked_for() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 1)
    with pytest.raises(Conflict, match="holds 1 records"):
        under_test.ask(under_test.broker.delete_topic, "t", if_empty=True)
    under_test.ask(under_test.broker.delete_topic, "t", if_empty=False)
    assert under_test.after_power_cut().broker.state.topics == {}


def test_an_alias_belongs_to_one_topic() -> None:
    under_test = BrokerUnderTest()
    under_test.configure("a")
    under_test.configure("b")
    under_test.ask(under_test.broker.set_alias, "a", "x")
    with pytest.raises(Conflict):
        under_test.ask(under_test.broker.set_alias, "b", "x")
    with pytest.raises(Conflict):
        under_test.ask(under_test.broker.set_alias, "b", "a")
