"""An append and the creation of its topic are one commit."""

import errno

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.model.errors import Unavailable


def test_a_failed_append_does_not_create_its_topic() -> None:
    under_test = BrokerUnderTest()
    under_test.disk.fault = lambda _step, op, path: errno.EIO if op == "write_at" and path.endswith(".wal") else None
    with pytest.raises(Unavailable):
        under_test.append("t", 1)
    under_test.disk.fault = None
    assert under_test.broker.state.topics == {}
    under_test.append("t", 2)
    assert under_test.datas("t") == [2]


def test_a_created_topic_and_its_first_records_survive_a_power_cut_together() -> None:
    under_test = BrokerUnderTest()
    under_test.append("t", 1, 2)
    assert under_test.after_power_cut().datas("t") == [1, 2]
