"""Registered tables survive a restart."""

import pytest

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.tables.tables import drop_table, known_table, put_table
from topics.model.errors import NotFound
from topics.model.tables.table import Table

ORDERS = Table("orders", "push", None, ("id",), {}, 1)


def test_a_registered_table_is_known_after_a_power_cut() -> None:
    under_test = BrokerUnderTest()
    under_test.ask(put_table, under_test.broker, ORDERS)
    assert known_table(under_test.after_power_cut().broker, "orders") == ORDERS


def test_a_dropped_table_is_unknown() -> None:
    under_test = BrokerUnderTest()
    under_test.ask(put_table, under_test.broker, ORDERS)
    under_test.ask(drop_table, under_test.broker, "orders")
    with pytest.raises(NotFound, match="orders"):
        known_table(under_test.broker, "orders")
