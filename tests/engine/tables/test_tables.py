"""Registered tables, also from a snapshot."""

from topics.engine.tables.tables import Tables
from topics.model.facts import TableDropped, TableSet
from topics.model.tables.table import Table


def test_tables_are_registered_replaced_and_dropped() -> None:
    tables = Tables()
    tables.put(TableSet(Table("orders", "push", None, ("id",), {}, 1)))
    tables.put(TableSet(Table("orders", "push", None, ("id", "line"), {}, 2)))
    tables.put(TableSet(Table("users", "push", None, ("id",), {}, 1)))
    tables.drop(TableDropped("users"))
    tables.drop(TableDropped("users"))
    restored = Tables()
    restored.restore(tables.capture())
    assert restored.by_name == tables.by_name
    assert [table.key_columns for table in restored.by_name.values()] == [("id", "line")]
