"""Registered tables survive a restart."""

import pytest
from msgspec import structs

from tests.broker.broker_under_test import BrokerUnderTest
from topics.broker.tables.tables import drop_table, known_table, put_table, set_materialized
from topics.model.errors import Conflict, NotFound
from topics.model.tables.table import Materialized, Table

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


def test_two_tables_are_not_materialised_to_one_location_at_the_same_time() -> None:
    under_test = BrokerUnderTest()
    broker = under_test.broker
    under_test.ask(put_table, broker, ORDERS)
    under_test.ask(put_table, broker, structs.replace(ORDERS, name="refunds"))
    outcomes: list[object] = []
    set_materialized(broker, "orders", Materialized("/lake/t"), outcomes.append)
    with pytest.raises(Conflict, match="materialised"):
        set_materialized(broker, "refunds", Materialized("/lake/t"), outcomes.append)
    under_test.runtime.run()
    assert outcomes == [None]
    assert broker.tables_in_flight == {}
