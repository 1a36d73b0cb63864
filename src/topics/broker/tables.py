"""The tables a server knows: kept like its topics, synced before a change of them is answered.

A table need not be known to be sent changes of; being known gives its changes their key columns, and its routes a schema to
be checked against.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from topics.broker.single import keep_fact
from topics.model.errors import NotFound, Throttled, TopicsError
from topics.model.facts import TableDropped, TableSet
from topics.model.table import Table

if TYPE_CHECKING:
    from topics.broker.broker import Broker

TABLES_MOST = 10_000


class TableBook:
    """All tables, by name."""

    def __init__(self) -> None:
        self.by_name: dict[str, Table] = {}

    def put(self, fact: TableSet) -> None:
        self.by_name[fact.table.name] = fact.table

    def drop(self, fact: TableDropped) -> None:
        self.by_name.pop(fact.name, None)

    def capture(self) -> bytes:
        return msgspec.msgpack.encode(list(self.by_name.values()))

    def restore(self, body: bytes) -> None:
        for table in _decode_tables(body):
            self.by_name[table.name] = table


_decode_tables = msgspec.msgpack.Decoder(list[Table]).decode


def put_table(broker: "Broker", table: Table, reply: Callable[[TopicsError | None], None]) -> None:
    """Make the table known, in place of what was known by its name."""
    tables = broker.state.tables.by_name
    if table.name not in tables and len(tables) >= TABLES_MOST:
        raise Throttled(
            f"the server knows {TABLES_MOST} tables already", detail={"limit": "max_tables", "max": TABLES_MOST}
        )
    _keep(broker, TableSet(table, broker.state.versions.tables.next()), reply)


def drop_table(broker: "Broker", name: str, reply: Callable[[TopicsError | None], None]) -> None:
    """Forget the table. Its change topic stays."""
    known_table(broker, name)
    _keep(broker, TableDropped(name, broker.state.versions.tables.next()), reply)


def known_table(broker: "Broker", name: str) -> Table:
    table = broker.state.tables.by_name.get(name)
    if table is None:
        raise NotFound(f'table "{name}" is not known', code="not_found", detail={"table": name})
    return table


def _keep(broker: "Broker", fact: TableSet | TableDropped, reply: Callable[[TopicsError | None], None]) -> None:
    # One shard for all of them, so that their order in the log is the order they were decided in.
    keep_fact(broker, broker.committer.lanes[0], fact, reply)
